"""The handshakes of node links: a bounded number at a time, so that a node to which a thousand others come
back at once stays answerable. Those beyond it wait in their order.
"""

from __future__ import annotations

import asyncio
from typing import Final

from bridge.errors import TooBusy

#: Links that are opened at a time, from the upgrade to WELCOME.
HANDSHAKES_MOST: Final = 32
#: Longest that one counts, in seconds: a slow line, or a caller that sends no HELLO, keeps no other waiting.
HANDSHAKE_S: Final = 2.0
#: Longest wait for a turn, in seconds; then the caller is told to come again (`Retry-After`).
TURN_S: Final = 5.0


class Handshake:
    """A handshake that is under way, until `end`."""

    __slots__ = ("_timer", "_turns")

    def __init__(self, turns: asyncio.Semaphore) -> None:
        self._turns = turns
        self._timer: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(HANDSHAKE_S, self.end)

    def end(self) -> None:
        """Let the next one begin. Called once or more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._turns.release()


class Handshakes:
    """Those of one node."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(HANDSHAKES_MOST)

    async def begin(self) -> Handshake:
        """Begin one, in its turn. Raises: TooBusy."""
        try:
            async with asyncio.timeout(TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            raise TooBusy(
                f"{HANDSHAKES_MOST} links are being opened, and more wait", "link", HANDSHAKES_MOST
            ) from None
        return Handshake(self._turns)
