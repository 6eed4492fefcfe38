"""The contract's "Logs": every stable event with exactly its keys, as processes write them."""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import RETRY_INTERVAL_MS, MakeNode, Node, bridge_to, start_together

BRIDGE = "orders-to-hub"
ALWAYS = ["timestamp", "level", "event", "node"]
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def keys_of(event: dict[str, Any]) -> list[str]:
    """The event's own keys, after a look at those that every line has, in their order."""
    first = [*ALWAYS, "bridge"] if "bridge" in event else ALWAYS
    assert list(event)[: len(first)] == first
    assert TIMESTAMP.fullmatch(event["timestamp"])
    assert event["level"] in {"debug", "info", "warning", "error"}
    return list(event)[len(first) :]


def test_listening_says_where(make_node: MakeNode) -> None:
    node = make_node().start()
    event = node.event("listening")
    assert keys_of(event) == ["acceptor", "operations", "sqlite"]
    assert (event["level"], event["node"]) == ("info", "node")
    assert event["acceptor"] == f"ws://127.0.0.1:{node.port}"
    assert event["operations"] == f"http://127.0.0.1:{node.operations_port}"
    assert node.stop() == 0
    stopped = node.event("stopped")
    assert (keys_of(stopped), stopped["queued"]) == (["queued"], 0)
    assert [one["event"] for one in node.events()] == ["listening", "stopped"]


def test_port_0_takes_a_free_one_and_the_log_names_it(make_node: MakeNode) -> None:
    node = make_node()
    node.port = node.operations_port = 0
    node.spawn()
    event = node.event("listening")
    node.port, node.operations_port = (
        int(event[key].rpartition(":")[2]) for key in ("acceptor", "operations")
    )
    assert node.api.send("orders", b"x").status == 200
    assert node.ops.get("/ready").status == 200


def test_a_reader_of_the_log_that_stands_still_holds_nothing(make_node: MakeNode) -> None:
    node = make_node()
    os.mkfifo(node.log)
    reader = os.open(node.log, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    try:
        node.spawn()
        eventually(lambda: node.ops.get("/ready").status == 200, "the node is ready")
        for number in range(100):  # a line each: more than the pipe takes
            assert node.api.make_queue("a", f"q{number}") == 201
        assert node.api.send("a", b"x").status == 200
        assert node.ops.get("/ping").status == 200
        assert node.stop() == 0
        assert len(os.read(reader, 1 << 16)) <= 4096
    finally:
        os.close(reader)
        node.log.unlink()


@pytest.mark.parametrize(
    ("keys", "guarantee", "checks"),
    [
        ({}, "exactly-once", True),
        ({"use_duplicate_detection": "false"}, "at-least-once", False),
        ({"check_producer_ids": '"auto"'}, "exactly-once", False),
    ],
)
def test_bridge_started_says_what_the_bridge_is(
    make_node: MakeNode, keys: dict[str, str], guarantee: str, checks: bool
) -> None:
    hub = make_node("hub")
    cache = "[duplicate-detection]\nid-cache-size = 777\n"
    edge = make_node("edge", rest=cache + bridge_to(hub, **keys)).start()
    event = edge.event("bridge-started")
    assert keys_of(event) == ["source", "target", "guarantee", "check-producer-ids", "id-cache-size"]
    assert (event["node"], event["bridge"]) == ("edge", BRIDGE)
    assert (event["source"], event["target"]) == ("journal:orders", "hub")
    assert (event["guarantee"], event["check-producer-ids"], event["id-cache-size"]) == (
        guarantee,
        checks,
        777,
    )


def test_a_bridge_says_that_it_lost_and_found_its_target(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub)).start()
    lost = edge.event("bridge-disconnected")
    assert keys_of(lost) == ["reason", "retry-in-ms"]
    assert (lost["level"], lost["bridge"]) == ("warning", BRIDGE)
    assert RETRY_INTERVAL_MS / 2 <= lost["retry-in-ms"] <= RETRY_INTERVAL_MS, "half to all of the interval"
    assert hub.url in lost["reason"]
    hub.start()
    found = edge.event("bridge-connected")
    assert (found["level"], found["bridge"]) == ("info", BRIDGE)
    assert len(edge.events("bridge-disconnected")) == 1, "what lasts is said once"


def test_a_bridge_that_fails_says_why(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub, initial_connect_attempts="1")).start_without_waiting()
    failed = edge.event("bridge-failed")
    assert keys_of(failed) == ["reason"]
    assert (failed["level"], failed["bridge"]) == ("error", BRIDGE)
    assert "after 2 attempts" in failed["reason"], "N means N + 1 tries"


def test_rejected_duplicates_are_counted_at_most_once_a_second(make_node: MakeNode) -> None:
    """D56: by a node, and none goes uncounted."""
    node = make_node().start()
    for _ in range(51):
        node.api.send("orders", b"x", Duplicate_Id="a")

    def told() -> int:
        return sum(int(event["count"]) for event in node.events("duplicate-rejected"))

    eventually(lambda: told() == 50, "all are counted")
    events = node.events("duplicate-rejected")
    assert keys_of(events[0]) == ["count"]
    assert len(events) <= 4
    for _ in range(2):
        node.api.send("orders", b"x", Duplicate_Id="a")
    assert node.stop() == 0
    assert told() == 52, "a stop loses none"


def test_a_dead_letter_is_logged(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor='max-message-size = "1KiB"')
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    position = edge.api.send("orders", b"x" * 2000).json["positions"][0]
    event = edge.event("dead-letter")
    assert (event["level"], event["bridge"], event["position"]) == ("warning", BRIDGE, position)
    assert "1024" in event["reason"]


def test_queues_of_a_bridge_that_is_gone_are_named_at_every_start(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub)).start()
    for _ in range(3):
        edge.api.send("orders", b"x")
    assert edge.stop() == 0
    edge.rest = ""
    for starts in (1, 2):
        edge.start()
        edge.stop()
        found = edge.events("orphan-queue", bridge=BRIDGE)
        assert len(found) == starts
        assert (found[-1]["level"], found[-1]["address"], found[-1]["queued"]) == ("warning", "orders", 3)
    edge.rest = bridge_to(hub)
    hub.start()
    edge.start()
    eventually(lambda: len(hub.api.browse("orders")) == 3, "nothing of it was lost")


def test_a_queue_that_its_bridge_leaves_out_now_is_named_and_can_be_forgotten(make_node: MakeNode) -> None:
    """It kept its messages for ever, filled its address, and nothing said so."""
    hub = make_node("hub")
    small = '[address-settings."#"]\nmax-size-bytes = "1KiB"\naddress-full-policy = "FAIL"\n'
    edge = make_node("edge", rest=small + bridge_to(hub)).start()
    assert [edge.api.send("orders", b"x" * 900).status for _ in range(2)] == [200, 200]
    edge.api.send("orders", b"x" * 900).is_problem(503, "ADDRESS_FULL")
    assert edge.stop() == 0
    edge.rest = small + bridge_to(hub, queue_name='"others"')
    edge.start()
    (event,) = edge.events("orphan-queue")
    assert (event["bridge"], event["address"], event["queued"]) == (BRIDGE, "orders", 2)
    assert event["reason"] == "its queue-name leaves it out"
    assert edge.stop() == 0
    ended = command("forget", "--bridge", BRIDGE, "--address", "orders", "--settings", str(edge.file))
    assert ended.code == 0, ended.err
    edge.start()
    assert len(edge.events("orphan-queue")) == 1
    assert edge.api.get("/v1/addresses/orders").json["bridges"] == []
    edge.ops.call("DELETE", "/v1/addresses/orders")
    assert edge.api.send("orders", b"x").status == 200
    hub.start()
    edge.api.send("others", b"y")
    eventually(lambda: hub.api.bodies("others") == ["y"], "the bridge goes on with what it reads")


def test_stopped_says_what_is_still_queued(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub)).start()
    for _ in range(4):
        edge.api.send("orders", b"x")
    assert edge.stop() == 0
    assert edge.event("stopped")["queued"] == 4


def test_the_level_decides_what_is_written(make_node: MakeNode) -> None:
    node = make_node(node='log-level = "warning"').start()
    assert node.stop() == 0
    assert node.log.read_bytes() == b""


def test_console_logs_are_for_people(make_node: MakeNode) -> None:
    node = make_node(node='log-format = "console"').start()
    assert node.stop() == 0
    text = node.log.read_text()
    assert "listening" in text
    assert f"ws://127.0.0.1:{node.port}" in text
    assert "{" not in text


def test_a_token_is_never_written(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor='tokens = ["s3cret-hub"]', token="s3cret-hub").start()
    edge = make_node(
        "edge", rest=bridge_to(hub, connector__token='"s3cret-wrong"'), node='log-level = "debug"'
    )
    edge.start_without_waiting()
    eventually(lambda: edge.events("bridge-failed") or edge.events("bridge-disconnected"), "it is refused")
    edge.stop()
    for node in (hub, edge):
        assert "s3cret" not in node.log.read_text()


def test_a_journal_in_use_is_no_secret(make_node: MakeNode) -> None:
    """A second process on the same data directory says so and ends with 1; the first goes on."""
    node = make_node().start()
    second = Node("second", node.directory)
    second.write()
    second.file.write_text(second.file.read_text().replace("second-data", "node-data"))
    ended = second.run_to_its_end()
    assert ended.code == 1
    assert str(node.data) in ended.err
    assert node.api.send("orders", b"x").status == 200
    with closing(sqlite3.connect(f"file:{node.data}/journal.sqlite?mode=ro", uri=True)) as journal:
        assert journal.execute("PRAGMA quick_check").fetchone() == ("ok",)
