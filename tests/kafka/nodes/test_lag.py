"""What an operator sees of a bridge while an end is away: what waits at its source, by partition; never 0."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import pytest

from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node
from tests.kafka.bridges import bridge_table, connector_tables
from tests.kafka.conftest import Clusters
from tests.kafka.source.rig import numbered
from tests.kafka.source.rig import produce as put

Unique = Callable[[str], str]
#: A port where nothing listens.
NOBODY: Final = "127.0.0.1:1"
#: Another one.
NOBODY_ELSE: Final = "127.0.0.1:2"


def series(node: Node, metric: str, bridge: str) -> dict[str, float]:
    """The samples of a metric of this bridge, by their other labels."""
    start = f"core_bridge_{metric}{{"
    found = {name: value for name, value in node.metrics().items() if name.startswith(start)}
    return {name: value for name, value in found.items() if f'bridge="{bridge}"' in name}


@pytest.mark.parametrize("workers", [0, 2])
def test_what_waits_is_shown_while_the_target_is_away_and_unknown_where_the_source_was_never_reached(
    clusters: Clusters, unique: Unique, make_node: MakeNode, workers: int
) -> None:
    run, blind = unique("waits"), unique("blind")
    topics = [f"{run}.{number}" for number in range(2)]
    for topic in topics:
        clusters.a.create_topic(topic, 2)
        put(clusters.a, topic, numbered(50))
    put(clusters.a, topics[1], numbered(50), partition=1)
    ends = {"queue_name": f"/{run}\\..*/", "static_connectors": ["us"], "concurrency": 2}
    node = make_node(
        "edge",
        connector_tables({"eu": clusters.a, "us": NOBODY, "nobody": NOBODY_ELSE})
        + bridge_table(run, source_connector="eu", **ends)
        + bridge_table(blind, source_connector="nobody", **ends),
        operations="partition-metrics = true",
        **({"node": f"workers = {workers}"} if workers else {}),
    )
    node.start()
    eventually(lambda: node.status(run)["lag"] == 150, "what waits is known")
    put(clusters.a, topics[0], numbered(7), partition=1)
    eventually(lambda: node.status(run)["lag"] == 157, "it grows")
    assert [*series(node, "lag_messages", run).values()] == [157]
    eventually(lambda: sum(series(node, "lag_seconds", run).values()) > 0, "it ages")
    assert [*series(node, "connected", run).values()] == [0]

    assert node.status(blind)["lag"] is None
    for metric in ("lag_messages", "lag_seconds", "parked_partitions"):
        assert series(node, metric, blind) == {}
    assert [*series(node, "connected", blind).values()] == [0]

    operations = f"http://127.0.0.1:{node.operations_port}"

    def rows() -> list[str]:
        shown = command("status", "--bridge", run, "--operations", operations)
        return [line for line in shown.out.splitlines() if line.startswith("partition ")]

    expected = [
        f"partition {topics[0]}/0 position 0 end 50 lag 50",
        f"partition {topics[0]}/1 position 0 end 7 lag 7",
        f"partition {topics[1]}/0 position 0 end 50 lag 50",
        f"partition {topics[1]}/1 position 0 end 50 lag 50",
    ]
    eventually(lambda: rows() == expected, "each partition is shown")
    assert "lag unknown" in command("status", "--bridge", blind, "--operations", operations).out
    # Workers report their partitions from time to time.
    eventually(lambda: sum(series(node, "partition_lag_messages", run).values()) == 157, "metrics, too")
    assert len(series(node, "partition_position", run)) == len(series(node, "partition_end", run)) == 4
    assert node.stop() == 0


def test_a_partition_that_the_target_lacks_is_parked_and_named_and_the_others_go_on(
    clusters: Clusters, unique: Unique, make_node: MakeNode
) -> None:
    run = unique("parks")
    topic, other = f"{run}.a", f"{run}.b"
    for one in (topic, other):
        clusters.a.create_topic(one, 1)
        clusters.b.create_topic(one, 1)
    ends = {"queue_name": f"/{run}\\..*/", "source_connector": "a", "static_connectors": ["b"]}
    node = make_node("edge", connector_tables(clusters._asdict()) + bridge_table(run, **ends))
    node.start()
    node.await_state(run, "RUNNING")
    clusters.a.add_partitions(topic, 2)
    eventually(lambda: series(node, "parked_partitions", run).popitem()[1] == 1, "it is parked", 30)
    put(clusters.a, topic, numbered(3), partition=1)
    put(clusters.a, topic, numbered(4), partition=0)
    put(clusters.a, other, numbered(5))
    eventually(lambda: node.status(run)["acknowledged"] == 9, "the others go on")
    eventually(lambda: node.status(run)["lag"] == 3, "it waits")
    status = node.ops.get(f"/v1/bridges/{run}").json
    assert status["state"] == "RUNNING"
    assert "TOO_FEW_PARTITIONS" in status["reason"]
    reasons = {(row["topic"], row["partition"]): row["reason"] for row in status["partitions"]}
    assert [place for place, reason in reasons.items() if reason] == [(topic, 1)]
    assert "add-partitions" in reasons[topic, 1]
    clusters.b.add_partitions(topic, 2)
    eventually(lambda: node.status(run)["acknowledged"] == 12, "it goes on by itself")
    shown = command(
        *("status", "--bridge", run, "--operations", f"http://127.0.0.1:{node.operations_port}"),
        *("--format", "json"),
    )
    rows = json.loads(shown.out)["partitions"]
    assert [(row["position"], row["end"], row["lag"], row["reason"]) for row in rows] == [
        (4, 4, 0, None),
        (3, 3, 0, None),
        (5, 5, 0, None),
    ]
    assert node.stop() == 0
