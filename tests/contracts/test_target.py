"""What every target does: one suite, run by the fake, by the journal, and by a node over a real socket."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import pytest
from aiohttp import web

from bridge.errors import Fenced, OutOfSequence, TargetUnavailable
from bridge.journal.journal import Journal
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import AddressPolicy, JournalOptions
from bridge.journal.values.store import Sent, Transaction
from bridge.link import limits
from bridge.link.correspondent import LinkEnd
from bridge.link.frames import Hello
from bridge.link.node_target import NodeTarget
from bridge.link.receiving import NodeIdentity
from bridge.link.socket import Endpoint, serve_link
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block, encode_message, pack
from bridge.messages.message import Message
from bridge.messages.positions import Runs
from bridge.relay.ports import Receipt, Stream, StreamState, Target
from dedup.ids import Stamp
from dedup.verdict import Verdict
from tests.fakes.ends import FakeStore, FakeTarget

BRIDGE = "orders-to-hub"
STREAM = Stream("journal:incarnation-1:orders:0", "orders", "orders", "run-1")
#: An address of little room that answers NOT_NOW at once, and one that holds what comes.
SMALL, HELD = "small", "held"
SMALL_BYTES = 4096
#: Above what any target here takes.
TOO_LARGE = b"x" * 20_000


class Store(Protocol):
    """What is behind a target."""

    def target(self, bridge: str = BRIDGE) -> Target:
        """A target as a process makes it that has just started."""

    async def stored(self, address: str = "orders") -> list[tuple[bytes | None, bytes | None]]:
        """(body, duplicate ID) of every message, in order."""

    async def fill(self, address: str) -> None:
        """No message more finds room at SMALL or HELD."""

    async def make_room(self, address: str) -> None:
        """What `fill` filled has room again, for targets that are open too."""

    async def cut(self, target: Target) -> None:
        """What lies between an open target and its store goes, and says nothing."""


class MemoryStore:
    def __init__(self) -> None:
        self.store = FakeStore()
        self.store.largest = len(TOO_LARGE) - 1

    def target(self, bridge: str = BRIDGE) -> Target:
        return FakeTarget(self.store, bridge)

    async def stored(self, address: str = "orders") -> list[tuple[bytes | None, bytes | None]]:
        return [
            (one.message.whole, one.duplicate_id.encode() or None)
            for one in self.store.addresses.get(address, [])
        ]

    async def fill(self, address: str) -> None:
        if address == SMALL:
            self.store.full.add(address)
        else:
            self.store.drop_receipts()

    async def make_room(self, address: str) -> None:
        self.store.full.discard(address)

    async def cut(self, target: Target) -> None:
        self.store.cut()


class JournalStore:
    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        #: Messages that `fill` put at an address.
        self.filling: dict[str, int] = {}

    @staticmethod
    def policy(address: str) -> AddressPolicy:
        if address in (SMALL, HELD):
            return AddressPolicy(SMALL_BYTES, "FAIL" if address == SMALL else "BLOCK")
        return AddressPolicy()

    def target(self, bridge: str = BRIDGE) -> Target:
        return JournalTarget(self.journal, bridge, check_producer_ids=False)

    async def stored(self, address: str = "orders") -> list[tuple[bytes | None, bytes | None]]:
        if address not in {status.address for status in await self.journal.addresses()}:
            return []
        found = await self.journal.browse(address, after=-1, most=10_000, most_bytes=1 << 30)
        return [(delivered.message.whole, delivered.duplicate_id) for delivered in found][
            self.filling.get(address, 0) :
        ]

    async def fill(self, address: str) -> None:
        await self.journal.commit(Transaction([Sent.of(address, Message(b"x" * (SMALL_BYTES - 50)))]))
        self.filling[address] = 1

    async def make_room(self, address: str) -> None:
        """A queue that needs nothing of what there is lets it all go."""
        await self.journal.create_queue(address, "latest", "latest")
        self.filling[address] = 0

    async def cut(self, target: Target) -> None:
        """Nothing lies between them that could go."""
        await target.close()


class NodeStore(JournalStore):
    """The journal's rules at the other end of a WebSocket."""

    url = ""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.connections: list[asyncio.Transport] = []

    def target(self, bridge: str = BRIDGE) -> Target:
        hello = Hello(
            version=limits.VERSION,
            node_id=str(uuid.uuid4()),
            node_name="edge",
            store="edge-store",
            bridge=bridge,
            check_producer_ids=False,
            use_duplicate_detection=True,
            producer_window=1 << 20,
            check_period_ms=30_000,
            connection_ttl_ms=60_000,
        )
        return NodeTarget(Endpoint(self.url, compression="zstd"), hello, call_timeout_ms=5_000)

    async def listen(self, stack: AsyncExitStack) -> None:
        def end_of(hello: Hello) -> LinkEnd:
            return LinkEnd(
                JournalTarget(self.journal, hello.bridge, check_producer_ids=hello.check_producer_ids)
            )

        async def link(request: web.Request) -> web.StreamResponse:
            assert isinstance(request.transport, asyncio.Transport)
            self.connections.append(request.transport)
            who = NodeIdentity(self.journal.identity.node_id, "hub", self.journal.store, 1 << 14)
            return await serve_link(request, end_of, identity=who, call_timeout_ms=5_000)

        app = web.Application()
        app.router.add_get(limits.PATH, link)
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"ws://127.0.0.1:{runner.addresses[0][1]}"

    async def cut(self, target: Target) -> None:
        for connection in self.connections:
            connection.abort()


@pytest.fixture(params=["fake", "journal", "node"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "fake":
        yield MemoryStore()
        return
    async with AsyncExitStack() as stack:
        options = JournalOptions(tmp_path, policy=JournalStore.policy, max_message_bytes=1 << 14)
        journal = await Journal.open(options)
        stack.push_async_callback(journal.close)
        if request.param == "journal":
            yield JournalStore(journal)
            return
        node = NodeStore(journal)
        await node.listen(stack)
        yield node


@pytest.fixture
async def target(store: Store) -> AsyncIterator[Target]:
    made = store.target()
    yield made
    await made.close()


def to(address: str) -> Stream:
    return Stream(f"journal:incarnation-1:{address}:0", address, address, "run-1")


def batch(
    from_: int,
    upto: int,
    *,
    stream: Stream = STREAM,
    runs: Runs | None = None,
    refused: tuple[int, ...] = (),
    large: int | None = None,
) -> Batch:
    """Messages `m<position>` at the runs' positions (all by default); TOO_LARGE at `large`."""
    runs = ((from_, upto - 1),) if runs is None else runs
    places = list(run_arithmetic.positions(runs))
    block: Block | None = None
    if places:
        values = [TOO_LARGE if place == large else b"m%d" % place for place in places]
        block = pack([encode_message(Message(value)) for value in values]).stamped(stream.identity, runs)
    return Batch(stream.identity, from_, upto, runs, block, upto * 11, refused, (1, 2))


async def deliver(target: Target, *batches: Batch) -> list[Receipt]:
    async with asyncio.timeout(5):
        return list(await target.deliver(batches))


async def opened(target: Target, stream: Stream = STREAM) -> StreamState:
    async with asyncio.timeout(5):
        return (await target.open([stream])).streams[stream.identity]


def expected(*positions: int, stream: Stream = STREAM) -> list[tuple[bytes, bytes]]:
    stamp = Stamp(stream.identity)
    return [(b"m%d" % position, stamp.text(position).encode()) for position in positions]


async def test_a_stream_never_seen_says_whether_others_of_its_source_were_brought(
    store: Store, target: Target
) -> None:
    other = to("invoices")
    answer = await target.open([STREAM, other])
    assert [answer.streams[one.identity].has_run for one in (STREAM, other)] == [False, False]
    await deliver(target, batch(0, 2))
    again = await opened(target, other)
    assert (again.next, again.has_run) == (None, True)
    stranger = store.target("another")
    assert not (await opened(stranger, other)).has_run
    await stranger.close()


async def test_a_stream_in_which_nothing_ever_comes_is_remembered_and_needs_no_address(
    store: Store, target: Target
) -> None:
    record = Stream("kafka:cluster:start:0", "start", "start", empty=True)
    assert (await opened(target, record)).next is None
    (receipt,) = await deliver(target, Batch(record.identity, 0, 0))
    assert (receipt.verdict, receipt.next) == (Verdict.STORED, 0)
    for made in (target, store.target()):
        assert (await opened(made, record)).next == 0
    (receipt,) = await deliver(made, Batch(record.identity, 0, 0))
    assert receipt.verdict is Verdict.DUPLICATE
    assert await store.stored("start") == []
    await made.close()


async def test_a_stream_never_seen_has_no_next_and_its_first_batch_gives_it_one(
    store: Store, target: Target
) -> None:
    """B1"""
    assert (await opened(target)).next is None
    (receipt,) = await deliver(target, batch(5, 8))
    assert (receipt.verdict, receipt.next, receipt.duplicates) == (Verdict.STORED, 8, 0)
    assert receipt.committed >= 0
    assert await store.stored() == expected(5, 6, 7)


async def test_next_run_and_checksum_are_there_after_the_process_is_another(
    store: Store, target: Target
) -> None:
    await opened(target)
    await deliver(target, batch(0, 3), batch(3, 5))
    await target.close()
    again = store.target()
    state = await opened(again)
    assert (state.next, state.run, state.checksum) == (5, "run-1", 55)
    await again.close()


async def test_the_store_identity_is_always_the_same(store: Store, target: Target) -> None:
    first = (await target.open([STREAM])).store
    assert first
    assert (await target.open([])).store == first
    other = store.target("another")
    assert (await other.open([to("invoices")])).store == first
    await other.close()


async def test_a_replay_is_a_duplicate_and_stores_nothing(store: Store, target: Target) -> None:
    """B9"""
    await opened(target)
    await deliver(target, batch(0, 5))
    (receipt,) = await deliver(target, batch(0, 5))
    assert (receipt.verdict, receipt.next, receipt.duplicates) == (Verdict.DUPLICATE, 5, 5)
    assert await store.stored() == expected(0, 1, 2, 3, 4)


async def test_of_a_batch_cut_anew_only_what_is_new_is_stored(store: Store, target: Target) -> None:
    await opened(target)
    await deliver(target, batch(0, 5))
    (receipt,) = await deliver(target, batch(2, 9, runs=((2, 3), (6, 8))))
    assert (receipt.verdict, receipt.next, receipt.duplicates) == (Verdict.STORED, 9, 2)
    assert await store.stored() == expected(0, 1, 2, 3, 4, 6, 7, 8)


async def test_what_lies_beyond_a_gap_is_never_stored(store: Store, target: Target) -> None:
    await opened(target)
    await deliver(target, batch(0, 5))
    with pytest.raises(OutOfSequence):
        await deliver(target, batch(6, 9))
    assert await store.stored() == expected(0, 1, 2, 3, 4)
    assert (await opened(target)).next == 5


async def test_coverage_without_messages_moves_next(store: Store, target: Target) -> None:
    await opened(target)
    receipts = await deliver(target, batch(0, 5, runs=(), refused=(2,)), batch(5, 6))
    assert [(receipt.verdict, receipt.next) for receipt in receipts] == [
        (Verdict.STORED, 5),
        (Verdict.STORED, 6),
    ]
    assert await store.stored() == expected(5)


async def test_calls_that_overlap_take_effect_in_the_order_of_the_calls(store: Store, target: Target) -> None:
    await opened(target)
    await deliver(target, batch(0, 1))
    calls = [asyncio.create_task(deliver(target, batch(n, n + 1))) for n in range(1, 60)]
    receipts = [receipt for call in calls for receipt in await call]
    assert [receipt.next for receipt in receipts] == list(range(2, 61))
    assert await store.stored() == expected(*range(60))


async def test_a_message_too_large_is_refused_by_its_position_with_nothing_stored(
    store: Store, target: Target
) -> None:
    await opened(target)
    await deliver(target, batch(0, 2))
    (receipt,) = await deliver(target, batch(2, 6, large=4))
    assert (receipt.verdict, receipt.position, receipt.next) == (Verdict.REFUSED, 4, 2)
    assert receipt.reason.startswith("MESSAGE_TOO_LARGE: ")
    assert await store.stored() == expected(0, 1)


async def test_nothing_behind_a_refused_batch_is_stored_until_the_stream_is_opened_again(
    store: Store, target: Target
) -> None:
    await opened(target)
    await deliver(target, batch(0, 2))
    calls = [
        asyncio.create_task(deliver(target, one)) for one in (batch(2, 4, large=2), batch(4, 6), batch(2, 6))
    ]
    verdicts = [receipt.verdict for call in calls for receipt in await call]
    assert verdicts == [Verdict.REFUSED, Verdict.NOT_NOW, Verdict.NOT_NOW]
    assert (await opened(target)).next == 2
    (receipt,) = await deliver(target, batch(2, 6, runs=((3, 5),), refused=(2,)))
    assert receipt.verdict is Verdict.STORED
    assert await store.stored() == expected(0, 1, 3, 4, 5)


async def test_without_room_nothing_is_stored_or_remembered_and_nothing_behind_it_is_taken(
    store: Store, target: Target
) -> None:
    """B20, B23"""
    stream = to(SMALL)
    await store.fill(SMALL)
    await opened(target, stream)
    calls = [
        asyncio.create_task(deliver(target, batch(n, n + 2, stream=stream, runs=runs)))
        for n, runs in ((0, None), (2, None), (4, ()))
    ]
    receipts = [receipt for call in calls for receipt in await call]
    assert [receipt.verdict for receipt in receipts] == [Verdict.NOT_NOW] * 3
    assert receipts[0].reason.startswith("ADDRESS_FULL: ")
    assert (await opened(target, stream)).next is None
    await store.make_room(SMALL)
    assert await store.stored(SMALL) == []
    (receipt,) = await deliver(target, batch(0, 6, stream=stream))
    assert receipt.verdict is Verdict.STORED
    assert await store.stored(SMALL) == expected(*range(6), stream=stream)


async def test_a_stream_without_room_does_not_stop_another(store: Store, target: Target) -> None:
    small = to(SMALL)
    await store.fill(SMALL)
    await target.open([STREAM, small])
    receipts = await deliver(target, batch(0, 2, stream=small), batch(0, 2), batch(2, 4, stream=small))
    assert [receipt.verdict for receipt in receipts] == [Verdict.NOT_NOW, Verdict.STORED, Verdict.NOT_NOW]
    assert await store.stored() == expected(0, 1)


async def test_a_newer_opening_fences_the_older_link_of_that_stream_only(
    store: Store, target: Target
) -> None:
    other = to("invoices")
    await target.open([STREAM, other])
    newer = store.target()
    state = await opened(newer)
    assert state.epoch > 1
    await deliver(target, batch(0, 1, stream=other))
    with pytest.raises(Fenced):
        await deliver(target, batch(0, 2))
    (receipt,) = await deliver(newer, batch(0, 2))
    assert receipt.verdict is Verdict.STORED
    assert await store.stored() == expected(0, 1)
    await newer.close()


async def test_each_bridge_has_positions_of_its_own(store: Store, target: Target) -> None:
    """B11"""
    other = store.target("another")
    await opened(target)
    await opened(other)
    await deliver(target, batch(0, 2))
    (receipt,) = await deliver(other, batch(0, 2))
    assert receipt.verdict is Verdict.STORED
    assert await store.stored() == expected(0, 1, 0, 1)
    await other.close()


async def test_a_stream_that_is_not_open_cannot_be_delivered_to(target: Target) -> None:
    with pytest.raises(TargetUnavailable):
        await deliver(target, batch(0, 1))
    await opened(target, to("invoices"))
    with pytest.raises(TargetUnavailable):
        await deliver(target, batch(0, 1))


async def test_closing_lets_deliveries_go_that_wait_and_may_be_done_twice(
    store: Store, target: Target
) -> None:
    stream = to(HELD)
    await store.fill(HELD)
    await opened(target, stream)
    waiting = asyncio.create_task(deliver(target, batch(0, 1, stream=stream)))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await target.close()
    with pytest.raises(TargetUnavailable):
        await waiting
    await target.close()


async def test_closed_and_opened_again_it_goes_on(store: Store, target: Target) -> None:
    await opened(target)
    await deliver(target, batch(0, 2))
    await target.close()
    with pytest.raises(TargetUnavailable):
        await deliver(target, batch(2, 4))
    assert (await opened(target)).next == 2
    await deliver(target, batch(2, 4))
    assert await store.stored() == expected(0, 1, 2, 3)


async def test_a_target_that_goes_away_while_idle_says_so_until_it_is_opened_again(
    store: Store, target: Target
) -> None:
    await opened(target)
    await deliver(target, batch(0, 2))
    losing = asyncio.create_task(target.lost())
    await deliver(target, batch(2, 4))
    await opened(target, to("invoices"))
    assert not losing.done()
    await store.cut(target)
    async with asyncio.timeout(5):
        with pytest.raises(TargetUnavailable):
            await losing
        with pytest.raises(TargetUnavailable):
            await target.lost()
    assert (await opened(target)).next == 4
    losing = asyncio.create_task(target.lost())
    await deliver(target, batch(4, 5))
    assert not losing.done()
    await target.close()
    async with asyncio.timeout(5):
        with pytest.raises(TargetUnavailable):
            await losing


async def test_a_target_that_was_never_opened_is_lost(target: Target) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(TargetUnavailable):
            await target.lost()


async def test_nobody_need_wait_for_the_loss_of_a_target_to_its_end(target: Target) -> None:
    await opened(target)
    losing = asyncio.create_task(target.lost())
    await deliver(target, batch(0, 1))
    losing.cancel()
    assert isinstance((await asyncio.gather(losing, return_exceptions=True))[0], asyncio.CancelledError)
    (receipt,) = await deliver(target, batch(1, 2))
    assert receipt.verdict is Verdict.STORED


@pytest.mark.parametrize("count", [1, 300])
async def test_many_streams_are_opened_in_one_call(target: Target, count: int) -> None:
    streams: Sequence[Stream] = [to(f"a{number}") for number in range(count)]
    answer = await target.open(streams)
    assert list(answer.streams) == [stream.identity for stream in streams]
    await deliver(target, *(batch(0, 1, stream=stream) for stream in streams))
    again = await target.open(streams)
    assert {state.next for state in again.streams.values()} == {1}
