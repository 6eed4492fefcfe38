"""The readers of queues: those that wait for messages now, and the time at which each was last there.

Besides them, the bridges that take messages of queues which they share with readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bridge.runtime.clock import Clock

#: (address, queue).
Key = tuple[str, str]


class Presence:
    """Lives in the event loop. It has an entry for each queue that was read since the node started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms: dict[Key, int] = {}
        self._waiting: Counter[Key] = Counter()
        #: By bridge that runs, the queues that it shares.
        self._shared: dict[str, Sequence[Key]] = {}

    @contextmanager
    def waiting(self, address: str, queue: str) -> Iterator[None]:
        """A reader waits for messages of the queue."""
        key = (address, queue)
        self._waiting[key] += 1
        try:
            yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]

    def waits(self, address: str, queue: str) -> bool:
        """Whether a reader waits for messages of the queue now."""
        return (address, queue) in self._waiting

    def share(self, bridge: str, queues: Sequence[Key]) -> None:
        """The bridge takes messages of these queues from now on, and of no others."""
        if queues:
            self._shared[bridge] = queues
        else:
            self._shared.pop(bridge, None)

    def others(self, bridge: str, key: Key) -> int:
        """The readers that wait for messages of the queue now, and the bridges besides `bridge` that share
        it.
        """
        bridges = sum(key in queues for name, queues in self._shared.items() if name != bridge)
        return self._waiting.get(key, 0) + bridges

    def seen(self, address: str, queue: str) -> None:
        """A reader has asked, or has settled messages."""
        self._last_ms[address, queue] = self._clock.monotonic_ms()

    def idle_ms(self, address: str, queue: str) -> int:
        """Milliseconds since a reader was there, 0 while one waits; -1: none has been since the node
        started.
        """
        if self.waits(address, queue):
            return 0
        at = self._last_ms.get((address, queue))
        return -1 if at is None else self._clock.monotonic_ms() - at

    def recent(self, within_ms: int) -> set[Key]:
        """The queues for which a reader waits now, or was there within the last `within_ms`."""
        after_ms = self._clock.monotonic_ms() - within_ms
        return {key for key, at_ms in self._last_ms.items() if at_ms > after_ms} | self._waiting.keys()

    def known(self) -> set[Key]:
        """The queues that were read since the node started."""
        return self._last_ms.keys() | self._waiting.keys()

    def forget(self, address: str, queue: str | None = None) -> None:
        """Drop the entry of a queue that was deleted; None: of every queue of the address."""
        for key in [key for key in self._last_ms if key[0] == address and queue in (None, key[1])]:
            del self._last_ms[key]
