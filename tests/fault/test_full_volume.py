"""A volume that the node's own messages have filled can be emptied again, whatever was killed meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bridge.journal.sqlite.reserve import Shares
from tests.fault.volume import MIB, Drain, Round, volume

LONG_ROUNDS = 50


async def run_round(directory: Path, mib: int, drain: Drain, chance: random.Random) -> None:
    """Fill, kill, start, drain with kills, send again."""
    largest = chance.choice([mib * 60, 40_000, 150_000, 600_000])
    print(f"{mib} MiB, up to {largest} bytes a message, drained by a {drain}")
    async with volume(directory, mib, drain, chance) as it:
        it.node.spawn()
        await it.answers(it.node)
        for _ in range(chance.randrange(3)):  # killed while it fills
            await it.fill(largest, _passed(chance.uniform(0.1, 1.5)))
            await it.restart()
        await it.fill(largest, it.is_full)
        for _ in range(chance.randrange(3)):  # and while it is full
            await it.restart()
            assert await it.is_full()
            await it.fill(largest, _passed(chance.uniform(0.1, 1.5)))
        if drain != "reader":
            it.hub.spawn()
            await it.answers(it.hub)
        while not await drained_within(it, chance.uniform(0.2, 3.0)):
            if chance.random() < 0.5:
                await it.restart()
        await it.until("there is room again", it.has_room)
        await it.until("messages are taken again", it.is_taken_again)
        await it.until("and drained", it.drain)
        if drain != "reader":
            await it.browse_hub()
        it.check()
        print(f"{len(it.drained)} messages, {it.node.kills} kills, log {it.longest_log / MIB:.1f} MiB")
        assert it.longest_log <= Shares.of(mib * MIB).log + MIB, "no longer than what is held for it"


async def drained_within(it: Round, seconds: float) -> bool:
    """Whether all is drained within that time."""
    is_over = _passed(seconds)
    ended = False

    async def look() -> bool:
        nonlocal ended
        ended = await it.drain()
        return ended or await is_over()

    await it.until("the volume is drained", look)
    return ended


def _passed(seconds: float) -> Callable[[], Awaitable[bool]]:
    due = time.monotonic() + seconds

    async def look() -> bool:
        return time.monotonic() > due

    return look


@pytest.mark.parametrize(("mib", "drain"), [(24, "reader"), (64, "bridge"), (40, "shared")])
async def test_a_filled_volume_can_be_emptied(
    tmp_path: Path, rng: random.Random, mib: int, drain: Drain
) -> None:
    await run_round(tmp_path, mib, drain, rng)


@pytest.mark.crash
@pytest.mark.parametrize("number", range(LONG_ROUNDS))
async def test_many_filled_volumes_can_be_emptied(tmp_path: Path, rng: random.Random, number: int) -> None:
    drains: list[Drain] = ["reader", "bridge", "shared"]
    drain = drains[number % 3]
    await run_round(tmp_path, rng.choice([24, 40, 64, 160, 320, 640]), drain, rng)
