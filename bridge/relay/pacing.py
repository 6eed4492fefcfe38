"""`max-rate`: a bridge's batches and chunks wait here, so that it leaves the rest of its line to others."""

from __future__ import annotations

import asyncio
from typing import Final

from bridge.relay.token_bucket import TokenBucket

#: Bytes that leave at once after a silence, in seconds of the rate.
BURST_S: Final = 1.0


class Pacer:
    """The rate of one bridge in this process, which all of its lanes share."""

    def __init__(self, rate: float) -> None:
        """`rate`: bytes a second."""
        self._bucket = TokenBucket(rate, rate * BURST_S)
        #: The limit in words, for the status of a bridge that waits for it.
        self.text = f"max-rate: {rate:,.0f} bytes/s"

    def take(self, size: int) -> float:
        """Seconds to wait before `size` bytes may leave; they count from now on."""
        return self._bucket.take(size, asyncio.get_running_loop().time())

    def give_back(self, size: int) -> None:
        """Count bytes no more that did not leave."""
        self._bucket.give_back(size)

    async def passed(self, size: int) -> None:
        """Returns when `size` bytes may leave; where it is cancelled, they do not count."""
        wait_s = self.take(size)
        if wait_s:
            try:
                await asyncio.sleep(wait_s)
            except asyncio.CancelledError:
                self.give_back(size)
                raise
