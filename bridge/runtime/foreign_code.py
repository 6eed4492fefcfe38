"""Loads code of others, whose import or constructor may not return, within a time.

It is loaded in a daemon thread. One that does not return in time is left behind: it holds no lock of the
node, and not the end of the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from bridge.errors import BridgeError
from bridge.runtime import logs

T = TypeVar("T")

#: Loads that may be left behind at a time; while there are so many, nothing more is loaded.
LOADS_MOST: Final = 16
#: Longest load of a package's end or extension, in ms; a transformer has its bridge's `call-timeout`.
LOAD_TIMEOUT_MS: Final = 30_000
#: A load that takes longer than this many seconds is logged.
SLOW_S: Final = 1.0


class NotLoaded(BridgeError):
    """It was not loaded in time, or an earlier load of it still runs."""

    code = "NOT_LOADED"


#: Since when each load that has not returned runs (`time.monotonic`), by its name.
_under_way: Final[dict[str, float]] = {}
_changes: Final = threading.Lock()


def load_within(name: str, load: Callable[[], T], timeout_ms: int, *, details: object = "") -> T:
    """The outcome of `load`, called in a thread.

    `name` is shown to people; together with `details` it says what is loaded, once at a time.

    Raises: NotLoaded; the errors of `load`.
    """
    key = f"{name} {details!r}"
    _begin(key, name)
    outcome: list[T] = []
    errors: list[BaseException] = []
    returned = threading.Event()

    def run() -> None:
        try:
            outcome.append(load())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            errors.append(error)
        with _changes:
            del _under_way[key]
        returned.set()

    threading.Thread(target=run, name=f"loading {name}", daemon=True).start()
    slow_s = min(SLOW_S, timeout_ms / 1000)
    if not returned.wait(slow_s):
        _log_slow(name, slow_s, timeout_ms)
        if not returned.wait(timeout_ms / 1000 - slow_s):
            raise NotLoaded(
                f"must return from its import and its constructor within {timeout_ms} ms, and has not",
                found=name,
            )
    if errors:
        raise errors[0]
    return outcome[0]


def _begin(key: str, name: str) -> None:
    with _changes:
        if key in _under_way:
            passed_s = round(time.monotonic() - _under_way[key])
            detail = f"must return from its import and its constructor: one of {passed_s} s ago has not"
            raise NotLoaded(f"{detail}; restart the node", found=name)
        if len(_under_way) >= LOADS_MOST:
            detail = f"cannot be loaded: {LOADS_MOST} earlier loads have not returned; restart the node"
            raise NotLoaded(detail, limit=LOADS_MOST, found=name)
        _under_way[key] = time.monotonic()


def _log_slow(name: str, seconds: float, timeout_ms: int) -> None:
    if structlog.is_configured():  # else it is a command's own check, whose output is its result
        logs.get().warning("loading-slow", code=name, seconds=seconds, **{"timeout-ms": timeout_ms})
