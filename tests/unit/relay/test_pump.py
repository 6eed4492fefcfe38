from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bridge.errors import Fenced, JournalUnavailable, OutOfSequence, TargetUnavailable
from bridge.messages.batch import Batch
from bridge.messages.block import KeptBody, encode_message, pack
from bridge.messages.message import LargeBody, Message
from bridge.relay.backoff import Backoff
from bridge.relay.dead_letters import DeadLetterFailed
from bridge.relay.dead_letters_ahead import LETTERS_AHEAD
from bridge.relay.pacing import Pacer
from bridge.relay.ports import Receipt, StreamState
from bridge.relay.pump import COVERAGE_INTERVAL_MS, Pump
from bridge.relay.session import Session
from bridge.relay.window import Window
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.virtual_time import EPOCH_MS, VirtualClock, in_virtual_time, now_ms
from tests.harness.eventually import until

BRIDGE = "orders-to-hub"


def bodies(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]


class Noting(Session):
    """Notes why streams wait, instead of logging it."""

    waits: list[tuple[str, int]]

    def log_wait(self, reason: str, delay_ms: int) -> None:
        self.waits.append((reason, delay_ms))


class Rig:
    """A pump between fakes."""

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
        self.stop = asyncio.Event()
        self.dead_letters: list[tuple[str, int | None]] = []
        self.store_fails: Exception | None = None
        self.session = Noting(
            bridge=BRIDGE,
            source=self.source,
            target=self.target,
            clock=VirtualClock(),
            window=self.window,
            backoff=Backoff(1000, 2.0, 4000),
            dead_letters=self,
        )
        self.counts = self.session.counts
        #: Why a stream waited, and how long, ms.
        self.waits = self.session.waits = []

    def put(self, address: str, values: Sequence[bytes]) -> list[int]:
        return self.journal.put(address, *(Message(value) for value in values))

    async def store_letter(self, batch: Batch, receipt: Receipt, source_address: str) -> None:
        """The sink of dead letters."""
        assert self.stream(source_address) == batch.stream
        if self.store_fails is not None:
            raise self.store_fails
        self.dead_letters.append((batch.stream, receipt.position))

    async def begin(self, timeout_ms: int = 60_000) -> asyncio.Task[None]:
        """Open the ends and run; the task is the connection."""
        await self.session.connect()
        return asyncio.create_task(self.pump().run(self.stop, timeout_ms))

    def pump(self) -> Pump:
        return Pump(self.session)

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
    rig = Rig()
    rig.put("orders", bodies(0, 10))
    running = await rig.begin()
    await rig.settle_down()
    assert rig.store.bodies("orders") == bodies(0, 10)
    assert rig.backlog() == []
    assert (rig.counts.sent, rig.counts.acknowledged) == (10, 10)
    assert rig.in_flight == (0, 0, 0)
    assert rig.counts.last_progress_ms >= EPOCH_MS
    rig.stop.set()
    await running


class PassingTarget(FakeTarget):
    """Lets batches of other streams pass those of `orders`, whose messages are large."""

    def __init__(self, store: FakeStore) -> None:
        super().__init__(store)
        self.crossed = asyncio.Event()

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        if any(":orders:" in batch.stream for batch in batches):
            await self.crossed.wait()
        return await super().deliver(batches)


class LargeSource(FakeSource):
    """Says of each message of `orders` that its body is beside it."""

    async def read(self) -> Sequence[Batch]:
        return [
            replace(batch, block=replace(batch.block, large=KeptBody(1, LargeBody(9, b"d" * 16))))
            if ":orders:" in batch.stream and batch.block is not None
            else batch
            for batch in await super().read()
        ]


@in_virtual_time
async def test_receipts_of_other_streams_do_not_wait_for_a_large_body() -> None:
    """Their messages leave the source, and a stream that was never seen goes on behind its first batch."""
    rig = Rig(most=1, addresses=("orders", "alarms"))
    rig.session.source = LargeSource(rig.journal, most=1)
    rig.session.target = target = PassingTarget(rig.store)
    rig.put("orders", bodies(0, 1))
    target.crossed.set()
    running = await rig.begin()
    await rig.settle_down()
    target.crossed.clear()
    rig.put("orders", bodies(1, 3))
    await rig.settle_down()
    rig.put("alarms", bodies(0, 5))
    await rig.settle_down()
    assert rig.store.bodies("alarms") == bodies(0, 5)
    assert rig.backlog("alarms") == []
    assert len(rig.backlog()) == 2
    target.crossed.set()
    await rig.settle_down()
    assert rig.store.bodies("orders") == bodies(0, 3)
    assert rig.backlog() == []
    assert rig.in_flight == (0, 0, 0)
    rig.stop.set()
    await running


@in_virtual_time
async def test_the_windows_limit_holds_while_receipts_are_slow() -> None:
    rig = Rig(window=40, most=1)
    rig.put("orders", bodies(0, 50))
    rig.put("orders", [b"x" * 100])
    rig.put("orders", bodies(50, 60))
    running = await rig.begin()
    rig.store.delay_receipts(0.01)
    peaks: list[tuple[int, int]] = []
    while rig.backlog():
        await asyncio.sleep(0.001)
        peaks.append((rig.window.bytes, rig.window.batches))
    assert max(size for size, batches in peaks if batches > 1) in range(20, 41)
    assert max(size for size, _ in peaks) > 100
    assert all(batches == 1 for size, batches in peaks if size > 40)
    assert len(rig.store.bodies("orders")) == 61
    rig.stop.set()
    await running


@in_virtual_time
async def test_nothing_is_sent_behind_the_first_batch_of_a_stream_that_the_target_has_never_seen() -> None:
    rig = Rig(most=1)
    rig.put("orders", bodies(0, 3))
    rig.store.delay_receipts(1.0)
    running = await rig.begin()
    await asyncio.sleep(0.5)
    assert rig.store.places("orders") == [0]
    await asyncio.sleep(0.6)
    assert rig.store.places("orders") == [0, 1, 2]
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_batch_not_taken_puts_its_stream_off_with_nothing_behind_it_settled() -> None:
    """B20, B23"""
    rig = Rig(most=2)
    rig.put("orders", bodies(0, 2))
    running = await rig.begin()
    await rig.settle_down()
    rig.store.not_now(1)
    rig.store.delay_receipts(0.01)
    rig.put("orders", bodies(2, 8))
    await asyncio.sleep(0.5)
    assert rig.store.bodies("orders") == bodies(0, 2)
    assert [message.body for message in rig.backlog()] == bodies(2, 8)
    assert rig.counts.trouble == "ADDRESS_FULL: for now"
    assert (rig.dead_letters, rig.in_flight) == ([], (0, 0, 0))
    assert rig.waits == [("ADDRESS_FULL: for now", 1000)]  # those behind it start no wait
    assert (rig.session.waiting, rig.session.stalled) == (frozenset({rig.stream()}), True)
    rig.store.delay_receipts(0)
    await asyncio.sleep(1)
    # One batch of two, then two, then no more are there: it goes on where the target stands each time.
    assert rig.source.opened[1:] == [{rig.stream(): place} for place in (2, 4, 8)]
    assert rig.store.bodies("orders") == bodies(0, 8)
    assert (rig.counts.trouble, rig.backlog()) == ("", [])
    assert rig.session.waiting == frozenset()
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_full_address_keeps_no_other_stream_waiting() -> None:
    rig = Rig(most=2, addresses=("full", "orders"))
    rig.store.full.add("full")
    rig.put("full", bodies(0, 100))
    rig.put("orders", bodies(0, 2))
    running = await rig.begin()
    for number in range(2, 200):
        rig.put("orders", bodies(number, number + 1))
        rig.put("full", bodies(number, number + 1))
        await asyncio.sleep(0.1)
        assert rig.store.bodies("orders")[-1:] == bodies(number, number + 1)
    assert rig.backlog("orders") == []
    assert rig.waits[:4] == [("ADDRESS_FULL: for now", delay) for delay in (1000, 2000, 4000, 4000)]
    # A batch an attempt, and not all there is of it: it is read only after it was opened again.
    full = [batch for batch in rig.store.batches if batch.stream == rig.stream("full")]
    assert len(full) <= 3 * len(rig.waits)
    rig.store.full.clear()
    await asyncio.sleep(4.1)
    assert (rig.backlog("full"), rig.counts.trouble, rig.in_flight) == ([], "", (0, 0, 0))
    assert rig.source.opened[0].keys() == {rig.stream("full"), rig.stream("orders")}
    assert all(opened.keys() == {rig.stream("full")} for opened in rig.source.opened[1:])
    rig.store.full.add("full")
    rig.put("full", bodies(0, 1))
    await rig.settle_down()
    assert rig.waits[-1] == ("ADDRESS_FULL: for now", 1000)  # it has moved: the wait is a first one
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_batch_that_waits_in_the_window_behind_one_not_taken_is_dropped_and_read_again() -> None:
    rig = Rig(window=1, most=2)
    rig.put("orders", bodies(0, 2))
    running = await rig.begin()
    await rig.settle_down()
    rig.store.delay_receipts(0.1)
    rig.store.not_now(1)
    rig.put("orders", bodies(2, 8))
    await asyncio.sleep(0.5)
    assert [batch.from_ for batch in rig.store.batches] == [0, 2]
    rig.store.delay_receipts(0)
    await asyncio.sleep(1)
    assert rig.store.bodies("orders") == bodies(0, 8)
    rig.stop.set()
    await running


@in_virtual_time
async def test_coverage_that_was_held_when_its_stream_backed_off_is_read_again() -> None:
    rig = Rig(most=1)
    rig.source.filtered = lambda message: message.body == b"monkey"
    rig.put("orders", [b"goat"])
    running = await rig.begin()
    await rig.settle_down()
    rig.store.delay_receipts(0.1)
    rig.store.not_now(1)
    rig.put("orders", [b"goat", b"monkey", b"monkey"])
    await asyncio.sleep(0.5)
    rig.store.delay_receipts(0)
    await asyncio.sleep(1)
    rig.put("orders", [b"goat"])
    await rig.settle_down()
    assert rig.store.batches[-1].from_ == 2
    assert (rig.store.places("orders"), rig.backlog()) == ([0, 1, 4], [])
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_refused_message_is_a_dead_letter_once_and_its_place_is_sent_covered_and_empty() -> None:
    rig = Rig(most=4, addresses=("orders", "invoices"))
    rig.put("orders", bodies(0, 8))
    rig.store.refuse(2, 6)
    running = await rig.begin()
    await rig.settle_down()
    assert rig.dead_letters == [(rig.stream(), 2), (rig.stream(), 6)]
    assert rig.store.places("orders") == [0, 1, 3, 4, 5, 7]
    assert rig.backlog() == []
    last = rig.store.batches[-1]
    assert (last.from_, last.upto, last.runs, last.refused) == (4, 8, ((4, 5), (7, 7)), (6,))
    assert rig.counts.refused == 2
    assert rig.session.refused == {rig.stream(): set()}
    assert (rig.waits, rig.counts.trouble) == ([], "")
    assert [opened.keys() for opened in rig.source.opened[1:]] == [{rig.stream()}] * 2
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_batch_whose_only_message_was_refused_is_delivered_as_coverage_at_once() -> None:
    rig = Rig()
    rig.put("orders", bodies(0, 1))
    rig.store.refuse(0)
    running = await rig.begin()
    await rig.settle_down()
    assert rig.store.next(BRIDGE, rig.stream()) == 1
    assert (rig.store.bodies("orders"), rig.backlog()) == ([], [])
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_dead_letter_without_room_keeps_no_other_stream_waiting() -> None:
    rig = Rig(most=2, addresses=("letters", "orders"))
    rig.put("letters", bodies(0, 4))
    rig.store.refuse(1)
    rig.store_fails = DeadLetterFailed("no room", for_good=False)
    running = await rig.begin()
    for number in range(50):
        rig.put("orders", bodies(number, number + 1))
        await asyncio.sleep(0.1)
    assert rig.store.bodies("orders") == bodies(0, 50)
    assert rig.counts.trouble.endswith(" was not stored: no room")
    assert (rig.counts.refused, len(rig.backlog("letters"))) == (0, 4)
    rig.store_fails = None
    await asyncio.sleep(4.1)
    assert rig.dead_letters == [(rig.stream("letters"), 1)]
    assert (rig.backlog("letters"), rig.counts.trouble, rig.in_flight) == ([], "", (0, 0, 0))
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_stream_that_the_source_has_no_more_is_looked_for_without_complaint() -> None:
    rig = Rig(most=2, addresses=("gone", "orders"))
    rig.store.full.add("gone")
    rig.put("gone", bodies(0, 2))
    running = await rig.begin()
    await rig.settle_down()
    assert rig.counts.trouble
    there = rig.journal.logs.pop("gone")
    await asyncio.sleep(20)
    assert (rig.counts.trouble, rig.session.waiting) == ("", frozenset())
    rig.journal.logs["gone"] = there
    rig.store.full.clear()
    await asyncio.sleep(5)
    assert rig.store.bodies("gone") == bodies(0, 2)
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_refused_message_whose_dead_letter_cannot_be_stored_stays_and_nothing_is_covered() -> None:
    rig = Rig()
    rig.put("orders", bodies(0, 3))
    rig.store.refuse(1)
    rig.store_fails = TargetUnavailable("no room for dead letters")
    with pytest.raises(TargetUnavailable, match="no room for dead letters"):
        await (await rig.begin())
    assert len(rig.backlog()) == 3
    assert rig.store.next(BRIDGE, rig.stream()) is None
    assert rig.in_flight == (0, 0, 0)


@in_virtual_time
async def test_coverage_alone_travels_with_the_next_batch() -> None:
    """B4"""
    rig = Rig(most=1)
    rig.source.filtered = lambda message: message.body == b"monkey"
    rig.put("orders", [b"goat"])
    running = await rig.begin()
    await rig.settle_down()
    rig.put("orders", [b"monkey"] * 10 + [b"goat"])
    await rig.settle_down()
    assert [(batch.from_, batch.upto, batch.runs) for batch in rig.store.batches] == [
        (0, 1, ((0, 0),)),
        (1, 12, ((11, 11),)),
    ]
    assert rig.backlog() == []
    rig.stop.set()
    await running


@in_virtual_time
async def test_coverage_that_grows_is_committed_every_ten_seconds_and_at_the_end() -> None:
    rig = Rig(most=1)
    rig.source.filtered = lambda _: True
    rig.put("orders", [b"monkey"] * 5)
    running = await rig.begin()
    await asyncio.sleep(COVERAGE_INTERVAL_MS / 1000 - 0.1)
    assert rig.store.batches == []
    await asyncio.sleep(0.2)
    assert rig.store.next(BRIDGE, rig.stream()) == 5
    rig.put("orders", [b"monkey"] * 2)
    await asyncio.sleep(COVERAGE_INTERVAL_MS / 1000 + 0.1)
    assert rig.store.next(BRIDGE, rig.stream()) == 7
    rig.put("orders", [b"monkey"] * 2)
    await rig.settle_down()
    rig.stop.set()
    await running
    assert rig.store.next(BRIDGE, rig.stream()) == 9
    assert rig.backlog() == []
    assert len(rig.store.batches) == 3


@in_virtual_time
async def test_stop_waits_for_receipts_that_come() -> None:
    """R16"""
    rig = Rig(most=20)
    rig.put("orders", bodies(0, 10))
    rig.store.delay_receipts(1.0)
    running = await rig.begin()
    await rig.settle_down()
    rig.stop.set()
    await running
    assert 1000 <= now_ms() < 1010
    assert (rig.backlog(), rig.store.bodies("orders")) == ([], bodies(0, 10))


@in_virtual_time
async def test_stop_gives_up_receipts_that_never_come_and_leaves_their_messages_at_the_source() -> None:
    """R15"""
    rig = Rig()
    rig.put("orders", bodies(0, 10))
    rig.store.drop_receipts()
    running = await rig.begin(2000)
    await rig.settle_down()
    rig.stop.set()
    await running
    assert 2000 <= now_ms() < 2010
    assert len(rig.backlog()) == 10
    assert rig.in_flight == (0, 0, 0)


@in_virtual_time
async def test_stop_without_a_time_limit_waits_as_long_as_it_takes() -> None:
    rig = Rig(most=20)
    rig.put("orders", bodies(0, 10))
    rig.store.delay_receipts(3600.0)
    running = await rig.begin(-1)
    await rig.settle_down()
    rig.stop.set()
    await running
    assert rig.backlog() == []


@in_virtual_time
async def test_stop_sends_nothing_more() -> None:
    rig = Rig(window=1, most=1)
    rig.put("orders", bodies(0, 10))
    rig.store.delay_receipts(1.0)
    running = await rig.begin()
    await asyncio.sleep(1.5)
    rig.stop.set()
    await running
    assert rig.store.bodies("orders") == bodies(0, 2)
    assert len(rig.backlog()) == 8


@in_virtual_time
async def test_a_cut_ends_the_run_with_the_targets_error_and_nothing_in_flight() -> None:
    """R9"""
    rig = Rig(most=1)
    rig.put("orders", bodies(0, 100))
    rig.store.delay_receipts(0.005)
    running = await rig.begin()
    rig.store.cut_after(50)
    with pytest.raises(TargetUnavailable, match="the link was cut"):
        await running
    assert rig.in_flight == (0, 0, 0)
    assert len(rig.store.bodies("orders")) == 50
    assert 50 <= len(rig.backlog()) < 100


@in_virtual_time
async def test_a_target_lost_while_nothing_is_sent_ends_the_run_at_once() -> None:
    """Its loss shows before the next message needs it, and no task of the run is left."""
    rig = Rig()
    rig.put("orders", bodies(0, 3))
    running = await rig.begin()
    await asyncio.sleep(3600)
    assert not running.done()
    rig.store.cut()
    with pytest.raises(TargetUnavailable, match="the link was cut"):
        await running
    assert 3_600_000 <= now_ms() < 3_600_010
    assert rig.backlog() == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_a_lost_target_loses_no_receipt_that_has_come() -> None:
    rig = Rig(most=1)
    rig.put("orders", bodies(0, 1))
    running = await rig.begin()
    await rig.settle_down()
    settled, settling = rig.source.settled, asyncio.Event()

    async def slowly(batch: Batch, receipt: Receipt) -> None:
        settling.set()
        await asyncio.sleep(1.0)
        await settled(batch, receipt)

    rig.source.settled = slowly  # type: ignore[method-assign]
    rig.put("orders", bodies(1, 5))
    await settling.wait()
    await rig.settle_down()
    rig.store.cut()
    with pytest.raises(TargetUnavailable, match="the link was cut"):
        await running
    assert rig.backlog() == []
    assert rig.in_flight == (0, 0, 0)


@in_virtual_time
async def test_a_target_lost_together_with_the_request_to_stop_does_not_disturb_it() -> None:
    rig = Rig()
    rig.put("orders", bodies(0, 3))
    running = await rig.begin()
    await rig.settle_down()
    rig.store.cut()
    rig.stop.set()
    await running
    assert rig.backlog() == []


@in_virtual_time
async def test_a_source_that_fails_loses_no_receipt_of_what_is_in_flight() -> None:
    rig = Rig(most=20)
    rig.put("orders", bodies(0, 10))
    rig.store.delay_receipts(1.0)
    running = await rig.begin()
    await rig.settle_down()
    rig.source.read_fails = JournalUnavailable("the disk is gone")
    rig.put("orders", bodies(10, 12))
    with pytest.raises(JournalUnavailable, match="the disk is gone"):
        await running
    assert [message.body for message in rig.backlog()] == bodies(10, 12)
    assert rig.in_flight == (0, 0, 0)


@in_virtual_time
async def test_an_end_that_gives_up_its_own_work_is_an_error_and_no_end_by_request() -> None:
    rig = Rig()
    rig.put("orders", bodies(0, 1))
    rig.source.read_fails = asyncio.CancelledError()  # type: ignore[assignment]
    with pytest.raises(TargetUnavailable, match="gave up"):
        await (await rig.begin())


@in_virtual_time
async def test_a_batch_behind_a_gap_is_never_settled() -> None:
    rig = Rig(most=1)
    rig.put("orders", bodies(0, 2))
    running = await rig.begin()
    await rig.settle_down()
    rig.store.positions[BRIDGE, rig.stream()].next = 1  # a backup was restored
    rig.put("orders", bodies(2, 3))
    with pytest.raises(OutOfSequence):
        await running
    assert len(rig.backlog()) == 1


@in_virtual_time
async def test_a_newer_link_of_the_same_bridge_ends_the_older_ones_run() -> None:
    rig = Rig()
    rig.put("orders", bodies(0, 2))
    running = await rig.begin()
    await rig.settle_down()
    await FakeTarget(rig.store).open(await rig.source.streams())
    rig.put("orders", bodies(2, 3))
    with pytest.raises(Fenced):
        await running
    assert rig.store.bodies("orders") == bodies(0, 2)


@in_virtual_time
async def test_streams_that_appear_are_opened_while_others_go_on() -> None:
    rig = Rig()
    running = await rig.begin()
    rig.put("orders", bodies(0, 3))
    rig.put("invoices", bodies(3, 6))
    await rig.settle_down()
    rig.put("orders", bodies(6, 9))
    await rig.settle_down()
    assert rig.store.bodies("orders") == bodies(0, 3) + bodies(6, 9)
    assert rig.store.bodies("invoices") == bodies(3, 6)
    assert rig.source.opened == [{rig.stream(): None}, {rig.stream("invoices"): None}]
    rig.stop.set()
    await running


@in_virtual_time
async def test_replays_that_the_target_drops_are_counted_and_settled() -> None:
    """B9"""
    rig = Rig(most=10)
    rig.put("orders", bodies(0, 1000))
    await FakeTarget(rig.store).open(await rig.source.streams())
    rig.store.positions[BRIDGE, rig.stream()].next = 100
    opened = await rig.target.open(await rig.source.streams())
    await rig.source.open({rig.stream(): StreamState(0)}, opened.store)
    running = asyncio.create_task(rig.pump().run(rig.stop, 1000))
    await rig.settle_down()
    assert rig.store.bodies("orders") == bodies(100, 1000)
    assert (rig.counts.replayed, rig.backlog()) == (100, [])
    rig.stop.set()
    await running


@in_virtual_time
async def test_many_refused_messages_of_one_batch_are_covered_before_more_are_stored() -> None:
    """So that the target needs to remember `LETTERS_AHEAD` of them, however many there are."""
    rig = Rig(most=2_000)
    number = 2 * LETTERS_AHEAD + 10
    rig.put("orders", bodies(0, 2 * number))
    rig.store.refuse(*range(0, 2 * number, 2))
    most = 0
    store_letter = rig.store_letter

    async def counted(batch: Batch, receipt: Receipt, source_address: str) -> None:
        nonlocal most
        await store_letter(batch, receipt, source_address)
        most = max(most, len(rig.session.refused.get(rig.stream(), ())) + 1)

    rig.store_letter = counted  # type: ignore[method-assign]
    running = await rig.begin()
    await rig.settle_down()
    assert rig.store.places("orders") == list(range(1, 2 * number, 2))
    assert len(rig.dead_letters) == number
    assert LETTERS_AHEAD <= most <= LETTERS_AHEAD + 1
    assert rig.backlog() == []
    rig.stop.set()
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


# -- max-rate --------------------------------------------------------------------------------------------


@in_virtual_time
async def test_batches_leave_at_the_rate_of_their_bridge() -> None:
    rig = Rig(most=1)
    rig.session.pacer = Pacer(1_000)
    rig.put("orders", [b"x" * 200] * 20)
    running = await rig.begin()
    await until(lambda: rig.counts.limited, "a batch waits for the rate")
    assert rig.counts.limited == "max-rate: 1,000 bytes/s"
    await asyncio.sleep(2 - now_ms() / 1000)
    assert 2_000 <= sum(len(body or b"") for body in rig.store.bodies("orders")) <= 3_000
    await until(lambda: not rig.backlog(), "all have arrived")
    assert now_ms() in range(3_000, 4_500), "the first second's worth left at once"
    assert (rig.counts.limited, rig.counts.resent) == ("", 0)
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_message_larger_than_a_second_of_the_rate_starves_nothing_and_is_not_starved() -> None:
    rig = Rig(most=1)
    rig.session.pacer = Pacer(1_000)
    rig.put("orders", [b"a" * 100, b"x" * 10_000, b"b" * 100])
    running = await rig.begin()
    await until(lambda: not rig.backlog(), "all have arrived")
    assert [len(body or b"") for body in rig.store.bodies("orders")] == [100, 10_000, 100]
    assert now_ms() in range(9_000, 11_000)
    rig.stop.set()
    await running


@in_virtual_time
async def test_a_stop_does_not_wait_for_the_rate_and_what_waits_stays() -> None:
    rig = Rig(most=1)
    rig.session.pacer = Pacer(10)
    rig.put("orders", bodies(0, 1) + [b"x" * 1_000] * 2)
    running = await rig.begin()
    await until(lambda: rig.counts.limited, "a batch waits for the rate")
    before = now_ms()
    rig.stop.set()
    await running
    assert now_ms() - before < 1_000
    assert len(rig.store.bodies("orders")) + len(rig.backlog()) == 3
    assert (rig.counts.limited, rig.in_flight) == ("", (0, 0, 0))
