"""Requests about many topics or partitions, in pieces of a bounded size and a bounded number at a time.

One request about all of them, or one round for each of them against one time limit for all, works until
there are too many. So each piece has a time limit of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")

#: Topics that one request for metadata or configurations names.
TOPICS_AT_ONCE: Final = 500
#: Partitions that one request names.
PARTITIONS_AT_ONCE: Final = 1_000
#: Requests in flight at a time.
REQUESTS_AT_ONCE: Final = 8

#: Called with how many of how many are done, where there are several pieces.
Step = Callable[[int, int], None]


def no_steps(_done: int, _total: int) -> None:
    """Show no progress."""


def pieces(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """The items in lists of at most `most`."""
    rest = iter(items)
    while piece := list(islice(rest, most)):
        yield piece


async def in_pieces(
    items: Collection[Item],
    most: int,
    ask: Callable[[Sequence[Item]], Coroutine[Any, Any, T]],
    step: Step = no_steps,
) -> list[T]:
    """The answers to all pieces, in order; the first error cancels all other requests."""
    total, done = len(items), 0

    async def one(piece: Sequence[Item]) -> T:
        nonlocal done
        answer = await ask(piece)
        done += len(piece)
        if len(piece) < total:
            step(done, total)
        return answer

    return await together(one(piece) for piece in pieces(items, most))


async def together(requests: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers, in order; the first error cancels all other requests."""
    limit = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def limited(request: Coroutine[Any, Any, T]) -> T:
        async with limit:
            return await request

    waiting = list(requests)
    tasks = [asyncio.create_task(limited(request)) for request in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for request in waiting:
            request.close()  # closes a request that was cancelled before it had begun
