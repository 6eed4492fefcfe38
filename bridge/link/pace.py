"""The lowest rate at which a peer has to send what it has begun to send. Pure."""

from __future__ import annotations

from bridge.link.limits import LEAST_RATE


class Pace:
    """Bytes that a peer owes, measured over windows of time that follow one another.

    A window with fewer than `LEAST_RATE` bytes a second is too slow. Times are ms of a clock that never goes
    back.
    """

    __slots__ = ("_began_ms", "_bytes", "window_ms")

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        #: The window's beginning; None: the peer owes nothing.
        self._began_ms: int | None = None
        #: Bytes that came in the window.
        self._bytes = 0

    @property
    def is_running(self) -> bool:
        """Whether the peer owes bytes."""
        return self._began_ms is not None

    def begin(self, now_ms: int) -> None:
        """The peer owes bytes from now on."""
        self._began_ms, self._bytes = now_ms, 0

    def end(self) -> None:
        """The peer owes nothing."""
        self._began_ms = None

    def add(self, size: int, now_ms: int) -> None:
        """So many bytes came. They begin a window where the peer owed nothing."""
        if self._began_ms is None:
            self.begin(now_ms)
        self._bytes += size

    def deadline_ms(self) -> int | None:
        """The end of the window; None: the peer owes nothing."""
        return None if self._began_ms is None else self._began_ms + self.window_ms

    def too_slow(self, now_ms: int) -> str | None:
        """The numbers of a window that has ended and was too slow. None: go on, in the next one where it has
        ended.
        """
        if self._began_ms is None or now_ms < self._began_ms + self.window_ms:
            return None
        elapsed_ms = now_ms - self._began_ms
        if self._bytes * 1000 < LEAST_RATE * elapsed_ms:
            return f"{self._bytes} bytes in {elapsed_ms / 1000:g} s, fewer than {LEAST_RATE} a second"
        self.begin(now_ms)
        return None
