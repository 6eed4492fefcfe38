"""Kafka clusters for tests: two that a run shares, and a factory for tests that break theirs.

``CORE_BRIDGE_TEST_KAFKA=host:port,host:port`` makes the two shared ones clusters that run already; they must
have `QUICK_SESSIONS`.
Every fixture is a plain object, so that tests with a loop of their own share them. A machine without what a
broker needs fails the test and names what is missing.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.harness.node import MakeNode, made_nodes
from tests.kafka.bridges import PATIENCE_S
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.far import Far, far_cluster
from tests.kafka.cluster.reachable import Reachable, Running

#: Clusters of the test that runs, for the logs of a failure.
_SHOWN = pytest.StashKey[list[Cluster]]()
RUNNING = "CORE_BRIDGE_TEST_KAFKA"
#: A killed worker's lanes are free as soon as its settings say. Kafka's own least is 6 s.
QUICK_SESSIONS: Final = {"group.min.session.timeout.ms": "1000"}


class Clusters(NamedTuple):
    """Where messages come from, and where they go."""

    a: Reachable
    b: Reachable


def shared_cluster(name: str, directory: Path) -> Iterator[Reachable]:
    """One broker for the whole run, or one that runs already."""
    running = os.environ.get(RUNNING, "")
    if running:
        addresses = running.split(",")
        assert len(addresses) == 2, f"{RUNNING} must be host:port,host:port; found {running}"
        yield Running(addresses["ab".index(name)])
        return
    with Cluster(name=f"cluster-{name}", directory=directory, properties=QUICK_SESSIONS) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def cluster_a(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    """The first shared cluster; never stop its broker."""
    yield from shared_cluster("a", tmp_path_factory.mktemp("kafka-a"))


@pytest.fixture(scope="session")
def cluster_b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reachable]:
    """The second shared cluster; never stop its broker."""
    yield from shared_cluster("b", tmp_path_factory.mktemp("kafka-b"))


@pytest.fixture
def clusters(cluster_a: Reachable, cluster_b: Reachable) -> Clusters:
    """Both shared clusters."""
    return Clusters(cluster_a, cluster_b)


@pytest.fixture(scope="module")
def lasting_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker for all tests of a module that use `own_cluster`."""
    with Cluster(name="own", directory=tmp_path_factory.mktemp("kafka-own")) as cluster:
        yield cluster


@pytest.fixture
def own_cluster(lasting_cluster: Cluster) -> Cluster:
    """A cluster whose broker a test may pause, kill and stop: it serves again when the next one begins."""
    broker = lasting_cluster.broker(1)
    if broker.running:
        broker.resume()
    return lasting_cluster.restart()


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """One broker behind a line, for all tests of a module."""
    with far_cluster(tmp_path_factory.mktemp("kafka-far")) as cluster:
        yield cluster


@pytest.fixture
def make_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Start a cluster of the test's own, to be killed and paused: ``make_cluster(3, properties={...})``."""
    made: list[Cluster] = []

    def make(brokers: int = 1, **options: Any) -> Cluster:
        name = options.pop("name", f"own-{len(made) + 1}")
        cluster = Cluster(brokers, name=name, directory=tmp_path / f"kafka-{name}", **options)
        made.append(cluster)
        return cluster.start()

    request.node.stash[_SHOWN] = made
    yield make
    for cluster in made:
        cluster.close()


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Describe a node, to be started, killed and paused: ``make_node("node-1", settings)``."""
    with made_nodes(tmp_path, ends_within_s=PATIENCE_S) as make:
        yield make


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test has: ``unique("orders")``. For topics, groups and bridges."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the brokers of a failed test have logged last."""
    report = yield
    if report.failed:
        shared = getattr(item, "funcargs", {})
        found = [*item.stash.get(_SHOWN, []), *map(shared.get, ("own_cluster", "cluster_a", "cluster_b"))]
        for cluster in (one for one in found if isinstance(one, Cluster)):
            report.sections += [(f"log of {name}", end) for name, end in cluster.log_tails().items()]
    return report
