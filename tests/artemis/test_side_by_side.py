"""Queues, filters, bridges, IDs, clusters on a real Artemis and here: equal, or different for a reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.artemis.clusters import ROUNDS
from tests.artemis.ours import Result
from tests.artemis.side_by_side import (
    ALL,
    CLUSTERS,
    MIGRATED,
    SINGLE,
    Comparison,
    artemis,
    table,
    unexplained,
)

pytestmark = [pytest.mark.artemis_long, pytest.mark.processes]


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Result]:
    return artemis(SINGLE, tmp_path_factory.mktemp("artemis"))


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Result]:
    return artemis(CLUSTERS, tmp_path_factory.mktemp("artemis-clusters"))


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Result]:
    return artemis(MIGRATED, tmp_path_factory.mktemp("artemis-migrated"))


@pytest.mark.parametrize("which", ALL)
def test_both_sides_have_the_same_cases(which: str, request: pytest.FixtureRequest) -> None:
    comparison, there = ALL[which], request.getfixturevalue(which)
    assert list(there) == list(comparison.cases)
    assert [fact for fact in comparison.differences if fact[1] not in there[fact[0]].seen] == []


@pytest.mark.parametrize("case", SINGLE.cases)
def test_case(case: str, single: Mapping[str, Result], tmp_path: Path) -> None:
    check(SINGLE, case, single, tmp_path)


@pytest.mark.parametrize("case", CLUSTERS.cases)
def test_case_of_clusters(case: str, clusters: Mapping[str, Result], tmp_path: Path) -> None:
    here = check(CLUSTERS, case, clusters, tmp_path)
    for what, lost in here.notes.items():
        if what.startswith("lost of"):
            assert lost == [0] * ROUNDS, f"{what}: where Artemis loses messages none is lost here"


@pytest.mark.parametrize("case", MIGRATED.cases)
def test_case_of_a_migrated_file(case: str, migrated: Mapping[str, Result], tmp_path: Path) -> None:
    check(MIGRATED, case, migrated, tmp_path)


def check(comparison: Comparison, case: str, there: Mapping[str, Result], directory: Path) -> Result:
    """Run the case here: it is as on Artemis, or different for the reason that is known."""
    here = comparison.run(case, directory)
    print(*table(comparison, {case: there[case]}, {case: here}), sep="\n")
    assert unexplained(comparison, there[case], here) == []
    return here
