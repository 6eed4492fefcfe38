"""What a pump has on its way fits the line that the target stands behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bridge.messages.batch import Batch
from bridge.relay.line import LEAST_BATCH, START
from bridge.relay.ports import Receipt
from tests.fakes.ends import FakeSource, FakeStore, FakeTarget
from tests.fakes.virtual_time import in_virtual_time
from tests.unit.relay.test_pump import Rig

KIB = 1024
#: Bytes of a message as it is sent, about.
MESSAGE = KIB


class Fitting(FakeSource):
    """A source that makes its batches as large as it is told."""

    def fit(self, most_bytes: int) -> None:
        self.most = lambda: max(most_bytes // (MESSAGE + 16), 1)


class Behind(FakeTarget):
    """A target behind a line that carries so many bytes a second."""

    def __init__(self, store: FakeStore, rate: int) -> None:
        super().__init__(store)
        self.rate = rate
        self._free_s = 0.0

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        now_s = asyncio.get_running_loop().time()
        self._free_s = max(self._free_s, now_s) + sum(batch.size for batch in batches) / self.rate
        await asyncio.sleep(self._free_s - now_s)
        return await super().deliver(batches)


class LineRig(Rig):
    """A pump to a target behind a line."""

    def __init__(self, rate: int, *, addresses: Sequence[str] = ("orders",), sized: bool = True) -> None:
        super().__init__(window=10 << 20, most=1000, addresses=addresses)
        if sized:
            self.source = self.session.source = Fitting(self.journal)
        self.target = self.session.target = Behind(self.store, rate)

    def backlogged(self, count: int, address: str = "orders") -> None:
        self.put(address, [b"x" * MESSAGE] * count)


@in_virtual_time
async def test_first_batch_over_an_unknown_line_is_small() -> None:
    rig = LineRig(8_000)
    rig.backlogged(1_000)
    running = await rig.begin()
    await asyncio.sleep(20)
    assert rig.store.batches[0].size <= LEAST_BATCH
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time
async def test_about_a_second_is_on_its_way_over_a_slow_line() -> None:
    """64 kbit/s, where the window would be 20 minutes."""
    rig = LineRig(8_000)
    rig.backlogged(1_000)
    running = await rig.begin()
    most = 0
    for _ in range(300):
        await asyncio.sleep(0.1)
        most = max(most, rig.window.bytes)
    assert most <= START + 1_000
    assert len(rig.store.bodies("orders")) * MESSAGE >= 0.8 * 30 * 8_000
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time
async def test_batches_grow_until_they_take_half_a_second() -> None:
    rig = LineRig(200_000)
    rig.backlogged(8_000)
    running = await rig.begin()
    await asyncio.sleep(20)
    assert 80_000 <= rig.store.batches[-1].size <= 110_000
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time
async def test_message_of_another_address_waits_behind_what_is_on_its_way_only() -> None:
    rig = LineRig(60_000, addresses=("telemetry", "alarms"))
    rig.backlogged(4_000, "telemetry")
    running = await rig.begin()
    await asyncio.sleep(10)
    rig.put("alarms", [b"fire"])
    await asyncio.sleep(2.5)
    assert rig.store.bodies("alarms") == [b"fire"]
    assert rig.backlog("telemetry")
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time
async def test_batches_after_a_break_are_smaller() -> None:
    rig = LineRig(200_000)
    rig.backlogged(8_000)
    running = await rig.begin()
    await asyncio.sleep(10)
    before = rig.session.line.batch_bytes
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)
    assert rig.window.bytes == 0
    running = await rig.begin()
    await asyncio.sleep(10)
    assert rig.session.line.batch_bytes <= 0.6 * before
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time
async def test_a_stream_is_opened_again_in_time_while_the_line_is_full() -> None:
    rig = LineRig(10_000, addresses=("full", "telemetry"))
    rig.store.full.add("full")
    rig.put("full", [b"first"])
    rig.backlogged(1_000, "telemetry")
    running = await rig.begin()
    await asyncio.sleep(4)
    rig.store.full.clear()
    await asyncio.sleep(8)
    assert rig.store.bodies("full") == [b"first"]
    assert rig.backlog("telemetry")
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time
async def test_source_that_is_not_told_has_few_batches_on_their_way() -> None:
    """Batches that cannot be made to fit are larger than the line wants."""
    rig = LineRig(600_000, sized=False)
    rig.source.most = lambda: 1_000
    rig.backlogged(10_000)
    running = await rig.begin()
    await asyncio.sleep(8)
    for _ in range(20):
        await asyncio.sleep(0.1)
        assert 1 <= rig.window.batches <= 3
    await asyncio.sleep(10)
    assert rig.backlog() == []
    rig.stop.set()
    await running


def limit(rig: Rig, *, connected: bool = True) -> str:
    return rig.session.line_status(asyncio.get_running_loop().time(), connected=connected).limit


@in_virtual_time
async def test_status_says_that_the_line_is_the_limit() -> None:
    rig = LineRig(8_000)
    rig.backlogged(1_000)
    running = await rig.begin()
    await asyncio.sleep(20)
    status = rig.session.line_status(asyncio.get_running_loop().time(), connected=True)
    assert (status.limit, status.reconnects) == ("line", 0)
    assert 7_000 <= status.rate <= 9_000
    assert 0 < status.in_flight <= status.wanted
    assert limit(rig, connected=False) == ""
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time
async def test_status_says_that_the_window_is_the_limit() -> None:
    rig = Rig(window=100, most=1)
    rig.put("orders", [b"x" * 60] * 10)
    running = await rig.begin()
    rig.store.delay_receipts(1.0)
    await asyncio.sleep(1.5)
    assert limit(rig) == "window"
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)


@in_virtual_time
async def test_status_says_that_the_source_has_no_more() -> None:
    rig = Rig()
    rig.put("orders", [b"m"])
    running = await rig.begin()
    await rig.settle_down()
    assert limit(rig) == "source"
    rig.stop.set()
    await running


@in_virtual_time
async def test_status_says_that_the_target_takes_none_now() -> None:
    rig = Rig()
    rig.store.full.add("orders")
    rig.put("orders", [b"m"])
    running = await rig.begin()
    await rig.settle_down()
    assert limit(rig) == "target"
    rig.stop.set()
    await running


@in_virtual_time
async def test_status_says_that_credit_is_used_up() -> None:
    class Measuring(FakeTarget):
        round_trip_ms = 250
        lacks_credit = True

    rig = Rig()
    rig.session.target = Measuring(rig.store)
    rig.put("orders", [b"m"])
    running = await rig.begin()
    await rig.settle_down()
    assert limit(rig) == "credit"
    assert rig.session.line.round_trip_s == 0.25
    rig.stop.set()
    await running


@in_virtual_time
async def test_bytes_that_were_sent_in_vain_are_counted() -> None:
    rig = LineRig(8_000)
    rig.backlogged(100)
    running = await rig.begin()
    await asyncio.sleep(5)
    in_vain = rig.window.bytes
    rig.store.cut()
    await asyncio.gather(running, return_exceptions=True)
    assert rig.counts.resent_bytes == 0  # the target may have them
    running = await rig.begin()
    assert rig.counts.resent_bytes == in_vain > 0
    rig.stop.set()
    await running
