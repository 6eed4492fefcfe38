"""The lives of a journal, from what its sessions name."""

from __future__ import annotations

from dedup.reconcile.lineage import ALL, Life, Session, lives


def session(name: str, first: int | None, last: int | None, after: tuple[str, int] | None = None) -> Session:
    return Session(name, after, first, last, committed_ms=last or 0)


def firm(*found: Session) -> list[dict[str, int]]:
    return [dict(life.upto) for life in lives(found) if life.is_firm]


def loose(*found: Session) -> list[dict[str, int]]:
    return [dict(life.upto) for life in lives(found) if not life.is_firm]


def test_openings_that_follow_each_other_are_one_life() -> None:
    found = session("a", 1, 5), session("b", 6, 9, ("a", 5)), session("c", 10, 12, ("b", 9))
    assert lives(found) == [Life({"c": ALL, "b": 9, "a": 5}, committed_ms=12)]


def test_no_session_has_no_life() -> None:
    assert lives(()) == []


def test_an_opening_before_the_last_line_is_a_backup_that_was_put_back() -> None:
    found = session("a", 1, 9), session("b", 6, 7, ("a", 5))
    assert firm(*found) == [{"a": ALL}, {"b": ALL, "a": 5}]
    assert not loose(*found)


def test_two_backups_of_one_line_are_two_lives_beside_the_lost_one() -> None:
    found = session("a", 1, 9), session("b", 6, 7, ("a", 5)), session("c", 6, 8, ("a", 5))
    assert firm(*found) == [{"a": ALL}, {"b": ALL, "a": 5}, {"c": ALL, "a": 5}]


def test_a_backup_of_a_backup() -> None:
    found = session("a", 1, 4), session("b", 5, 9, ("a", 4)), session("c", 7, 7, ("b", 6))
    assert firm(*found) == [{"b": ALL, "a": 4}, {"c": ALL, "b": 6, "a": 4}]


def test_an_opening_without_received_lines_joins_those_around_it() -> None:
    """Its sent lines name it."""
    found = session("a", 1, 5), session("b", None, None, ("a", 5)), session("c", 8, 9, ("b", 7))
    assert firm(*found) == [{"c": ALL, "b": 7, "a": 5}]


def test_a_backup_is_told_although_the_opening_that_followed_it_has_no_received_line() -> None:
    found = session("a", 1, 9), session("b", None, None, ("a", 5)), session("c", 8, 9, ("b", 7))
    assert firm(*found) == [{"a": ALL}, {"c": ALL, "b": 7, "a": 5}]


def test_an_opening_that_wrote_nothing_after_a_backup_is_no_life() -> None:
    assert firm(session("a", 1, 9), session("b", None, None, ("a", 5))) == [{"a": ALL}]


def test_lines_that_are_not_there_any_more_hide_nothing() -> None:
    """The oldest files of a log go first."""
    found = session("c", 20, 25, ("b", 19)), session("d", 26, 27, ("c", 25))
    assert firm(*found) == [{"d": ALL, "c": 25}]
    assert not loose(*found)


def test_a_hidden_opening_is_taken_for_one_that_followed_and_the_doubt_is_told() -> None:
    found = session("a", 1, 5), session("c", 9, 12, ("b", 8))
    assert firm(*found) == [{"a": 8, "c": ALL}]
    assert loose(*found) == [{"c": ALL}]


def test_a_hidden_opening_after_fewer_lines_than_there_are_was_a_backup() -> None:
    found = session("a", 1, 9), session("c", 8, 12, ("b", 7))
    assert firm(*found) == [{"a": ALL}, {"a": 7, "c": ALL}]
    assert loose(*found) == [{"c": ALL}]


def test_a_hidden_opening_may_have_followed_each_life_before_it() -> None:
    found = session("a", 1, 9), session("b", 6, 8, ("a", 5)), session("d", 20, 21, ("c", 19))
    assert firm(*found) == [{"a": 19, "d": ALL}, {"b": 19, "a": 5, "d": ALL}]


def test_sessions_that_name_each_other_end() -> None:
    """No node writes this; a log that was damaged or made by hand may."""
    found = session("a", 1, 5, ("b", 9)), session("b", 6, 9, ("a", 5))
    assert lives(found) == []
