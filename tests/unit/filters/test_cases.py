"""Every answer of Artemis's own filter, and what `explain` writes of each condition."""

from __future__ import annotations

from bridge.filters import Filter, FilterRefused, parse
from tests.unit.filters.cases import Case, cases


def answer(case: Case, condition: Filter | None) -> tuple[bool, bool]:
    """Whether the message matches, and whether the condition raised."""
    if condition is None:
        return True, False
    before = condition.raised
    return condition.matches(case.properties, case.system), condition.raised > before


def parsed(text: str) -> Filter | str | None:
    try:
        return parse(text)
    except FilterRefused:
        return "error"


def test_every_answer_is_that_of_artemis() -> None:
    wrong = []
    for case in cases():
        condition = parsed(case.condition)
        found = (condition, False) if isinstance(condition, str) else answer(case, condition)
        if found != (("error", False) if case.looks_into_body else (case.result, case.raised)):
            wrong.append(f"{case}; here {found}")
    assert wrong == []


def test_what_is_explained_means_the_same() -> None:
    wrong = []
    for case in cases():
        condition = parsed(case.condition)
        if not isinstance(condition, Filter):
            continue
        again = parse(condition.explain())
        assert again is not None
        if answer(case, again) != (case.result, case.raised) or again.explain() != condition.explain():
            wrong.append(str(case))
    assert wrong == []
