"""Counts of one listener's requests."""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from bridge.errors import BridgeError
from bridge.http.router import Kind
from bridge.runtime import logs
from bridge.runtime.metrics import Histogram

#: Codes for which a caller is refused before it does anything.
REFUSED: Final = ("FORBIDDEN", "ORIGIN_REFUSED", "UNAUTHENTICATED")


class HttpMeter:
    """The counts of one listener. Refusals are logged at most once a second for each code, with the last
    caller.
    """

    def __init__(self, listener: str, *kinds: Kind) -> None:
        """`listener` is its table in the settings; `kinds` are the kinds of its requests."""
        self.listener = listener
        #: Requests refused, by code.
        self.refused = dict.fromkeys(REFUSED, 0)
        #: How long requests took, by kind, without probes and links.
        self.durations = {kind: Histogram() for kind in kinds}
        self._tallies: dict[str, logs.Tally] = {}

    def refuse(self, request: web.Request, error: BridgeError) -> None:
        """Count a request that got `error`, if it is one of `REFUSED`."""
        code = error.code
        if code not in self.refused:
            return
        self.refused[code] += 1
        tally = self._tallies.get(code)
        if tally is None:
            later = asyncio.get_running_loop().call_later
            tally = self._tallies[code] = logs.rate_limited("request-refused", later=later, level="warning")
        tally.add(listener=self.listener, code=code, peer=request.remote, reason=error.detail)

    def flush(self) -> None:
        """Log the refusals that are not logged yet."""
        for tally in self._tallies.values():
            tally.flush()
