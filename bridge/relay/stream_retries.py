"""Streams of a session that wait until they are opened again: which, since when, and why.

A batch that was not taken blocks its stream at the target, and only opening it again ends that. Here is kept
what that stream has to wait for, so that the others need not. Pure: times are handed in.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from bridge.relay.backoff import Backoff

#: Timers go off earlier than asked, by the clock's resolution; so little early is on time.
EARLY_S: Final = 0.001


@dataclass(slots=True)
class _Wait:
    """One stream that was put off."""

    #: Batches of it that are on their way; it can be opened again once they are answered.
    behind: int
    #: From the last of these answers until it is opened again.
    delay_ms: int = 0
    #: Why it waits for the target; empty: it does not, and is opened again at once.
    reason: str = ""
    #: When it is opened again, seconds; None: batches of it are on their way.
    due_s: float | None = None


@dataclass(slots=True)
class PutOff:
    """Which streams wait; at most as many as are open. Times in seconds, by a clock that never goes back."""

    backoff: Backoff
    _waits: dict[str, _Wait] = field(default_factory=dict)
    #: How often a stream had to wait since it moved last.
    _failures: dict[str, int] = field(default_factory=dict)
    #: Why, from the first time on until it moves; those that have waited longest come first.
    _reasons: dict[str, str] = field(default_factory=dict)
    #: Streams that the source does not know of yet.
    _untold: set[str] = field(default_factory=set)

    def __contains__(self, stream: str) -> bool:
        return stream in self._waits

    def add(self, stream: str, behind: int, now_s: float) -> None:
        """Nothing more of it is sent; it is opened again once `behind` batches are answered."""
        if stream not in self._waits:
            self._waits[stream] = _Wait(behind, due_s=None if behind else now_s)
            self._untold.add(stream)

    def wait(self, stream: str, reason: str, now_s: float) -> int | None:
        """The target cannot go on with a stream that was added: the delay before the next attempt, ms.

        None: it waits already; what is said of the batches behind the first does not count.
        """
        wait = self._waits[stream]
        if wait.reason:
            return None
        self._failures[stream] = failures = self._failures.get(stream, 0) + 1
        wait.reason = reason
        self._reasons[stream] = reason
        wait.delay_ms = self.backoff.delay_ms(failures)
        if wait.due_s is not None:
            wait.due_s = now_s + wait.delay_ms / 1000
        return wait.delay_ms

    def answered(self, stream: str, now_s: float) -> None:
        """One of the batches on their way is answered."""
        wait = self._waits.get(stream)
        if wait is not None:
            wait.behind -= 1
            if wait.behind == 0:
                wait.due_s = now_s + wait.delay_ms / 1000

    def moved(self, stream: str) -> None:
        """The target has covered more of it: the next wait is a first one."""
        if self._failures:
            self._failures.pop(stream, None)
            if stream not in self._waits:
                self._reasons.pop(stream, None)

    def untold(self) -> Collection[str]:
        """Streams that the source should read no more of; answers each once."""
        untold, self._untold = self._untold, set()
        return untold

    @property
    def due_s(self) -> float | None:
        """When the first is to be opened again; None: not by itself."""
        return min((wait.due_s for wait in self._waits.values() if wait.due_s is not None), default=None)

    def due(self, now_s: float) -> list[str]:
        """Those that are to be opened again now."""
        latest_s = now_s + EARLY_S
        return [
            stream
            for stream, wait in self._waits.items()
            if wait.due_s is not None and wait.due_s <= latest_s
        ]

    def opened(self, stream: str) -> None:
        """It goes on, if it can."""
        del self._waits[stream]
        self._untold.discard(stream)

    def absent(self, stream: str, now_s: float) -> None:
        """The source does not have it now: look again later, and do not complain of it."""
        wait = self._waits[stream]
        wait.reason = ""
        self._reasons.pop(stream, None)
        self._failures[stream] = failures = self._failures.get(stream, 0) + 1
        wait.due_s = now_s + self.backoff.delay_ms(failures) / 1000

    @property
    def waiting(self) -> frozenset[str]:
        """Streams that wait for the target now."""
        return frozenset(stream for stream, wait in self._waits.items() if wait.reason)

    @property
    def trouble(self) -> str:
        """Why the first of those waits that have not moved since; empty: none."""
        return next(iter(self._reasons.values()), "")
