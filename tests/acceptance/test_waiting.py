"""`core-bridge reconcile` where a hub is dead: what waits at the edge is not called accounted for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together
from tests.harness.reports import Report
from tests.reconcile.conftest import spark

__all__ = ["spark"]

WAITING = 1000


def logged(node: Node, side: str) -> bool:
    """Whether the node's log says on this side that the bridge has brought ten."""
    lines = [line for line in node.delivery_lines() if line["side"] == side and line["bridge"]]
    return any(line["upto"] >= 10 for line in lines)


@pytest.mark.usefixtures("spark")
def test_a_report_says_what_waits_for_a_dead_hub_and_what_no_log_can_tell(
    make_node: MakeNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    assert edge.api.commit(*({"address": "orders", "body": f"{n}"} for n in range(10))).status == 200
    eventually(lambda: logged(hub, "received") and logged(edge, "sent"), "ten are in both logs")
    hub.kill()
    for _ in range(10):
        messages = ({"address": "orders", "body": "x"} for _ in range(WAITING // 10))
        assert edge.api.commit(*messages).status == 200
    assert edge.api.send("invoices", b"no bridge reads it").status == 200
    stored = eventually(
        lambda: (
            [line for line in edge.delivery_lines() if line["address"] == "invoices"]
            and edge.delivery_lines()
        ),
        "all is logged",
    )
    first = min(line["committed"] for line in stored if line["bridge"] is None and line["from"] >= 10)
    logs = [hub.data / "delivery-log", edge.data / "delivery-log"]
    report = Report.of_this_process(tmp_path / "report", logs, capsys)

    assert report.ended.code == 0, "none is lost or doubled: the contract's exit code"
    lines = report.ended.out.splitlines()
    assert lines[0] == (
        "clean: Every message that was delivered is accounted for; 1,000 messages are still on the way"
    )
    told = "\n".join(lines)
    assert "1,000 messages are waiting at the source of bridge orders-to-hub, the first since 20" in told
    assert "its newest sent line is of 20" in told
    assert "of 1 message that clients sent to invoices at edge no log says that a bridge has sent any" in told
    assert "core-bridge status does" in told
    (bridge,) = report.summary["waiting"]
    sent = max(line["committed"] for line in stored if line["side"] == "sent")
    assert (bridge["bridge"], bridge["waiting"], bridge["since"]) == ("orders-to-hub", WAITING, first)
    assert abs(bridge["newest-sent"] - sent) < 1000, "as the sender's clock has it"
    (unread,) = report.summary["unread"]
    assert (unread["address"], unread["node"], unread["messages"]) == ("invoices", "edge", 1)
    page = (report.directory / "report.html").read_text()
    assert "1,000 messages are waiting at the source of bridge orders-to-hub" in page
    assert "Every message that was delivered is accounted for; 1,000 messages are still on the way." in page
