from __future__ import annotations

import asyncio

import pytest

from bridge.errors import TooBusy
from bridge.http.handshakes import HANDSHAKE_S, HANDSHAKES_MOST, TURN_S, Handshake, Handshakes
from bridge.http.problems import problem
from tests.fakes.virtual_time import in_virtual_time, now_ms


@in_virtual_time
async def test_so_many_links_are_opened_at_a_time_and_the_others_in_their_order() -> None:
    handshakes, begun = Handshakes(), list[int]()

    async def caller(number: int) -> Handshake:
        handshake = await handshakes.begin()
        begun.append(number)
        return handshake

    callers = [asyncio.create_task(caller(number)) for number in range(HANDSHAKES_MOST + 3)]
    await asyncio.sleep(0)
    assert begun == [*range(HANDSHAKES_MOST)]
    for number in (5, 0):
        (await callers[number]).end()
    await asyncio.sleep(0.01)
    assert begun == [*range(HANDSHAKES_MOST + 2)]
    for done in await asyncio.gather(*callers):
        done.end()
        done.end()
    again = [await handshakes.begin() for _ in range(HANDSHAKES_MOST)]
    assert now_ms() < 3_000, "a turn that is ended twice is one turn"
    for one in again:
        one.end()


@in_virtual_time
async def test_a_caller_that_says_nothing_keeps_its_turn_for_a_moment_only() -> None:
    handshakes = Handshakes()
    for _ in range(HANDSHAKES_MOST):
        await handshakes.begin()
    assert now_ms() == 0
    (await handshakes.begin()).end()
    assert now_ms() == HANDSHAKE_S * 1000


@in_virtual_time
async def test_who_gets_no_turn_in_time_is_told_to_come_again() -> None:
    handshakes = Handshakes()

    async def crowd() -> None:
        await handshakes.begin()

    async with asyncio.TaskGroup() as group:
        for _ in range(HANDSHAKES_MOST * 3):
            group.create_task(crowd())
        await asyncio.sleep(0)
        with pytest.raises(TooBusy) as refused:
            await handshakes.begin()
    assert now_ms() == TURN_S * 1000
    answer = problem(refused.value)
    assert answer.status == 503
    assert str(HANDSHAKES_MOST) in refused.value.detail
    await asyncio.sleep(HANDSHAKE_S)
