"""Deletes queues and addresses that are not used any more (``auto-delete-queues``, ``-addresses``)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

import structlog

from bridge.errors import BridgeError
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import DeleteUnusedCommand
from bridge.journal.rules.unused import address_may_go, may_go

#: Interval of the looks for what is not used, in milliseconds: so much later than its delay something may go.
LOOK_MS: Final = 1_000
#: Most that go after one look.
AT_ONCE: Final = 100

#: (address, queue); None: the address itself.
Unused = tuple[str, str | None]

_log: Final = structlog.get_logger(__name__)


class UnusedRemover:
    """Looks at one journal's queues and addresses, and deletes those that were unused for their delay."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        #: When each was first found unused, or last had a reader (monotonic, ms).
        self._since_ms: dict[Unused, int] = {}

    async def turn(self) -> None:
        """Look once more."""
        await asyncio.sleep(LOOK_MS / 1000)
        with contextlib.suppress(BridgeError):  # the disk is full, or the journal is being opened again
            await self.look()

    async def look(self) -> None:
        """Delete what is due. Raises: BridgeError: the journal cannot store it now."""
        due = self._due()
        for address, queue in due[:AT_ONCE]:
            deleted = await self._journal.submit(DeleteUnusedCommand, address=address, queue=queue)
            del self._since_ms[address, queue]
            if not deleted:
                continue
            self._journal.presence.forget(address, queue)
            if queue is None:
                self._journal.counts.forget(address)
                _log.info("address-deleted", address=address, reason="auto-delete-addresses")
            else:
                self._journal.counts.forget_queue(address, queue)
                _log.info("queue-deleted", address=address, queue=queue, reason="auto-delete-queues")

    def _due(self) -> list[Unused]:
        found: dict[Unused, int] = {}
        due: list[Unused] = []
        now_ms = self._journal.clock.monotonic_ms()
        for one, delay_ms, used_ms in self._unused(now_ms):
            since_ms = found[one] = max(self._since_ms.get(one, now_ms), used_ms)
            if now_ms - since_ms >= delay_ms:
                due.append(one)
        self._since_ms = found
        return due

    def _unused(self, now_ms: int) -> list[tuple[Unused, int, int]]:
        """Those that may go and have no reader: delay, and when one last read (0: not since the start)."""
        found: list[tuple[Unused, int, int]] = []
        presence = self._journal.presence
        for address in self._journal.views.addresses:
            policy = address.policy.unused
            queues = self._journal.views.queues(address.name)
            used_ms = 0
            for queue in queues:
                idle_ms = presence.idle_ms(address.name, queue.name)
                used_ms = max(used_ms, now_ms - idle_ms if idle_ms >= 0 else 0)
                waits = presence.waits(address.name, queue.name)
                if address.gives_copies and not waits and may_go(address, queue):
                    found.append(((address.name, queue.name), policy.queues_delay_ms, used_ms))
            if address_may_go(address, queues):
                queues_ms = policy.queues_delay_ms if queues else 0
                found.append(((address.name, None), queues_ms + policy.addresses_delay_ms, used_ms))
        return found
