"""Two clusters for all scenarios that do not break their brokers, and the two forms of each scenario."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import RUNNING, Clusters, shared_cluster
from tests.kafka.exactly_once.rig import LONG, SHORT, Form, Way

#: A killed worker's lanes are free as soon as `rig.GROUP` says. Kafka's own least is 6 s.
QUICK_SESSIONS: Final = {"group.min.session.timeout.ms": "1000"}


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


@pytest.fixture(scope="session")
def cluster_a(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    """The source of these scenarios; never stop its broker. A running one must have `QUICK_SESSIONS`."""
    yield from _quick_cluster("a", tmp_path_factory)


@pytest.fixture(scope="session")
def cluster_b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    """The target; the same."""
    yield from _quick_cluster("b", tmp_path_factory)


def _quick_cluster(name: str, factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    directory = factory.mktemp(f"kafka-quick-{name}")
    if os.environ.get(RUNNING):
        yield from shared_cluster(name, directory)
        return
    with Cluster(name=f"quick-{name}", directory=directory, properties=QUICK_SESSIONS) as cluster:
        yield cluster


@pytest.fixture
def make_way(
    clusters: Clusters, unique: Callable[[str], str], rng: random.Random, form: Form
) -> Iterator[Callable[..., Way]]:
    """A way through the two clusters, or others: ``make_way(partitions=4, source=own_cluster)``."""
    made: list[Way] = []

    def make(partitions: int = 3, **options: Any) -> Way:
        traffic = options.pop("traffic", None) or form.traffic(rng.randrange(2**31), partitions)
        ends = {"source": clusters.a, "target": clusters.b}
        made.append(Way(**{**ends, "name": unique("way"), "traffic": traffic, **options}))
        return made[-1]

    yield make
    for way in made:
        way.arrivals.close()
