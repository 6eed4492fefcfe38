"""Bytes of bodies that are coming in and of answers that are going out, over all connections: one limit."""

from __future__ import annotations

from bridge.errors import TooBusy


class Transit:
    """How many bytes are on their way now."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0

    def take(self, size: int, own: int) -> None:
        """Count `size` bytes more for somebody who has `own` already.

        What is alone on its way is always taken: no limit makes a message that is small enough impossible.

        Raises: TooBusy: with them there would be too many.
        """
        after = self.bytes + size
        if after > self.limit_bytes and self.bytes > own:
            raise TooBusy(
                f"{self.bytes} bytes of bodies and pages are on their way",
                "max-transit-size",
                self.limit_bytes,
                after,
            )
        self.bytes = after

    def release(self, size: int) -> None:
        """These have arrived, or will not."""
        self.bytes -= size
