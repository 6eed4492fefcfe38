"""Bytes of bodies that are coming in and of answers that are going out, over all connections: one limit."""

from __future__ import annotations

from bridge.errors import TooBusy


class Transit:
    """Counts the bytes that are under way now, and each user's part of them."""

    def __init__(self, limit_bytes: int, share_bytes: int) -> None:
        """`share_bytes`: the part of them that one user may have, so that others find room."""
        self.limit_bytes = limit_bytes
        self.share_bytes = share_bytes
        self.bytes = 0
        self._of_users: dict[str, int] = {}

    def take(self, size: int, own: int, user: str) -> None:
        """Count `size` bytes more for a request that has `own` already. `user`: empty: no user's, no share.

        A request that is alone under way is always taken, and so is a user's only one while there is room: no
        limit makes a message that is small enough impossible.

        Raises: TooBusy: with them there would be too many.
        """
        after = self.bytes + size
        if after > self.limit_bytes and self.bytes > own:
            raise _too_busy("on their way", self.bytes, self.limit_bytes, after)
        if user:
            before = self._of_users.get(user, 0)
            if before + size > self.share_bytes and before > own:
                raise _too_busy(f"on their way for {user}", before, self.share_bytes, before + size)
            self._of_users[user] = before + size
        self.bytes = after

    def release(self, size: int, user: str) -> None:
        """Release bytes that have arrived, or will not."""
        self.bytes -= size
        if user:
            self._of_users[user] -= size


def _too_busy(what: str, found: int, limit: int, after: int) -> TooBusy:
    return TooBusy(f"{found} bytes of bodies and pages are {what}", "max-transit-size", limit, after)
