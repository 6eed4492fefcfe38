"""The confirmation window: bytes and messages sent and not yet confirmed. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Window:
    """Artemis's `confirmation-window-size`: a batch may always be sent when nothing is in flight."""

    #: Most bytes in flight.
    limit: int
    bytes: int = 0
    messages: int = 0
    batches: int = 0

    def has_room(self, size: int) -> bool:
        """Whether a batch of `size` bytes may be sent now."""
        return self.batches == 0 or self.bytes + size <= self.limit

    def sent(self, size: int, messages: int) -> None:
        """Add a batch that is on its way."""
        self.bytes += size
        self.messages += messages
        self.batches += 1

    def confirmed(self, size: int, messages: int) -> None:
        """Remove a batch whose receipt came, or will never come."""
        self.bytes -= size
        self.messages -= messages
        self.batches -= 1
        assert min(self.bytes, self.messages, self.batches) >= 0, "confirmed what was never sent"
