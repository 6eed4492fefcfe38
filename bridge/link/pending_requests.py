"""Pending requests of the sending end: one ticket a call, answered when its last part has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from bridge.link.frames import Welcome
from bridge.link.limits import NEVER_MS
from bridge.relay.ports import Opened, Receipt, StreamState

#: The ticket of the handshake.
GREETING: Final = 0


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a ticket: WELCOME, the streams that `open` asked for, or a receipt for each batch of
    `deliver`.
    """

    ticket: int
    answer: Welcome | Opened | tuple[Receipt, ...]


@dataclass(slots=True)
class _Open:
    deadline_ms: int
    missing: int
    #: The PING behind it, while that is not answered: it may not have been read yet.
    ping: int | None = None
    streams: dict[str, StreamState] = field(default_factory=dict)


@dataclass(slots=True)
class _Call:
    missing: int
    #: By the place of their batch in the call.
    receipts: dict[int, Receipt] = field(default_factory=dict)


class PendingRequests:
    """The tickets that have no answer yet. Deadlines are ms of a clock that never goes back.

    An OPEN behind batches has its deadline from when the other end has read it: the answer to a PING behind
    it shows that. So a slow line, which takes long for the batches, is not taken for a dead node.
    """

    def __init__(self, greeting_deadline_ms: int) -> None:
        self._last = GREETING
        self._greeting_deadline_ms: int | None = greeting_deadline_ms
        #: In the order of their deadlines, for every call has the same timeout.
        self._opens: dict[int, _Open] = {}
        self._calls: dict[int, _Call] = {}
        self._store = ""

    def greeted(self, welcome: Welcome) -> Answered:
        """The handshake is complete; from now on `Opened` names the store of its WELCOME."""
        self._greeting_deadline_ms = None
        self._store = welcome.store
        return Answered(GREETING, welcome)

    def new_open(self, streams: int, deadline_ms: int, ping: int | None = None) -> int:
        """A ticket for so many streams, which brings `Opened`.

        `ping`: the number of the PING behind it; it has no deadline until `read`.
        """
        self._last += 1
        self._opens[self._last] = _Open(NEVER_MS if ping is not None else deadline_ms, streams, ping=ping)
        return self._last

    def read(self, ping: int, deadline_ms: int) -> None:
        """The other end has read everything before this PING."""
        for waiting in self._opens.values():
            if waiting.ping is not None and waiting.ping <= ping:
                waiting.ping, waiting.deadline_ms = None, deadline_ms

    def go_on(self, deadline_ms: int) -> None:
        """An OPEN was answered: the next one has as long again, for the answers come one after the other."""
        waiting = next(iter(self._opens.values()), None)
        if waiting is not None and waiting.ping is None:
            waiting.deadline_ms = deadline_ms

    def new_call(self, batches: int) -> int:
        """A ticket for so many batches, which brings their receipts."""
        self._last += 1
        self._calls[self._last] = _Call(batches)
        return self._last

    def opened(self, ticket: int, identity: str, state: StreamState) -> Answered | None:
        """One stream of a ticket is open; the answer where it was the last."""
        waiting = self._opens[ticket]
        waiting.streams[identity] = state
        waiting.missing -= 1
        if waiting.missing:
            return None
        del self._opens[ticket]
        return Answered(ticket, Opened(self._store, waiting.streams))

    def receipt(self, ticket: int, place: int, receipt: Receipt) -> Answered | None:
        """The receipt of the batch at this place of a ticket; the answer where no other is missing."""
        waiting = self._calls[ticket]
        waiting.receipts[place] = receipt
        waiting.missing -= 1
        if waiting.missing:
            return None
        del self._calls[ticket]
        return Answered(ticket, tuple(waiting.receipts[one] for one in sorted(waiting.receipts)))

    def clear(self) -> None:
        """Drop all tickets: they will not be answered."""
        self._opens.clear()
        self._calls.clear()

    def deadline_ms(self) -> int | None:
        """The time at which the first call will have waited for `call-timeout`; None: no call waits."""
        if self._greeting_deadline_ms is not None:
            return self._greeting_deadline_ms
        return next((waiting.deadline_ms for waiting in self._opens.values()), None)

    def overdue(self, now_ms: int) -> str | None:
        """The name of the frame whose answer is overdue; None: no answer is."""
        deadline_ms = self.deadline_ms()
        if deadline_ms is None or now_ms < deadline_ms:
            return None
        return "HELLO" if self._greeting_deadline_ms is not None else "OPEN"
