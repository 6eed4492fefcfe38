"""The two forms of each scenario, and ways through the clusters."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kafka.conftest import Clusters
from tests.kafka.exactly_once.rig import LONG, SHORT, Form, Way

#: What brokers have changed at a source, by test.
_NOTES = pytest.StashKey[list[str]]()


@pytest.fixture(
    params=[
        pytest.param(SHORT, id="short"),
        pytest.param(LONG, id="long", marks=pytest.mark.kafka_long),
    ]
)
def form(request: pytest.FixtureRequest) -> Form:
    """Short for `make test`, long for `make test-kafka-long`."""
    found: Form = request.param
    return found


@pytest.fixture
def make_way(
    request: pytest.FixtureRequest,
    clusters: Clusters,
    unique: Callable[[str], str],
    rng: random.Random,
    form: Form,
) -> Iterator[Callable[..., Way]]:
    """A way through the two clusters, or others: ``make_way(partitions=4, source=own_cluster)``."""
    made: list[Way] = []

    def make(partitions: int = 3, **options: Any) -> Way:
        traffic = options.pop("traffic", None) or form.traffic(rng.randrange(2**31), partitions)
        ends = {"source": clusters.a, "target": clusters.b}
        made.append(Way(**{**ends, "name": unique("way"), "traffic": traffic, **options}))
        return made[-1]

    yield make
    notes = request.config.stash.setdefault(_NOTES, [])
    for way in made:
        way.arrivals.close()
        if way.note:
            notes.append(f"{request.node.nodeid}: {way.note}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests in which a source's broker has changed the fate of records, passed ones too."""
    notes = config.stash.get(_NOTES, [])
    if notes:
        terminalreporter.section("changed by a broker of the source")
        for note in notes:
            terminalreporter.line(note)
