"""HTTP as contract.md has it, over every store: each row of its table, by what a client sees."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.http.acceptor import Acceptor, AcceptorOptions
from bridge.journal.journal import Journal
from bridge.journal.values.options import JournalOptions
from bridge.journal.values.store import Store
from tests.fakes.http_client import MSGPACK, Client, Reply, http_client
from tests.fakes.store import MemoryStore

Opens = Callable[[Path], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def memory(_directory: Path) -> AsyncIterator[Store]:
    yield MemoryStore()


@asynccontextmanager
async def journal(directory: Path) -> AsyncIterator[Store]:
    opened = await Journal.open(JournalOptions(directory=directory))
    try:
        yield opened
    finally:
        await opened.close()


@pytest.fixture(params=[memory, journal], ids=["memory", "journal"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    opens: Opens = request.param
    async with opens(tmp_path) as store:
        acceptor = Acceptor(store, AcceptorOptions(url="ws://127.0.0.1:0"))
        bound = await acceptor.start()
        try:
            async with http_client(str(bound)) as calling:
                yield calling
        finally:
            await acceptor.stop(100)


QUEUE = "/v1/addresses/orders/queues/q"


async def browse(client: Client, address: str = "orders", **headers: str) -> list[dict[str, Any]]:
    reply = await client.call("GET", f"/v1/addresses/{address}/messages?max=1000", headers=headers)
    assert reply.status == 200
    messages: list[dict[str, Any]] = reply.value["messages"]
    return messages


async def lease(client: Client, query: str = "", queue: str = QUEUE) -> tuple[str | None, list[Any]]:
    reply = await client.call("GET", f"{queue}/messages{query}")
    assert reply.status == 200, reply.value
    return reply.value["lease"], [message["body"] for message in reply.value["messages"]]


async def settle(client: Client, how: str, lease_id: str | None, **upto: int) -> Reply:
    return await client.call("POST", f"{QUEUE}/{how}", json={"lease": lease_id, **upto})


def stored(reply: Reply) -> Any:
    assert reply.status == 200, reply.value
    assert reply.value["verdict"] == "stored"
    return reply.value["positions"]


# ------------------------------------------------------------------ single messages


async def test_the_first_message_of_a_journal_has_position_zero(client: Client) -> None:
    reply = await client.send("orders", b"one")
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.content == b'{"verdict":"stored","positions":[0,0]}'
    assert stored(await client.send("orders", b"two")) == [1, 1]


async def test_a_repeated_id_is_a_success_and_stores_nothing(client: Client) -> None:
    """D1: the first copy is kept even where later bodies differ."""
    sent = [(b"m0", None), (b"m1", "a"), (b"m2", "a"), (b"m3", "a"), (b"m4", "b"), (b"m5", "b"), (b"m6", "a")]
    verdicts = []
    for body, duplicate_id in sent:
        reply = await client.send("orders", body, **({"Duplicate_Id": duplicate_id} if duplicate_id else {}))
        assert reply.status == 200
        verdicts.append(reply.value["verdict"])
    assert verdicts == ["stored", "stored", "duplicate", "duplicate", "stored", "duplicate", "duplicate"]
    assert [message["body"] for message in await browse(client)] == ["m0", "m1", "m4"]


async def test_a_duplicate_answers_nothing_but_its_verdict(client: Client) -> None:
    await client.send("orders", b"one", Idempotency_Key='"abc"')
    reply = await client.send("orders", b"two", Idempotency_Key="abc")
    assert reply.content == b'{"verdict":"duplicate"}'


async def test_one_id_is_the_same_by_every_way_it_can_come(client: Client) -> None:
    """D3: a header, a JSON string and msgpack bytes of the same bytes are one ID."""
    path = "/v1/addresses/orders/messages"
    await client.call("POST", path, b"1", headers={"_AMQ_DUPL_ID": "s 1"})
    for headers in (
        {"Idempotency-Key": '"s 1"'},
        {"Duplicate-Id": "s 1"},
        {"ce-source": "s", "ce-id": "1"},
    ):
        assert (await client.call("POST", path, b"2", headers=headers)).value["verdict"] == "duplicate"
    for duplicate_id in ("s 1", {"base64": base64.b64encode(b"s 1").decode()}):
        message = {"address": "orders", "body": "3", "duplicate-id": duplicate_id}
        assert (await client.commit(message)).problem == (409, "DUPLICATE_ID_REJECTED")
    packed = {"messages": [{"address": "orders", "body": b"4", "duplicate-id": b"s 1"}]}
    reply = await client.call("POST", "/v1/transactions", packed=packed)
    assert reply.problem == (409, "DUPLICATE_ID_REJECTED")


async def test_fifty_parallel_sends_of_one_id_store_one(client: Client) -> None:
    """D40."""
    replies = await asyncio.gather(*(client.send("orders", b"x", Duplicate_Id="a") for _ in range(50)))
    verdicts = sorted(reply.value["verdict"] for reply in replies)
    assert verdicts == ["duplicate"] * 49 + ["stored"]
    assert len(await browse(client)) == 1


async def test_everything_about_a_single_message_comes_back(client: Client) -> None:
    await client.call(
        "POST",
        "/v1/addresses/orders/messages",
        b'{"n": 1}',
        headers={
            "Content-Type": "application/json; charset=utf-8",
            "Message-Key": "customer-7",
            "Message-Timestamp": "1357034400000",
            "Message-Header-Region": "eu",
            "traceparent": "00-1-2-01",
            "Duplicate-Id": "key-1",
        },
    )
    assert await browse(client) == [
        {
            "position": 0,
            "body": '{"n": 1}',
            "key": "customer-7",
            "headers": {
                "content-type": "application/json; charset=utf-8",
                "region": "eu",
                "traceparent": "00-1-2-01",
            },
            "duplicate-id": "key-1",
            "timestamp": 1_357_034_400_000,
        }
    ]


async def test_what_was_not_given_is_null(client: Client) -> None:
    await client.send("orders", b"")
    assert await browse(client) == [
        {"position": 0, "body": "", "key": None, "headers": {}, "duplicate-id": None, "timestamp": None}
    ]


# ------------------------------------------------------------------ transactions


async def test_a_transaction_stores_in_order_and_names_positions_by_address(client: Client) -> None:
    reply = await client.commit(
        *({"address": name, "body": str(number)} for number, name in enumerate(["a", "a", "b", "a"]))
    )
    positions = stored(reply)
    assert set(reply.value) == {"verdict", "positions"}
    assert {name: last - first + 1 for name, (first, last) in positions.items()} == {"a": 3, "b": 1}
    assert [message["body"] for message in await browse(client, "a")] == ["0", "1", "3"]


async def test_a_transactions_own_id_makes_its_repetition_a_duplicate(client: Client) -> None:
    """D33: its ID is remembered at every address it touched."""
    first = ({"address": "a", "body": "1"}, {"address": "b", "body": "2"})
    stored(await client.commit(*first, **{"duplicate-id": "t1"}))
    assert (await client.commit(*first, **{"duplicate-id": "t1"})).value == {"verdict": "duplicate"}
    only_b = {"address": "b", "body": "3"}
    assert (await client.commit(only_b, **{"duplicate-id": "t1"})).value == {"verdict": "duplicate"}
    assert (await client.send("a", b"4", Duplicate_Id="t1")).value == {"verdict": "duplicate"}
    assert len(await browse(client, "a")) == len(await browse(client, "b")) == 1


async def test_known_single_ids_fail_the_whole_and_are_all_named(client: Client) -> None:
    """D34: nothing is stored, remembered or acknowledged."""
    await client.call("PUT", "/v1/addresses/orders/queues/q")
    await client.send("orders", b"0", Duplicate_Id="a")
    lease_id, _ = await lease(client)
    reply = await client.commit(
        {"address": "orders", "body": "1", "duplicate-id": "fresh"},
        {"address": "orders", "body": "2", "duplicate-id": "a"},
        {"address": "orders", "body": "3"},
        acknowledge=[{"address": "orders", "queue": "q", "lease": lease_id}],
    )
    assert reply.problem == (409, "DUPLICATE_ID_REJECTED")
    assert reply.value["duplicates"] == [{"index": 1, "address": "orders", "duplicate-id": "a"}]
    assert (await settle(client, "release", lease_id)).status == 204
    assert (await lease(client))[1] == ["0"]
    stored(await client.send("orders", b"4", Duplicate_Id="fresh"))


async def test_one_id_twice_in_a_transaction_is_rejected(client: Client) -> None:
    """D38: never two copies."""
    twice = [{"address": "orders", "body": str(n), "duplicate-id": "same"} for n in range(2)]
    reply = await client.commit(*twice)
    assert reply.problem == (409, "DUPLICATE_ID_REJECTED")
    assert [entry["index"] for entry in reply.value["duplicates"]] == [1]


async def test_skip_leaves_out_what_is_known_and_stores_the_rest(client: Client) -> None:
    await client.send("orders", b"0", Duplicate_Id="a")
    messages = [{"address": "orders", "body": str(n), "duplicate-id": n_id} for n, n_id in enumerate("xaby")]
    reply = await client.commit(*messages, **{"on-duplicate": "skip"})
    assert stored(reply) == {"orders": [1, 3]}
    assert reply.value["duplicates"] == [1]
    assert [message["body"] for message in await browse(client)] == ["0", "0", "2", "3"]


async def test_acknowledging_and_sending_are_one_step(client: Client) -> None:
    await client.call("PUT", QUEUE)
    await client.send("orders", b"in")
    lease_id, bodies = await lease(client)
    assert bodies == ["in"]
    acknowledge = [{"address": "orders", "queue": "q", "lease": lease_id}]
    stored(await client.commit({"address": "done", "body": "out"}, acknowledge=acknowledge))
    assert await lease(client) == (None, [])
    again = await client.commit({"address": "done", "body": "out"}, acknowledge=acknowledge)
    assert again.problem == (409, "STALE_LEASE")
    assert len(await browse(client, "done")) == 1


async def test_a_transaction_may_acknowledge_and_send_nothing(client: Client) -> None:
    await client.call("PUT", QUEUE)
    await client.send("orders", b"in")
    lease_id, _ = await lease(client)
    reply = await client.commit(acknowledge=[{"address": "orders", "queue": "q", "lease": lease_id}])
    assert reply.value == {"verdict": "stored", "positions": {}}


async def test_a_repeated_transaction_of_acknowledgements_is_a_duplicate(client: Client) -> None:
    """Whoever sends it again because its answer was lost learns that it was done, as with messages."""
    await client.call("PUT", QUEUE)
    await client.send("orders", b"in")
    lease_id, _ = await lease(client)
    acknowledge = [{"address": "orders", "queue": "q", "lease": lease_id}]
    other = [{"address": "orders", "queue": "q", "lease": "another"}]
    refused = await client.commit(acknowledge=other, **{"duplicate-id": "done-1"})
    assert refused.problem == (409, "STALE_LEASE"), "and nothing of it is remembered"
    first = await client.commit(acknowledge=acknowledge, **{"duplicate-id": "done-1"})
    assert first.value == {"verdict": "stored", "positions": {}}
    again = await client.commit(acknowledge=acknowledge, **{"duplicate-id": "done-1"})
    assert (again.status, again.value) == (200, {"verdict": "duplicate"})
    assert (await client.commit(acknowledge=acknowledge)).problem == (409, "STALE_LEASE")


# ------------------------------------------------------------------ queues


async def test_a_queue_is_made_once(client: Client) -> None:
    assert (await client.call("PUT", QUEUE, json={"from": "earliest"})).status == 201
    assert (await client.call("PUT", QUEUE, json={"from": "latest"})).status == 200


@pytest.mark.parametrize(
    ("start", "expected"),
    [(None, ["0", "1", "2"]), ("earliest", ["0", "1", "2"]), ("latest", ["2"]), (1, ["1", "2"])],
)
async def test_a_queue_begins_where_it_was_asked_to(client: Client, start: Any, expected: list[str]) -> None:
    await client.send("orders", b"0")
    await client.send("orders", b"1")
    made = await client.call("PUT", QUEUE, json=None if start is None else {"from": start})
    assert made.status == 201
    await client.send("orders", b"2")
    assert (await lease(client))[1] == expected


async def test_a_deleted_queue_is_gone(client: Client) -> None:
    await client.call("PUT", QUEUE)
    assert (await client.call("DELETE", QUEUE)).status == 204
    assert (await client.call("DELETE", QUEUE)).problem == (404, "QUEUE_NOT_FOUND")
    assert (await client.call("GET", f"{QUEUE}/messages")).problem == (404, "QUEUE_NOT_FOUND")


async def test_two_readers_never_hold_the_same_message(client: Client) -> None:
    await client.call("PUT", QUEUE)
    await client.commit(*({"address": "orders", "body": str(n)} for n in range(5)))
    first, bodies = await lease(client, "?max=2")
    second, more = await lease(client, "?max=100")
    assert (bodies, more) == (["0", "1"], ["2", "3", "4"])
    assert first != second
    assert await lease(client) == (None, [])


async def test_what_a_lease_does_not_settle_returns_in_order(client: Client) -> None:
    await client.call("PUT", QUEUE)
    await client.commit(*({"address": "orders", "body": str(n)} for n in range(4)))
    lease_id, _ = await lease(client)
    assert (await settle(client, "acknowledge", lease_id, upto=1)).status == 204
    assert (await settle(client, "acknowledge", lease_id)).problem == (409, "STALE_LEASE")
    lease_id, bodies = await lease(client)
    assert bodies == ["2", "3"]
    assert (await settle(client, "release", lease_id)).status == 204
    assert (await settle(client, "release", lease_id)).problem == (409, "STALE_LEASE")
    assert (await lease(client))[1] == ["2", "3"]


async def test_the_messages_of_an_ended_lease_are_next_again(client: Client) -> None:
    await client.call("PUT", QUEUE)
    await client.send("orders", b"0")
    lease_id, _ = await lease(client, "?lease=1")
    assert (await lease(client, "?wait=5000"))[1] == ["0"]
    assert (await settle(client, "acknowledge", lease_id)).problem == (409, "STALE_LEASE")


async def test_a_long_poll_answers_as_soon_as_there_is_a_message(client: Client) -> None:
    await client.call("PUT", QUEUE)
    waiting = asyncio.create_task(lease(client, "?wait=60000"))
    await asyncio.sleep(0)
    await client.send("orders", b"late")
    async with asyncio.timeout(5):
        assert (await waiting)[1] == ["late"]


async def test_a_poll_that_finds_nothing_says_so(client: Client) -> None:
    await client.call("PUT", QUEUE)
    reply = await client.call("GET", f"{QUEUE}/messages?wait=1")
    assert reply.content == b'{"lease":null,"messages":[]}'


# ------------------------------------------------------------------ looking


async def test_browsing_goes_on_after_a_position_and_changes_nothing(client: Client) -> None:
    await client.call("PUT", QUEUE)
    await client.commit(*({"address": "orders", "body": str(n)} for n in range(5)))
    reply = await client.call("GET", "/v1/addresses/orders/messages?after=1&max=2")
    assert [message["body"] for message in reply.value["messages"]] == ["2", "3"]
    assert len((await lease(client))[1]) == 5


async def test_one_body_comes_raw_with_the_type_it_was_sent_with(client: Client) -> None:
    body = bytes(range(256))
    await client.send("orders", body, Content_Type="image/x-test; v=1")
    reply = await client.call("GET", "/v1/addresses/orders/messages/0")
    assert (reply.status, reply.content) == (200, body)
    assert reply.headers["Content-Type"] == "image/x-test; v=1"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_stored_type_cannot_forge_headers(client: Client) -> None:
    evil = {"content-type": "text/html\r\nSet-Cookie: a=b"}
    await client.commit(
        {"address": "orders", "body": "x", "headers": evil}, {"address": "orders", "body": "y"}
    )
    for position in (0, 1):
        reply = await client.call("GET", f"/v1/addresses/orders/messages/{position}")
        assert reply.headers["Content-Type"] == "application/octet-stream"
        assert "Set-Cookie" not in reply.headers


async def test_a_tombstones_raw_body_is_no_content(client: Client) -> None:
    await client.commit({"address": "orders", "body": None})
    assert (await browse(client))[0]["body"] is None
    reply = await client.call("GET", "/v1/addresses/orders/messages/0")
    assert (reply.status, reply.content) == (204, b"")


async def test_a_position_that_holds_nothing_is_not_found(client: Client) -> None:
    await client.send("orders", b"x")
    reply = await client.call("GET", "/v1/addresses/orders/messages/7")
    assert reply.problem == (404, "NOT_FOUND")


async def test_an_address_is_described(client: Client) -> None:
    await client.call("PUT", QUEUE)
    await client.send("orders", b"0", Duplicate_Id="a")
    await client.send("orders", b"1")
    await client.send("other", b"2")
    await lease(client, "?max=1")
    described = (await client.call("GET", "/v1/addresses/orders")).value
    queue = described["queues"][0]
    assert queue.pop("idle-ms") >= -1
    assert described.pop("bytes") > 0
    assert described.pop("next") >= 2
    assert described == {
        "address": "orders",
        "routing-type": "MULTICAST",
        "messages": 2,
        "max-bytes": 1 << 30,
        "first": 0,
        "id-cache": {"entries": 1, "capacity": 20_000},
        "queues": [{"name": "q", "next": 0, "lag": 2, "leased": 1}],
        "bridges": [],
    }
    listed = (await client.call("GET", "/v1/addresses")).value["addresses"]
    assert [address["address"] for address in listed] == ["orders", "other"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/addresses/none"),
        ("GET", "/v1/addresses/none/messages"),
        ("GET", "/v1/addresses/none/messages/0"),
        ("GET", "/v1/addresses/none/queues/q/messages"),
        ("DELETE", "/v1/addresses/none/queues/q"),
    ],
)
async def test_an_address_that_is_not_there_is_named(client: Client, method: str, path: str) -> None:
    reply = await client.call(method, path)
    assert reply.problem == (404, "ADDRESS_NOT_FOUND")


# ------------------------------------------------------------------ byte for byte

#: As JSON carries bytes: text where they are UTF-8.
some_bytes = st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode))
optional_bytes = st.one_of(st.none(), some_bytes)
header_values = st.one_of(optional_bytes, st.lists(optional_bytes, min_size=2, max_size=3))
messages_sent = st.fixed_dictionaries(
    {
        "body": optional_bytes,
        "key": optional_bytes,
        "headers": st.dictionaries(st.text(min_size=1, max_size=8), header_values, max_size=4),
        "timestamp": st.one_of(st.none(), st.integers(0, 2**63 - 1)),
    }
)


def in_json(value: Any) -> Any:
    """Bytes the way a careful JSON client writes them."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [in_json(item) for item in value]
    if isinstance(value, dict):
        return {name: in_json(item) for name, item in value.items()}
    return value


def message_in_json(message: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = in_json({name: value for name, value in message.items() if name != "body"})
    body = in_json(message["body"])
    return shown | ({"body-base64": body["base64"]} if isinstance(body, dict) else {"body": body})


@given(messages=st.lists(messages_sent, min_size=1, max_size=5), ids=st.lists(some_bytes, max_size=5))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_messages_come_back_byte_for_byte_in_both_forms(
    client: Client, messages: list[dict[str, Any]], ids: list[bytes]
) -> None:
    sent = [message | {"duplicate-id": None} for message in messages]
    for message, duplicate_id in zip(sent, ids, strict=False):
        message["duplicate-id"] = duplicate_id or None
    after = await end(client)
    stored(
        await client.call(
            "POST",
            "/v1/transactions",
            packed={"messages": [{"address": "m", **message} for message in sent], "on-duplicate": "skip"},
            headers=MSGPACK,
        )
    )
    stored(
        await client.commit(
            *({"address": "j", **message_in_json(message)} for message in sent), **{"on-duplicate": "skip"}
        )
    )
    by_msgpack = await read(client, "m", after, MSGPACK)
    by_json = await read(client, "j", after, {})
    assert [without_position(message) for message in await read(client, "j", after, MSGPACK)] == [
        without_position(message) for message in by_msgpack
    ]
    kept = list(map(without_position, by_msgpack))
    assert [message_in_json(message) for message in kept] == list(map(without_position, by_json))
    assert len(kept) == len(sent) or ids
    assert all(message in sent for message in kept)
    if not any(ids):
        assert kept == sent


async def end(client: Client) -> int:
    reply = await client.call("GET", "/v1/addresses")
    return max((address["next"] for address in reply.value["addresses"]), default=0) - 1


async def read(client: Client, address: str, after: int, headers: dict[str, str]) -> list[dict[str, Any]]:
    path = f"/v1/addresses/{address}/messages?after={after}"
    reply = await client.call("GET", path, headers=headers)
    assert reply.status == 200
    messages: list[dict[str, Any]] = reply.value["messages"]
    return messages


def without_position(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "position"}


@given(body=st.binary(max_size=2000))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_a_single_body_comes_back_byte_for_byte(client: Client, body: bytes) -> None:
    first, _ = stored(await client.send("orders", body))
    raw = await client.call("GET", f"/v1/addresses/orders/messages/{first}")
    assert raw.content == body
    page = await client.call("GET", f"/v1/addresses/orders/messages?after={first - 1}", headers=MSGPACK)
    assert page.value["messages"][0]["body"] == body


async def test_msgpack_carries_the_same_keys(client: Client) -> None:
    reply = await client.call("POST", "/v1/addresses/orders/messages", b"\xff", headers=MSGPACK)
    assert reply.headers["Content-Type"] == "application/msgpack"
    assert reply.value == {"verdict": "stored", "positions": [0, 0]}
    assert (await client.call("PUT", QUEUE, packed={"from": "earliest"}, headers=MSGPACK)).status == 201
    reply = await client.call("GET", f"{QUEUE}/messages", headers=MSGPACK)
    assert msgspec.msgpack.decode(reply.content)["messages"] == [
        {"position": 0, "body": b"\xff", "key": None, "headers": {}, "duplicate-id": None, "timestamp": None}
    ]
    assert (
        await client.call("POST", f"{QUEUE}/acknowledge", packed={"lease": reply.value["lease"]})
    ).status == 204
