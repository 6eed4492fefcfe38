"""What every source does: one suite, run by the fake and by every real end."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sqlite3
import zlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

import pytest

from bridge.errors import SourceGap
from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.source import JournalSource
from bridge.journal.values.options import BridgeQueue, BridgeSelection, JournalOptions
from bridge.journal.values.store import Sent, Transaction
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message
from bridge.messages.message import Message
from bridge.relay.divergence import Diverged
from bridge.relay.ports import Receipt, Source, StreamState
from bridge.relay.stays import Remembered
from dedup.verdict import Verdict
from tests.fakes.backup import copy_journal
from tests.fakes.ends import FakeJournal, FakeSource

BRIDGE = "orders-to-hub"
#: Of the sources below: some seven messages.
BATCH_BYTES = 60


class Origin(Protocol):
    """What is behind a source: where clients send, and what outlives a process."""

    async def put(self, address: str, bodies: Sequence[bytes]) -> list[int]:
        """Store messages; answers their positions."""

    def source(self) -> Source:
        """The bridge's source, as a process makes it that has just started."""

    async def restart(self) -> None:
        """End the process and start another."""

    async def back_up(self) -> None:
        """Copy what outlives the process, which goes on."""

    async def restore(self) -> None:
        """End the process, put the copy in its place and start another."""

    async def backlog(self, address: str) -> int:
        """Messages that are not settled."""

    async def close(self) -> None: ...


class FakeOrigin:
    def __init__(self, _: Path) -> None:
        self.journal = FakeJournal()
        self.journal.make("orders")

    async def put(self, address: str, bodies: Sequence[bytes]) -> list[int]:
        return self.journal.put(address, *map(Message, bodies))

    def source(self) -> Source:
        return FakeSource(self.journal, BRIDGE, most=7)

    async def restart(self) -> None:
        self.journal.reopen()

    async def back_up(self) -> None:
        self.saved = self.journal.copy()

    async def restore(self) -> None:
        self.journal = self.saved.copy()
        self.journal.reopen()

    async def backlog(self, address: str) -> int:
        return len(self.journal.backlog(BRIDGE, address))

    async def close(self) -> None:
        """Nothing is open."""


class JournalOrigin:
    def __init__(self, directory: Path) -> None:
        queue = BridgeQueue(BRIDGE, ["orders"], lambda address: address != "other")
        self.options = JournalOptions(directory / "node", bridges=[queue])
        self.saved = directory / "backup"
        self.journal: Journal

    async def put(self, address: str, bodies: Sequence[bytes]) -> list[int]:
        positions: list[int] = []
        values = list(bodies)
        for size in itertools.cycle((1, 5, 2)):  # blocks of one message and of several
            if not values:
                return positions
            together = [Sent.of(address, Message(body)) for body in values[:size]]
            del values[:size]
            first, last = (await self.journal.commit(Transaction(together))).positions[address]
            positions.extend(range(first, last + 1))
        raise AssertionError

    def source(self) -> Source:
        return JournalSource(
            self.journal,
            BridgeSelection(BRIDGE, lambda address: address != "other", lambda address: address),
            Cutter(BATCH_BYTES, BATCH_BYTES, stamp=True),
            target_name="hub",
        )

    async def restart(self) -> None:
        await self.journal.close()
        self.journal = await Journal.open(self.options)

    async def back_up(self) -> None:
        copy_journal(self.options.directory, self.saved)

    async def restore(self) -> None:
        await self.journal.close()
        shutil.rmtree(self.options.directory)
        shutil.copytree(self.saved, self.options.directory)
        self.journal = await Journal.open(self.options)

    async def backlog(self, address: str) -> int:
        return await self.journal.read(_bridge_lag, address)

    async def close(self) -> None:
        await self.journal.close()


def _bridge_lag(connection: sqlite3.Connection, address: str) -> int:
    (next_position,) = connection.execute(
        "SELECT q.next FROM queues q JOIN addresses a USING (address_id) WHERE a.name = ? AND q.bridge = ?",
        (address, BRIDGE),
    ).fetchone()
    rows = connection.execute(
        "SELECT b.first, b.count FROM blocks b JOIN addresses a USING (address_id) WHERE a.name = ?",
        (address,),
    )
    return sum(max(0, first + count - max(first, next_position)) for first, count in rows)


@pytest.fixture(params=[FakeOrigin, JournalOrigin], ids=["fake", "journal"])
async def origin(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Origin]:
    made = request.param(tmp_path)
    if isinstance(made, JournalOrigin):
        made.journal = await Journal.open(made.options)
    yield made
    await made.close()


def bodies(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]


async def identities(source: Source) -> dict[str, str]:
    """Stream identity by address."""
    return {stream.address: stream.identity for stream in await source.streams()}


async def opened(
    origin: Origin, resume: dict[str, int | None] | None = None, store: str = "store-1"
) -> Source:
    """A new source, open at these positions by address (all others: None)."""
    source = origin.source()
    names = await identities(source)
    states = {identity: StreamState((resume or {}).get(address)) for address, identity in names.items()}
    await source.open(states, store)
    return source


async def read(source: Source, messages: int) -> list[Batch]:
    """The next batches, until so many messages have come."""
    batches: list[Batch] = []
    async with asyncio.timeout(5):
        while sum(batch.count for batch in batches) < messages:
            batches.extend(await source.read())
    return batches


def messages(batches: Sequence[Batch], identity: str) -> list[tuple[int, bytes | None]]:
    """(position, body) of everything that the stream's batches carry; they must cover without a gap."""
    found: list[tuple[int, bytes | None]] = []
    upto: int | None = None
    for batch in batches:
        if batch.stream != identity:
            continue
        assert upto is None or batch.from_ == upto, f"covered up to {upto}, then from {batch.from_}"
        upto = batch.upto
        places = list(run_arithmetic.positions(batch.runs))
        assert all(batch.from_ <= place < batch.upto for place in places)
        if batch.block is not None:
            assert batch.checksum == batch.block.checksum
            found.extend(zip(places, (m.whole for m in batch.block.messages()), strict=True))
    return found


def origins(batches: Sequence[Batch]) -> list[tuple[str, int]]:
    """Where each message says that it was first stored."""
    return [
        (stream, position)
        for batch in batches
        if batch.block is not None
        for stream, first, last in batch.block.origins
        for position in range(first, last + 1)
    ]


async def settle(source: Source, batches: Sequence[Batch]) -> None:
    for batch in batches:
        await source.settled(batch, Receipt(batch.stream, Verdict.STORED, batch.upto, committed=1))


async def test_everything_is_read_in_order_at_its_exact_positions(origin: Origin) -> None:
    """B1"""
    positions = await origin.put("orders", bodies(0, 40))
    source = await opened(origin)
    found = messages(await read(source, 40), (await identities(source))["orders"])
    assert found == list(zip(positions, bodies(0, 40), strict=True))
    await source.close()


async def test_positions_are_exact_where_several_addresses_share_the_sequence(origin: Origin) -> None:
    sent: dict[str, list[tuple[int, bytes]]] = {"orders": [], "invoices": []}
    for number in range(0, 40, 4):
        for address, count in (("orders", 3), ("invoices", 1)):
            values = bodies(number, number + count)
            sent[address] += zip(await origin.put(address, values), values, strict=True)
    source = await opened(origin)
    batches = await read(source, 40)
    for address, identity in (await identities(source)).items():
        assert messages(batches, identity) == sent[address]
    await source.close()


async def test_messages_say_where_they_were_first_stored_and_the_same_again_when_read_again(
    origin: Origin,
) -> None:
    """B10"""
    positions = await origin.put("orders", bodies(0, 20))
    first = await opened(origin)
    identity = (await identities(first))["orders"]
    found = origins(await read(first, 20))
    assert found == [(identity, position) for position in positions]
    await first.close()
    await origin.restart()
    again = await opened(origin)
    assert origins(await read(again, 20)) == found
    await again.close()


async def test_streams_have_the_same_identity_after_a_restart(origin: Origin) -> None:
    await origin.put("invoices", bodies(0, 1))
    before = await identities(origin.source())
    assert set(before) == {"orders", "invoices"}
    await origin.restart()
    assert await identities(origin.source()) == before


async def test_reading_waits_for_what_comes_later(origin: Origin) -> None:
    source = await opened(origin)
    reading = asyncio.create_task(source.read())
    await asyncio.sleep(0)
    assert not reading.done()
    await origin.put("orders", bodies(0, 1))
    (batch,) = await asyncio.wait_for(reading, 5)
    assert batch.block is not None
    assert batch.block.messages() == [Message(b"m0")]
    await source.close()


async def test_it_resumes_exactly_where_the_target_says_also_within_what_was_stored_together(
    origin: Origin,
) -> None:
    positions = await origin.put("orders", bodies(0, 20))
    for start in (5, 6, 13, 19):
        source = await opened(origin, {"orders": positions[start]})
        batches = await read(source, 20 - start)
        assert batches[0].from_ == positions[start]
        assert messages(batches, batches[0].stream) == list(
            zip(positions[start:], bodies(start, 20), strict=True)
        )
        await source.close()


async def test_opened_again_it_reads_again_what_is_not_settled(origin: Origin) -> None:
    positions = await origin.put("orders", bodies(0, 20))
    source = await opened(origin)
    identity = (await identities(source))["orders"]
    batches = await read(source, 10)
    await settle(source, batches[:1])
    done = batches[0].count
    await source.open({identity: StreamState(batches[0].upto)}, "store-1")
    found = messages(await read(source, 20 - done), identity)
    assert found == list(zip(positions[done:], bodies(done, 20), strict=True))
    await source.close()


async def test_what_is_settled_is_gone_and_remembered_with_the_store_that_has_it(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 20))
    source = await opened(origin, store="store-7")
    batches = await read(source, 20)
    await settle(source, batches)
    await source.close()
    assert await origin.backlog("orders") == 0
    await origin.restart()
    again = origin.source()
    assert await again.remembered() == {batches[0].stream: Remembered(batches[-1].upto, "store-7")}


async def test_what_was_read_and_not_settled_stays_in_order(origin: Origin) -> None:
    """R15, R25"""
    positions = await origin.put("orders", bodies(0, 20))
    source = await opened(origin)
    batches = await read(source, 20)
    await settle(source, batches[:1])
    await source.close()
    left = 20 - batches[0].count
    assert await origin.backlog("orders") == left
    await origin.restart()
    again = await opened(origin)
    found = messages(await read(again, left), batches[0].stream)
    assert found == list(zip(positions[-left:], bodies(20 - left, 20), strict=True))
    await again.close()


async def test_nothing_is_remembered_of_a_bridge_that_never_had_a_receipt(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 3))
    source = await opened(origin)
    await read(source, 3)
    await source.close()
    assert await origin.source().remembered() == {}


async def test_what_the_target_has_beyond_the_last_receipt_is_settled_at_opening(origin: Origin) -> None:
    """B9"""
    positions = await origin.put("orders", bodies(0, 20))
    source = await opened(origin, {"orders": positions[12]})
    assert await origin.backlog("orders") == 8
    identity = (await identities(source))["orders"]
    assert (await source.remembered())[identity] == Remembered(positions[12], "store-1")
    found = messages(await read(source, 8), identity)
    assert found == list(zip(positions[12:], bodies(12, 20), strict=True))
    await source.close()


async def test_everything_may_have_been_settled_by_the_targets_word_alone(origin: Origin) -> None:
    positions = await origin.put("orders", bodies(0, 5))
    source = await opened(origin, {"orders": positions[-1] + 1})
    assert await origin.backlog("orders") == 0
    await origin.put("orders", bodies(5, 6))
    (batch,) = await read(source, 1)
    assert batch.from_ == positions[-1] + 1
    await source.close()


async def test_a_position_beyond_the_end_is_a_gap_with_both_numbers(origin: Origin) -> None:
    positions = await origin.put("orders", bodies(0, 5))
    with pytest.raises(SourceGap) as raised:
        await opened(origin, {"orders": positions[-1] + 10})
    assert (raised.value.limit, raised.value.found) == (positions[-1] + 1, positions[-1] + 10)


async def test_new_streams_show_as_an_empty_reading_until_they_are_opened(origin: Origin) -> None:
    source = await opened(origin)
    before = await identities(source)
    reading = asyncio.create_task(source.read())
    await asyncio.sleep(0)
    await origin.put("invoices", bodies(0, 3))
    assert list(await asyncio.wait_for(reading, 5)) == []
    identity = (await identities(source))["invoices"]
    assert identity not in before.values()
    await source.open({identity: StreamState(None)}, "store-1")
    assert [body for _, body in messages(await read(source, 3), identity)] == bodies(0, 3)
    await origin.put("orders", bodies(3, 5))
    assert [body for _, body in messages(await read(source, 2), before["orders"])] == bodies(3, 5)
    await source.close()


async def test_however_many_streams_there_are_all_of_them_are_read(origin: Origin) -> None:
    addresses = [f"a{number}" for number in range(25)]
    for number, address in enumerate(addresses):
        await origin.put(address, bodies(number, number + 3))
    source = await opened(origin)
    names = await identities(source)
    batches = await read(source, 75)
    for number, address in enumerate(addresses):
        assert [body for _, body in messages(batches, names[address])] == bodies(number, number + 3)
    await origin.put("a7", bodies(7, 8))
    await origin.put("a24", bodies(24, 25))
    assert {batch.stream for batch in await read(source, 2)} == {names["a7"], names["a24"]}
    await source.close()


async def test_a_stream_with_a_backlog_does_not_keep_others_waiting(origin: Origin) -> None:
    for number in range(12):
        await origin.put(f"a{number}", bodies(0, 60))
    source = await opened(origin)
    names = await identities(source)
    async with asyncio.timeout(5):
        first = [batch.stream for _ in range(4) for batch in await source.read()]
    assert {names[f"a{number}"] for number in range(12)} <= set(first)
    await source.close()


async def test_a_stream_that_backs_off_is_read_no_more_until_it_is_opened_again(origin: Origin) -> None:
    positions = await origin.put("orders", bodies(0, 60))
    await origin.put("invoices", bodies(0, 1))
    source = await opened(origin)
    names = await identities(source)
    orders, invoices = names["orders"], names["invoices"]
    first = [batch for batch in await source.read() if batch.stream == orders][:1]
    source.back_off([orders, "a stream that is not open"])
    await settle(source, first)  # what was handed out may still be taken
    reading = asyncio.create_task(source.read())
    await asyncio.sleep(0.3)
    await origin.put("orders", bodies(60, 63))
    later = await origin.put("invoices", bodies(1, 4))
    found = list(await asyncio.wait_for(reading, 5))
    while not any(batch.upto > later[-1] for batch in found):
        found += await asyncio.wait_for(source.read(), 5)
    assert {batch.stream for batch in found} == {invoices}
    upto = first[-1].upto if first else 0
    await source.open({orders: StreamState(upto)}, "store-1")
    left = [position for position in positions if position >= upto]
    again = await read(source, len(left) + 3)
    assert [body for _, body in messages(again, orders)] == bodies(60 - len(left), 63)
    assert messages(again, orders)[0][0] == left[0]
    await source.close()


async def test_a_reading_that_is_given_up_takes_nothing_with_it(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 60))
    source = await opened(origin)
    found: list[Batch] = []
    for turns in (*range(12), *range(12)):
        reading = asyncio.create_task(source.read())
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        for answer in await asyncio.gather(reading, return_exceptions=True):
            found += answer if not isinstance(answer, BaseException) else []
    missing = 60 - sum(batch.count for batch in found)
    found += await read(source, missing) if missing else []
    assert [body for _, body in messages(found, (await identities(source))["orders"])] == bodies(0, 60)
    await source.close()


async def test_a_reading_that_is_given_up_disturbs_nobody(origin: Origin) -> None:
    source, other = await opened(origin), await opened(origin)
    readings = [asyncio.create_task(one.read()) for one in (source, other)]
    await asyncio.sleep(0.05)
    readings[0].cancel()
    await asyncio.gather(readings[0], return_exceptions=True)
    await origin.put("orders", bodies(0, 1))
    (batch,) = await asyncio.wait_for(readings[1], 5)
    assert batch.count == 1
    assert [batch.count for batch in await read(source, 1)] == [1]
    await source.close()
    await other.close()


async def test_closed_and_opened_again_it_goes_on(origin: Origin) -> None:
    """R18"""
    await origin.put("orders", bodies(0, 3))
    source = await opened(origin)
    identity = (await identities(source))["orders"]
    batches = await read(source, 3)
    await settle(source, batches)
    await source.close()
    await origin.put("orders", bodies(3, 6))
    await source.open({identity: StreamState(batches[-1].upto)}, "store-1")
    assert [body for _, body in messages(await read(source, 3), identity)] == bodies(3, 6)
    await source.close()


async def test_coverage_alone_is_settled_too(origin: Origin) -> None:
    positions = await origin.put("orders", bodies(0, 3))
    source = await opened(origin)
    (first, *rest) = await read(source, 3)
    covered = Batch(first.stream, first.from_, first.upto, refused=tuple(positions[: first.count]))
    await settle(source, [covered, *rest])
    await source.close()
    assert await origin.backlog("orders") == 0


# -- copies and backups ----------------------------------------------------------------------------------


def checksum(body: bytes) -> int:
    """Of a message as it is stored."""
    return zlib.crc32(encode_message(Message(body)))


async def run_of(origin: Origin) -> str:
    (stream, *_) = await origin.source().streams()
    return stream.run


async def open_at(origin: Origin, address: str, state: StreamState) -> None:
    """What a bridge does that starts and finds this at its target."""
    source = origin.source()
    await source.open({(await identities(source))[address]: state}, "store-1")
    await source.close()


async def refused(origin: Origin, address: str, state: StreamState) -> Diverged:
    """The divergence; nothing may have been settled by the target's word, again and again."""
    before = await origin.backlog(address)
    with pytest.raises(Diverged):
        await open_at(origin, address, state)
    await origin.restart()
    with pytest.raises(Diverged) as raised:
        await open_at(origin, address, state)
    assert await origin.backlog(address) == before
    assert await origin.source().remembered() == {}
    return raised.value


async def test_what_any_of_its_own_runs_sent_is_gone_on_with(origin: Origin) -> None:
    """Also what a run sent that began above it: it found a backlog."""
    positions = await origin.put("orders", bodies(0, 20))
    runs = []
    for place in (0, 4, 4, 5, 12, 18):
        for _ in range(3):
            runs.append(await run_of(origin))
            await origin.restart()
        state = StreamState(positions[place], runs[-2], checksum(b"m%d" % (place - 1)) if place else 0)
        await open_at(origin, "orders", state)
        assert await origin.backlog("orders") == 20 - place
    assert len(set(runs)) == len(runs)
    await origin.put("orders", bodies(20, 30))
    await open_at(origin, "orders", StreamState(positions[-1] + 1, runs[0], checksum(b"m19")))
    assert await origin.backlog("orders") == 10


async def test_another_address_has_the_position_below_next(origin: Origin) -> None:
    positions: list[int] = []
    for number in range(0, 12, 3):
        positions += await origin.put("orders", bodies(number, number + 1))
        await origin.put("invoices", bodies(number + 1, number + 3))
    await open_at(origin, "orders", StreamState(positions[3], await run_of(origin), checksum(b"m6")))
    await open_at(origin, "orders", StreamState(positions[3] + 1, await run_of(origin), checksum(b"m9")))


async def test_a_run_that_was_never_its_own_is_a_divergence(origin: Origin) -> None:
    """B12"""
    positions = await origin.put("orders", bodies(0, 20))
    error = await refused(origin, "orders", StreamState(positions[12], "a-copys-run", checksum(b"m11")))
    assert error.found == "a-copys-run"
    for part in ("a-copys-run", f"up to {positions[12]}", f"{checksum(b'm11'):08x}", "Nothing was sent"):
        assert part in error.detail


@pytest.mark.parametrize("stored_before", [0, 20])
async def test_a_run_that_covers_more_than_it_ever_stored_is_a_divergence(
    origin: Origin, stored_before: int
) -> None:
    """The reused positions of a restored backup, whatever lies at them now. B13"""
    await origin.put("orders", bodies(0, stored_before))
    run = await run_of(origin)
    await origin.back_up()
    positions = await origin.put("orders", bodies(20, 40))
    await origin.restore()
    state = StreamState(positions[9] + 1, run, checksum(b"m29"))
    assert await origin.put("orders", bodies(20, 40)) == positions  # the same messages again
    error = await refused(origin, "orders", state)
    assert (error.limit, error.found) == (positions[0], positions[9] + 1)
    await open_at(origin, "orders", StreamState(positions[0], run))  # up to the backup all is well


async def test_another_message_below_next_is_a_divergence(origin: Origin) -> None:
    """A machine that was set back with its memory is still in the same run."""
    positions = await origin.put("orders", bodies(0, 20))
    for place in (1, 5, 12, 19):
        state = StreamState(positions[place] + 1, await run_of(origin), checksum(b"other"))
        error = await refused(origin, "orders", state)
        assert (error.limit, error.found) == (f"{checksum(b'm%d' % place):08x}", f"{checksum(b'other'):08x}")


async def test_the_last_message_is_compared_also_when_it_is_settled_and_gone(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 20))
    run = await run_of(origin)
    source = await opened(origin)
    batches = await read(source, 20)
    await settle(source, batches)
    await source.close()
    await origin.restart()
    await open_at(origin, "orders", StreamState(batches[-1].upto, run, checksum(b"m19")))
    with pytest.raises(Diverged):
        await open_at(origin, "orders", StreamState(batches[-1].upto, run, checksum(b"other")))


async def test_what_the_targets_word_alone_settled_is_compared_the_next_time(origin: Origin) -> None:
    positions = await origin.put("orders", bodies(0, 20))
    run = await run_of(origin)
    for state in (StreamState(positions[6], run, checksum(b"m5")), StreamState(20, run, checksum(b"m19"))):
        for _ in range(3):
            await open_at(origin, "orders", state)
            await origin.restart()
    with pytest.raises(Diverged):
        await open_at(origin, "orders", StreamState(20, run, checksum(b"other")))


async def test_a_next_where_another_address_has_its_messages_is_compared_with_the_last_before_it(
    origin: Origin,
) -> None:
    (first,) = await origin.put("orders", bodies(0, 1))
    await origin.put("invoices", bodies(1, 3))
    await origin.put("orders", bodies(3, 4))
    run = await run_of(origin)
    await open_at(origin, "orders", StreamState(first + 1, run, checksum(b"m0")))
    for _ in range(2):  # settled by the target's word, with no message to settle; then compared
        await open_at(origin, "orders", StreamState(first + 2, run, checksum(b"m0")))
    with pytest.raises(Diverged):
        await open_at(origin, "orders", StreamState(first + 2, run, checksum(b"other")))


async def test_what_the_target_does_not_say_is_not_compared(origin: Origin) -> None:
    positions = await origin.put("orders", bodies(0, 20))
    await open_at(origin, "orders", StreamState(None, "any", 7))
    await open_at(origin, "orders", StreamState(positions[3], "", checksum(b"m2")))
    await open_at(origin, "orders", StreamState(positions[5], await run_of(origin), 0))


async def test_one_stream_that_diverged_keeps_the_others_from_being_settled(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 20))
    await origin.put("invoices", bodies(20, 25))
    source = origin.source()
    run = await run_of(origin)
    names = await identities(source)
    states = {
        names["orders"]: StreamState(20, run, checksum(b"m19")),
        names["invoices"]: StreamState(22, "x"),
    }
    with pytest.raises(Diverged):
        await source.open(states, "store-1")
    await source.close()
    assert await origin.backlog("orders") == 20
    assert await origin.source().remembered() == {}
