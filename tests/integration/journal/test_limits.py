"""What callers can make grow in a journal, driven to its limit; docs/operations.md has the limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridge.errors import AddressNotFound, Conflict, TargetRefused, TooBusy
from bridge.journal import journal as journal_module
from bridge.journal.rules import streams
from bridge.journal.rules.owners import EVERY_RIGHT, Caller
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import AddressPolicy
from bridge.messages.stream_names import LETTERS
from bridge.relay.ports import Stream
from dedup.verdict import Verdict
from tests.integration.journal.helpers import (
    BRIDGE,
    MIB,
    QUEUE,
    STREAM,
    batch,
    deliver,
    open_stream,
    opened,
    options,
    send,
    submission,
    target,
    transact,
)


async def test_no_more_than_max_addresses_are_made(tmp_path: Path) -> None:
    """A client hears which limit it is; a bridge waits, and goes on when there is room."""
    given = options(tmp_path, max_addresses=3, addresses={"declared": ()})
    async with opened(given) as journal:
        await send(journal, "m", address="a")
        await send(journal, "m", address="b")
        for refused in (
            send(journal, "m", address="c"),
            transact(journal, submission("m", address="a"), submission("m", address="c")),
            journal.create_queue("c", QUEUE, "earliest"),
        ):
            with pytest.raises(AddressNotFound) as caught:
                await refused
            assert (caught.value.key, caught.value.limit, caught.value.found) == ("max-addresses", 3, 4)
        await send(journal, "m", address="a")
        assert (await journal.address("a")).messages == 2, "nothing of the refused transaction is stored"
        end = target(journal)
        await open_stream(end, address="c")
        (receipt,) = await deliver(end, batch({0: "m"}, 1))
        assert receipt.verdict is Verdict.NOT_NOW
        assert "max-addresses" in receipt.reason
        await journal.delete_address("b")
        await open_stream(end, address="c")
        while (await deliver(end, batch({0: "m"}, 1)))[0].verdict is not Verdict.STORED:
            await open_stream(end, address="c")  # what was deleted goes in steps


async def test_no_more_than_max_addresses_are_made_by_one_transaction(tmp_path: Path) -> None:
    async with opened(options(tmp_path, max_addresses=2)) as journal:
        with pytest.raises(AddressNotFound):
            await transact(journal, *(submission("m", address=name) for name in "abc"))
        assert await journal.addresses() == []
        await transact(journal, *(submission("m", address=name) for name in "ab"))


async def test_no_more_than_max_queues_are_made(tmp_path: Path) -> None:
    async with opened(options(tmp_path, max_queues=2)) as journal:
        assert await journal.create_queue("orders", "one", "earliest")
        assert await journal.create_queue("others", "two", "earliest")
        with pytest.raises(Conflict) as caught:
            await journal.create_queue("new", "three", "earliest")
        assert (caught.value.key, caught.value.limit, caught.value.found) == ("max-queues", 2, 3)
        assert [status.address for status in await journal.addresses()] == ["orders", "others"]
        assert not await journal.create_queue("others", "two", "earliest"), "it is there"
        await journal.delete_queue("orders", "one")
        assert await journal.create_queue("new", "three", "earliest")


async def test_a_queue_that_is_refused_makes_no_address(tmp_path: Path) -> None:
    async with opened(options(tmp_path, AddressPolicy(routing_type="ANYCAST"))) as journal:
        for queue, condition in (("orders", "a = 1"), ("other", None)):
            with pytest.raises(Conflict, match="is ANYCAST"):
                await journal.create_queue("orders", queue, "earliest", condition)
            assert await journal.addresses() == []


@pytest.mark.parametrize(("name", "ending"), [("STREAMS_MOST", ""), ("LETTER_STREAMS_MOST", LETTERS)])
async def test_a_user_has_at_most_so_many_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ending: str
) -> None:
    monkeypatch.setattr(streams, name, 3)

    async def open_one(end: JournalTarget, number: int) -> None:
        await end.open([Stream(f"{STREAM}{number}{ending}", "orders", "orders", "run")])

    async with opened(tmp_path) as journal:
        user = JournalTarget(journal, BRIDGE, check_producer_ids=False, caller=Caller("user:edge", "node-1"))
        for number in range(3):
            await open_one(user, number)
        with pytest.raises(TargetRefused, match="TOO_MANY_STREAMS: user:edge has 3 streams") as caught:
            await open_one(user, 3)
        assert caught.value.limit == 3
        await open_one(user, 0)
        other = JournalTarget(journal, BRIDGE, check_producer_ids=False, caller=Caller(EVERY_RIGHT, "node-2"))
        await open_one(other, 3)


async def test_so_much_waits_for_a_commit_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "INBOX_BYTES", 2 * MIB)
    async with opened(tmp_path) as journal:
        sends = [asyncio.ensure_future(send(journal, b"x" * MIB)) for _ in range(20)]
        answers = await asyncio.gather(*sends, return_exceptions=True)
        busy = [answer for answer in answers if isinstance(answer, BaseException)]
        assert 0 < len(busy) < 20
        for error in busy:
            assert isinstance(error, TooBusy)
            assert error.limit == 2 * MIB
        assert (await send(journal, b"m")).stored
