"""Fixtures of the Kafka acceptance tests: brokers, nodes, and names that no other test has."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.harness.commands import Ended, command
from tests.harness.node import MakeNode, Node, made_nodes
from tests.kafka.bridges import PATIENCE_S
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S
from tests.kafka.conftest import (
    Clusters,
    cluster_a,
    cluster_b,
    clusters,
    lasting_cluster,
    make_cluster,
    own_cluster,
)

__all__ = ["cluster_a", "cluster_b", "clusters", "lasting_cluster", "make_cluster", "own_cluster"]


#: Names that no other test has, beginning as told.
Named = Callable[[str], str]
Validate = Callable[..., Ended]


@pytest.fixture
def named(clusters: Clusters) -> Iterator[Named]:
    """``named("orders")``; topics with such names go with the test."""
    mark = uuid.uuid4().hex[:10]
    yield lambda prefix: f"{prefix}-{mark}"
    for cluster in clusters:
        admin = cluster.admin()
        left = [topic for topic in admin.list_topics(timeout=CALL_TIMEOUT_S).topics if mark in topic]
        for gone in admin.delete_topics(left).values() if left else ():
            with contextlib.suppress(confluent_kafka.KafkaException):
                gone.result(CALL_TIMEOUT_S)


@pytest.fixture
def make_node(named: Named, tmp_path: Path) -> Iterator[MakeNode]:
    """Makes nodes that are not started yet, settings first; each line of their logs is an event."""
    made: list[Node] = []
    with made_nodes(tmp_path, ends_within_s=PATIENCE_S) as make_one:

        def make(settings: str, name: str = "node-1", **fields: Any) -> Node:
            made.append(make_one(name, settings, **fields))
            return made[-1]

        yield make
    for node in made:
        node.events()


@pytest.fixture
def validate(tmp_path: Path) -> Validate:
    """Runs `core-bridge validate` on a file of this text, in its directory."""

    def run(text: str, **variables: str) -> Ended:
        (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
        return command("validate", cwd=tmp_path, variables=variables)

    return run
