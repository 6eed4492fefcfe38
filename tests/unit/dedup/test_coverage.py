"""Coverage, outcome by outcome (design rule 1); `tests/property/test_coverage.py` plays whole runs."""

from __future__ import annotations

import pytest

from dedup.coverage import Coverage, Outcome, judge
from dedup.ids import MAX_POSITION


@pytest.mark.parametrize(
    ("scenario", "next_position", "from_", "upto", "expected"),
    [
        ("a stream never seen takes from as its start", None, 40, 50, Coverage(Outcome.TAKE, 40, 50)),
        ("the batch that follows", 50, 50, 60, Coverage(Outcome.TAKE, 50, 60)),
        ("a replay cut anew is stored from next on", 50, 45, 60, Coverage(Outcome.TAKE, 50, 60)),
        ("one position beyond next is enough", 50, 0, 51, Coverage(Outcome.TAKE, 50, 51)),
        ("a replay after a lost receipt", 60, 50, 60, Coverage(Outcome.DUPLICATE, 60, 60)),
        ("an old part of it", 60, 50, 55, Coverage(Outcome.DUPLICATE, 60, 60)),
        ("behind a batch that was not taken", 60, 61, 70, Coverage(Outcome.OUT_OF_SEQUENCE, 60, 60)),
        ("an empty start for a stream never seen", None, 40, 40, Coverage(Outcome.TAKE, 40, 40)),
        ("nothing, at next", 40, 40, 40, Coverage(Outcome.DUPLICATE, 40, 40)),
        ("nothing, below next", 40, 39, 39, Coverage(Outcome.DUPLICATE, 40, 40)),
        ("nothing, beyond next", 40, 41, 41, Coverage(Outcome.OUT_OF_SEQUENCE, 40, 40)),
        (
            "the last position there is",
            MAX_POSITION,
            MAX_POSITION,
            MAX_POSITION + 1,
            Coverage(Outcome.TAKE, MAX_POSITION, MAX_POSITION + 1),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_batch_is_judged_by_what_it_covers(
    scenario: str, next_position: int | None, from_: int, upto: int, expected: Coverage
) -> None:
    assert judge(next_position, from_, upto) == expected


@pytest.mark.parametrize("next_position", [None, 0, 7])
@pytest.mark.parametrize(("from_", "upto"), [(5, 4), (-1, 4), (-2, -1), (0, MAX_POSITION + 2)])
def test_coverage_that_cannot_be_is_refused_whatever_next_is(
    next_position: int | None, from_: int, upto: int
) -> None:
    with pytest.raises(ValueError, match=rf"found \[{from_}, {upto}\)"):
        judge(next_position, from_, upto)
