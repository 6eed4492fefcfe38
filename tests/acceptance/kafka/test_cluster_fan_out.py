"""Kafka clusters among the static-connectors of a cluster connection get each message once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.demo.ports import free_ports
from tests.acceptance.kafka.records import read as read_topic
from tests.acceptance.kafka.records import values
from tests.cluster.conftest import end_clusters
from tests.cluster.rig import Cluster, await_waiting, make_queue, numbers, read, send
from tests.harness.eventually import eventually
from tests.kafka.conftest import Clusters


@pytest.fixture(autouse=True)
def _clusters_of_the_test() -> Iterator[None]:
    """Clusters end with the test that made them, as those of `tests/cluster/` do."""
    yield
    end_clusters(kept=0)


def test_each_kafka_cluster_gets_each_message_once_and_a_dead_one_holds_nothing_back(
    clusters: Clusters, tmp_path: Path
) -> None:
    jobs, news = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("jobs", "news"))
    (nowhere,) = free_ports(1)
    rest = (
        f'[addresses.{jobs}]\nrouting-type = "ANYCAST"\n'
        f'[connectors.us]\nurl = "kafka://{clusters.b.bootstrap}"\n'
        f'[connectors.dead]\nurl = "kafka://127.0.0.1:{nowhere}"\n'
    )
    cluster = Cluster(
        tmp_path, 2, connection='message-load-balancing = "STRICT"', rest=rest, further=("us", "dead")
    ).start()
    cluster.await_members()
    cluster.await_place(0, 1, jobs, jobs)
    make_queue(cluster[1], news, "there")
    cluster.await_place(0, 1, news, "there")
    send(cluster[0], jobs, numbers(6))
    send(cluster[1], jobs, numbers(4, 6))
    send(cluster[0], news, numbers(5))
    assert set(values(read_topic(clusters.b, jobs, 10))) == {text.encode() for text in numbers(10)}
    assert values(read_topic(clusters.b, news, 5)) == [text.encode() for text in numbers(5)]
    await_waiting(cluster[0], jobs, jobs, 5)
    await_waiting(cluster[1], jobs, jobs, 5)
    assert read(cluster[1], news, "there") == numbers(5)

    def lag() -> bool:
        bridges = {one["name"]: one for one in cluster[0].ops.get("/v1/status").json["bridges"]}
        return (bridges["my-cluster.dead"]["lag"], bridges["my-cluster.us"]["lag"]) == (11, 0)

    eventually(lag, "what the dead cluster lacks waits for it")
