"""Streams of a session that wait until they are opened again: which, since when, and why.

A batch that was not taken blocks its stream at the target, and only opening it again ends that. This module
keeps the waits of each stream, so that the other streams need not wait. Pure: times are handed in.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from bridge.relay.backoff import Backoff

#: Batches in a row that a stream which waited sends before it has no limit again: 1, 2, 4, 8.
RECOVERED_BATCHES: Final = 16
#: Timers go off earlier than asked, by the clock's resolution; this much earlier counts as on time.
EARLY_S: Final = 0.001


@dataclass(slots=True)
class _Wait:
    """One stream that is backed off."""

    #: Batches of it that are on their way; it can be opened again once they are answered.
    behind: int
    #: Delay between the last of these answers and its opening.
    delay_ms: int = 0
    #: The reason why it waits for the target; empty: it does not wait, and is opened again at once.
    reason: str = ""
    #: When it is opened again, seconds; None: batches of it are on their way.
    due_s: float | None = None
    #: Whether the batches on their way find out if the target has room again.
    probes: bool = False


@dataclass(slots=True)
class BackedOff:
    """The streams that are backed off; at most as many as are open. Times in seconds, by a clock that never
    goes back.
    """

    backoff: Backoff
    _waits: dict[str, _Wait] = field(default_factory=dict)
    #: The number of waits of a stream since it moved last.
    _failures: dict[str, int] = field(default_factory=dict)
    #: The reasons, from the first wait on until the stream moves; the streams that have waited longest come
    #: first.
    _reasons: dict[str, str] = field(default_factory=dict)
    #: Batches that a stream may send before their receipts have come, since it waited: the target is asked by
    #: one batch, then by twice as many each time that it has stored them all.
    _allowed: dict[str, int] = field(default_factory=dict)
    #: Batches that such a stream has sent since it was opened last.
    _sent: dict[str, int] = field(default_factory=dict)
    #: Backed-off streams that the source still reads: it does not know of them yet.
    _unannounced: set[str] = field(default_factory=set)

    def __contains__(self, stream: str) -> bool:
        return stream in self._waits

    def add(self, stream: str, behind: int, now_s: float) -> None:
        """Send no more of the stream; it is opened again once `behind` batches are answered."""
        if stream not in self._waits:
            self._waits[stream] = _Wait(behind, due_s=None if behind else now_s)
            self._unannounced.add(stream)

    def sent(self, stream: str, behind: int, now_s: float) -> bool:
        """Count a batch that was sent, the last of `behind` on their way; True: no more of the stream is sent
        until they are answered, and it is opened again then.
        """
        allowed = self._allowed.get(stream)
        if allowed is None:
            return False
        self._sent[stream] = sent = self._sent.get(stream, 0) + 1
        if sent < allowed:
            return False
        self.add(stream, behind, now_s)
        self._waits[stream].probes = True
        return True

    def probes(self, stream: str) -> bool:
        """Whether batches of the stream are on their way to find out if the target has room again."""
        wait = self._waits.get(stream)
        return wait is not None and wait.probes

    def wait(self, stream: str, reason: str, now_s: float) -> int | None:
        """The target cannot go on with a stream that was added: the delay before the next attempt, ms.

        None: it waits already; the answers to the batches behind the first do not count.
        """
        wait = self._waits[stream]
        if wait.reason:
            return None
        self._failures[stream] = failures = self._failures.get(stream, 0) + 1
        wait.reason = reason
        wait.probes = False
        self._reasons[stream] = reason
        self._allowed[stream] = 1
        wait.delay_ms = self.backoff.delay_ms(failures)
        if wait.due_s is not None:
            wait.due_s = now_s + wait.delay_ms / 1000
        return wait.delay_ms

    def answered(self, stream: str, now_s: float) -> None:
        """Count an answer to one of the batches on their way."""
        wait = self._waits.get(stream)
        if wait is not None:
            wait.behind -= 1
            if wait.behind == 0:
                wait.due_s = now_s + wait.delay_ms / 1000
                if wait.probes:
                    self._allow_more(stream)

    def _allow_more(self, stream: str) -> None:
        self._allowed[stream] *= 2
        if self._allowed[stream] >= RECOVERED_BATCHES:
            del self._allowed[stream]

    def moved(self, stream: str) -> None:
        """Reset the failures of a stream of which the target has covered more: its next wait is a first
        one.
        """
        if self._failures or self._reasons:
            self._failures.pop(stream, None)
            if stream not in self._waits or self._waits[stream].probes:
                self._reasons.pop(stream, None)

    def unannounced(self) -> Collection[str]:
        """Streams of which the source should read no more; returns each once."""
        unannounced, self._unannounced = self._unannounced, set()
        return unannounced

    @property
    def due_s(self) -> float | None:
        """The time at which the first is to be opened again; None: no stream has one."""
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
        """The stream was opened again: it does not wait any more."""
        del self._waits[stream]
        self._unannounced.discard(stream)
        self._sent.pop(stream, None)

    def absent(self, stream: str, now_s: float) -> None:
        """Look for the stream again later, without an error: the source does not have it now."""
        wait = self._waits[stream]
        wait.reason = ""
        self._reasons.pop(stream, None)
        self._failures[stream] = failures = self._failures.get(stream, 0) + 1
        wait.due_s = now_s + self.backoff.delay_ms(failures) / 1000

    @property
    def waiting(self) -> frozenset[str]:
        """Streams that wait for the target: until they move, also while it is asked."""
        return frozenset(self._reasons)

    @property
    def trouble(self) -> str:
        """The reason of the stream that has waited longest without moving since; empty: there is none."""
        return next(iter(self._reasons.values()), "")
