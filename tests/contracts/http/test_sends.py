"""Single sends: the body and what its headers say, duplicate IDs, positions."""

from __future__ import annotations

import asyncio
import base64
import json
from itertools import chain

import pytest

from bridge.http.limits import EVENT_BYTES_MAX
from tests.fakes.http_client import Client
from tests.harness.api import HOST, titles

DUPLICATE = {"verdict": "duplicate"}
#: Every header that can carry an ID, each with the same one.
SAME_ID = [
    {"Idempotency-Key": '"s 1"'},
    {"Idempotency-Key": "s 1"},
    {"Duplicate-Id": "s 1"},
    {"_AMQ_DUPL_ID": "s 1"},
    {"_HQ_DUPL_ID": "s 1"},
    {"Message-Header-_AMQ_DUPL_ID": "s 1"},
    {"Message-Header-_HQ_DUPL_ID": "s 1"},
    {"ce-source": "s", "ce-id": "1"},
    {"Idempotency-Key": '"s 1"', "Duplicate-Id": "s 1", "_AMQ_DUPL_ID": "s 1"},
]


def messages_of(address: str) -> str:
    return f"/v1/addresses/{address}/messages"


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
async def test_a_body_is_stored_byte_for_byte_whatever_its_type(
    client: Client, address: str, content_type: str
) -> None:
    body = b'\x00\xff{"not json\r\n'
    first, last = (await client.send(address, body, Content_Type=content_type)).positions
    assert first == last
    (message,) = await client.browse(address)
    assert base64.b64decode(message["body-base64"]) == body
    assert message["headers"]["content-type"] == content_type
    assert (await client.get(f"{messages_of(address)}/{first}")).content == body


@pytest.mark.parametrize("client", ["memory", "journal"], indirect=True)
async def test_positions_of_a_new_journal_start_at_0(client: Client, address: str) -> None:
    """README's tour shows it of a node."""
    assert (await client.send(address, b"a")).positions == [0, 0]


async def test_positions_run_over_all_addresses(client: Client, address: str) -> None:
    first, _ = (await client.send(address, b"a")).positions
    reply = await client.send(f"{address}.other", b"b")
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.content == b'{"verdict":"stored","positions":[%d,%d]}' % (first + 1, first + 1)
    assert (await client.send(address, b"c")).positions == [first + 2, first + 2]


async def test_a_repeated_id_is_a_success_and_stores_nothing(client: Client, address: str) -> None:
    """D1: the first copy is kept even where later bodies differ."""
    sent = [(b"m0", None), (b"m1", "a"), (b"m2", "a"), (b"m3", "a"), (b"m4", "b"), (b"m5", "b"), (b"m6", "a")]
    verdicts = []
    for body, duplicate_id in sent:
        reply = await client.send(address, body, **({"Duplicate_Id": duplicate_id} if duplicate_id else {}))
        assert reply.status == 200
        verdicts.append(reply.value["verdict"])
        assert verdicts[-1] == "stored" or reply.content == b'{"verdict":"duplicate"}'
    assert verdicts == ["stored", "stored", "duplicate", "duplicate", "stored", "duplicate", "duplicate"]
    assert await client.bodies(address) == ["m0", "m1", "m4"]


@pytest.mark.parametrize("headers", SAME_ID, ids=str)
async def test_one_id_is_the_same_by_every_way_it_can_come(
    client: Client, address: str, headers: dict[str, str]
) -> None:
    """D3: a header, a JSON string and msgpack bytes of the same bytes are one ID."""
    first, _ = (await client.call("POST", messages_of(address), b"1", headers=headers)).positions
    for again in SAME_ID:
        assert (await client.call("POST", messages_of(address), b"2", headers=again)).value == DUPLICATE
    for duplicate_id in ("s 1", {"base64": base64.b64encode(b"s 1").decode()}):
        reply = await client.commit({"address": address, "body": "3", "duplicate-id": duplicate_id})
        reply.is_problem(409, "DUPLICATE_ID_REJECTED")
    packed = {"messages": [{"address": address, "body": b"4", "duplicate-id": b"s 1"}]}
    reply = await client.call("POST", "/v1/transactions", packed=packed)
    reply.is_problem(409, "DUPLICATE_ID_REJECTED")
    (message,) = await client.browse(address)
    assert (message["position"], message["duplicate-id"]) == (first, "s 1")


async def test_source_and_id_of_a_cloud_event_are_its_id_and_its_headers(
    client: Client, address: str
) -> None:
    event = {"ce-source": "/shop", "ce-id": "17", "ce-type": "order.placed", "ce-specversion": "1.0"}
    assert (await client.send(address, b"a", **event)).value["verdict"] == "stored"
    assert (await client.send(address, b"b", **event)).value == DUPLICATE
    assert (await client.send(address, b"c", Duplicate_Id="/shop 17")).value == DUPLICATE
    (message,) = await client.browse(address)
    assert message["duplicate-id"] == "/shop 17"
    assert event.items() <= message["headers"].items()


async def test_source_and_id_in_the_body_of_a_cloud_event_are_its_id(client: Client, address: str) -> None:
    # Structured mode: the type of the body says so, in any case and with parameters.
    body = json.dumps({"specversion": "1.0", "id": "17", "source": "/shop/é", "data": {"n": [1]}}).encode()
    typed = {"Content_Type": "Application/CloudEvents+JSON; charset=utf-8"}
    assert (await client.send(address, body, **typed)).value["verdict"] == "stored"
    again = json.dumps({"data": 2, "source": "/shop/é", "id": "17"}).encode()
    assert (await client.send(address, again, Content_Type="application/cloudevents+json")).value == DUPLICATE
    assert (await client.send(address, body, **typed, Duplicate_Id="/shop/é 17")).value == DUPLICATE
    reply = await client.send(address, body, **typed, Duplicate_Id="other")
    reply.is_problem(400, "INVALID_DUPLICATE_ID")
    (message,) = await client.browse(address)
    assert (message["duplicate-id"], message["body"]) == ("/shop/é 17", body.decode())
    assert message["headers"] == {"content-type": typed["Content_Type"]}


@pytest.mark.parametrize(
    ("body", "code", "key", "words"),
    [
        (b"{", "MALFORMED", "body", "truncated"),
        (b"[]", "MALFORMED", "body", "Expected `object`, got `array`"),
        (b'{"id": "1"}', "MALFORMED", "body", "missing required field `source`"),
        (b'{"id": 1, "source": "s"}', "MALFORMED", "body.id", "Expected `str`, got `int`"),
        (
            b'{"id": "", "source": "s"}',
            "INVALID_DUPLICATE_ID",
            "body.id",
            "source and id of a CloudEvent",
        ),
        (b'{"id": "' + b"x" * 1025 + b'", "source": "s"}', "INVALID_DUPLICATE_ID", "Duplicate-Id", "1024"),
    ],
    ids=str,
)
async def test_a_body_that_is_no_cloud_event_is_refused(
    client: Client, address: str, body: bytes, code: str, key: str, words: str
) -> None:
    reply = await client.send(address, body, Content_Type="application/cloudevents+json")
    problem = reply.is_problem(400, code)
    assert problem["key"] == key
    assert words in problem["detail"]
    assert await client.browse(address) == []


@pytest.mark.parametrize("kind", ["-batch+json", "+avro", "+protobuf", "", "-batch"])
async def test_cloud_events_in_another_form_are_refused(client: Client, address: str, kind: str) -> None:
    reply = await client.send(address, b"[]", Content_Type=f"application/cloudevents{kind}")
    problem = reply.is_problem(415, "UNSUPPORTED_MEDIA_TYPE")
    assert (problem["key"], problem["found"]) == ("Content-Type", f"application/cloudevents{kind}")
    assert "one by one" in problem["detail"]


async def test_a_cloud_event_in_its_body_has_a_limit(client: Client, address: str) -> None:
    event = b'{"id": "1", "source": "s", "data": "%b"}'
    largest = event % (b"x" * (EVENT_BYTES_MAX - len(event) + 2))
    typed = {"Content_Type": "application/cloudevents+json"}
    assert len(largest) == EVENT_BYTES_MAX
    assert (await client.send(address, largest, **typed)).value["verdict"] == "stored"
    (await client.send(address, largest + b" ", **typed)).is_problem(413, "MESSAGE_TOO_LARGE")


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
async def test_two_different_ids_or_an_empty_one_are_refused(
    client: Client, address: str, headers: dict[str, str]
) -> None:
    reply = await client.call("POST", messages_of(address), b"x", headers=headers)
    reply.is_problem(400, "INVALID_DUPLICATE_ID")
    assert await client.browse(address) == []


async def test_fifty_parallel_sends_of_one_id_store_one(client: Client, address: str) -> None:
    """D40."""
    replies = await asyncio.gather(*(client.send(address, b"x", Duplicate_Id="a") for _ in range(50)))
    verdicts = sorted(reply.value["verdict"] for reply in replies)
    assert verdicts == ["duplicate"] * 49 + ["stored"]
    assert len(await client.browse(address)) == 1


async def test_everything_about_a_message_comes_back_and_nothing_else(client: Client, address: str) -> None:
    reply = await client.send(
        address,
        b'{"n": 1}',
        Content_Type="application/json; charset=utf-8",
        Message_Key="customer-7",
        Message_Timestamp="1357034400000",
        Message_Header_Region="EU",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        tracestate="vendor=1",
        Duplicate_Id="key-1",
        X_Other="not kept",
    )
    assert await client.browse(address) == [
        {
            "position": reply.positions[0],
            "body": '{"n": 1}',
            "key": "customer-7",
            "headers": {
                "content-type": "application/json; charset=utf-8",
                "region": "EU",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "tracestate": "vendor=1",
            },
            "duplicate-id": "key-1",
            "timestamp": 1_357_034_400_000,
        }
    ]


async def test_a_message_may_be_empty_and_what_was_not_given_is_null(client: Client, address: str) -> None:
    position, _ = (await client.send(address, b"")).positions
    assert await client.browse(address) == [
        {
            "position": position,
            "body": "",
            "key": None,
            "headers": {},
            "duplicate-id": None,
            "timestamp": None,
        }
    ]


async def test_many_clients_at_once_each_get_their_own_positions(client: Client, address: str) -> None:
    async def send_some(number: int) -> list[int]:
        replies = [await client.send(address, b"%d-%d" % (number, turn)) for turn in range(25)]
        return [reply.positions[0] for reply in replies]

    found = await asyncio.gather(*(send_some(number) for number in range(8)))
    messages = await client.browse(address)
    assert sorted(chain.from_iterable(found)) == [message["position"] for message in messages]
    for number in range(8):
        own = [body for body in titles(messages) if body.startswith(f"{number}-")]
        assert own == [f"{number}-{turn}" for turn in range(25)]


async def test_a_slow_or_broken_client_does_not_hurt_the_others(client: Client, address: str) -> None:
    head = (
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n" % messages_of(address).encode()
    )
    _, slow = await asyncio.open_connection(HOST, client.port)
    try:
        slow.write(head + b"half")
        await slow.drain()
        assert (await client.send(address, b"whole")).status == 200
    finally:
        slow.close()
        await slow.wait_closed()
    assert await client.bodies(address) == ["whole"]
