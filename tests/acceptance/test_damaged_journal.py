"""A node whose journal is damaged, or gone: what clients, probes and the operator get, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path

from bridge.client.exit_codes import Exit
from tests.harness.api import titles
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to

BRIDGE = "orders-to-hub"
BODIES = [f"message-{place:02}-" + "." * 20_000 for place in range(20)]
FILES = ("journal.sqlite", "journal.sqlite-wal")


def killed_with_messages(edge: Node) -> None:
    """Messages that the hub does not get, and a kill."""
    edge.start()
    assert edge.api.make_queue("orders", "reader") == 201
    for place, body in enumerate(BODIES):
        assert edge.api.send("orders", body.encode(), Duplicate_Id=f"id-{place}").status == 200
    eventually(lambda: edge.lag("orders") == len(BODIES), "they wait")
    edge.stop()


def change_a_byte(directory: Path, body: str) -> None:
    """Change a byte in the middle of a stored body."""
    path = directory / "journal.sqlite"
    at = path.read_bytes().index(body[:15].encode()) + 20
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"!")


def test_a_changed_byte_stops_reader_and_bridge_at_its_place_and_is_skipped_by_a_command(
    make_node: MakeNode,
) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    killed_with_messages(edge)
    change_a_byte(edge.data, BODIES[7])
    hub.start()
    edge.start_listening()
    reason = edge.await_failed(BRIDGE)
    assert "JOURNAL_DAMAGED" in reason
    assert "orders: positions 7 to 7 cannot be read" in reason
    eventually(lambda: len(hub.api.browse("orders")) == 7, "what lies before it arrives")
    _, read = edge.api.lease("orders", "reader", "max=100")
    assert titles(read) == BODIES[:7]
    for path in (
        "/v1/addresses/orders/messages?after=6",
        "/v1/addresses/orders/queues/reader/messages?max=9",
    ):
        problem = edge.api.get(path, Accept="application/json").is_problem(503, "JOURNAL_DAMAGED")
        assert "positions 7 to 7 cannot be read" in problem["detail"]
        assert str(edge.data) not in problem["detail"]
    assert titles(edge.api.browse("orders", "after=7&max=100")) == BODIES[8:], "the rest can be read"
    assert edge.api.send("orders", b"new", Duplicate_Id="id-19").json["verdict"] == "duplicate"
    ready = edge.ops.get("/ready")
    assert ready.status == 503
    assert any("the journal is damaged: orders: positions 7 to 7" in one for one in ready.json["reasons"])
    assert "positions 7 to 7" in edge.event("journal-damaged")["place"]
    edge.stop()
    settings = ("--settings", str(edge.file))
    only_said = command("journal", "skip-damaged", "--dry-run", *settings)
    assert only_said.code == 0
    assert only_said.out.splitlines()[0] == "orders: 1 messages are lost, at positions 7 to 7"
    assert not (edge.data / "journal.sqlite.damaged").exists()
    done = command("journal", "skip-damaged", *settings)
    assert (done.code, done.out) == (0, only_said.out + "done\n")
    assert (edge.data / "journal.sqlite.damaged").exists()
    edge.start()
    left = [body for place, body in enumerate(BODIES) if place != 7]
    eventually(lambda: edge.lag("orders") == 0, "the bridge goes on")
    assert titles(hub.api.browse("orders")) == left
    gap = edge.event("source-gap")
    assert (gap["first"], gap["end"]) == (7, 8)
    _, read = edge.api.lease("orders", "reader", "max=100")
    assert titles(read) == left
    eventually(
        lambda: sum(last - first + 1 for first, last in sent_runs(edge)) == len(BODIES),
        "the sender's lines have the lost message, and the receiver's have not",
    )


def sent_runs(edge: Node) -> list[list[int]]:
    """Positions in the edge's sent lines."""
    return [run for line in edge.delivery_lines() if line["side"] == "sent" for run in line["runs"]]


def test_a_node_whose_journal_is_gone_does_not_start_empty(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    killed_with_messages(edge)
    for name in FILES:
        (edge.data / name).unlink(missing_ok=True)
    for _ in range(2):
        ended = edge.run_to_its_end()
        assert ended.code == Exit.DAMAGED
        assert "JOURNAL_DAMAGED" in ended.err
        assert "is missing" in ended.err
        assert "core-bridge journal accept-loss" in ended.err
        assert "Traceback" not in ended.err
    settings = ("--settings", str(edge.file))
    said = command("journal", "accept-loss", "--dry-run", "--format", "json", *settings)
    assert "held positions up to 20" in json.loads(said.out)["plan"][0]
    assert edge.run_to_its_end().code == Exit.DAMAGED
    assert command("journal", "accept-loss", *settings).code == 0
    hub.start()
    edge.start()
    assert edge.api.send("orders", b"new", Duplicate_Id="id-1").json["verdict"] == "stored"
    edge.stop()
    nothing = command("journal", "accept-loss", *settings)
    assert (nothing.code, "lacks nothing" in nothing.err) == (1, True)
