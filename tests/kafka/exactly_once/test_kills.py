"""SIGKILL at random moments and at every named point of a transaction and of the source's commit (B-rows)."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from bridge.runtime.fault_injection import NAMES
from tests.harness.node import MakeNode
from tests.harness.reports import Report
from tests.kafka.exactly_once.rig import SHORT, Form, Way, started
from tests.kafka.traffic.traffic import Fate

MakeWay = Callable[..., Way]

POINTS: Final = [name for name in NAMES if name.startswith("kafka")]
PARTITIONS: Final = 4


@pytest.mark.parametrize("lanes", [pytest.param(1, marks=pytest.mark.kafka_long), 4])
def test_killed_at_random_moments_while_traffic_runs(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random, lanes: int
) -> None:
    way = make_way(PARTITIONS)
    node = make_node("node-1", way.settings(concurrency=lanes))
    with way.feed.flowing(form.messages_per_s):
        for _ in range(form.rounds):
            node.spawn()
            way.await_more(1 + rng.randrange(200))
            node.kill()
            # Another one dies on its way to the lane, or just after: at any moment of its start.
            node.spawn()
            time.sleep(rng.uniform(0.5, 3.0))
            node.kill()
    way.finish(started(node))


@pytest.mark.spark_long
@pytest.mark.parametrize("form", [SHORT], ids=["short"])
def test_logs_of_killed_workers_give_no_false_finding(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random, tmp_path: Path
) -> None:
    """A hundred kills, half of them on the way to the lanes; what the logs say is what was sent."""
    way = make_way(PARTITIONS)
    node = make_node("node-1", way.settings(concurrency=2))
    with way.feed.flowing(form.messages_per_s):
        for _ in range(50):
            node.spawn()
            way.await_more(1 + rng.randrange(100))
            node.kill()
            node.spawn()
            time.sleep(rng.uniform(0.5, 3.0))
            node.kill()
    way.finish(started(node))
    # The records' timestamps are made up: by them, all are late.
    report = Report.of(tmp_path / "report", [node.data / "delivery-log"], "--late-after=876000h")
    fates = Counter(record.fate for record in way.feed.sent.records())
    report.assert_clean(way.bridge, fates[Fate.ARRIVES], rejected=fates[Fate.REPEATED])


@pytest.mark.parametrize("lanes", [pytest.param(1, marks=pytest.mark.kafka_long), 4])
def test_killed_at_every_named_point(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random, lanes: int
) -> None:
    """D49: among them are those with a Kafka transaction in doubt, whose IDs are known once or not at all."""
    way = make_way(PARTITIONS)
    node = make_node("node-1", way.settings(concurrency=lanes))
    points = [point for point in POINTS for _ in range(max(1, form.rounds // 10))]
    with way.feed.flowing(form.messages_per_s):
        for point in points:
            node.crash(point, 1 + rng.randrange(1 if point.startswith("kafka-source") else 3))
    way.finish(started(node))
