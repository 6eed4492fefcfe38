"""What only a person decides: dead letters sent again, another target, another name."""

from __future__ import annotations

import json
import shutil

from tests.harness.api import titles
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to

BRIDGE = "orders-to-hub"


def at_hub(hub: Node, number: int) -> list[object]:
    """The bodies, once there are so many."""
    eventually(lambda: len(hub.api.browse("orders")) >= number, f"{number} messages at {hub.name}")
    return titles(hub.api.browse("orders"))


def test_dead_letters_are_listed_and_sent_again_once(make_node: MakeNode) -> None:
    """D54: each is delivered once more, by its bridge alone, and is no dead letter any more."""
    hub = make_node("hub", acceptor='max-message-size = "1KiB"')
    edge = make_node("edge", rest=bridge_to(hub))
    hub.start()
    edge.start()
    large = "x" * 1025
    edge.api.send("orders", b"a")
    edge.api.send("orders", large.encode(), Duplicate_Id="big-1")
    edge.api.send("orders", b"b")
    assert at_hub(hub, 2) == ["a", "b"]
    operations = ("--operations", f"http://127.0.0.1:{edge.operations_port}")
    (letter,) = eventually(lambda: edge.ops.get("/v1/dead-letters").json["dead-letters"], "a dead letter")
    assert (letter["bridge"], letter["address"], letter["source-position"]) == (BRIDGE, "orders", 1)
    assert (letter["size"], letter["duplicate-id"]) == (1025, "big-1")
    listed = command("dead-letters", "list", "--format", "json", *operations)
    assert (listed.code, json.loads(listed.out)) == (0, letter)
    assert f"{letter['position']} {BRIDGE} orders " in command("dead-letters", "list", *operations).out
    hub.stop()
    hub.acceptor = 'max-message-size = "1MiB"'
    hub.start()
    edge.await_state(BRIDGE, "RUNNING")
    replayed = command("dead-letters", "replay", str(letter["position"]), *operations)
    assert (replayed.code, replayed.out) == (0, "replayed 1 skipped 0\n")
    assert at_hub(hub, 3) == ["a", "b", large]
    assert hub.api.browse("orders")[-1]["duplicate-id"] == "big-1"
    assert command("dead-letters", "list", *operations).out == ""
    again = command("dead-letters", "replay", str(letter["position"]), *operations)
    assert (again.code, again.out) == (1, "replayed 0 skipped 1\n")
    everything = edge.ops.call("POST", "/v1/dead-letters/replay", positions="all")
    assert everything.json == {"replayed": [], "skipped": []}
    assert titles(edge.api.browse("orders")) == [], "the source address did not get it back"


def test_a_bridge_goes_on_at_another_target_where_it_is_told_to(make_node: MakeNode) -> None:
    hub, other = make_node("hub"), make_node("other")
    edge = make_node("edge", rest=bridge_to(hub))
    hub.start()
    edge.start()
    edge.api.make_queue("orders", "keeps")
    edge.api.send("orders", b"a")
    edge.api.send("orders", b"b")
    assert at_hub(hub, 2) == ["a", "b"]
    eventually(lambda: edge.lag("orders") == 0, "all is confirmed")
    edge.stop()
    hub.stop()
    other.start()
    edge.rest = bridge_to(other)
    edge.start_without_waiting()
    reason = edge.event("bridge-failed")["reason"]
    assert f"core-bridge positions {BRIDGE} --from group" in reason
    edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/stop")
    command_line = ("positions", BRIDGE, "--from", "group", "--settings", str(edge.file))
    running = command(*command_line)
    assert (running.code, running.out) == (1, "")
    assert "in use by another process" in running.err
    edge.stop()
    decided = command(*command_line)
    assert decided.code == 0
    assert "goes on at 2" in decided.out
    edge.start()
    edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/start")  # the stop has outlived the restart
    edge.api.send("orders", b"c")
    assert at_hub(other, 1) == ["c"]
    assert edge.bridge_state(BRIDGE) == "RUNNING"


def test_a_renamed_bridge_goes_on_and_its_old_name_is_refused(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    hub.start()
    edge.start()
    edge.api.make_queue("orders", "keeps")
    edge.api.send("orders", b"a")
    assert at_hub(hub, 1) == ["a"]
    edge.stop()
    edge.rest = bridge_to(hub, name="renamed", previous_name=f'"{BRIDGE}"')
    edge.start()
    edge.api.send("orders", b"b")
    assert at_hub(hub, 2) == ["a", "b"]
    edge.stop()
    edge.rest = bridge_to(hub)
    edge.start_without_waiting()
    assert "adopted by the bridge renamed" in edge.event("bridge-failed")["reason"]
    assert titles(hub.api.browse("orders")) == ["a", "b"]


def test_a_restored_node_goes_on_as_another_and_sends_nothing_twice(make_node: MakeNode) -> None:
    """B13: with a new incarnation everything that came after the restore is delivered."""
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    hub.start()
    edge.start()
    for body in (b"a", b"b"):
        edge.api.send("orders", body)
    assert at_hub(hub, 2) == ["a", "b"]
    eventually(lambda: edge.lag("orders") == 0, "all is confirmed")
    edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/stop")
    edge.api.send("orders", b"in the backup, and delivered later")
    edge.stop()
    shutil.copytree(edge.data, edge.directory / "backup")
    edge.start()
    edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/start")  # the stop has outlived the restart
    edge.api.send("orders", b"only on the lost disk")
    assert len(at_hub(hub, 4)) == 4
    edge.kill()
    shutil.rmtree(edge.data)
    shutil.copytree(edge.directory / "backup", edge.data)
    edge.start()
    edge.ops.call("POST", f"/v1/bridges/{BRIDGE}/start")
    assert "DIVERGED" in edge.event("bridge-failed")["reason"]
    for number in range(3):
        edge.api.send("orders", b"new %d" % number)
    edge.stop()
    settings = ("--settings", str(edge.file))
    asked = command("journal", "new-incarnation", *settings)
    assert (asked.code, asked.out) == (1, "")
    assert "--restored-at" in asked.err
    assert "opened at 0, 3, 6" in asked.err
    done = command("journal", "new-incarnation", "--restored-at", "3", *settings)
    assert done.code == 0, done.err
    assert f"{BRIDGE}: orders goes on at 3" in done.out
    edge.start()
    arrived = at_hub(hub, 7)
    assert arrived == ["a", "b", "in the backup, and delivered later", "only on the lost disk"] + [
        f"new {number}" for number in range(3)
    ]
    edge.stop()
    edge.start()
    edge.await_state(BRIDGE, "RUNNING")
    edge.api.send("orders", b"last")
    assert at_hub(hub, 8)[-1] == "last"
