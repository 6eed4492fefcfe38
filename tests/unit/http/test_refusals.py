"""Every error that a client can see: its status, its code, and the numbers of the broken rule."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import (
    AddressFull,
    AddressNotFound,
    BridgeError,
    Conflict,
    DiskFull,
    DuplicateIdRejected,
    JournalUnavailable,
    MessageTooLarge,
    Stopping,
    TooBusy,
)
from bridge.http.bodies import SMALL_BODY_BYTES_MAX
from bridge.http.limits import FILTER_CHARS_MAX, Limits
from bridge.http.problems import MethodNotAllowed, problem
from bridge.settings.artemis import QUEUE_ANSWERS
from tests.fakes.http_client import Client
from tests.fakes.store import MemoryStore
from tests.unit.http.conftest import Start

MESSAGES = "/v1/addresses/orders/messages"
QUEUE = "/v1/addresses/orders/queues/q"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AddressNotFound("x"), (404, "ADDRESS_NOT_FOUND")),
        (MessageTooLarge("x", "body", 1, 2), (413, "MESSAGE_TOO_LARGE")),
        (AddressFull("x"), (503, "ADDRESS_FULL")),
        (DiskFull("x"), (503, "DISK_FULL")),
        (TooBusy("x"), (503, "TOO_BUSY")),
        (Stopping("x"), (503, "STOPPING")),
        (JournalUnavailable("x"), (503, "JOURNAL_UNAVAILABLE")),
        (Conflict("x"), (409, "CONFLICT")),
    ],
)
async def test_what_the_store_raises_is_the_answer(
    client: Client, store: MemoryStore, error: BridgeError, expected: tuple[int, str]
) -> None:
    store.fails_with = error
    assert (await client.send("orders", b"x")).problem == expected
    assert (await client.commit({"address": "orders", "body": "x"})).problem == expected


async def test_a_small_body_is_small(client: Client) -> None:
    """Settings of a queue, and a lease: no more of it is read than such a call can need."""
    fits = b"{}".ljust(SMALL_BODY_BYTES_MAX)
    assert (await client.call("PUT", QUEUE, fits)).status == 201
    for method, path in (("PUT", QUEUE), ("POST", f"{QUEUE}/release")):
        assert (await client.call(method, path, fits + b" ")).problem == (413, "MESSAGE_TOO_LARGE")


async def test_an_error_nobody_expected_is_logged_and_answered(client: Client, store: MemoryStore) -> None:
    store.fails_with = ZeroDivisionError("oops")  # type: ignore[assignment]
    reply = await client.send("orders", b"x")
    assert reply.problem == (500, "FAILED")
    assert b"oops" not in reply.content


def test_a_problem_shows_the_key_and_both_numbers_where_there_are_any() -> None:
    assert b'"key":"body","limit":1,"found":2}' in problem(MessageTooLarge("x", "body", 1, 2)).body
    assert b"key" not in problem(MessageTooLarge("x")).body
    assert b'"limit":0,"found":0' in problem(MessageTooLarge("x", "body", 0, 0)).body


def test_rejected_ids_that_are_not_text_are_shown_as_base64() -> None:
    shown = problem(DuplicateIdRejected("x", duplicates=((3, "orders", b"\xff"), (4, "orders", b"a")))).body
    assert b'{"index":3,"address":"orders","duplicate-id":{"base64":"/w=="}}' in shown
    assert b'{"index":4,"address":"orders","duplicate-id":"a"}' in shown


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/", (404, "NOT_FOUND")),
        ("GET", "/v1", (404, "NOT_FOUND")),
        ("GET", "/v1/addresses/", (404, "NOT_FOUND")),
        ("GET", "/v1/addresses//messages", (404, "NOT_FOUND")),
        ("GET", "/v1/addresses/orders/messages/", (404, "NOT_FOUND")),
        ("GET", "/v1/addresses/orders/unknown", (404, "NOT_FOUND")),
        ("GET", "/v1/link", (404, "NOT_FOUND")),
        ("PATCH", MESSAGES, (405, "METHOD_NOT_ALLOWED")),
        ("HEAD", "/v1/addresses", (405, None)),
        ("GET", "/v1/transactions", (405, "METHOD_NOT_ALLOWED")),
        ("POST", QUEUE, (405, "METHOD_NOT_ALLOWED")),
        ("OPTIONS", MESSAGES, (405, "METHOD_NOT_ALLOWED")),
    ],
)
async def test_a_place_or_method_that_is_not_there(
    client: Client, method: str, path: str, expected: tuple[int, str | None]
) -> None:
    reply = await client.call(method, path)
    if expected[1] is None:
        assert reply.status == expected[0]
    else:
        assert reply.problem == expected


async def test_a_refused_method_names_those_there_are(client: Client) -> None:
    assert (await client.call("PUT", MESSAGES)).headers["Allow"] == "GET, POST"
    assert problem(MethodNotAllowed("x", "method", "GET", "PUT")).status == 405


@pytest.mark.parametrize(
    "name", ["a%20b", "%24sf.node", "core-bridge.x", "x" * 250, "a%2Fb", "%C3%A4", "%ff"]
)
async def test_a_name_that_no_address_can_have(client: Client, name: str) -> None:
    assert (await client.send(name, b"x")).problem == (400, "INVALID_ADDRESS")
    assert (await client.call("PUT", f"/v1/addresses/{name}/queues/q")).problem == (400, "INVALID_ADDRESS")
    assert (await client.call("PUT", f"/v1/addresses/a/queues/{name}")).problem == (400, "INVALID_ADDRESS")


async def test_a_name_may_come_percent_encoded(client: Client) -> None:
    assert (await client.send("orders%2Eeu", b"x")).status == 200
    assert (await client.call("GET", "/v1/addresses/orders.eu")).status == 200


MESSAGE: dict[str, Any] = {"address": "orders", "body": "x"}


@pytest.mark.parametrize(
    ("value", "code", "key"),
    [
        ({}, "MALFORMED", "messages"),
        ({"messages": []}, "MALFORMED", "messages"),
        ({"messages": [MESSAGE] * 10_001}, "MALFORMED", "messages"),
        ({"messages": {}}, "MALFORMED", "messages"),
        ([], "MALFORMED", None),
        ({"messages": [MESSAGE], "duplicate_id": "a"}, "MALFORMED", None),
        ({"messages": [MESSAGE], "on-duplicate": "drop"}, "MALFORMED", "on-duplicate"),
        ({"messages": [MESSAGE, {"address": "orders"}]}, "MALFORMED", "messages[1].body"),
        ({"messages": [MESSAGE, {"body": "x"}]}, "MALFORMED", "messages[1]"),
        ({"messages": [MESSAGE, MESSAGE | {"idd": "x"}]}, "MALFORMED", "messages[1]"),
        ({"messages": [{"address": "a", "body-base64": "?"}]}, "MALFORMED", "messages[0].body-base64"),
        ({"messages": [MESSAGE | {"key": 7}]}, "MALFORMED", "messages[0].key"),
        ({"messages": [MESSAGE | {"headers": {"": "x"}}]}, "MALFORMED", "messages[0].headers"),
        ({"messages": [MESSAGE | {"timestamp": -2}]}, "MALFORMED", "messages[0].timestamp"),
        ({"messages": [MESSAGE | {"timestamp": 2**63}]}, "MALFORMED", "messages[0].timestamp"),
        (
            {"messages": [MESSAGE] * 3 + [{"address": "a b", "body": ""}]},
            "INVALID_ADDRESS",
            "messages[3].address",
        ),
        ({"messages": [MESSAGE | {"duplicate-id": ""}]}, "INVALID_DUPLICATE_ID", "messages[0].duplicate-id"),
        ({"messages": [MESSAGE | {"duplicate-id": 7}]}, "INVALID_DUPLICATE_ID", "messages[0].duplicate-id"),
        ({"messages": [MESSAGE], "duplicate-id": ""}, "INVALID_DUPLICATE_ID", "duplicate-id"),
        ({"messages": [MESSAGE], "duplicate-id": 7}, "INVALID_DUPLICATE_ID", "duplicate-id"),
        ({"acknowledge": [{"address": "a", "queue": "q"}]}, "MALFORMED", "acknowledge[0]"),
        (
            {"acknowledge": [{"address": "a", "queue": "$q", "lease": "l"}]},
            "INVALID_ADDRESS",
            "acknowledge[0].queue",
        ),
    ],
)
@pytest.mark.parametrize("form", ["json", "packed"])
async def test_a_transaction_that_breaks_a_rule_names_the_place(
    client: Client, form: str, value: Any, code: str, key: str | None
) -> None:
    """D3: empty and numeric IDs are refused, wherever they stand."""
    reply = await client.call("POST", "/v1/transactions", **{form: value})
    assert reply.problem == (400, code)
    assert reply.value.get("key") == key


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"messages":[]} x', b'{"messages":"\xff"}', b'{"messages":"\\ud800"}', b"[" * 100_000],
)
async def test_a_body_that_is_neither_json_nor_msgpack_is_malformed(client: Client, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    reply = await client.call("POST", "/v1/transactions", body, headers=headers)
    assert reply.problem == (400, "MALFORMED")
    reply = await client.call(
        "POST", "/v1/transactions", body, headers={"Content-Type": "application/msgpack"}
    )
    assert reply.problem == (400, "MALFORMED")


@pytest.mark.parametrize("body", ["x", "", None])
async def test_a_message_with_two_bodies_is_malformed(client: Client, body: str | None) -> None:
    for form, second in (("json", "YQ=="), ("packed", b"a")):
        value = {"messages": [{"address": "orders", "body": body, "body-base64": second}]}
        reply = await client.call("POST", "/v1/transactions", **{form: value})  # type: ignore[arg-type]
        assert reply.problem == (400, "MALFORMED")
        assert reply.value["key"] == "messages[0].body"


async def test_json_needs_no_content_type_and_may_have_parameters(client: Client) -> None:
    body = b'{"messages":[{"address":"orders","body":"x"}]}'
    assert (await client.call("POST", "/v1/transactions", body)).status == 200
    for media_type in ("application/json; charset=utf-8", "Application/JSON"):
        headers = {"Content-Type": media_type}
        assert (await client.call("POST", "/v1/transactions", body, headers=headers)).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/transactions"),
        ("PUT", QUEUE),
        ("POST", f"{QUEUE}/acknowledge"),
        ("POST", f"{QUEUE}/release"),
    ],
)
async def test_a_body_of_another_type_is_refused(client: Client, method: str, path: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    reply = await client.call(method, path, b"{}", headers=headers)
    assert reply.problem == (415, "UNSUPPORTED_MEDIA_TYPE")
    reply = await client.call(method, path, json={}, headers={"Content-Encoding": "gzip"})
    assert reply.problem == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_an_encoded_single_message_is_refused_not_stored(client: Client) -> None:
    reply = await client.send("orders", b"x", Content_Encoding="br")
    assert reply.problem == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert (await client.call("GET", "/v1/addresses/orders")).status == 404


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (f"{QUEUE}/messages?max=0", "max"),
        (f"{QUEUE}/messages?max=1001", "max"),
        (f"{QUEUE}/messages?max=ten", "max"),
        (f"{QUEUE}/messages?max=1&max=2", "max"),
        (f"{QUEUE}/messages?max=%D9%A1", "max"),
        (f"{QUEUE}/messages?wait=-1", "wait"),
        (f"{QUEUE}/messages?wait=60001", "wait"),
        (f"{QUEUE}/messages?lease=0", "lease"),
        (f"{QUEUE}/messages?lease=", "lease"),
        (f"{QUEUE}/messages?limit=5", "limit"),
        (f"{MESSAGES}?after=-2", "after"),
        (f"{MESSAGES}?after={2**63}", "after"),
        (f"{MESSAGES}?max=1e3", "max"),
        (f"{MESSAGES}/last", "position"),
    ],
)
async def test_a_parameter_out_of_its_limits_is_named(client: Client, path: str, key: str) -> None:
    reply = await client.call("GET", path)
    assert reply.problem == (400, "MALFORMED")
    assert reply.value["key"] == key


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ({"from": "middle"}, "from"),
        ({"from": -1}, "from"),
        ({"filter": 5}, "filter"),
        ({"start": 1}, None),
    ],
)
async def test_a_queue_that_cannot_be_made(client: Client, value: Any, key: str | None) -> None:
    reply = await client.call("PUT", QUEUE, json=value)
    assert reply.problem == (400, "MALFORMED")
    assert reply.value.get("key") == key


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("colour = 'red' AND", {"line": 1, "column": 19}),
        ("colour = 'red'\nAND >", {"line": 2, "column": 5}),
        (f"a = '{'x' * FILTER_CHARS_MAX}'", {"limit": FILTER_CHARS_MAX, "found": FILTER_CHARS_MAX + 6}),
    ],
)
async def test_a_filter_that_is_refused(client: Client, condition: str, found: dict[str, int]) -> None:
    reply = await client.call("PUT", QUEUE, json={"filter": condition})
    assert reply.problem == (400, "FILTER_REFUSED")
    assert reply.value | {"key": "filter", **found} == reply.value
    assert (await client.call("GET", f"{QUEUE}/messages")).status == 404


@pytest.mark.parametrize("key", ["exclusive", "last-value", "max-consumers"])
async def test_a_key_of_artemis_queues_is_answered_with_what_stands_for_it(client: Client, key: str) -> None:
    reply = await client.call("PUT", QUEUE, json={"from": "latest", key: True})
    assert reply.problem == (400, "MALFORMED")
    assert (reply.value["key"], reply.value["detail"]) == (key, f"{key}: {QUEUE_ANSWERS[key]}")
    other = await client.call("PUT", QUEUE, json={"weight": True})
    assert other.value["detail"] == "Object contains unknown field `weight`"


async def test_an_id_above_its_limit_is_refused_with_both_numbers(start: Start) -> None:
    client = await start(limits=Limits(max_duplicate_id_size=4))
    for reply in (
        await client.send("orders", b"x", Duplicate_Id="abcde"),
        await client.commit({"address": "orders", "body": "", "duplicate-id": "abcde"}),
        await client.commit({"address": "orders", "body": ""}, **{"duplicate-id": "abcde"}),
    ):
        assert reply.problem == (400, "INVALID_DUPLICATE_ID")
        assert (reply.value["limit"], reply.value["found"]) == (4, 5)


async def test_a_message_above_its_limit_is_refused_with_both_numbers(start: Start) -> None:
    client = await start(limits=Limits(max_message_size=10))
    assert (await client.send("orders", b"x" * 10)).status == 200
    reply = await client.send("orders", b"x" * 11)
    assert reply.problem == (413, "MESSAGE_TOO_LARGE")
    assert (reply.value["limit"], reply.value["found"]) == (10, 11)


async def test_each_message_of_a_transaction_is_measured_and_the_whole_is_too(start: Start) -> None:
    client = await start(limits=Limits(max_message_size=100))
    stored = await client.commit(*({"address": "a", "body": "x" * 100} for _ in range(2)))
    assert stored.status == 200
    reply = await client.commit({"address": "a", "body": ""}, {"address": "a", "body": "x" * 101})
    assert reply.problem == (413, "MESSAGE_TOO_LARGE")
    assert (reply.value["key"], reply.value["limit"], reply.value["found"]) == ("messages[1].body", 100, 101)
    reply = await client.commit(*({"address": "a", "body": "x" * 100} for _ in range(4)))
    assert reply.problem == (413, "MESSAGE_TOO_LARGE")
    assert (reply.value["key"], reply.value["limit"]) == ("body", 400)


async def test_an_anycast_address_has_the_queue_of_its_name_and_no_other(
    client: Client, store: MemoryStore
) -> None:
    store.anycast.add("jobs")
    await client.send("jobs", b"x")
    assert (await client.call("PUT", "/v1/addresses/jobs/queues/other")).problem == (409, "CONFLICT")
    reply = await client.call("GET", "/v1/addresses/jobs/queues/jobs/messages")
    assert [message["body"] for message in reply.value["messages"]] == ["x"]
