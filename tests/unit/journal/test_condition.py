"""The conditions of a journal's file: which event leads where, and what they say."""

from __future__ import annotations

import pytest

from bridge.errors import DiskFull, JournalUnavailable
from bridge.journal.writer.condition import Condition, Event, FileCondition

NO_ROOM = DiskFull("no room")
#: How each condition is reached.
WAYS: dict[Condition, list[tuple[Event, DiskFull | JournalUnavailable | None]]] = {
    Condition.OPEN: [],
    Condition.FULL: [(Event.NO_ROOM, NO_ROOM)],
    Condition.STANDSTILL: [(Event.NO_ROOM, NO_ROOM), (Event.NOTHING_FITS, NO_ROOM)],
    Condition.BROKEN: [(Event.FAILED, JournalUnavailable("I/O error"))],
    Condition.GIVEN_UP: [(Event.FAULT, JournalUnavailable("a defect"))],
}


def reached(condition: Condition) -> FileCondition:
    found = FileCondition()
    for event, error in WAYS[condition]:
        found.on(event, error)
    assert found.now is condition
    return found


@pytest.mark.parametrize("condition", Condition)
def test_a_condition_says_why_the_file_is_not_open(condition: Condition) -> None:
    found = reached(condition)
    assert (found.error is None) is (condition is Condition.OPEN)
    assert found.is_full is (condition in (Condition.FULL, Condition.STANDSTILL))
    assert found.is_broken is bool(found.broken) is (condition in (Condition.BROKEN, Condition.GIVEN_UP))
    assert found.standstill is (NO_ROOM if condition is Condition.STANDSTILL else None)


@pytest.mark.parametrize("condition", [Condition.FULL, Condition.STANDSTILL])
def test_room_opens_a_full_file_and_leaves_no_error(condition: Condition) -> None:
    found = reached(condition)
    found.on(Event.ROOM)
    assert (found.now, found.error) == (Condition.OPEN, None)


def test_a_stored_command_ends_a_standstill_but_brings_no_room_for_messages() -> None:
    found = reached(Condition.STANDSTILL)
    found.on(Event.STORED)
    assert (found.now, found.error) == (Condition.FULL, NO_ROOM)
    found.on(Event.STORED)
    assert found.now is Condition.FULL


@pytest.mark.parametrize("condition", [Condition.OPEN, Condition.FULL, Condition.STANDSTILL])
def test_a_file_that_is_opened_again_has_the_room_that_it_had(condition: Condition) -> None:
    found = reached(condition)
    before = (found.now, found.error, found.is_full, found.standstill)
    for why in ("first", "second"):
        found.on(Event.FAILED, JournalUnavailable(why))
        assert (found.now, found.broken) == (Condition.BROKEN, why)
        assert (found.is_full, found.standstill) == before[2:]
    found.on(Event.REOPENED)
    assert (found.now, found.error, found.is_full, found.standstill) == before


@pytest.mark.parametrize("event", [event for event in Event if event is not Event.FAULT])
def test_nothing_leads_out_of_given_up(event: Event) -> None:
    with pytest.raises(KeyError):
        reached(Condition.GIVEN_UP).on(event)


@pytest.mark.parametrize("condition", Condition)
def test_a_fault_of_the_writer_ends_every_condition(condition: Condition) -> None:
    found = reached(condition)
    found.on(Event.FAULT, JournalUnavailable("a defect"))
    assert (found.now, found.broken) == (Condition.GIVEN_UP, "a defect")
