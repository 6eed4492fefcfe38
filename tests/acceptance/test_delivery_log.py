"""The contract's "Delivery log": files, and lines on both sides that agree with what is there."""

from __future__ import annotations

import os
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together

KEYS = [
    "v", "side", "node", "node-id", "bridge", "lane", "stream", "address", "target", "store", "from", "upto",
    "runs", "refused", "count", "ids", "events", "committed", "duplicates", "recovered",
]  # fmt: skip
OPTIONAL = ("verdict", "clock-offset", "known", "unchecked", "session", "number", "after")
FILE_NAME = re.compile(r"(edge|hub|node)-\d{8}T\d{6}-\d{6}\.jsonl")


def of(lines: list[dict[str, Any]], **keys: object) -> list[dict[str, Any]]:
    return [line for line in lines if all(line.get(key) == value for key, value in keys.items())]


def check(line: dict[str, Any]) -> None:
    """The form of one line, and that its numbers agree with each other."""
    assert [key for key in line if key not in OPTIONAL] == KEYS
    assert {"session", "number"} <= line.keys()
    assert "clock-offset" not in line or (line["side"] == "sent" and isinstance(line["clock-offset"], int))
    assert (line["v"], line["lane"], line["recovered"]) == (1, 0, False)
    assert line["count"] == sum(last - first + 1 for first, last in line["runs"])
    assert all(line["from"] <= first <= last < line["upto"] for first, last in line["runs"])
    assert line["events"][0] <= line["events"][1] <= line["committed"]


def relayed(make_node: MakeNode, **edge: Any) -> tuple[Node, Node]:
    hub = make_node("hub").start()
    return hub, make_node("edge", rest=bridge_to(hub, forwarding_address='"eu.{address}"'), **edge).start()


def test_both_sides_of_a_bridge_and_the_clients_are_written(make_node: MakeNode) -> None:
    hub, edge = relayed(make_node)
    for number in range(5):
        edge.api.send("orders", b"x", Duplicate_Id=f"id-{number}")
        edge.api.send("orders", b"x")
    edge.api.call("POST", "/v1/addresses/orders/messages", b"x", {"Duplicate-Id": "\xff"})
    eventually(lambda: edge.lag("orders") == 0, "all is settled")
    assert edge.stop() == 0
    assert hub.stop() == 0
    at_edge, at_hub = edge.delivery_lines(), hub.delivery_lines()
    for line in at_edge + at_hub:
        check(line)
    clients, sent = of(at_edge, side="received"), of(at_edge, side="sent")
    received = of(at_hub, side="received")
    assert len(clients) + len(sent) == len(at_edge)
    assert len(received) == len(at_hub)
    for lines, address, bridge in (
        (clients, "orders", None),
        (sent, "orders", "orders-to-hub"),
        (received, "eu.orders", "orders-to-hub"),
    ):
        assert sum(line["count"] for line in lines) == 11
        assert {(line["address"], line["bridge"]) for line in lines} == {(address, bridge)}
        assert lines[0]["from"] == 0
        assert all(one["upto"] == other["from"] for one, other in pairwise(lines)), "lines chain"
        ids = [pair for line in lines for pair in line["ids"]]
        assert ids == [[2 * n, f"id-{n}"] for n in range(5)] + [[10, {"base64": "/w=="}]], (
            "producers' IDs only"
        )
    assert {line["node"] for line in sent} == {"edge"}
    assert {line["node"] for line in received} == {"hub"}
    (stream,) = {line["stream"] for line in clients + sent + received}
    assert re.fullmatch(r"journal:[0-9a-f]+:orders:0", stream), (
        "journal:<incarnation>:<address>:<first sequence>"
    )
    (store,) = {line["store"] for line in sent + received}
    assert store.startswith(received[0]["node-id"])
    assert {line["target"] for line in sent} == {"hub"}
    assert (
        {line["node-id"] for line in sent}
        == {line["node-id"] for line in clients}
        != {received[0]["node-id"]}
    )
    assert all(abs(line.get("clock-offset", 0)) < 1_000 for line in sent), "one machine, one clock"
    equal = ("bridge", "stream", "from", "upto", "runs", "refused", "count", "ids", "committed")
    assert [[line[key] for key in equal] for line in sent] == [
        [line[key] for key in equal] for line in received
    ]


def test_the_clocks_of_two_nodes_are_compared_on_the_link(make_node: MakeNode) -> None:
    hub, edge = relayed(make_node)
    for number in range(3):
        edge.api.send("orders", b"x")
        eventually(lambda wanted=number + 1: len(hub.api.browse("eu.orders")) == wanted, "it has arrived")  # type: ignore[misc]
    eventually(lambda: edge.lag("orders") == 0, "all is settled")
    assert edge.stop() == 0
    assert hub.stop() == 0
    assert "clock-offset" in of(edge.delivery_lines(), side="sent")[-1]
    assert not any("clock-offset" in line for line in hub.delivery_lines())


def test_the_open_file_ends_in_open_and_a_clean_stop_rolls_it(make_node: MakeNode) -> None:
    node = make_node().start()
    node.api.send("orders", b"x")
    (open_one,) = eventually(node.segments, "a file is begun")
    assert open_one.name.endswith(".jsonl.open")
    assert FILE_NAME.fullmatch(open_one.name.removesuffix(".open"))
    eventually(node.delivery_lines, "the line is in it")
    assert node.stop() == 0
    (closed,) = node.segments()
    assert f"{closed.name}.open" == open_one.name
    node.start()
    node.api.send("orders", b"y")
    assert node.stop() == 0
    names = [path.name for path in node.segments()]
    assert len(names) == 2
    assert all(FILE_NAME.fullmatch(name) for name in names)
    assert [line["runs"] for line in node.delivery_lines()] == [[[0, 0]], [[1, 1]]]


def test_a_file_is_rolled_by_its_age_and_by_its_size(make_node: MakeNode) -> None:
    node = make_node(rest='[delivery-log]\nroll-interval = "1s"\nroll-size = "1KiB"\n').start()
    node.api.send("orders", b"x")
    eventually(lambda: [path for path in node.segments() if path.suffix == ".jsonl"], "its time has come", 10)
    for number in range(8):
        node.api.send("orders", b"x")
        eventually(lambda wanted=number + 2: len(node.delivery_lines()) == wanted, "it is written")  # type: ignore[misc]
    assert node.stop() == 0
    assert len(node.segments()) >= 4
    assert all(path.stat().st_size <= 1024 for path in node.segments())
    assert sum(line["count"] for line in node.delivery_lines()) == 9


def test_lines_of_a_killed_node_are_written_once(make_node: MakeNode) -> None:
    """The line commits with the messages and is copied afterwards: none is missing, none is there twice."""
    node = make_node().start()
    for _ in range(20):
        node.api.send("orders", b"x")
    node.kill()
    node.start()
    node.api.send("orders", b"x")
    assert node.stop() == 0
    distinct = {(line["from"], line["upto"]) for line in node.delivery_lines()}
    assert sum(upto - from_ for from_, upto in distinct) == 21
    assert sorted(distinct)[0][0] == 0
    assert all(one[1] == other[0] for one, other in pairwise(sorted(distinct)))


def test_a_rejected_duplicate_is_a_line_with_its_id(make_node: MakeNode) -> None:
    node = make_node().start()
    node.api.send("orders", b"x", Duplicate_Id="a")
    node.api.send("orders", b"x", Duplicate_Id="a")
    node.api.commit({"address": "orders", "body": "y"}, duplicate_id="a")
    assert node.stop() == 0
    rejected = of(node.delivery_lines(), verdict="duplicate")
    assert rejected
    for line in rejected:
        check(line)
        assert (line["side"], line["bridge"], line["address"], line["runs"]) == (
            "received",
            None,
            "orders",
            [],
        )
    assert {line_id for line in rejected for _, line_id in line["ids"]} == {"a"}


def test_a_transaction_that_comes_again_counts_its_messages_in_log_metrics_and_status(
    make_node: MakeNode,
) -> None:
    node = make_node().start()
    messages = [{"address": address, "body": "x"} for address in ("orders", "invoices", "orders")]
    for _ in range(3):
        node.api.commit(*messages, duplicate_id="cart")
    node.api.send("orders", b"x", Duplicate_Id="cart")
    metrics = node.metrics()
    metered = {
        address: metrics[f'core_bridge_duplicates_rejected_total{{address="{address}",kind="producer"}}']
        for address in ("orders", "invoices")
    }
    status = node.ops.get("/v1/status").json["duplicates"]
    assert node.stop() == 0
    lines = of(node.delivery_lines(), verdict="duplicate")
    assert {line["ids"][0][1] for line in lines} == {"cart"}
    logged = {
        address: sum(line["duplicates"] for line in lines if line["address"] == address)
        for address in ("orders", "invoices")
    }
    assert logged == metered == status == {"orders": 5, "invoices": 2}


def test_a_refused_message_is_a_refused_position_on_both_sides(make_node: MakeNode) -> None:
    hub = make_node("hub", acceptor='max-message-size = "1KiB"')
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    for body in (b"a", b"x" * 2000, b"b"):
        edge.api.send("orders", body)
    eventually(lambda: edge.lag("orders") == 0, "all is settled")
    assert edge.stop() == 0
    assert hub.stop() == 0
    sent = of(edge.delivery_lines(), side="sent", bridge="orders-to-hub")
    received = of(hub.delivery_lines(), bridge="orders-to-hub")
    for lines in (sent, received):
        assert [position for line in lines for position in line["refused"]] == [1]
        assert sum(line["count"] for line in lines) == 2
        # The dead letter has a position, too: what is read after it is covered to its end.
        assert max(line["upto"] for line in lines) in (3, 4)


def test_numbers_go_on_after_the_directory_was_cleared(make_node: MakeNode) -> None:
    """While the node runs, and between two runs."""
    node = make_node().start()
    node.api.send("orders", b"x")
    eventually(node.delivery_lines, "the line is in a file")
    shutil.rmtree(node.data / "delivery-log")
    node.api.send("orders", b"y")
    (path,) = eventually(node.segments, "a new file is begun")
    assert path.name.endswith("-000002.jsonl.open")
    assert node.event("delivery-log-removed")["file"].endswith("-000001.jsonl.open")
    eventually(node.delivery_lines, "the line is in it")
    assert node.stop() == 0
    assert [line["from"] for line in node.delivery_lines()] == [1]
    shutil.rmtree(node.data / "delivery-log")
    node.start()
    node.api.send("orders", b"z")
    assert node.stop() == 0
    assert [path.name[-12:] for path in node.segments()] == ["000003.jsonl"]
    assert [line["from"] for line in node.delivery_lines()] == [2]


def test_two_nodes_of_one_name_do_not_write_into_one_directory(make_node: MakeNode, tmp_path: Path) -> None:
    """But two of different names do, and a lock that a killed process has left holds up nothing."""
    shared = tmp_path / "shared"
    table = f'[delivery-log]\ndirectory = "{shared}"\n'
    first = make_node("edge", rest=table)
    other = make_node("hub", rest=table)
    start_together(first, other)
    (tmp_path / "elsewhere").mkdir()
    second = Node("edge", tmp_path / "elsewhere", rest=table)
    second.write()
    refused = second.run_to_its_end()
    assert refused.code == 1
    told = refused.err.splitlines()[-1]
    assert told.startswith("core-bridge: DELIVERY_LOG_FAILED: ")
    assert first.process is not None
    for part in (str(shared), f"pid {first.process.pid}", "node.name", "delivery-log.directory"):
        assert part in told
    for node in (first, other):
        node.api.send("orders", b"x")
    # A file without a line goes with the process that began it.
    eventually(
        lambda: sum(path.stat().st_size > 0 for path in shared.glob("*.open")) == 2, "both have a line"
    )
    first.kill()
    try:
        second.start().api.send("orders", b"x")
        assert second.stop() == 0
    finally:
        second.destroy()
    assert other.stop() == 0
    names = sorted(path.name for path in shared.glob("*.jsonl"))
    assert [name.partition("-")[0] for name in names] == ["edge", "edge", "hub"]
    assert [name[-12:] for name in names] == ["000001.jsonl", "000002.jsonl", "000001.jsonl"]


def test_a_node_without_a_delivery_log_writes_none(make_node: MakeNode) -> None:
    node = make_node(rest="[delivery-log]\nenabled = false\n").start()
    node.api.send("orders", b"x")
    assert node.stop() == 0
    assert node.segments() == []


def test_the_delivery_log_may_be_elsewhere(make_node: MakeNode) -> None:
    node = make_node(rest='[delivery-log]\ndirectory = "elsewhere"\n').start()
    node.api.send("orders", b"x")
    assert node.stop() == 0
    assert len(list((node.directory / "elsewhere").glob("*.jsonl"))) == 1


def test_a_delivery_log_on_a_volume_that_hangs_holds_up_neither_messages_nor_the_stop(
    make_node: MakeNode,
) -> None:
    """A pipe without a reader stands where the log's number is written: opening it never returns."""
    node = make_node().start()
    pipe = node.data / "delivery-log.number.new"
    os.mkfifo(pipe)
    for number in range(20):
        assert node.api.send("orders", b"%d" % number).status == 200
    assert node.ops.get("/ping").status == 200
    assert node.stop() == 0
    assert "the next start writes the rest" in node.event("delivery-log-waits")["reason"]
    pipe.unlink()
    node.start()
    eventually(lambda: sum(line["count"] for line in node.delivery_lines()) == 20, "all lines are there")
    assert node.stop() == 0
