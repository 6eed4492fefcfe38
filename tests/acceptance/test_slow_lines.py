"""Nodes behind a slow line: what is on its way fits it, and addresses share it."""

from __future__ import annotations

from tests.harness.eventually import eventually
from tests.harness.lines import Line
from tests.harness.node import MakeNode, bridge_to, start_together

BRIDGE = "orders-to-hub"
#: Bytes a second of the line.
RATE = 120_000
#: Messages of the backlog, which takes the line half a minute, and their bytes.
COUNT = 400
SIZE = 10_000


def test_alarm_overtakes_the_backlog_of_another_address(make_node: MakeNode) -> None:
    hub = make_node("hub")
    with Line(hub.port, rate=RATE, delay_ms=25) as line:
        url = f'"ws://127.0.0.1:{line.port}"'
        rest = bridge_to(hub, queue_name='["telemetry", "alarms"]', connector__url=url)
        edge = make_node("edge", rest=rest)
        start_together(hub, edge)
        for _ in range(10):
            edge.api.commit(*({"address": "telemetry", "body": "x" * SIZE} for _ in range(COUNT // 10)))
        eventually(lambda: hub.api.browse("telemetry"), "the backlog is on its way")
        eventually(lambda: edge.status(BRIDGE)["line"]["limit"] == "line", "the line is full")
        assert edge.status(BRIDGE)["line"]["in-flight-bytes"] <= 3 * RATE
        edge.api.send("alarms", b"fire")
        eventually(lambda: hub.api.bodies("alarms") == ["fire"], "it arrives")
        assert edge.lag("telemetry") > COUNT // 2
