"""A limit on the memory that the frames and batches of all links of a node take together. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Held(Protocol):
    """A link that is not read."""

    def admit(self) -> None:
        """Read it again."""


class LinkRoom:
    """Bytes that have come over links and are not answered, of all links of a node: frames from their header
    on, then the batches in them.

    While it is full no frame begins: a link whose next frame has begun is held, and its bytes stay with
    the sender, by TCP. Links that are held are read again in the order in which they came. A frame that is
    counted is read to its end, so links never wait for each other.
    """

    def __init__(self, most: int) -> None:
        """`most`: bytes, as `Arriving` and `batch_frames.buffered_bytes` count them. One frame may go beyond
        it, and of each link what one read of its connection brings.
        """
        self.most = most
        self.buffered = 0
        #: Links that are held, in order.
        self._held: dict[Held, None] = {}
        #: Of `buffered`, those of batches and chunks that links keep; and what waits to unpack one.
        self.kept = 0
        self._unpackers: set[Callable[[], None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether no frame may begin."""
        return self.buffered >= self.most

    def wait(self, link: Held) -> None:
        """Admit this link when its turn has come."""
        self._held[link] = None

    def leave(self, link: Held) -> None:
        """Admit this link no more: it has ended."""
        self._held.pop(link, None)

    def take(self, size: int) -> None:
        """Count bytes of this number."""
        self.buffered += size

    def give(self, size: int) -> None:
        """Release bytes: they are answered, or their link has ended. Then admit those that are next."""
        self.buffered -= size
        while self._held and not self.is_full:
            link = next(iter(self._held))
            del self._held[link]
            link.admit()

    def keep(self, size: int) -> None:
        """As `take`, of a frame that is whole and unpacked."""
        self.kept += size
        self.take(size)

    def release(self, size: int) -> None:
        """As `give`, of frames that were kept. Then those that wait may be unpacked."""
        self.kept -= size
        self.give(size)
        if self.kept < self.most:
            unpackers, self._unpackers = self._unpackers, set()
            for wake in unpackers:
                wake()

    def may_unpack(self, wake: Callable[[], None]) -> bool:
        """Whether a compressed frame that has come may be unpacked: one may go beyond the limit.

        Otherwise `wake` is called once, when it may, unless `stay_packed` comes first.
        """
        if self.kept < self.most:
            return True
        self._unpackers.add(wake)
        return False

    def stay_packed(self, wake: Callable[[], None]) -> None:
        """Forget a frame that waits: its link has ended."""
        self._unpackers.discard(wake)
