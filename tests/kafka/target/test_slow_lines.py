"""A target behind a slow line: everything passes, once and in order, and reasons name the line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from bridge.errors import TargetUnavailable
from bridge.kafka.target import transaction
from bridge.messages.message import Message
from dedup.verdict import Verdict
from tests.kafka.cluster.far import Far
from tests.kafka.target.rig import NOW, Rig, arrived, batch, journal_stream, opened, rig, values

Unique = Callable[[str], str]
#: Longest that one call may take over such a line, seconds.
PATIENCE_S: Final = 120.0


@asynccontextmanager
async def over_line(far: Far, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(far.reached, unique("bridge")) as made:
        yield made


def bodies(count: int, size: int) -> list[Message]:
    return [Message((b"%d:" % number).ljust(size, b"x"), None, (), NOW) for number in range(count)]


async def numbers(far: Far, topic: str) -> list[int]:
    """Of the messages of `bodies` that have arrived, in their order."""
    return [int((value or b"").partition(b":")[0]) for value in await values(far.cluster, topic)]


async def test_a_batch_that_takes_longer_than_a_transaction_may_arrives_once_and_in_order(
    far: Far, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """400 kB in one batch take 8 s; nothing may take longer than 2 s without moving."""
    monkeypatch.setattr(transaction, "SEND_TIMEOUT_MS", 2_000)
    stream = journal_stream(unique("orders"))
    with far.line(50_000) as line:
        async with over_line(far, unique) as bridge, asyncio.timeout(PATIENCE_S):
            target = bridge.target()
            await opened(target, stream)
            before = line.up.carried
            (receipt,) = await target.deliver([batch(stream, bodies(40, 10_000))])
            assert (receipt.verdict, receipt.next, receipt.duplicates) == (Verdict.STORED, 40, 0)
            assert await numbers(far, stream.target_address) == list(range(40))
            assert line.up.carried - before < 1.3 * 400_000
            assert (await opened(target, stream)).next == 40


async def test_a_message_that_takes_longer_than_a_wait_for_an_answer_passes(
    far: Far, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 kB in one message take 6 s; nothing may take longer than 2 s without moving."""
    monkeypatch.setattr(transaction, "SEND_TIMEOUT_MS", 2_000)
    stream = journal_stream(unique("orders"))
    with far.line(50_000):
        async with over_line(far, unique) as bridge, asyncio.timeout(PATIENCE_S):
            target = bridge.target()
            await opened(target, stream)
            await target.deliver([batch(stream, bodies(4, 10_000))])
            (receipt,) = await target.deliver([batch(stream, bodies(1, 300_000), from_=4)])
            assert (receipt.verdict, receipt.next) == (Verdict.STORED, 5)
            assert len(await values(far.cluster, stream.target_address)) == 5


async def test_a_line_that_stands_still_is_named_with_its_figures_and_what_was_stored_stays(
    far: Far, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "SEND_TIMEOUT_MS", 2_000)
    stream = journal_stream(unique("orders"))
    with far.line(50_000, queue=4_096) as line:
        async with over_line(far, unique) as bridge, asyncio.timeout(PATIENCE_S):
            target = bridge.target()
            await opened(target, stream)
            delivering = asyncio.create_task(target.deliver([batch(stream, bodies(40, 10_000))]))
            while not await arrived(far.cluster, stream.target_address):
                assert not delivering.done()
            line.cut()
            with pytest.raises(
                TargetUnavailable, match=r"the line to 127\.0\.0\.1:\d+ took \d+ of \d+ bytes"
            ):
                await delivering
            line.heal()
            position = (await opened(target, stream)).next or 0
            assert 0 < position < 40
            more = bodies(40, 10_000)[position:]
            (receipt,) = await target.deliver([batch(stream, more, from_=position)])
            assert receipt.verdict is Verdict.STORED
            assert await numbers(far, stream.target_address) == list(range(40))


@pytest.mark.parametrize(("rate", "count", "size"), [(20_000, 150, 10_000), (2_000, 60, 1_000)])
@pytest.mark.lines_long
async def test_a_backlog_passes_at_the_rate_of_the_line(
    far: Far, unique: Unique, rate: int, count: int, size: int
) -> None:
    stream = journal_stream(unique("orders"))
    loop = asyncio.get_running_loop()
    with far.line(rate) as line:
        async with over_line(far, unique) as bridge, asyncio.timeout(5 * PATIENCE_S):
            target = bridge.target()
            await opened(target, stream)
            before, began_s = line.up.carried, loop.time()
            (receipt,) = await target.deliver([batch(stream, bodies(count, size))])
            took_s, carried = loop.time() - began_s, line.up.carried - before
    assert receipt.verdict is Verdict.STORED
    assert await numbers(far, stream.target_address) == list(range(count))
    assert carried < 1.3 * count * size
    print(f"{rate} B/s: {count} x {size} in {took_s:.1f} s, {count * size / took_s:.0f} B/s, {carried} bytes")
