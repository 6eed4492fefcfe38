"""Queues, filters, bridges and IDs on a real Artemis and here: equal, or different for a named reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.artemis import ours
from tests.artemis.ours import CASES, NOT_BUILT, Result
from tests.artemis.side_by_side import DIFFERENCES, artemis, table, unexplained

pytestmark = [pytest.mark.artemis_long, pytest.mark.processes]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Result]:
    return artemis(tmp_path_factory.mktemp("artemis"))


def test_both_sides_have_the_same_cases(there: Mapping[str, Result]) -> None:
    assert list(there) == list(CASES)
    assert [fact for fact in DIFFERENCES if fact[1] not in there[fact[0]].seen] == []


@pytest.mark.parametrize("case", [case for case in CASES if case not in NOT_BUILT])
def test_case(case: str, there: Mapping[str, Result], tmp_path: Path) -> None:
    here = ours.run(case, tmp_path)
    print(*table({case: there[case]}, {case: here}), sep="\n")
    assert unexplained(there[case], here) == []


@pytest.mark.parametrize("case", NOT_BUILT)
@pytest.mark.xfail(strict=True, raises=AssertionError, reason="built: take it out of NOT_BUILT")
def test_case_that_is_not_built(case: str, there: Mapping[str, Result], tmp_path: Path) -> None:
    """Fails as soon as the case holds."""
    assert unexplained(there[case], ours.run(case, tmp_path)) == []
