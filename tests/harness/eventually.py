"""Waiting for what no event tells, such as another process's state or a file's size: always with a bound."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import time
from collections.abc import Callable
from typing import Final, TypeVar

#: Longest wait for what has no time of its own in the contract, in seconds.
PATIENCE_S: Final = 20.0
#: Pause between two looks at another process, in seconds.
LOOK_AGAIN_S: Final = 0.02
#: Pause between two looks inside this process, in seconds.
LOOK_INSIDE_S: Final = 0.002

Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen | None], what: str, within_s: float = PATIENCE_S) -> Seen:
    """The first true answer of `look`; an `OSError`, as of a refused connection, counts as none.

    Raises: AssertionError: none came in time; names `what` and what was seen last.
    """
    deadline = time.monotonic() + within_s
    seen: object = None
    while True:
        late = time.monotonic() > deadline
        try:
            found = look()
        except (OSError, http.client.HTTPException) as error:
            seen = error
        else:
            if found:
                return found
            seen = found
        if late:
            raise AssertionError(f"not within {within_s:g} s: {what}; last seen: {seen!r}")
        time.sleep(LOOK_AGAIN_S)


async def until(
    look: Callable[[], object], what: str, within_s: float = PATIENCE_S, every_s: float = LOOK_INSIDE_S
) -> None:
    """Return as soon as `look`, which may be asynchronous, answers true. On a virtual clock times are its.

    Raises: AssertionError: it did not in time; names `what` and the last answer.
    """
    seen: object = None
    try:
        async with asyncio.timeout(within_s):
            while True:
                seen = look()
                if inspect.isawaitable(seen):
                    seen = await seen
                if seen:
                    return
                await asyncio.sleep(every_s)
    except TimeoutError:
        raise AssertionError(f"not within {within_s:g} s: {what}; last seen: {seen!r}") from None
