from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

import pytest

from bridge.errors import Fenced, JournalUnavailable, OutOfSequence, TargetUnavailable
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.backoff import Backoff
from bridge.relay.dead_letters import DeadLetterFailed
from bridge.relay.dead_letters_ahead import LETTERS_AHEAD
from bridge.relay.ports import Receipt, StreamState
from bridge.relay.pump import COVERAGE_INTERVAL_MS, Counts, Memory, Pump
from bridge.relay.window import Window
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.virtual_time import EPOCH_MS, VirtualClock, in_virtual_time, now_ms

BRIDGE = "orders-to-hub"


def bodies(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]


class Session:
    """A pump between fakes, and what it called."""

    def __init__(
        self, *, window: int = 1 << 20, most: int = 3, addresses: Sequence[str] = ("orders",)
    ) -> None:
        self.journal = FakeJournal()
        for address in addresses:
            self.journal.make(address)
        self.store = FakeStore()
        self.source = FakeSource(self.journal, most=most)
        self.target = FakeTarget(self.store)
        self.window = Window(window)
        self.counts = Counts()
        self.memory = Memory()
        self.stop = asyncio.Event()
        self.buried: list[tuple[str, int | None]] = []
        self.bury_fails: Exception | None = None
        #: Which streams waited for the target, whenever that changed.
        self.waiting: list[set[str]] = []
        #: Why, and how long, ms.
        self.waits: list[tuple[str, int]] = []

    def put(self, address: str, values: Sequence[bytes]) -> list[int]:
        return self.journal.put(address, *(Message(value) for value in values))

    async def open(self, only: Collection[str] | None = None) -> None:
        streams = [s for s in await self.source.streams() if only is None or s.identity in only]
        opened = await self.target.open(streams)
        await self.source.open(opened.streams, opened.store)
        self.memory.unseen.update(stream for stream, state in opened.streams.items() if state.next is None)

    async def _open_new(self) -> None:
        known = {stream for opened in self.source.opened for stream in opened}
        await self.open({stream.identity for stream in await self.source.streams()} - known)

    async def _open_again(self, streams: Collection[str]) -> Collection[str]:
        there = {stream.identity for stream in await self.source.streams()}.intersection(streams)
        if there:
            await self.open(there)
        return there

    async def _bury(self, batch: Batch, receipt: Receipt) -> None:
        if self.bury_fails is not None:
            raise self.bury_fails
        self.buried.append((batch.stream, receipt.position))

    async def begin(self, timeout_ms: int = 60_000) -> asyncio.Task[None]:
        """Open the ends and run; the task is the session."""
        await self.open()
        return asyncio.create_task(self.pump().run(self.stop, timeout_ms))

    def pump(self) -> Pump:
        return Pump(
            source=self.source,
            target=self.target,
            window=self.window,
            counts=self.counts,
            clock=VirtualClock(),
            memory=self.memory,
            bury=self._bury,
            open_new_streams=self._open_new,
            open_again=self._open_again,
            backoff=Backoff(1000, 2.0, 4000),
            show_waiting=lambda waiting: self.waiting.append(set(waiting)),
            log_wait=lambda reason, delay_ms: self.waits.append((reason, delay_ms)),
        )

    async def settle_down(self) -> None:
        """Let everything happen that needs no more than a millisecond."""
        await asyncio.sleep(0.001)

    def stream(self, address: str = "orders") -> str:
        return self.journal.logs[address].stream

    def backlog(self, address: str = "orders") -> list[Message]:
        return self.journal.backlog(BRIDGE, address)

    @property
    def in_flight(self) -> tuple[int, int, int]:
        return self.window.bytes, self.window.messages, self.window.batches


@in_virtual_time
async def test_ten_messages_arrive_in_order_and_leave_the_source() -> None:
    """B1, B2, B3"""
    session = Session()
    session.put("orders", bodies(0, 10))
    running = await session.begin()
    await session.settle_down()
    assert session.store.bodies("orders") == bodies(0, 10)
    assert session.backlog() == []
    assert (session.counts.sent, session.counts.acknowledged) == (10, 10)
    assert session.in_flight == (0, 0, 0)
    assert session.counts.last_progress_ms >= EPOCH_MS
    session.stop.set()
    await running


@in_virtual_time
async def test_the_windows_limit_holds_while_receipts_are_slow() -> None:
    session = Session(window=40, most=1)
    session.put("orders", bodies(0, 50))
    session.put("orders", [b"x" * 100])
    session.put("orders", bodies(50, 60))
    running = await session.begin()
    session.store.delay_receipts(0.01)
    peaks: list[tuple[int, int]] = []
    while session.backlog():
        await asyncio.sleep(0.001)
        peaks.append((session.window.bytes, session.window.batches))
    assert max(size for size, batches in peaks if batches > 1) in range(20, 41)
    assert max(size for size, _ in peaks) > 100
    assert all(batches == 1 for size, batches in peaks if size > 40)
    assert len(session.store.bodies("orders")) == 61
    session.stop.set()
    await running


@in_virtual_time
async def test_nothing_is_sent_behind_the_first_batch_of_a_stream_that_the_target_has_never_seen() -> None:
    session = Session(most=1)
    session.put("orders", bodies(0, 3))
    session.store.delay_receipts(1.0)
    running = await session.begin()
    await asyncio.sleep(0.5)
    assert session.store.places("orders") == [0]
    await asyncio.sleep(0.6)
    assert session.store.places("orders") == [0, 1, 2]
    session.stop.set()
    await running


@in_virtual_time
async def test_a_batch_not_taken_puts_its_stream_off_with_nothing_behind_it_settled() -> None:
    """B20, B23"""
    session = Session(most=2)
    session.put("orders", bodies(0, 2))
    running = await session.begin()
    await session.settle_down()
    session.store.not_now(1)
    session.store.delay_receipts(0.01)
    session.put("orders", bodies(2, 8))
    await asyncio.sleep(0.5)
    assert session.store.bodies("orders") == bodies(0, 2)
    assert [message.body for message in session.backlog()] == bodies(2, 8)
    assert session.counts.trouble == "ADDRESS_FULL: for now"
    assert (session.buried, session.in_flight) == ([], (0, 0, 0))
    assert session.waits == [("ADDRESS_FULL: for now", 1000)]  # those behind it start no wait
    session.store.delay_receipts(0)
    await asyncio.sleep(1)
    assert session.source.opened[1:] == [{session.stream(): 2}]
    assert session.store.bodies("orders") == bodies(0, 8)
    assert (session.counts.trouble, session.backlog()) == ("", [])
    assert session.waiting == [{session.stream()}, set()]
    session.stop.set()
    await running


@in_virtual_time
async def test_a_full_address_keeps_no_other_stream_waiting() -> None:
    session = Session(most=2, addresses=("full", "orders"))
    session.store.full.add("full")
    session.put("full", bodies(0, 100))
    session.put("orders", bodies(0, 2))
    running = await session.begin()
    for number in range(2, 200):
        session.put("orders", bodies(number, number + 1))
        session.put("full", bodies(number, number + 1))
        await asyncio.sleep(0.1)
        assert session.store.bodies("orders")[-1:] == bodies(number, number + 1)
    assert session.backlog("orders") == []
    assert session.waits[:4] == [("ADDRESS_FULL: for now", delay) for delay in (1000, 2000, 4000, 4000)]
    # A batch an attempt, and not all there is of it: it is read only after it was opened again.
    full = [batch for batch in session.store.batches if batch.stream == session.stream("full")]
    assert len(full) <= 3 * len(session.waits)
    session.store.full.clear()
    await asyncio.sleep(4.1)
    assert (session.backlog("full"), session.counts.trouble, session.in_flight) == ([], "", (0, 0, 0))
    assert session.source.opened[0].keys() == {session.stream("full"), session.stream("orders")}
    assert all(opened.keys() == {session.stream("full")} for opened in session.source.opened[1:])
    session.store.full.add("full")
    session.put("full", bodies(0, 1))
    await session.settle_down()
    assert session.waits[-1] == ("ADDRESS_FULL: for now", 1000)  # it has moved: the wait is a first one
    session.stop.set()
    await running


@in_virtual_time
async def test_a_batch_that_waits_in_the_window_behind_one_not_taken_is_dropped_and_read_again() -> None:
    session = Session(window=1, most=2)
    session.put("orders", bodies(0, 2))
    running = await session.begin()
    await session.settle_down()
    session.store.delay_receipts(0.1)
    session.store.not_now(1)
    session.put("orders", bodies(2, 8))
    await asyncio.sleep(0.5)
    assert [batch.from_ for batch in session.store.batches] == [0, 2]
    session.store.delay_receipts(0)
    await asyncio.sleep(1)
    assert session.store.bodies("orders") == bodies(0, 8)
    session.stop.set()
    await running


@in_virtual_time
async def test_coverage_that_was_held_when_its_stream_was_put_off_is_read_again() -> None:
    session = Session(most=1)
    session.source.filtered = lambda message: message.body == b"monkey"
    session.put("orders", [b"goat"])
    running = await session.begin()
    await session.settle_down()
    session.store.delay_receipts(0.1)
    session.store.not_now(1)
    session.put("orders", [b"goat", b"monkey", b"monkey"])
    await asyncio.sleep(0.5)
    session.store.delay_receipts(0)
    await asyncio.sleep(1)
    session.put("orders", [b"goat"])
    await session.settle_down()
    assert session.store.batches[-1].from_ == 2
    assert (session.store.places("orders"), session.backlog()) == ([0, 1, 4], [])
    session.stop.set()
    await running


@in_virtual_time
async def test_a_refused_message_is_buried_once_and_the_rest_sent_with_its_place_covered_and_empty() -> None:
    session = Session(most=4, addresses=("orders", "invoices"))
    session.put("orders", bodies(0, 8))
    session.store.refuse(2, 6)
    running = await session.begin()
    await session.settle_down()
    assert session.buried == [(session.stream(), 2), (session.stream(), 6)]
    assert session.store.places("orders") == [0, 1, 3, 4, 5, 7]
    assert session.backlog() == []
    last = session.store.batches[-1]
    assert (last.from_, last.upto, last.runs, last.refused) == (4, 8, ((4, 5), (7, 7)), (6,))
    assert session.counts.refused == 2
    assert session.memory.refused == {session.stream(): set()}
    assert (session.waits, session.counts.trouble) == ([], "")
    assert [opened.keys() for opened in session.source.opened[1:]] == [{session.stream()}] * 2
    session.stop.set()
    await running


@in_virtual_time
async def test_a_batch_whose_only_message_was_refused_is_delivered_as_coverage_at_once() -> None:
    session = Session()
    session.put("orders", bodies(0, 1))
    session.store.refuse(0)
    running = await session.begin()
    await session.settle_down()
    assert session.store.next(BRIDGE, session.stream()) == 1
    assert (session.store.bodies("orders"), session.backlog()) == ([], [])
    session.stop.set()
    await running


@in_virtual_time
async def test_a_dead_letter_without_room_keeps_no_other_stream_waiting() -> None:
    session = Session(most=2, addresses=("letters", "orders"))
    session.put("letters", bodies(0, 4))
    session.store.refuse(1)
    session.bury_fails = DeadLetterFailed("no room", for_good=False)
    running = await session.begin()
    for number in range(50):
        session.put("orders", bodies(number, number + 1))
        await asyncio.sleep(0.1)
    assert session.store.bodies("orders") == bodies(0, 50)
    assert session.counts.trouble == "DEAD_LETTER_FAILED: no room"
    assert (session.counts.refused, len(session.backlog("letters"))) == (0, 4)
    session.bury_fails = None
    await asyncio.sleep(4.1)
    assert session.buried == [(session.stream("letters"), 1)]
    assert (session.backlog("letters"), session.counts.trouble, session.in_flight) == ([], "", (0, 0, 0))
    session.stop.set()
    await running


@in_virtual_time
async def test_a_stream_that_the_source_has_no_more_is_looked_for_without_complaint() -> None:
    session = Session(most=2, addresses=("gone", "orders"))
    session.store.full.add("gone")
    session.put("gone", bodies(0, 2))
    running = await session.begin()
    await session.settle_down()
    assert session.counts.trouble
    there = session.journal.logs.pop("gone")
    await asyncio.sleep(20)
    assert (session.counts.trouble, session.waiting[-1]) == ("", set())
    session.journal.logs["gone"] = there
    session.store.full.clear()
    await asyncio.sleep(5)
    assert session.store.bodies("gone") == bodies(0, 2)
    session.stop.set()
    await running


@in_virtual_time
async def test_a_refused_message_that_cannot_be_buried_stays_and_nothing_is_covered() -> None:
    session = Session()
    session.put("orders", bodies(0, 3))
    session.store.refuse(1)
    session.bury_fails = TargetUnavailable("no room for dead letters")
    with pytest.raises(TargetUnavailable, match="no room for dead letters"):
        await (await session.begin())
    assert len(session.backlog()) == 3
    assert session.store.next(BRIDGE, session.stream()) is None
    assert session.in_flight == (0, 0, 0)


@in_virtual_time
async def test_coverage_alone_travels_with_the_next_batch() -> None:
    """B4"""
    session = Session(most=1)
    session.source.filtered = lambda message: message.body == b"monkey"
    session.put("orders", [b"goat"])
    running = await session.begin()
    await session.settle_down()
    session.put("orders", [b"monkey"] * 10 + [b"goat"])
    await session.settle_down()
    assert [(batch.from_, batch.upto, batch.runs) for batch in session.store.batches] == [
        (0, 1, ((0, 0),)),
        (1, 12, ((11, 11),)),
    ]
    assert session.backlog() == []
    session.stop.set()
    await running


@in_virtual_time
async def test_coverage_that_grows_is_committed_every_ten_seconds_and_at_the_end() -> None:
    session = Session(most=1)
    session.source.filtered = lambda _: True
    session.put("orders", [b"monkey"] * 5)
    running = await session.begin()
    await asyncio.sleep(COVERAGE_INTERVAL_MS / 1000 - 0.1)
    assert session.store.batches == []
    await asyncio.sleep(0.2)
    assert session.store.next(BRIDGE, session.stream()) == 5
    session.put("orders", [b"monkey"] * 2)
    await asyncio.sleep(COVERAGE_INTERVAL_MS / 1000 + 0.1)
    assert session.store.next(BRIDGE, session.stream()) == 7
    session.put("orders", [b"monkey"] * 2)
    await session.settle_down()
    session.stop.set()
    await running
    assert session.store.next(BRIDGE, session.stream()) == 9
    assert session.backlog() == []
    assert len(session.store.batches) == 3


@in_virtual_time
async def test_stop_waits_for_receipts_that_come() -> None:
    """R16"""
    session = Session(most=20)
    session.put("orders", bodies(0, 10))
    session.store.delay_receipts(1.0)
    running = await session.begin()
    await session.settle_down()
    session.stop.set()
    await running
    assert 1000 <= now_ms() < 1010
    assert (session.backlog(), session.store.bodies("orders")) == ([], bodies(0, 10))


@in_virtual_time
async def test_stop_gives_up_receipts_that_never_come_and_leaves_their_messages_at_the_source() -> None:
    """R15"""
    session = Session()
    session.put("orders", bodies(0, 10))
    session.store.drop_receipts()
    running = await session.begin(2000)
    await session.settle_down()
    session.stop.set()
    await running
    assert 2000 <= now_ms() < 2010
    assert len(session.backlog()) == 10
    assert session.in_flight == (0, 0, 0)


@in_virtual_time
async def test_stop_without_a_time_limit_waits_as_long_as_it_takes() -> None:
    session = Session(most=20)
    session.put("orders", bodies(0, 10))
    session.store.delay_receipts(3600.0)
    running = await session.begin(-1)
    await session.settle_down()
    session.stop.set()
    await running
    assert session.backlog() == []


@in_virtual_time
async def test_stop_sends_nothing_more() -> None:
    session = Session(window=1, most=1)
    session.put("orders", bodies(0, 10))
    session.store.delay_receipts(1.0)
    running = await session.begin()
    await asyncio.sleep(1.5)
    session.stop.set()
    await running
    assert session.store.bodies("orders") == bodies(0, 2)
    assert len(session.backlog()) == 8


@in_virtual_time
async def test_a_cut_ends_the_session_with_the_targets_error_and_nothing_in_flight() -> None:
    """R9"""
    session = Session(most=1)
    session.put("orders", bodies(0, 100))
    session.store.delay_receipts(0.005)
    running = await session.begin()
    session.store.cut_after(50)
    with pytest.raises(TargetUnavailable, match="the link was cut"):
        await running
    assert session.in_flight == (0, 0, 0)
    assert len(session.store.bodies("orders")) == 50
    assert 50 <= len(session.backlog()) < 100


@in_virtual_time
async def test_a_target_lost_while_nothing_is_sent_ends_the_session_at_once() -> None:
    """Its loss shows before the next message needs it, and no task of the session is left."""
    session = Session()
    session.put("orders", bodies(0, 3))
    running = await session.begin()
    await asyncio.sleep(3600)
    assert not running.done()
    session.store.cut()
    with pytest.raises(TargetUnavailable, match="the link was cut"):
        await running
    assert 3_600_000 <= now_ms() < 3_600_010
    assert session.backlog() == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_a_lost_target_loses_no_receipt_that_has_come() -> None:
    session = Session(most=1)
    session.put("orders", bodies(0, 1))
    running = await session.begin()
    await session.settle_down()
    settled, settling = session.source.settled, asyncio.Event()

    async def slowly(batch: Batch, receipt: Receipt) -> None:
        settling.set()
        await asyncio.sleep(1.0)
        await settled(batch, receipt)

    session.source.settled = slowly  # type: ignore[method-assign]
    session.put("orders", bodies(1, 5))
    await settling.wait()
    await session.settle_down()
    session.store.cut()
    with pytest.raises(TargetUnavailable, match="the link was cut"):
        await running
    assert session.backlog() == []
    assert session.in_flight == (0, 0, 0)


@in_virtual_time
async def test_a_target_lost_together_with_the_request_to_stop_does_not_disturb_it() -> None:
    session = Session()
    session.put("orders", bodies(0, 3))
    running = await session.begin()
    await session.settle_down()
    session.store.cut()
    session.stop.set()
    await running
    assert session.backlog() == []


@in_virtual_time
async def test_a_source_that_fails_loses_no_receipt_of_what_is_in_flight() -> None:
    session = Session(most=20)
    session.put("orders", bodies(0, 10))
    session.store.delay_receipts(1.0)
    running = await session.begin()
    await session.settle_down()
    session.source.read_fails = JournalUnavailable("the disk is gone")
    session.put("orders", bodies(10, 12))
    with pytest.raises(JournalUnavailable, match="the disk is gone"):
        await running
    assert [message.body for message in session.backlog()] == bodies(10, 12)
    assert session.in_flight == (0, 0, 0)


@in_virtual_time
async def test_an_end_that_gives_up_its_own_work_is_an_error_and_no_end_by_request() -> None:
    session = Session()
    session.put("orders", bodies(0, 1))
    session.source.read_fails = asyncio.CancelledError()  # type: ignore[assignment]
    with pytest.raises(TargetUnavailable, match="gave up"):
        await (await session.begin())


@in_virtual_time
async def test_a_batch_behind_a_gap_is_never_settled() -> None:
    session = Session(most=1)
    session.put("orders", bodies(0, 2))
    running = await session.begin()
    await session.settle_down()
    session.store.positions[BRIDGE, session.stream()].next = 1  # a backup was restored
    session.put("orders", bodies(2, 3))
    with pytest.raises(OutOfSequence):
        await running
    assert len(session.backlog()) == 1


@in_virtual_time
async def test_a_newer_link_of_the_same_bridge_ends_the_older_ones_session() -> None:
    session = Session()
    session.put("orders", bodies(0, 2))
    running = await session.begin()
    await session.settle_down()
    await FakeTarget(session.store).open(await session.source.streams())
    session.put("orders", bodies(2, 3))
    with pytest.raises(Fenced):
        await running
    assert session.store.bodies("orders") == bodies(0, 2)


@in_virtual_time
async def test_streams_that_appear_are_opened_while_others_go_on() -> None:
    session = Session()
    running = await session.begin()
    session.put("orders", bodies(0, 3))
    session.put("invoices", bodies(3, 6))
    await session.settle_down()
    session.put("orders", bodies(6, 9))
    await session.settle_down()
    assert session.store.bodies("orders") == bodies(0, 3) + bodies(6, 9)
    assert session.store.bodies("invoices") == bodies(3, 6)
    assert session.source.opened == [{session.stream(): None}, {session.stream("invoices"): None}]
    session.stop.set()
    await running


@in_virtual_time
async def test_replays_that_the_target_drops_are_counted_and_settled() -> None:
    """B9"""
    session = Session(most=10)
    session.put("orders", bodies(0, 1000))
    await FakeTarget(session.store).open(await session.source.streams())
    session.store.positions[BRIDGE, session.stream()].next = 100
    opened = await session.target.open(await session.source.streams())
    await session.source.open({session.stream(): StreamState(0)}, opened.store)
    running = asyncio.create_task(session.pump().run(session.stop, 1000))
    await session.settle_down()
    assert session.store.bodies("orders") == bodies(100, 1000)
    assert (session.counts.replayed, session.backlog()) == (100, [])
    session.stop.set()
    await running


@in_virtual_time
async def test_many_refused_messages_of_one_batch_are_covered_before_more_of_them_are_buried() -> None:
    """So that the target needs to remember `LETTERS_AHEAD` of them, however many there are."""
    session = Session(most=2_000)
    number = 2 * LETTERS_AHEAD + 10
    session.put("orders", bodies(0, 2 * number))
    session.store.refuse(*range(0, 2 * number, 2))
    most = 0
    bury = session._bury

    async def counted(batch: Batch, receipt: Receipt) -> None:
        nonlocal most
        await bury(batch, receipt)
        most = max(most, len(session.memory.refused.get(session.stream(), ())) + 1)

    session._bury = counted  # type: ignore[method-assign]
    running = await session.begin()
    await session.settle_down()
    assert session.store.places("orders") == list(range(1, 2 * number, 2))
    assert len(session.buried) == number
    assert LETTERS_AHEAD <= most <= LETTERS_AHEAD + 1
    assert session.backlog() == []
    session.stop.set()
    await running


def test_a_batch_is_divided_into_what_lies_before_a_position_and_what_does_not() -> None:
    block = pack([encode_message(Message(body)) for body in bodies(0, 5)])
    whole = Batch("s", 0, 9, ((0, 2), (5, 6)), block, 7, refused=(3, 8), refusals=((1, "A: b"), (6, "A: b")))
    before, behind = whole.until(6), whole.after(6)
    assert (before.upto, before.runs, before.refused, before.refusals) == (
        6,
        ((0, 2), (5, 5)),
        (3,),
        ((1, "A: b"),),
    )
    assert before.checksum == 0
    assert (behind.from_, behind.runs, behind.refused, behind.refusals) == (
        6,
        ((6, 6),),
        (8,),
        ((6, "A: b"),),
    )
    assert before.block is not None
    assert behind.block is not None
    assert [m.body for b in (before.block, behind.block) for m in b.messages()] == bodies(0, 5)
    assert whole.until(0).block is None
