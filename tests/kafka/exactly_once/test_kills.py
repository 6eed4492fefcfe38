"""SIGKILL at random moments and at every named point of a transaction and of the source's commit (B-rows)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

import pytest

from bridge.crash_points import NAMES
from tests.kafka.exactly_once.rig import Form, Way, started
from tests.kafka.nodes import KafkaNode

MakeNode = Callable[..., KafkaNode]
MakeWay = Callable[..., Way]

POINTS: Final = [name for name in NAMES if name.startswith("kafka")]
PARTITIONS: Final = 4


@pytest.mark.parametrize("lanes", [1, 4])
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


@pytest.mark.parametrize("lanes", [1, 4])
def test_killed_at_every_named_point(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random, lanes: int
) -> None:
    way = make_way(PARTITIONS)
    node = make_node("node-1", way.settings(concurrency=lanes))
    points = [point for point in POINTS for _ in range(max(1, form.rounds // 10))]
    with way.feed.flowing(form.messages_per_s):
        for point in points:
            node.crash(point, 1 + rng.randrange(1 if point.startswith("kafka-source") else 3))
    way.finish(started(node))
