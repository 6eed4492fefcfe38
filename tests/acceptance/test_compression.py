"""Links with and without compression, as operators set it and see it."""

from __future__ import annotations

import json
from typing import Any

from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.lines import Line
from tests.harness.node import MakeNode, Node, bridge_to, start_together

BRIDGE = "orders-to-hub"
#: Rows as an application sends them: each is a frame that is worth compressing.
ROWS = [json.dumps([{"row": row, "station": "north", "state": "open"}] * 40).encode() for row in range(20)]
SENT = ("core_bridge_link_frame_bytes_total", "core_bridge_link_wire_bytes_total")
RECEIVED = ("core_bridge_links_received_frame_bytes_total", "core_bridge_links_received_wire_bytes_total")


def relayed(edge: Node, hub: Node) -> dict[str, Any]:
    """The bridge's status, once all rows are at the hub as they were sent."""
    for row in ROWS:
        assert edge.api.send("orders", row).status == 200
    eventually(lambda: edge.lag("orders") == 0, "all is settled")
    assert hub.api.bodies("orders") == [row.decode() for row in ROWS]
    (status,) = edge.ops.get("/v1/status").json["bridges"]
    return dict(status)


def test_a_node_may_have_compression_off_at_either_end(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor='compression = "off"')
    edge = make_node("edge", rest=bridge_to(hub, connector__compression='"zstd"'))
    start_together(hub, edge)
    status = relayed(edge, hub)
    assert status["frame-bytes"] == status["wire-bytes"] > sum(map(len, ROWS))
    willing = make_node("willing").start()
    other = make_node("other", rest=bridge_to(willing, connector__compression='"off"')).start()
    status = relayed(other, willing)
    assert status["frame-bytes"] == status["wire-bytes"] > sum(map(len, ROWS))


def test_a_compressed_link_is_seen_at_both_ends_with_what_it_saves(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    status = relayed(edge, hub)
    before, after = status["frame-bytes"], status["wire-bytes"]
    assert before > sum(map(len, ROWS)) > 5 * after
    (link,) = hub.ops.get("/v1/status").json["links"]
    assert (link["frame-bytes"], link["wire-bytes"]) == (before, after)
    sent, received = edge.metrics(), hub.metrics()
    assert [sent[f'{name}{{bridge="{BRIDGE}"}}'] for name in SENT] == [before, after]
    assert [received[name] for name in RECEIVED] == [before, after]
    shown = f"frame-bytes {before} wire-bytes {after} ratio {before / after:.1f}"
    for node in (edge, hub):
        assert shown in command("status", "--settings", str(node.file)).out
    edge.stop()
    eventually(lambda: hub.metrics()["core_bridge_links"] == 0, "the link has ended")
    assert [hub.metrics()[name] for name in RECEIVED] == [before, after], "a counter never goes back"


def test_a_slow_line_carries_a_fraction_of_the_bytes(make_node: MakeNode) -> None:
    """64 kbit/s, with the settings that a bridge has by default."""
    hub = make_node("hub").start()
    edge = make_node("edge").start()
    rows = [json.dumps({"id": f"{row}", "station": "north", "delay": row % 7}) for row in range(1_000)]
    edge.api.commit(*({"address": "orders", "body": row} for row in rows))
    edge.stop()
    with Line(hub.port, rate=8_000) as line:
        edge.rest = bridge_to(hub, connector__url=f'"ws://127.0.0.1:{line.port}"')
        edge.start()
        eventually(lambda: edge.lag("orders") == 0, "all is settled")
        assert hub.api.bodies("orders") == rows
        assert line.up.taken < sum(map(len, rows)) / 4
