"""An alarm for forward logs that fill up: what waits for another node takes most of its room."""

from __future__ import annotations

from typing import Final

import structlog

from bridge.journal.journal import Journal
from bridge.messages.stream_names import is_forward_log

#: Shares of `max-size-bytes` from which on a log is filling, and below which it is not any more.
ALARM_SHARE: Final = 0.8
CALM_SHARE: Final = 0.7

_log: Final = structlog.get_logger(__name__)


class Filling:
    """The forward logs of one node that were reported."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.logs: frozenset[str] = frozenset()

    def look(self) -> None:
        """Report the logs that have begun to fill, and those that have room again."""
        filling = set()
        for address in self._journal.views.addresses:
            if not is_forward_log(address.name):
                continue
            share = CALM_SHARE if address.name in self.logs else ALARM_SHARE
            if address.bytes >= share * address.policy.max_size_bytes:
                filling.add(address.name)
                if address.name not in self.logs:
                    _log.warning(
                        "forward-log-filling", address=address.name, bytes=address.bytes,
                        max_bytes=address.policy.max_size_bytes,
                    )  # fmt: skip
        for name in self.logs - filling:
            _log.info("forward-log-room", address=name)
        self.logs = frozenset(filling)
