"""`retain-time`: what every queue has passed stays for a while, and gives way to what comes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from bridge.journal.journal import Journal
from bridge.journal.values.options import AddressPolicy
from tests.harness.eventually import until
from tests.integration.journal.helpers import ManualClock, browsed, consume, opened, options, send_all

HOUR_MS = 3_600_000


async def with_messages(journal: Journal, first: int, end: int) -> list[str]:
    """All of them read by the only queue."""
    await journal.create_queue("orders", "q", "earliest")
    names = [f"m{number}" for number in range(first, end)]
    await send_all(journal, names)
    await consume(journal, "orders", "q")
    return names


async def left(journal: Journal, names: list[str]) -> None:
    """Return when exactly these are there."""

    async def there() -> bool:
        return await browsed(journal) == names

    await until(there, "they are there")


async def test_passed_messages_stay_until_their_time_has_come(tmp_path: Path) -> None:
    clock = ManualClock()
    given = options(tmp_path, AddressPolicy(retain_time_ms=HOUR_MS))
    async with opened(given, clock) as journal:
        old = await with_messages(journal, 0, 3)
        clock.advance(HOUR_MS // 2)
        young = await with_messages(journal, 3, 5)
        assert await browsed(journal) == [*old, *young]
        clock.advance(HOUR_MS // 2)
        newest = await with_messages(journal, 5, 6)
        await left(journal, [*young, *newest])
        clock.advance(HOUR_MS)
        await send_all(journal, ["x"])
        await consume(journal, "orders", "q")
        await left(journal, ["x"])


async def test_for_ever_is_for_ever_also_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    given = options(tmp_path, AddressPolicy(retain_time_ms=-1))
    async with opened(given, clock) as journal:
        names = await with_messages(journal, 0, 3)
    clock.advance(1000 * HOUR_MS)
    async with opened(given, clock) as journal:
        names += await with_messages(journal, 3, 5)
        assert await browsed(journal) == names
        assert journal._writer.state.to_trim == set(), "nothing is looked at over and over"
    async with opened(options(tmp_path), clock) as journal:
        await send_all(journal, ["x"])
        await left(journal, ["x"])


async def test_by_itself_without_anybody_sending(tmp_path: Path) -> None:
    given = options(tmp_path, AddressPolicy(retain_time_ms=200))
    async with opened(given) as journal:
        await with_messages(journal, 0, 3)
        await left(journal, [])
        assert journal._writer.state.retained == {}


async def test_what_is_not_passed_stays_whatever_its_age(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(options(tmp_path, AddressPolicy(retain_time_ms=1)), clock) as journal:
        await journal.create_queue("orders", "slow", "earliest")
        names = await with_messages(journal, 0, 3)
        clock.advance(HOUR_MS)
        await send_all(journal, ["x"], address="other")
        assert await browsed(journal) == names


@pytest.mark.parametrize("policy", ["BLOCK", "FAIL"])
async def test_half_of_the_room_is_kept_for_what_comes(
    tmp_path: Path, policy: Literal["BLOCK", "FAIL"]
) -> None:
    """Or a full address of messages that nobody needs would hold up its senders."""
    limit = 8 * 1024
    given = options(
        tmp_path,
        AddressPolicy(max_size_bytes=limit, full_policy=policy, retain_time_ms=-1),
        call_timeout_ms=300,
    )
    async with opened(given) as journal:
        await journal.create_queue("orders", "q", "earliest")
        for number in range(40):
            await send_all(journal, [f"{number:0>1000}"])
            await consume(journal, "orders", "q")
        status = await journal.address("orders")
        assert limit // 2 - 2400 < status.bytes <= limit // 2
        assert (await browsed(journal))[-1] == f"{39:0>1000}"
