"""Clusters end with the test that made them, or with the module that shares them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.rig import MADE


def end_clusters(kept: int) -> None:
    """End all clusters but the first `kept`."""
    while len(MADE) > kept:
        MADE.pop().end()


@pytest.fixture(scope="module", autouse=True)
def _clusters_of_the_module() -> Iterator[None]:
    kept = len(MADE)
    yield
    end_clusters(kept)


@pytest.fixture(autouse=True)
def _clusters_of_the_test(_clusters_of_the_module: None, request: pytest.FixtureRequest) -> Iterator[None]:
    if "shared" in request.fixturenames:
        request.getfixturevalue("shared")  # made before this counts
    kept = len(MADE)
    yield
    end_clusters(kept)
