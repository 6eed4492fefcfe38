"""A limit on the memory that the frames and batches of all links of a node take together. Pure."""

from __future__ import annotations

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
