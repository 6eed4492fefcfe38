"""Bridges on metered and shared lines: hours in which they send, and a rate that they keep."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

from tests.acceptance.test_operations import BRIDGE, hub_and_edge, operate
from tests.acceptance.test_reload import outcome
from tests.harness.alerts import alerts, firing, scraped
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, bridge_to, start_together


def in_three_days() -> str:
    """A window that is not now, whatever the time is."""
    day = datetime.now(UTC) + timedelta(days=3)
    return f'"{day:%a} 10:00-11:00 UTC"'


def test_outside_its_hours_a_bridge_waits_without_trouble_and_a_reload_lets_it_send(
    make_node: MakeNode,
) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, schedule=in_three_days()))
    start_together(hub, edge)
    edge.await_state(BRIDGE, "SCHEDULED")
    assert edge.api.commit(*({"address": "orders", "body": body} for body in "abc")).status == 200
    before = scraped(edge)
    status = edge.status(BRIDGE)
    assert re.fullmatch(r"waits for 10:00 on \w{3} \d{4}-\d\d-\d\d, UTC \(schedule\)", status["reason"]), (
        status
    )
    assert (status["lag"], status["sent"]) == (3, 0)
    assert edge.ops.get("/ready").status == 200
    eventually(lambda: edge.status(BRIDGE)["oldest-waiting-seconds"] > 0.5, "the lag ages")
    found = [name for name, alert in alerts().items() if firing(alert, before, scraped(edge), later_s=301)]
    assert set(found) <= {"DiskFillsUp"}, "no alert fires because of its hours"
    assert hub.ops.get("/v1/status").json["links"] == []
    assert operate(edge, "pause") == (200, "PAUSED")
    assert operate(edge, "resume") == (200, "SCHEDULED")
    edge.rest = bridge_to(hub, schedule='["00:00-12:00 Asia/Tokyo", "12:00-24:00 Asia/Tokyo"]')
    edge.write()
    assert outcome(edge) == {"restarted": [BRIDGE]}
    eventually(lambda: edge.lag("orders") == 0, "all that waited has gone")
    edge.await_state(BRIDGE, "RUNNING")
    edge.rest = bridge_to(hub, schedule=in_three_days())
    edge.write()
    assert outcome(edge) == {"restarted": [BRIDGE]}
    edge.await_state(BRIDGE, "SCHEDULED")
    eventually(lambda: hub.ops.get("/v1/status").json["links"] == [], "the link is closed")
    edge.event("bridge-outside-hours", bridge=BRIDGE)


def test_a_bridge_sends_no_more_than_its_rate_and_a_reload_takes_the_limit_away(make_node: MakeNode) -> None:
    """Of 30 KB at 4 KiB a second."""
    hub, edge = hub_and_edge(make_node, max_rate='"4KiB"')
    began = time.monotonic()
    body = "x" * 1000
    for _ in range(30):
        assert edge.api.commit({"address": "orders", "body": body}).status == 200
    eventually(lambda: "max-rate: 4,096 bytes/s" in str(edge.status(BRIDGE)["reason"]), "status names it")
    seen = edge.status(BRIDGE)["acknowledged"]
    most = 4096 * (time.monotonic() - began + 1) + 4096
    assert seen * 1000 <= most
    edge.rest = bridge_to(hub)
    edge.write()
    assert outcome(edge) == {"restarted": [BRIDGE]}
    eventually(lambda: edge.lag("orders") == 0, "all have gone")
    assert edge.status(BRIDGE)["reason"] is None
