"""Fixtures of the Kafka acceptance tests: brokers, nodes, and names that no other test has."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import confluent_kafka
import pytest

from tests.acceptance.nodes import Ended, command, eventually
from tests.kafka.conftest import Clusters, cluster_a, cluster_b, clusters, make_cluster
from tests.kafka.nodes import KafkaNode
from tests.kafka.reachable import CALL_TIMEOUT_S

__all__ = ["cluster_a", "cluster_b", "clusters", "make_cluster"]


class AcceptedNode(KafkaNode):
    """One whose bridges may fail: it listens, and may never be ready."""

    def start(self, cwd: Path | None = None, **variables: str) -> Self:
        """Start it and wait until it is ready."""
        super().start(cwd, **variables)
        return self

    def start_listening(self) -> Self:
        """Start it and wait until it shows its bridges; what they do is not waited for."""
        self.spawn()
        eventually(lambda: self.ops.get("/ready").json["bridges"], f"{self.name} shows its bridges")
        return self


MakeNode = Callable[..., AcceptedNode]
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
    """Makes nodes that are not started yet; none may have logged a trace at the end."""
    made: list[AcceptedNode] = []

    def make(settings: str, name: str = "node-1", **how: Any) -> AcceptedNode:
        made.append(AcceptedNode(name, tmp_path, settings, **how))
        return made[-1]

    try:
        yield make
    finally:
        for node in made:
            node.destroy()
            if node.log.exists():
                print(f"--- {node.name}\n{node.log.read_text(encoding='utf-8', errors='replace')}")
    for node in made:
        if node.log.exists():
            log = node.log.read_text(encoding="utf-8")
            assert "Traceback" not in log, f"{node.name} logged an error that nobody foresaw:\n{log}"
            node.events()  # each line is an event


@pytest.fixture
def validate(tmp_path: Path) -> Validate:
    """Runs `core-bridge validate` on a file of this text, in its directory."""

    def run(text: str, **variables: str) -> Ended:
        (tmp_path / "settings.toml").write_text(text, encoding="utf-8")
        return command("validate", cwd=tmp_path, variables=variables)

    return run
