"""JSON and msgpack: the same keys, and every message back byte for byte in both."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contracts.http.conftest import MEMORY_AND_PROCESS
from tests.fakes.http_client import MSGPACK, Client
from tests.harness.rounds import rounds

DUPLICATE = {"verdict": "duplicate"}

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


async def end(client: Client) -> int:
    """The last position so far."""
    reply = await client.get("/v1/addresses")
    return max((address["next"] for address in reply.value["addresses"]), default=0) - 1


async def read(client: Client, address: str, after: int, **headers: str) -> list[dict[str, Any]]:
    """Its messages without their positions."""
    messages = await client.browse(address, f"after={after}", **headers)
    return [{name: value for name, value in message.items() if name != "position"} for message in messages]


@MEMORY_AND_PROCESS
@given(messages=st.lists(messages_sent, min_size=1, max_size=5), ids=st.lists(some_bytes, max_size=5))
@settings(max_examples=rounds(40), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_messages_come_back_byte_for_byte_in_both_forms(
    client: Client, address: str, messages: list[dict[str, Any]], ids: list[bytes]
) -> None:
    packed, plain = f"{address}.packed", f"{address}.plain"
    sent = [message | {"duplicate-id": None} for message in messages]
    for message, duplicate_id in zip(sent, ids, strict=False):
        message["duplicate-id"] = duplicate_id or None
    after = await end(client)
    skipping = {"messages": [{"address": packed, **message} for message in sent], "on-duplicate": "skip"}
    reply = await client.call("POST", "/v1/transactions", packed=skipping, headers=MSGPACK)
    assert (reply.status, reply.value["verdict"]) == (200, "stored")
    reply = await client.commit(
        *({"address": plain, **message_in_json(message)} for message in sent), on_duplicate="skip"
    )
    assert (reply.status, reply.value["verdict"]) == (200, "stored")
    kept = await read(client, packed, after, **MSGPACK)
    assert await read(client, plain, after, **MSGPACK) == kept
    assert await read(client, plain, after) == [message_in_json(message) for message in kept]
    assert len(kept) == len(sent) or ids
    assert all(message in sent for message in kept)
    if not any(ids):
        assert kept == sent


@MEMORY_AND_PROCESS
@given(body=st.binary(max_size=2000))
@settings(max_examples=rounds(40), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
async def test_a_single_body_comes_back_byte_for_byte(client: Client, address: str, body: bytes) -> None:
    first, _ = (await client.send(address, body)).positions
    raw = await client.get(f"/v1/addresses/{address}/messages/{first}")
    assert raw.content == body
    (message,) = await client.browse(address, f"after={first - 1}", **MSGPACK)
    assert message["body"] == body


async def test_msgpack_has_the_same_keys_with_bin_values(client: Client, address: str) -> None:
    message = {
        "address": address,
        "body": b"\xff",
        "key": b"k",
        "headers": {"h": b"\xfe"},
        "duplicate-id": b"\xfd",
    }
    sent = {"messages": [message], "duplicate-id": b"t"}
    reply = await client.call("POST", "/v1/transactions", packed=sent, headers=MSGPACK)
    assert reply.headers["Content-Type"] == "application/msgpack"
    first, _ = reply.positions[address]
    assert reply.value == {"verdict": "stored", "positions": {address: [first, first]}}
    assert (await client.call("POST", "/v1/transactions", packed=sent, headers=MSGPACK)).value == DUPLICATE
    reply = await client.send(address, b"x", Duplicate_Id="t", **MSGPACK)
    assert (reply.headers["Content-Type"], reply.value) == ("application/msgpack", DUPLICATE)
    reply = await client.send(address, b"\xff", **MSGPACK)
    assert reply.headers["Content-Type"] == "application/msgpack"
    assert reply.value == {"verdict": "stored", "positions": [first + 1, first + 1]}
    found = await client.browse(address, **MSGPACK)
    nothing: dict[str, Any] = {"key": None, "headers": {}, "duplicate-id": None, "timestamp": None}
    kept = {name: value for name, value in message.items() if name != "address"}
    assert found == [
        nothing | kept | {"position": first},
        nothing | {"body": b"\xff", "position": first + 1},
    ]
    queue = f"/v1/addresses/{address}/queues/q"
    assert (await client.call("PUT", queue, packed={"from": "earliest"}, headers=MSGPACK)).status == 201
    page = await client.get(f"{queue}/messages", **MSGPACK)
    assert page.headers["Content-Type"] == "application/msgpack"
    assert page.value["messages"] == found
    settle = {"lease": page.value["lease"]}
    settled = await client.call("POST", f"{queue}/acknowledge", packed=settle, headers=MSGPACK)
    assert settled.status == 204
    described = await client.get(f"/v1/addresses/{address}", **MSGPACK)
    assert described.headers["Content-Type"] == "application/msgpack"
    assert described.value["queues"][0]["lag"] == 0
