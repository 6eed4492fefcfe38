"""A large transaction is decoded in pieces: the same answers, and others have their turn meanwhile."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from bridge.errors import BridgeError
from bridge.http.authentication import every_right
from bridge.http.limits import TRANSACTION_PIECE_BYTES, Limits
from bridge.http.transactions import Transactions
from bridge.journal.values.store import Committed, Transaction
from tests.fakes.http_client import Client
from tests.fakes.store import MemoryStore

#: Each is more than a piece.
BODY = "x" * TRANSACTION_PIECE_BYTES
PIECES = 3


def messages(**last: Any) -> list[dict[str, Any]]:
    """A large one for each piece, and a last one."""
    return [*({"address": "orders", "body": BODY} for _ in range(PIECES)), {"address": "orders", **last}]


@pytest.mark.parametrize("msgpack", [False, True])
async def test_what_a_large_transaction_holds_is_stored_as_it_is(
    client: Client, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, msgpack: bool
) -> None:
    raw = b"\x00\xff"
    last: dict[str, Any] = {"key": "k", "headers": {"h": ["a", "b"]}, "duplicate-id": "d", "timestamp": 7}
    last |= {"body": raw} if msgpack else {"body-base64": base64.b64encode(raw).decode()}
    content = {"messages": messages(**last), "duplicate-id": "own", "on-duplicate": "skip"}
    seen: list[Transaction] = []
    commit = store.commit

    async def watched(transaction: Transaction) -> Committed:
        seen.append(transaction)
        return await commit(transaction)

    monkeypatch.setattr(store, "commit", watched)
    given = (None, content) if msgpack else (content, None)
    reply = await client.call("POST", "/v1/transactions", json=given[0], packed=given[1])
    assert reply.status == 200
    assert reply.value["duplicates"] == []
    (transaction,) = seen
    assert [len(one.message.body or b"") for one in transaction.sent[:-1]] == [len(BODY)] * PIECES
    found = transaction.sent[-1]
    assert (found.message.body, found.message.key, found.message.timestamp) == (raw, b"k", 7)
    assert found.message.headers == (("h", b"a"), ("h", b"b"))
    assert (found.duplicate_id, transaction.duplicate_id) == (b"d", b"own")


@pytest.mark.parametrize(
    ("last", "code", "key"),
    [
        ({"body": 5}, "MALFORMED", "messages[3].body"),
        ({"body": "", "headers": {"": "x"}}, "MALFORMED", "messages[3].headers"),
        ({}, "MALFORMED", "messages[3].body"),
        ({"body": "", "odd": 1}, "MALFORMED", "messages[3]"),
        ({"body": "", "duplicate-id": 5}, "INVALID_DUPLICATE_ID", "messages[3].duplicate-id"),
        ({"body": "", "timestamp": -1}, "MALFORMED", "messages[3].timestamp"),
    ],
)
async def test_what_is_wrong_is_named_by_its_place(
    client: Client, store: MemoryStore, last: dict[str, Any], code: str, key: str
) -> None:
    reply = await client.commit(*messages(**last))
    assert reply.problem == (400, code)
    assert reply.value["key"] == key
    assert await store.addresses() == []


async def test_others_have_their_turn_between_two_pieces() -> None:
    """64 MiB of headers took 6.4 s at once, in which the node served nobody; a turn takes 0.06 s."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    body = msgspec.json.encode({"messages": messages(body="")})
    transactions = Transactions(MemoryStore(), Limits(), 1.0)
    counting = asyncio.create_task(count_turns())
    try:
        await transactions._in_pieces(body, every_right("token"), msgpack=False)
        assert turns >= PIECES - 1
    finally:
        counting.cancel()


async def test_counts_are_checked_before_the_pieces() -> None:
    body = msgspec.json.encode({"messages": [{"address": "orders", "body": "x" * 30}] * 10_001})
    with pytest.raises(BridgeError) as caught:
        await Transactions(MemoryStore(), Limits(), 1.0)._in_pieces(body, every_right("t"), msgpack=False)
    assert (caught.value.code, caught.value.limit, caught.value.found) == ("MALFORMED", 10_000, 10_001)
