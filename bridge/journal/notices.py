"""Futures that a commit wakes: for new messages, new addresses and new delivery-log lines."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from bridge.journal.rules.commands import CommittedEvents


class Notices:
    """Lives in the event loop; `notify` is called after each commit."""

    def __init__(self) -> None:
        #: Kept for as long as a caller waits, so that asking for names that do not exist leaves nothing.
        self._changed: WeakValueDictionary[str, asyncio.Future[None]] = WeakValueDictionary()
        self._anything: asyncio.Future[None] | None = None
        self._lines: asyncio.Future[None] | None = None
        #: Addresses made since the node started.
        self.made = 0

    def changed(self, address: str) -> asyncio.Future[None]:
        """Done when messages come to `address` or return to one of its queues."""
        future = self._changed.get(address)
        if future is None or future.done():
            future = self._changed[address] = asyncio.get_running_loop().create_future()
        return future

    def anything(self) -> asyncio.Future[None]:
        """Done when messages come to any address, or an address is made."""
        if self._anything is None or self._anything.done():
            self._anything = asyncio.get_running_loop().create_future()
        return self._anything

    def lines(self) -> asyncio.Future[None]:
        """Done when delivery-log lines were written to the outbox."""
        if self._lines is None or self._lines.done():
            self._lines = asyncio.get_running_loop().create_future()
        return self._lines

    def notify(self, events: CommittedEvents) -> None:
        """Wake the callers that wait for what was committed."""
        for address in events.touched:
            _wake(self._changed.pop(address, None))
        self.made += len(events.made)
        if events.touched or events.made or events.queues_changed:
            _wake(self._anything)
        if events.logged:
            _wake(self._lines)

    def close(self) -> None:
        """Wake every caller: the journal is closing."""
        for future in [*self._changed.values(), self._anything, self._lines]:
            _wake(future)


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
