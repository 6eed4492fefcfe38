"""What callers wait for."""

from __future__ import annotations

from bridge.link.pending_requests import GREETING, Answered, PendingRequests
from bridge.relay.ports import Opened, StreamState
from tests.unit.link.helpers import WELCOME, stored


def greeted() -> PendingRequests:
    tickets = PendingRequests(100)
    tickets.greeted(WELCOME)
    return tickets


def test_the_handshake_is_due_until_welcome_comes() -> None:
    tickets = PendingRequests(100)
    assert tickets.deadline_ms() == 100
    assert tickets.overdue(99) is None
    assert tickets.overdue(100) == "HELLO"
    assert tickets.greeted(WELCOME) == Answered(GREETING, WELCOME)
    assert tickets.deadline_ms() is None
    assert tickets.overdue(10**9) is None


def test_an_open_is_answered_with_its_last_stream_and_names_the_store() -> None:
    tickets = greeted()
    ticket = tickets.new_open(2, 200)
    assert tickets.opened(ticket, "a", StreamState(1)) is None
    answer = tickets.opened(ticket, "b", StreamState(None))
    assert answer == Answered(ticket, Opened("hub-store", {"a": StreamState(1), "b": StreamState(None)}))


def test_the_first_open_that_waits_has_the_first_deadline() -> None:
    tickets = greeted()
    first, second = tickets.new_open(1, 200), tickets.new_open(1, 300)
    assert tickets.deadline_ms() == 200
    tickets.opened(first, "a", StreamState(1))
    assert tickets.deadline_ms() == 300
    assert tickets.overdue(300) == "OPEN"
    tickets.opened(second, "b", StreamState(1))
    assert tickets.deadline_ms() is None


def test_a_call_is_answered_with_its_last_receipt_in_order() -> None:
    tickets = greeted()
    ticket = tickets.new_call(2)
    assert tickets.receipt(ticket, 1, stored(2)) is None
    assert tickets.receipt(ticket, 0, stored(1)) == Answered(ticket, (stored(1), stored(2)))


def test_no_two_tickets_are_the_same() -> None:
    tickets = greeted()
    assert len({GREETING, tickets.new_open(1, 1), tickets.new_call(1), tickets.new_call(1)}) == 4
