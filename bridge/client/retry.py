"""Calls that are repeated until the node answers them: only for calls that are safe to repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from bridge.client.node_client import Problem, Unreachable
from bridge.errors import BridgeError

#: Time for which a call is tried again before the command gives up, and the pauses in between, in seconds.
RETRY_FOR_S: Final = 30.0
FIRST_RETRY_S: Final = 0.1
MAX_RETRY_S: Final = 2.0

_T = TypeVar("_T")


async def persistently(
    call: Callable[[], Awaitable[_T]],
    *,
    on_retry: Callable[[BridgeError], None],
    give_up_after_s: float = RETRY_FOR_S,
    longest_pause_s: float = MAX_RETRY_S,
) -> _T:
    """Repeat a call until the node answers it: again after a lost answer and after a 503.

    The call must be safe to repeat. Pauses double from `FIRST_RETRY_S` up, or are as long as the node's
    ``Retry-After`` asks, and are never longer than `longest_pause_s`.

    Attempts in which bytes moved do not count, only the pauses between them: a line that is slow and breaks
    is tried as often as one that breaks at once.

    Raises:
        Problem, Unreachable: the last error, once `give_up_after_s` have passed; other errors at once.
    """
    loop = asyncio.get_running_loop()
    spent_s = 0.0

    async def attempt() -> _T:  # tenacity awaits coroutine functions only, no other callable
        nonlocal spent_s
        began_s = loop.time()
        try:
            return await call()
        except BridgeError as error:
            if not _has_moved(error):
                spent_s += loop.time() - began_s
            raise

    def note(state: RetryCallState) -> None:
        nonlocal spent_s
        spent_s += state.upcoming_sleep
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, BridgeError):
            on_retry(error)

    retrying = AsyncRetrying(
        retry=retry_if_exception(is_worth_another_try),
        stop=lambda _: spent_s >= give_up_after_s,
        wait=lambda state: min(_pause(state), longest_pause_s),
        before_sleep=note,
        sleep=asyncio.sleep,
        reraise=True,
    )
    return await retrying(attempt)


def is_worth_another_try(error: BaseException) -> bool:
    """Whether a call that failed may succeed later: a lost answer, the node's "not now" (503), or a line that
    was too slow for the request's body (408).
    """
    return isinstance(error, Unreachable) or (isinstance(error, Problem) and error.status in (408, 503))


def _has_moved(error: BridgeError) -> bool:
    """Whether bytes of a call that failed moved all the time that it took."""
    if isinstance(error, Problem):
        return error.status == 408
    return isinstance(error, Unreachable) and error.has_moved


def _pause(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after_s if isinstance(error, Problem) else None
    doubled: float = FIRST_RETRY_S * 2 ** min(state.attempt_number - 1, 16)
    return doubled if asked is None else max(asked, doubled)
