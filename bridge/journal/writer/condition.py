"""The condition of a journal's file, and the events that lead from one to another. Pure.

What becomes of commands that arrive:

============  =================================  =================================
condition     those that bring messages          others
============  =================================  =================================
OPEN          stored                             stored
FULL          blocked                            stored
STANDSTILL    blocked                            tried, and blocked where it fails
BROKEN        refused, where the file cannot be opened again
GIVEN_UP      refused
============  =================================  =================================
"""

from __future__ import annotations

from enum import Enum

from bridge.errors import BridgeError


class Condition(Enum):
    """The conditions."""

    #: There is room for everything.
    OPEN = "open"
    #: There is no room for messages.
    FULL = "full"
    #: There is no room for anything.
    STANDSTILL = "standstill"
    #: The file was closed after an error; it is opened again with the next commands, after a while.
    BROKEN = "broken"
    #: The writer itself has failed: nothing is stored until the node is restarted.
    GIVEN_UP = "given up"


class Event(Enum):
    """The events that change a condition, or confirm it."""

    #: A measurement, or a commit, found no room for messages.
    NO_ROOM = "no room"
    #: Commands without messages found no room, and there was no reserve to give up for them.
    NOTHING_FITS = "nothing fits"
    #: A commit group was stored.
    STORED = "stored"
    #: There is room again, and all that is kept aside.
    ROOM = "room"
    #: A commit failed for another reason than room, or the file could not be opened again.
    FAILED = "failed"
    #: The file could be opened again.
    REOPENED = "reopened"
    #: The writer's thread has failed.
    FAULT = "fault"


_OPEN, _FULL, _STANDSTILL = Condition.OPEN, Condition.FULL, Condition.STANDSTILL
_BROKEN, _GIVEN_UP = Condition.BROKEN, Condition.GIVEN_UP

#: Event and condition -> condition to go to; missing: it cannot happen. REOPENED leads back to the condition
#: before the first failure: an error says nothing about room.
_TABLE: dict[Event, dict[Condition, Condition]] = {
    Event.NO_ROOM: {_OPEN: _FULL, _FULL: _FULL, _STANDSTILL: _STANDSTILL},
    Event.NOTHING_FITS: {_FULL: _STANDSTILL, _STANDSTILL: _STANDSTILL},
    Event.STORED: {_OPEN: _OPEN, _FULL: _FULL, _STANDSTILL: _FULL},
    Event.ROOM: {_FULL: _OPEN, _STANDSTILL: _OPEN},
    Event.FAILED: dict.fromkeys((_OPEN, _FULL, _STANDSTILL, _BROKEN), _BROKEN),
    Event.REOPENED: {},
    Event.FAULT: dict.fromkeys(Condition, _GIVEN_UP),
}


#: A condition, and the error that says why it is not OPEN.
_Present = tuple[Condition, BridgeError | None]


class FileCondition:
    """The present condition, with the error that says why it is not OPEN.

    Changed in the writer's thread, read from any.
    """

    def __init__(self) -> None:
        self._now: _Present = (Condition.OPEN, None)
        #: The condition before the file was closed.
        self._before: _Present = self._now

    @property
    def now(self) -> Condition:
        """The condition."""
        return self._now[0]

    @property
    def error(self) -> BridgeError | None:
        """Why messages are not stored now; None: they are."""
        return self._now[1]

    @property
    def is_full(self) -> bool:
        """Whether there is no room, for messages at least; of a closed file, as it was."""
        return self._room[0] in (_FULL, _STANDSTILL)

    @property
    def is_broken(self) -> bool:
        """Whether the file is closed."""
        return self._now[0] in (_BROKEN, _GIVEN_UP)

    @property
    def broken(self) -> str:
        """Why the file is closed; empty: it is open."""
        condition, error = self._now
        return error.detail if error is not None and condition in (_BROKEN, _GIVEN_UP) else ""

    @property
    def standstill(self) -> BridgeError | None:
        """Why not even commands without messages find room; None: they do."""
        condition, error = self._room
        return error if condition is _STANDSTILL else None

    @property
    def _room(self) -> _Present:
        return self._before if self.is_broken else self._now

    def on(self, event: Event, error: BridgeError | None = None) -> None:
        """Go where `event` leads. `error` says why; None: the present error stays, unless that is OPEN."""
        condition, present = self._now
        if event is Event.REOPENED and condition is _BROKEN:
            self._now = self._before
            return
        target = _TABLE[event][condition]
        if target in (_BROKEN, _GIVEN_UP):
            self._before = self._room
        self._now = (target, None if target is _OPEN else error or present)
