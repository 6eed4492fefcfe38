"""The contract's "HTTP on the acceptor", call by call and code by code, on a real node."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from tests.harness.api import HOST, Api, Reply, exchange, titles
from tests.harness.certificates import client_tls
from tests.harness.eventually import PATIENCE_S, eventually
from tests.harness.node import MakeNode, Node

MIB = 1024 * 1024


def stored(first: int, last: int) -> dict[str, Any]:
    return {"verdict": "stored", "positions": [first, last]}


DUPLICATE = {"verdict": "duplicate"}


@contextlib.contextmanager
def in_the_background(call: Callable[[], Reply]) -> Iterator[Future[Reply]]:
    """A call that the node holds for a while."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


# ------------------------------------------------------------------ single sends


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/msgpack",
        "nonsense",
    ],
)
def test_a_body_is_stored_byte_for_byte_whatever_its_type(
    node: Node, address: str, content_type: str
) -> None:
    body = b'\x00\xff{"not json\r\n'
    first, last = node.api.send(address, body, Content_Type=content_type).json["positions"]
    assert first == last
    (message,) = node.api.browse(address)
    assert base64.b64decode(message["body-base64"]) == body
    assert message["headers"]["content-type"] == content_type
    assert node.api.get(f"/v1/addresses/{address}/messages/{first}").body == body


def test_a_message_may_be_empty(node: Node, address: str) -> None:
    assert node.api.send(address, b"").json["verdict"] == "stored"
    assert node.api.bodies(address) == [""]


def test_positions_of_a_new_journal_start_at_0_and_run_over_all_addresses(make_node: MakeNode) -> None:
    node = make_node().start()
    assert node.api.send("orders", b"a").json == stored(0, 0)
    assert node.api.send("invoices", b"b").json == stored(1, 1)
    assert node.api.send("orders", b"c").json == stored(2, 2)


@pytest.mark.parametrize(
    "headers",
    [
        {"Idempotency-Key": '"abc"'},
        {"Idempotency-Key": "abc"},
        {"Duplicate-Id": "abc"},
        {"_AMQ_DUPL_ID": "abc"},
        {"Idempotency-Key": '"abc"', "Duplicate-Id": "abc", "_AMQ_DUPL_ID": "abc"},
    ],
    ids=str,
)
def test_an_id_is_the_same_whatever_header_it_comes_in(
    node: Node, address: str, headers: dict[str, str]
) -> None:
    """D3: one canonical form."""
    path = f"/v1/addresses/{address}/messages"
    assert node.api.call("POST", path, b"first", headers).json["verdict"] == "stored"
    assert node.api.send(address, b"again", Duplicate_Id="abc").json == DUPLICATE
    assert [message["duplicate-id"] for message in node.api.browse(address)] == ["abc"]


def test_source_and_id_of_a_cloud_event_are_its_id_and_its_headers(node: Node, address: str) -> None:
    event = {"ce-source": "/shop", "ce-id": "17", "ce-type": "order.placed", "ce-specversion": "1.0"}
    path = f"/v1/addresses/{address}/messages"
    assert node.api.call("POST", path, b"a", event).json["verdict"] == "stored"
    assert node.api.call("POST", path, b"b", event).json == DUPLICATE
    assert node.api.send(address, b"c", Duplicate_Id="/shop 17").json == DUPLICATE
    (message,) = node.api.browse(address)
    assert message["duplicate-id"] == "/shop 17"
    assert event.items() <= message["headers"].items()


@pytest.mark.parametrize(
    "headers",
    [
        {"Duplicate-Id": "a", "Idempotency-Key": "b"},
        {"Duplicate-Id": "a", "ce-source": "s", "ce-id": "1"},
        {"Duplicate-Id": ""},
        {"Idempotency-Key": ""},
        {"Idempotency-Key": '""'},
        {"_AMQ_DUPL_ID": ""},
        {"Duplicate-Id": "x" * 1025},
    ],
    ids=lambda headers: str(headers)[:60],
)
def test_two_different_ids_or_an_empty_one_are_refused(
    node: Node, address: str, headers: dict[str, str]
) -> None:
    reply = node.api.call("POST", f"/v1/addresses/{address}/messages", b"x", headers)
    reply.is_problem(400, "INVALID_DUPLICATE_ID")
    assert node.api.browse(address) == []


def test_key_timestamp_and_headers_are_kept(node: Node, address: str) -> None:
    node.api.send(
        address,
        b"x",
        Message_Key="customer-7",
        Message_Timestamp="1357034400000",
        Message_Header_Region="EU",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tracestate="vendor=1",
        X_Other="not kept",
    )
    (message,) = node.api.browse(address)
    assert (message["key"], message["timestamp"]) == ("customer-7", 1357034400000)
    assert message["headers"] == {
        "region": "EU",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "vendor=1",
    }
    assert message["duplicate-id"] is None


def test_a_message_browsed_has_exactly_the_contracts_keys(node: Node, address: str) -> None:
    node.api.send(address, b"text")
    (message,) = node.api.browse(address)
    assert set(message) == {"position", "body", "key", "headers", "duplicate-id", "timestamp"}
    assert (message["key"], message["headers"], message["timestamp"]) == (None, {}, None)


# ------------------------------------------------------------------ transactions


def test_a_transaction_stores_over_several_addresses_and_says_where(node: Node, address: str) -> None:
    other = f"{address}.other"
    reply = node.api.commit(
        {"address": address, "body": "text", "key": "k", "headers": {"h": "v"}, "timestamp": 5},
        {"address": address, "body-base64": "/w=="},
        {"address": other, "body": None},
    )
    assert (reply.status, reply.json["verdict"]) == (200, "stored")
    first, last = reply.json["positions"][address]
    assert reply.json["positions"] == {address: [first, first + 1], other: [last + 1, last + 1]}
    text, data = node.api.browse(address)
    assert (text["body"], text["key"], text["headers"], text["timestamp"]) == ("text", "k", {"h": "v"}, 5)
    assert data["body-base64"] == "/w=="
    (tombstone,) = node.api.browse(other)
    assert "body" in tombstone
    assert tombstone["body"] is None


def test_a_transactions_own_id_enters_the_cache_of_every_address_it_touches(node: Node, address: str) -> None:
    other = f"{address}.other"
    both = ({"address": address, "body": "a"}, {"address": other, "body": "b"})
    assert node.api.commit(*both, duplicate_id="t-1").json["verdict"] == "stored"
    assert node.api.commit(*both, duplicate_id="t-1").json == DUPLICATE
    assert node.api.commit({"address": other, "body": "c"}, duplicate_id="t-1").json == DUPLICATE
    assert node.api.send(address, b"d", Duplicate_Id="t-1").json == DUPLICATE
    partly_new = ({"address": f"{address}.new", "body": "e"}, {"address": other, "body": "f"})
    assert node.api.commit(*partly_new, duplicate_id="t-1").json == DUPLICATE
    assert node.api.browse(f"{address}.new") == []
    assert (node.api.bodies(address), node.api.bodies(other)) == (["a"], ["b"])


def test_known_ids_and_ids_that_come_twice_reject_the_transaction_whole(node: Node, address: str) -> None:
    node.api.send(address, b"old", Duplicate_Id="known")
    messages: list[dict[str, Any]] = [
        {"address": address, "body": "0", "duplicate-id": "new"},
        {"address": address, "body": "1", "duplicate-id": "known"},
        {"address": address, "body": "2", "duplicate-id": "twice"},
        {"address": address, "body": "3", "duplicate-id": "twice"},
    ]
    problem = node.api.commit(*messages, duplicate_id="t").is_problem(409, "DUPLICATE_ID_REJECTED")
    assert problem["duplicates"] == [
        {"index": 1, "address": address, "duplicate-id": "known"},
        {"index": 3, "address": address, "duplicate-id": "twice"},
    ]
    assert node.api.bodies(address) == ["old"]
    skipped = node.api.commit(*messages, duplicate_id="t", on_duplicate="skip").json
    assert skipped["verdict"] == "stored"
    assert skipped["duplicates"] == [1, 3]
    assert node.api.bodies(address) == ["old", "0", "2"]


def test_a_transaction_acknowledges_in_the_same_step(node: Node, address: str) -> None:
    target = f"{address}.done"
    node.api.make_queue(address, "q")
    node.api.send(address, b"job")
    lease, _ = node.api.lease(address, "q")
    acknowledge = [{"address": address, "queue": "q", "lease": lease}]
    node.api.send(target, b"other", Duplicate_Id="known")
    rejected = node.api.commit(
        {"address": target, "body": "result", "duplicate-id": "known"}, acknowledge=acknowledge
    )
    rejected.is_problem(409, "DUPLICATE_ID_REJECTED")
    done = node.api.commit({"address": target, "body": "result"}, acknowledge=acknowledge)
    assert done.json["verdict"] == "stored"
    assert node.api.lease(address, "q") == (None, [])
    again = node.api.commit({"address": target, "body": "result again"}, acknowledge=acknowledge)
    again.is_problem(409, "STALE_LEASE")
    assert node.api.bodies(target) == ["other", "result"]


def test_a_transaction_may_hold_ten_thousand_messages_and_no_more(node: Node, address: str) -> None:
    messages = [{"address": address, "body": "x"}] * 10_000
    first, last = node.api.commit(*messages).json["positions"][address]
    assert last - first == 9_999
    problem = node.api.commit(*messages, messages[0]).is_problem(400, "MALFORMED")
    assert (problem["key"], problem["limit"], problem["found"]) == ("messages", 10_000, 10_001)


# ------------------------------------------------------------------ queues and leases


def test_a_queue_is_made_once_and_starts_where_it_is_told(node: Node, address: str) -> None:
    positions = [node.api.send(address, b"%d" % number).json["positions"][0] for number in range(3)]
    api = node.api
    assert api.call("PUT", f"/v1/addresses/{address}/queues/all").status == 201
    assert api.call("PUT", f"/v1/addresses/{address}/queues/all").status == 200
    starts: dict[str, Any] = {"early": "earliest", "late": "latest", "third": positions[2]}
    for queue, start in starts.items():
        body = json.dumps({"from": start}).encode()
        path = f"/v1/addresses/{address}/queues/{queue}"
        assert api.call("PUT", path, body, {"Content-Type": "application/json"}).status == 201
    api.send(address, b"3")
    found = {queue: titles(api.lease(address, queue)[1]) for queue in ("all", *starts)}
    assert found == {"all": list("0123"), "early": list("0123"), "late": ["3"], "third": ["2", "3"]}


@pytest.mark.parametrize(
    "content_type", ["", "application/x-www-form-urlencoded", "text/plain", "application/msgpack"]
)
def test_a_queue_is_made_without_a_body_whatever_its_content_type(
    node: Node, address: str, content_type: str
) -> None:
    """As `curl -X PUT -d ''` and browsers send it."""
    path = f"/v1/addresses/{address}/queues/q"
    headers = {"Content-Type": content_type} if content_type else {}
    assert node.api.call("PUT", path, b"", headers).status == 201
    wrong = node.api.call("PUT", path, b"{}", {"Content-Type": "text/plain"})
    wrong.is_problem(415, "UNSUPPORTED_MEDIA_TYPE")


def test_a_queue_that_is_deleted_is_gone(node: Node, address: str) -> None:
    node.api.make_queue(address, "q")
    path = f"/v1/addresses/{address}/queues/q"
    assert node.api.call("DELETE", path).status == 204
    node.api.get(f"{path}/messages").is_problem(404, "QUEUE_NOT_FOUND")
    node.api.call("DELETE", path).is_problem(404, "QUEUE_NOT_FOUND")


def test_every_queue_of_an_address_gets_every_message(make_node: MakeNode) -> None:
    """MULTICAST, and the queues that the settings name are there before anything is sent."""
    node = make_node(
        rest='[addresses.orders]\nrouting-type = "MULTICAST"\nqueues = ["billing", "shipping"]\n'
    )
    node.start()
    node.api.commit(*({"address": "orders", "body": f"{number}"} for number in range(5)))
    for queue in ("billing", "shipping"):
        lease, messages = node.api.lease("orders", queue)
        assert titles(messages) == list("01234")
        assert node.api.settle("acknowledge", "orders", queue, lease=lease).status == 204
    assert node.api.get("/v1/addresses/orders").json["messages"] == 0, "no queue needs them any more"


def test_leased_messages_are_nobody_elses_until_they_are_released(node: Node, address: str) -> None:
    api = node.api
    api.make_queue(address, "q")
    api.commit(*({"address": address, "body": f"{number}"} for number in range(6)))
    first_lease, first = api.lease(address, "q", "max=2")
    second_lease, second = api.lease(address, "q", "max=2")
    assert (titles(first), titles(second)) == (["0", "1"], ["2", "3"])
    assert api.settle("release", address, "q", lease=first_lease).status == 204
    third_lease, third = api.lease(address, "q")
    assert titles(third) == ["0", "1", "4", "5"], "returned messages are next again, in order"
    assert api.lease(address, "q") == (None, [])
    for lease in (second_lease, third_lease):
        assert api.settle("acknowledge", address, "q", lease=lease).status == 204
    assert api.lease(address, "q") == (None, [])


def test_an_acknowledgement_upto_a_position_returns_the_rest(node: Node, address: str) -> None:
    api = node.api
    api.make_queue(address, "q")
    api.commit(*({"address": address, "body": f"{number}"} for number in range(4)))
    lease, messages = api.lease(address, "q")
    upto = messages[1]["position"]
    assert api.settle("acknowledge", address, "q", lease=lease, upto=upto).status == 204
    assert titles(api.lease(address, "q")[1]) == ["2", "3"]


@pytest.mark.parametrize("verb", ["acknowledge", "release"])
def test_a_lease_that_has_ended_is_stale(node: Node, address: str, verb: str) -> None:
    api = node.api
    api.make_queue(address, "q")
    api.send(address, b"x")
    lease, _ = api.lease(address, "q")
    assert api.settle(verb, address, "q", lease=lease).status == 204
    api.settle(verb, address, "q", lease=lease).is_problem(409, "STALE_LEASE")
    api.settle(verb, address, "q", lease="never-was").is_problem(409, "STALE_LEASE")


def test_messages_of_a_lease_that_times_out_are_next_again_in_order(node: Node, address: str) -> None:
    api = node.api
    api.make_queue(address, "q")
    api.commit(*({"address": address, "body": f"{number}"} for number in range(4)))
    lease, messages = api.lease(address, "q", "lease=300")
    assert titles(messages) == list("0123")
    assert api.lease(address, "q") == (None, [])
    again, messages = api.lease(address, "q", "wait=10000")
    assert titles(messages) == list("0123"), "a waiting reader gets them when the lease ends"
    api.settle("acknowledge", address, "q", lease=lease).is_problem(409, "STALE_LEASE")
    assert api.settle("acknowledge", address, "q", lease=again).status == 204


def test_a_lease_that_timed_out_counts_no_more(node: Node, address: str) -> None:
    def leased() -> int:
        (queue,) = node.api.get(f"/v1/addresses/{address}").json["queues"]
        found: int = queue["leased"]
        return found

    node.api.make_queue(address, "q")
    node.api.send(address, b"x")
    node.api.lease(address, "q", "lease=300")
    assert leased() == 1
    eventually(lambda: leased() == 0, "nothing is leased", 3)


def test_leases_and_progress_outlast_a_restart(make_node: MakeNode) -> None:
    node = make_node().start()
    node.api.make_queue("orders", "q")
    node.api.commit(*({"address": "orders", "body": f"{number}"} for number in range(6)))
    done, _ = node.api.lease("orders", "q", "max=2")
    node.api.settle("acknowledge", "orders", "q", lease=done)
    held, _ = node.api.lease("orders", "q", "max=2")
    node.kill()
    node.start()
    other, messages = node.api.lease("orders", "q")
    assert titles(messages) == ["4", "5"]
    assert node.api.settle("acknowledge", "orders", "q", lease=held).status == 204
    node.api.settle("acknowledge", "orders", "q", lease=done).is_problem(409, "STALE_LEASE")
    assert node.api.settle("release", "orders", "q", lease=other).status == 204
    assert titles(node.api.lease("orders", "q")[1]) == ["4", "5"]


def test_a_waiting_reader_gets_the_message_when_it_comes(node: Node, address: str) -> None:
    node.api.make_queue(address, "q")
    path = f"/v1/addresses/{address}/queues/q/messages?wait=15000"
    before = time.monotonic()
    with in_the_background(lambda: node.api.get(path)) as waiting:
        assert node.ops.get("/ready").status == 200
        assert not waiting.done()
        node.api.send(address, b"here")
        assert titles(waiting.result(5).json["messages"]) == ["here"]
    assert time.monotonic() - before < 10


def test_a_wait_without_a_message_ends_with_no_lease(node: Node, address: str) -> None:
    node.api.make_queue(address, "q")
    before = time.monotonic()
    assert node.api.lease(address, "q", "wait=300") == (None, [])
    assert 0.3 <= time.monotonic() - before < 5


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("max=0", "max"),
        ("max=1001", "max"),
        ("wait=-1", "wait"),
        ("wait=60001", "wait"),
        ("lease=0", "lease"),
        ("max=many", "max"),
        ("limit=5", "limit"),
    ],
)
def test_numbers_of_a_page_have_limits(node: Node, address: str, query: str, key: str) -> None:
    node.api.make_queue(address, "q")
    reply = node.api.get(f"/v1/addresses/{address}/queues/q/messages?{query}")
    assert reply.is_problem(400, "MALFORMED")["key"] == key


def test_a_page_has_1000_messages_at_most(node: Node, address: str) -> None:
    node.api.make_queue(address, "q")
    node.api.commit(*([{"address": address, "body": "x"}] * 1100))
    assert len(node.api.lease(address, "q")[1]) == 100
    assert len(node.api.lease(address, "q", "max=1000")[1]) == 1000
    assert len(node.api.browse(address, "max=1000")) == 1000


def test_a_page_has_16_mib_at_most_but_one_message_at_least(node: Node, address: str) -> None:
    node.api.make_queue(address, "q")
    for size in (7 * MIB, 7 * MIB, 7 * MIB, 16 * MIB):
        assert node.api.send(address, b"x" * size).status == 200
    pages = [node.api.lease(address, "q")[1] for _ in range(4)]
    assert [[len(message["body"]) // MIB for message in page] for page in pages] == [[7, 7], [7], [16], []]


def test_the_text_of_a_page_has_24_mib_at_most_whatever_it_escapes(node: Node, address: str) -> None:
    """A control character is six in JSON: a page of 16 MiB was 96 MiB of text."""
    api = node.api
    api.make_queue(address, "q")
    for _ in range(5):
        assert api.send(address, b"\x01" * MIB).status == 200
    assert api.send(address, b"\x01" * 8 * MIB).status == 200
    browsed = api.get(f"/v1/addresses/{address}/messages")
    assert (len(browsed.json["messages"]), len(browsed.body) <= 24 * MIB) == (3, True)
    counts = []
    for _ in range(3):
        lease, page = api.lease(address, "q")
        counts.append(len(page))
        (queue,) = api.get(f"/v1/addresses/{address}").json["queues"]
        assert queue["leased"] == len(page)
        assert api.settle("acknowledge", address, "q", lease=lease).status == 204
    assert counts == [3, 2, 1]


def test_a_page_and_a_message_count_keys_and_headers_too(node: Node, address: str) -> None:
    """148 MiB of them went into one page."""
    message = {"address": address, "body": "x" * 1000, "key": "k" * 8000, "headers": {"h": "v" * 8000}}
    for _ in range(4):
        assert node.api.commit(*([message] * 250)).status == 200
    assert 900 < len(node.api.browse(address)) <= 16 * MIB // 17_001
    refused = node.api.commit(message, {**message, "key": "k" * 8400})
    problem = refused.is_problem(413, "MESSAGE_TOO_LARGE")
    assert (problem["key"], problem["limit"], problem["found"]) == ("messages[1].headers", 16_384, 16_401)


# ------------------------------------------------------------------ looking


def test_browsing_changes_nothing(node: Node, address: str) -> None:
    api = node.api
    api.make_queue(address, "q")
    positions = [api.send(address, b"%d" % number).json["positions"][0] for number in range(4)]
    assert titles(api.browse(address, f"after={positions[0]}&max=2")) == ["1", "2"]
    assert titles(api.browse(address, f"after={positions[3]}")) == []
    assert [message["position"] for message in api.browse(address)] == positions
    assert titles(api.lease(address, "q")[1]) == list("0123")
    assert titles(api.browse(address)) == list("0123"), "leased messages are browsed too"


def test_one_raw_body_by_its_position(node: Node, address: str) -> None:
    position = node.api.send(address, b"\x00raw", Content_Type="image/png").json["positions"][0]
    reply = node.api.get(f"/v1/addresses/{address}/messages/{position}")
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"\x00raw", "image/png")
    node.api.get(f"/v1/addresses/{address}/messages/{position + 1}").is_problem(404, "NOT_FOUND")


def test_an_address_describes_itself_with_exactly_the_contracts_keys(node: Node, address: str) -> None:
    node.api.make_queue(address, "q")
    first = node.api.send(address, b"a", Duplicate_Id="1").json["positions"][0]
    node.api.send(address, b"b", Duplicate_Id="2")
    node.api.lease(address, "q", "max=1")
    found = node.api.get(f"/v1/addresses/{address}").json
    assert set(found) == {
        "address", "routing-type", "messages", "bytes", "max-bytes", "first", "next", "id-cache", "queues",
        "bridges",
    }  # fmt: skip
    assert (found["address"], found["routing-type"], found["messages"]) == (address, "MULTICAST", 2)
    assert found["bytes"] > 0
    assert found["max-bytes"] == 1024 * MIB
    assert (found["first"], found["next"]) == (first, first + 2)
    assert found["id-cache"] == {"entries": 2, "capacity": 20_000}
    (queue,) = found["queues"]
    assert set(queue) == {"name", "next", "lag", "leased", "idle-ms"}
    assert (queue["name"], queue["next"], queue["lag"], queue["leased"]) == ("q", first, 2, 1)
    assert 0 <= queue["idle-ms"] < 60_000
    assert found["bridges"] == []
    every = {entry["address"]: entry for entry in node.api.get("/v1/addresses").json["addresses"]}
    assert set(every[address]) == set(found)


def test_msgpack_has_the_same_keys_with_bin_values(node: Node, address: str) -> None:
    form = {"Content-Type": "application/msgpack", "Accept": "application/msgpack"}
    message = {
        "address": address,
        "body": b"\xff",
        "key": b"k",
        "headers": {"h": b"\xfe"},
        "duplicate-id": b"\xfd",
    }
    body = msgspec.msgpack.encode({"messages": [message], "duplicate-id": b"t"})
    reply = node.api.call("POST", "/v1/transactions", body, form)
    assert reply.msgpack["verdict"] == "stored"
    assert reply.msgpack["positions"][address][0] >= 0
    assert node.api.call("POST", "/v1/transactions", body, form).msgpack == DUPLICATE
    assert node.api.send(address, b"x", Duplicate_Id="t", Accept=form["Accept"]).msgpack == DUPLICATE
    (found,) = node.api.get(f"/v1/addresses/{address}/messages", Accept=form["Accept"]).msgpack["messages"]
    assert (found["body"], found["key"], found["headers"], found["duplicate-id"]) == (
        b"\xff", b"k", {"h": b"\xfe"}, b"\xfd",
    )  # fmt: skip
    node.api.make_queue(address, "q")
    page = node.api.get(f"/v1/addresses/{address}/queues/q/messages", Accept=form["Accept"]).msgpack
    assert page["messages"] == [found]
    settle = msgspec.msgpack.encode({"lease": page["lease"]})
    assert node.api.call("POST", f"/v1/addresses/{address}/queues/q/acknowledge", settle, form).status == 204
    assert node.api.get(f"/v1/addresses/{address}", Accept=form["Accept"]).msgpack["messages"] == 0


# ------------------------------------------------------------------ errors


BAD_NAMES = ["a%20b", "%C3%BC", "a%2Fb", "x" * 250, "$sf.hub", "core-bridge.x", ".", "..", "%2e%2e"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: name[:20])
def test_names_that_no_address_or_queue_can_have(node: Node, name: str) -> None:
    problem = node.api.send(name, b"x").is_problem(400, "INVALID_ADDRESS")
    assert problem["key"] == "address"
    path = f"/v1/addresses/orders/queues/{name}"
    assert node.api.call("PUT", path).is_problem(400, "INVALID_ADDRESS")["key"] == "queue"


@pytest.mark.parametrize("name", ["x" * 249, "A-z_0.9", "...", ".a"], ids=lambda name: name[:20])
def test_names_that_an_address_and_a_queue_can_have(node: Node, name: str) -> None:
    assert node.api.send(name, b"x").status == 200
    assert node.api.make_queue(name, name) in (200, 201)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "title"),
    [
        ("POST", "/v1/transactions", b"{", 400, "MALFORMED"),
        ("POST", "/v1/transactions", b"{}", 400, "MALFORMED"),
        ("POST", "/v1/transactions", b'{"mesages":[]}', 400, "MALFORMED"),
        ("POST", "/v1/transactions", b'{"messages":[{"address":"a"}]}', 400, "MALFORMED"),
        ("POST", "/v1/transactions",
         b'{"messages":[{"address":"a","body":"","body-base64":""}]}', 400, "MALFORMED"),
        ("POST", "/v1/transactions", b'{"messages":[{"address":"$","body":""}]}', 400, "INVALID_ADDRESS"),
        ("POST", "/v1/transactions",
         b'{"messages":[{"address":"a","body":"","duplicate-id":""}]}', 400, "INVALID_DUPLICATE_ID"),
        ("POST", "/v1/transactions",
         b'{"messages":[{"address":"a","body":""}],"duplicate-id":7}', 400, "INVALID_DUPLICATE_ID"),
        ("GET", "/v1/nothing", None, 404, "NOT_FOUND"),
        ("GET", "/", None, 404, "NOT_FOUND"),
        ("GET", "/v1/addresses/absent", None, 404, "ADDRESS_NOT_FOUND"),
        ("GET", "/v1/addresses/absent/messages", None, 404, "ADDRESS_NOT_FOUND"),
        ("GET", "/v1/addresses/absent/queues/q/messages", None, 404, "ADDRESS_NOT_FOUND"),
        ("GET", "/v1/addresses/there/queues/q/messages", None, 404, "QUEUE_NOT_FOUND"),
        ("DELETE", "/v1/addresses/there/queues/q", None, 404, "QUEUE_NOT_FOUND"),
        ("PATCH", "/v1/transactions", b"", 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/v1/addresses/there/messages", None, 405, "METHOD_NOT_ALLOWED"),
        ("PUT", "/v1/addresses/there/queues/q", b'{"from":"middle"}', 400, "MALFORMED"),
        ("PUT", "/v1/addresses/there/queues/q", b'{"from":-1}', 400, "MALFORMED"),
        ("GET", "/v1/addresses/there/messages?after=x", None, 400, "MALFORMED"),
        ("GET", "/v1/link", None, 400, "MALFORMED"),
    ],
)  # fmt: skip
def test_errors_of_handlers_router_and_middleware_are_problems(
    node: Node, method: str, path: str, body: bytes | None, status: int, title: str
) -> None:
    node.api.send("there", b"x")
    headers = {} if body is None else {"Content-Type": "application/json"}
    reply = node.api.call(method, path, body, headers)
    reply.is_problem(status, title)
    assert ("allow" in reply.headers) == (status == 405)


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/v1/addresses/there/messages", b"Host"),
        ("/v1/addresses/there/messages", b"Origin"),
        ("/v1/transactions", b"Content-Type"),
        ("/v1/transactions", b"Content-Encoding"),
    ],
)
def test_a_header_that_is_not_utf_8_is_malformed(node: Node, path: str, header: bytes) -> None:
    host = b"" if header == b"Host" else b"Host: localhost\r\n"
    lines = host + header + b": a\xffb\r\nContent-Length: 2\r\n"
    problem = raw_post(node, path, lines, b"{}").is_problem(400, "MALFORMED")
    assert (problem["key"], problem["found"]) == (header.decode(), "a\ufffdb")


@pytest.mark.parametrize("coding", ["gzip, chunked", "identity, chunked"])
def test_a_transfer_coding_besides_chunked_is_not_implemented(node: Node, address: str, coding: str) -> None:
    """RFC 9112, section 6.1. It was stored as it came, gzip and all."""
    path, chunked = f"/v1/addresses/{address}/messages", b"1\r\nx\r\n0\r\n\r\n"
    lines = b"Host: localhost\r\nTransfer-Encoding: %s\r\n"
    reply = raw_post(node, path, lines % coding.encode(), chunked)
    assert reply.is_problem(501, "UNSUPPORTED_TRANSFER_ENCODING")["found"] == coding
    assert raw_post(node, path, lines % b"Chunked", chunked).status == 200
    assert node.api.bodies(address) == ["x"]


def raw_post(node: Node, path: str, headers: bytes, body: bytes) -> Reply:
    """A POST with header lines that no client library writes."""
    with socket.create_connection((HOST, node.port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"POST %s HTTP/1.1\r\n%s\r\n%s" % (path.encode(), headers, body))
        response = http.client.HTTPResponse(connection, method="POST")
        response.begin()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, found, response.read())


def test_any_content_encoding_and_a_foreign_type_are_unsupported(node: Node, address: str) -> None:
    for encoding in ("gzip", "identity"):
        reply = node.api.send(address, b"x", Content_Encoding=encoding)
        assert reply.is_problem(415, "UNSUPPORTED_MEDIA_TYPE")["found"] == encoding
    reply = node.api.call("POST", "/v1/transactions", b"{}", {"Content-Type": "text/xml"})
    assert reply.is_problem(415, "UNSUPPORTED_MEDIA_TYPE")["found"] == "text/xml"


def test_an_address_that_is_not_made_on_demand_is_not_found(make_node: MakeNode) -> None:
    node = make_node(
        rest='[address-settings."#"]\nauto-create-addresses = false\n[addresses.orders]\n'
    ).start()
    assert node.api.send("orders", b"x").status == 200
    node.api.send("ordres", b"x").is_problem(404, "ADDRESS_NOT_FOUND")
    node.api.commit({"address": "ordres", "body": ""}).is_problem(404, "ADDRESS_NOT_FOUND")


@pytest.fixture(scope="module")
def small(make_lasting_node: MakeNode) -> Node:
    """A node whose limits are soon reached."""
    return make_lasting_node(
        "small",
        acceptor='max-message-size = "10KiB"\nmax-headers-size = "2KiB"\nmax-duplicate-id-size = 10\n'
        "max-requests = 2\nmax-connections = 4",
        rest='[address-settings."fail.#"]\nmax-size-bytes = "20KiB"\naddress-full-policy = "FAIL"\n'
        '[address-settings."block.#"]\nmax-size-bytes = "20KiB"\n',
    ).start()


def test_a_message_above_max_message_size_is_too_large(small: Node, address: str) -> None:
    assert small.api.send(address, b"x" * 10_240).status == 200
    problem = small.api.send(address, b"x" * 10_241).is_problem(413, "MESSAGE_TOO_LARGE")
    assert (problem["limit"], problem["found"]) == (10_240, 10_241)
    reply = small.api.commit({"address": address, "body": "x" * 10_241})
    assert reply.is_problem(413, "MESSAGE_TOO_LARGE")["key"] == "messages[0].body"


def test_headers_above_max_headers_size_are_too_large(small: Node, address: str) -> None:
    for headers in ({"X_One": "x" * 3000}, {f"X_{number}": "x" * 300 for number in range(10)}):
        small.api.send(address, b"x", **headers).is_problem(431, "HEADERS_TOO_LARGE")


def test_an_id_above_max_duplicate_id_size_is_refused(small: Node, address: str) -> None:
    assert small.api.send(address, b"x", Duplicate_Id="x" * 10).status == 200
    problem = small.api.send(address, b"x", Duplicate_Id="x" * 11).is_problem(400, "INVALID_DUPLICATE_ID")
    assert (problem["limit"], problem["found"]) == (10, 11)


def test_a_full_address_with_policy_fail_answers_at_once(small: Node) -> None:
    for _ in range(2):
        assert small.api.send("fail.a", b"x" * 10_240).status == 200
    before = time.monotonic()
    small.api.send("fail.a", b"x").is_problem(503, "ADDRESS_FULL")
    small.api.commit({"address": "fail.a", "body": "x"}).is_problem(503, "ADDRESS_FULL")
    assert time.monotonic() - before < 2
    assert small.api.send("fail.b", b"x").status == 200, "limits are per address"


def test_a_full_address_with_policy_block_holds_the_post_until_there_is_room(small: Node) -> None:
    small.api.make_queue("block.a", "q")
    for _ in range(2):
        assert small.api.send("block.a", b"x" * 10_240).status == 200
    with in_the_background(lambda: small.api.send("block.a", b"held")) as held:
        lease, _ = small.api.lease("block.a", "q")
        assert not held.done()
        small.api.settle("acknowledge", "block.a", "q", lease=lease)
        assert held.result(10).status == 200
    assert small.api.bodies("block.a")[-1] == "held"


def test_a_full_address_holds_up_no_other_and_no_reader(make_node: MakeNode) -> None:
    """70 held POSTs of 1 MiB, once: 74 of 76 sends elsewhere heard TOO_BUSY, and a first page took 29 s."""
    node = make_node(
        rest='[address-settings."full.#"]\nmax-size-bytes = "1MiB"\n[addresses.others]\nqueues = ["q"]\n'
        '[addresses."full.a"]\nqueues = ["q"]\n',
        acceptor='max-requests = 80\nmax-held-requests = 30\nmax-held-size = "24MiB"',
    ).start()
    body = b"x" * 1_000_000
    assert [node.api.send("full.a", body).status for _ in range(2)] == [200, 200]
    with ThreadPoolExecutor(70) as pool:
        held = [pool.submit(node.api.send, "full.a", body) for _ in range(70)]
        refused = eventually(lambda: (done := [one for one in held if one.done()])[44:] and done, "45 are")
        assert len(refused) == 45
        for one in refused:
            problem = one.result().is_problem(503, "ADDRESS_FULL")
            assert (problem["key"], problem["limit"]) == ("max-held-size", 24 * 2**20)
        assert [node.api.send("others", body).status for _ in range(76)] == [200] * 76
        lease, messages = node.api.lease("others", "q")
        assert len(messages) > 10
        assert node.api.settle("acknowledge", "others", "q", lease=lease).status == 204
        while sum(one.done() for one in held) < 70:
            lease, _ = node.api.lease("full.a", "q", "wait=1000")
            if lease:
                node.api.settle("acknowledge", "full.a", "q", lease=lease)
    assert sorted(one.result().status for one in held) == [200] * 25 + [503] * 45


def test_no_more_than_max_held_requests_are_held(make_node: MakeNode) -> None:
    """At most half of the sends that may be under way: the others go on."""
    node = make_node(
        rest='[address-settings."full"]\nmax-size-bytes = "1KiB"\n[addresses.full]\nqueues = ["q"]\n',
        acceptor="max-requests = 6",
    ).start()
    assert node.api.send("full", b"x" * 1000).status == 200
    with ThreadPoolExecutor(5) as pool:
        held = [pool.submit(node.api.send, "full", b"x") for _ in range(5)]
        eventually(lambda: sum(one.done() for one in held) == 2, "two are refused")
        problem = next(one for one in held if one.done()).result().is_problem(503, "ADDRESS_FULL")
        assert (problem["key"], problem["limit"], problem["found"]) == ("max-held-requests", 3, 4)
        assert node.api.send("others", b"x").status == 200
        lease, _ = node.api.lease("full", "q")
        node.api.settle("acknowledge", "full", "q", lease=lease)
    assert sorted(one.result().status for one in held) == [200] * 3 + [503] * 2


def test_more_than_max_requests_are_too_busy(small: Node, address: str) -> None:
    """Long polls count; a reader that leaves makes room."""
    small.api.make_queue(address, "q")
    with contextlib.ExitStack() as readers:
        for _ in range(2):
            reader = readers.enter_context(contextlib.closing(small.api.connect()))
            reader.request("GET", f"/v1/addresses/{address}/queues/q/messages?wait=20000")
        busy = small.api.await_status("/v1/addresses", 503)
        assert busy.is_problem(503, "TOO_BUSY")["limit"] == 2
        assert small.ops.get("/ready").status == 200
    small.api.await_status("/v1/addresses", 200, 5)


TRANSIT = 'max-transit-size = "8MiB"\n'


def unless_stored(reply: Reply) -> Reply | None:
    return None if reply.status == 200 else reply


def test_bodies_on_their_way_have_one_limit(make_node: MakeNode) -> None:
    """What has arrived of them counts, not what they say; one alone is always taken."""
    node = make_node(acceptor=TRANSIT).start()
    path = "/v1/addresses/orders/messages"
    assert node.api.send("orders", b"x" * (12 * MIB)).status == 200
    with contextlib.ExitStack() as uploads:
        slow = [uploads.enter_context(contextlib.closing(node.api.connect())) for _ in range(3)]
        for connection in slow:
            connection.putrequest("POST", path)
            connection.putheader("Content-Length", str(16 * MIB))
            connection.endheaders(b"x")
        slow[0].send(b"x" * (6 * MIB))
        # All that was sent has been read once the node has no room for 3 MiB any more.
        refused = eventually(lambda: unless_stored(node.api.send("orders", b"y" * (3 * MIB))), "6 MiB are")
        problem = refused.is_problem(503, "TOO_BUSY")
        assert (problem["key"], problem["limit"]) == ("max-transit-size", 8 * MIB)
        assert problem["found"] > 8 * MIB
        assert node.api.send("orders", b"small").status == 200
    eventually(lambda: node.api.send("orders", b"z" * (7 * MIB)).status == 200, "aborted ones make room")


def test_one_user_leaves_half_of_it_to_others(make_node: MakeNode) -> None:
    """It took all of it with uploads that do not end, and everybody else was TOO_BUSY."""
    user = '[[acceptor.users]]\nname = "{0}"\ntoken = "{0}"\nsend = ["#"]\n'
    node = make_node(acceptor=TRANSIT + user.format("greedy") + user.format("other")).start()
    greedy, other = Api(node.port, "greedy"), Api(node.port, "other")
    with contextlib.ExitStack() as uploads:
        for _ in range(8):
            slow = uploads.enter_context(contextlib.closing(greedy.connect()))
            slow.putrequest("POST", "/v1/addresses/orders/messages")
            slow.putheader("Authorization", "Bearer greedy")
            slow.putheader("Content-Length", str(16 * MIB))
            with contextlib.suppress(ConnectionError):  # those above half are refused
                slow.endheaders(b"x" * MIB)
        refused = eventually(lambda: unless_stored(greedy.send("orders", b"y" * MIB)), "half is taken")
        problem = refused.is_problem(503, "TOO_BUSY")
        assert (problem["key"], problem["limit"]) == ("max-transit-size", 4 * MIB)
        assert other.send("orders", b"z" * (3 * MIB)).status == 200


def test_pages_on_their_way_have_the_same_limit(make_node: MakeNode) -> None:
    """A page that is not sent for it is not leased either."""
    node = make_node(acceptor=TRANSIT).start()
    for _ in range(4):
        assert node.api.send("orders", b"x" * MIB).status == 200
        assert node.api.send("large", b"x" * (2 * MIB)).status == 200
    node.api.make_queue("orders", "q")
    with contextlib.closing(socket.create_connection((HOST, node.port), timeout=PATIENCE_S)) as stuck:
        stuck.sendall(b"GET /v1/addresses/large/messages HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert stuck.recv(10, socket.MSG_PEEK)
        page = node.api.get("/v1/addresses/orders/queues/q/messages")
        assert page.is_problem(503, "TOO_BUSY")["key"] == "max-transit-size"
        raw = node.api.get("/v1/addresses/large/messages/1")
        assert raw.is_problem(503, "TOO_BUSY")["key"] == "max-transit-size"
        assert node.api.get("/v1/addresses/orders").json["queues"][0]["leased"] == 0
    eventually(
        lambda: node.api.get("/v1/addresses/orders/queues/q/messages").status == 200,
        "a reader that leaves makes room",
    )


def test_more_than_max_connections_are_too_busy(small: Node, address: str) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(4):
            connection = open_ones.enter_context(contextlib.closing(small.api.connect()))
            assert exchange(connection, "GET", "/v1/addresses").status == 200
        small.api.get("/v1/addresses").is_problem(503, "TOO_BUSY")
    small.api.await_status("/v1/addresses", 200)


# ------------------------------------------------------------------ who may call


def test_a_loopback_listener_answers_to_loopback_names_only(node: Node) -> None:
    """A web page must not reach the node through a name of its own (DNS rebinding)."""
    for host in (
        "localhost",
        f"localhost:{node.port}",
        "127.0.0.1",
        f"127.0.0.1:{node.port}",
        "[::1]",
        "[::1]:80",
    ):
        assert node.api.get("/v1/addresses", Host=host).status == 200, host
    for host in ("evil.example", f"evil.example:{node.port}", "127.0.0.1.evil.example", "localhost.evil"):
        assert node.api.get("/v1/addresses", Host=host).is_problem(403, "ORIGIN_REFUSED")["found"] == host


def test_a_browser_may_call_from_allowed_origins_only(make_node: MakeNode) -> None:
    node = make_node(acceptor='allowed-origins = ["https://app.example"]').start()
    allowed = node.api.send("orders", b"x", Origin="https://app.example")
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, "https://app.example")
    for origin in ("https://evil.example", "http://app.example", "https://app.example.evil", "null"):
        node.api.send("orders", b"x", Origin=origin).is_problem(403, "ORIGIN_REFUSED")
    assert len(node.api.browse("orders")) == 1


def test_no_origin_may_call_unless_it_was_allowed(node: Node, address: str) -> None:
    own = f"http://127.0.0.1:{node.port}"
    node.api.send(address, b"x", Origin=own).is_problem(403, "ORIGIN_REFUSED")


def test_every_origin_may_call_where_the_settings_say_so(make_node: MakeNode) -> None:
    node = make_node(acceptor='allowed-origins = ["*"]').start()
    assert node.api.send("orders", b"x", Origin="https://any.example").status == 200


USERS = """
tokens = ["${ROOT_TOKEN}"]
[[acceptor.users]]
name = "orders-service"
token = "s3cret-orders"
send = ["orders.#"]
receive = ["results.*"]
"""


def test_tokens_have_every_right_and_users_their_own(make_node: MakeNode) -> None:
    node = make_node(acceptor=USERS, variables={"ROOT_TOKEN": "s3cret-root"}).start()
    anybody, root = Api(node.port), Api(node.port, "s3cret-root")
    user = Api(node.port, "s3cret-orders")
    for refused in (anybody, Api(node.port, "s3cret"), Api(node.port, "")):
        reply = refused.send("orders.eu", b"x")
        reply.is_problem(401, "UNAUTHENTICATED")
        assert reply.headers["www-authenticate"] == "Bearer"
    assert root.send("anything", b"x").status == 200
    assert user.send("orders", b"x").status == 200
    assert user.send("orders.eu.west", b"x").status == 200
    user.send("invoices", b"x").is_problem(403, "FORBIDDEN")
    mixed = ({"address": "orders", "body": "x"}, {"address": "invoices", "body": "x"})
    assert user.commit(*mixed).is_problem(403, "FORBIDDEN")["key"] == "messages[1].address"
    user.get("/v1/addresses/orders/messages").is_problem(403, "FORBIDDEN")
    assert root.send("results.a", b"x").status == 200
    assert titles(user.browse("results.a")) == ["x"]
    assert user.make_queue("results.a", "q") == 201
    user.get("/v1/addresses/results.a.b/messages").is_problem(403, "FORBIDDEN")
    user.get("/v1/link").is_problem(403, "FORBIDDEN")
    seen = {entry["address"] for entry in user.get("/v1/addresses").json["addresses"]}
    assert seen == {"orders", "orders.eu.west", "results.a"}
    assert "s3cret" not in node.log.read_text()


TLS = 'certificate = "{0}/node.pem"\nkey = "{0}/node.key"\n'


def test_tls_protects_the_acceptor(make_node: MakeNode, certificates: Any) -> None:
    node = make_node(scheme="wss", acceptor=TLS.format(certificates), tls=client_tls(certificates)).start()
    assert node.api.send("orders", b"x").status == 200
    assert node.event("listening")["acceptor"] == f"wss://127.0.0.1:{node.port}"
    with pytest.raises((OSError, http.client.HTTPException)):
        Api(node.port).get("/v1/addresses")


CERTIFIED = """client-ca = "{0}/authority.pem"
tokens = ["s3cret"]
[[acceptor.users]]
name = "orders-service"
certificate-name = "orders-service"
send = ["orders.#"]
"""


def test_mutual_tls_gives_the_certificates_user_its_rights(make_node: MakeNode, certificates: Any) -> None:
    acceptor = (TLS + CERTIFIED).format(certificates)
    node = make_node(scheme="wss", acceptor=acceptor, tls=client_tls(certificates)).start()
    known = Api(node.port, "", client_tls(certificates, "orders-service"), "localhost")
    stranger = Api(node.port, "", client_tls(certificates, "stranger"), "localhost")
    assert known.send("orders.eu", b"x").status == 200
    known.send("invoices", b"x").is_problem(403, "FORBIDDEN")
    stranger.send("orders.eu", b"x").is_problem(401, "UNAUTHENTICATED")
    node.api.send("orders.eu", b"x").is_problem(401, "UNAUTHENTICATED")
    token = Api(node.port, "s3cret", client_tls(certificates), "localhost")
    assert token.send("invoices", b"x").status == 200


def test_a_slow_or_broken_client_does_not_hurt_the_others(node: Node, address: str) -> None:
    connection = node.api.connect()
    with contextlib.closing(connection):
        connection.putrequest("POST", f"/v1/addresses/{address}/messages")
        connection.putheader("Content-Length", "100")
        connection.endheaders(b"half")
        assert node.api.send(address, b"whole").status == 200
    node.ops.await_status("/ready", 200)
    assert node.api.bodies(address) == ["whole"]


def test_many_clients_at_once_each_get_their_own_positions(node: Node, address: str) -> None:
    found: list[int] = []
    lock = threading.Lock()

    def send_some(number: int) -> None:
        with contextlib.closing(node.api.connect()) as connection:
            for turn in range(25):
                reply = exchange(
                    connection, "POST", f"/v1/addresses/{address}/messages", b"%d-%d" % (number, turn)
                )
                with lock:
                    found.append(reply.json["positions"][0])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send_some, range(8)))
    messages = node.api.browse(address)
    assert sorted(found) == [message["position"] for message in messages]
    for number in range(8):
        own = [body for body in titles(messages) if body.startswith(f"{number}-")]
        assert own == [f"{number}-{turn}" for turn in range(25)]
