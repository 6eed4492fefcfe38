"""Queues, filters, bridges and IDs on a real Artemis and here: equal, or different for a named reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.artemis import ours
from tests.artemis.ours import CASES, Result
from tests.artemis.side_by_side import DIFFERENCES, artemis, table, unexplained

pytestmark = [pytest.mark.artemis_long, pytest.mark.processes]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Result]:
    return artemis(tmp_path_factory.mktemp("artemis"))


def test_both_sides_have_the_same_cases(there: Mapping[str, Result]) -> None:
    assert list(there) == list(CASES)
    assert [fact for fact in DIFFERENCES if fact[1] not in there[fact[0]].seen] == []


@pytest.mark.parametrize("case", CASES)
def test_case(case: str, there: Mapping[str, Result], tmp_path: Path) -> None:
    here = ours.run(case, tmp_path)
    print(*table({case: there[case]}, {case: here}), sep="\n")
    assert unexplained(there[case], here) == []
