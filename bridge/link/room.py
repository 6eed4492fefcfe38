"""A limit on the memory that the batches of all links of a node take together. Pure."""

from __future__ import annotations

from collections.abc import Callable


class LinkRoom:
    """Bytes of batches that have come over links and are not answered, of all links of a node.

    While it is full no link is read: further frames stay with the sender, by TCP.
    """

    def __init__(self, most: int) -> None:
        """`most`: bytes, as `batch_frames.buffered_bytes` counts them. One frame of each link may go beyond
        it.
        """
        self.most = most
        self.buffered = 0
        self._links: set[Callable[[], None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether no link is to be read."""
        return self.buffered >= self.most

    def join(self, wake: Callable[[], None]) -> None:
        """`wake` is called each time there is room again, until `leave`."""
        self._links.add(wake)

    def leave(self, wake: Callable[[], None]) -> None:
        """Stop calling `wake`."""
        self._links.discard(wake)

    def take(self, size: int) -> None:
        """Count a batch of this size that has come."""
        self.buffered += size

    def give(self, size: int) -> None:
        """Release batches of this size: they are answered, or their link has ended."""
        was_full = self.is_full
        self.buffered -= size
        if was_full and not self.is_full:
            for wake in tuple(self._links):
                wake()
