"""The brokers that every other Kafka test stands on: real, with data that lasts, and never left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from bridge.demo.ports import free_ports
from tests.kafka.cluster import brokers, distribution
from tests.kafka.cluster.brokers import BrokerFailed, Cluster
from tests.kafka.cluster.reachable import Reachable, Running
from tests.kafka.conftest import Clusters

MakeCluster = Callable[..., Cluster]
Unique = Callable[[str], str]


@pytest.fixture(scope="module")
def lasting_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker that users reach by a listener of their own, too."""
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": login,
    }
    with Cluster(
        directory=tmp_path_factory.mktemp("kafka-own"),
        listeners=["USERS:SASL_PLAINTEXT"],
        properties=properties,
    ) as cluster:
        yield cluster


def produce(
    cluster: Reachable,
    topic: str,
    *values: bytes,
    partition: int = 0,
    config: Mapping[str, str] | None = None,
) -> None:
    """Have every value acknowledged."""
    errors: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            errors.append(error)

    producer = cluster.producer(config or {})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(30) == 0
    assert errors == []


def values(cluster: Reachable, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    """The first `count` values of a partition."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    with contextlib.closing(consumer):
        found = consumer.consume(count, timeout=30)
    assert [message.error() for message in found] == [None] * count
    return [message.value() for message in found]


def test_two_clusters_of_one_broker_each_are_two(clusters: Clusters, unique: Unique) -> None:
    topic = unique("orders")
    clusters.a.create_topic(topic, partitions=2)
    produce(clusters.a, topic, b"one", b"two", partition=1)
    assert values(clusters.a, topic, 2, partition=1) == [b"one", b"two"]
    assert topic not in clusters.b.topics()


def test_a_killed_broker_comes_back_with_ports_and_data(own_cluster: Cluster, unique: Unique) -> None:
    cluster, topic = own_cluster, unique("orders")
    cluster.create_topic(topic)
    produce(cluster, topic, b"before")
    broker = cluster.broker(1)
    pid, ports = broker.pid, dict(broker.ports)

    broker.kill()
    assert not broker.running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(BrokerFailed, match=r"broker 1 has ended with -9"):
        broker.pause()

    broker.restart()
    assert broker.ports == ports
    produce(cluster, topic, b"after")
    assert values(cluster, topic, 2) == [b"before", b"after"]


def test_a_running_broker_restarts_in_order(own_cluster: Cluster, unique: Unique) -> None:
    cluster, topic = own_cluster, unique("orders")
    cluster.create_topic(topic)
    produce(cluster, topic, b"before")
    before = cluster.broker(1).pid
    cluster.broker(1).restart()
    assert cluster.broker(1).pid != before
    assert values(cluster, topic, 1) == [b"before"]
    assert "shut down completed" in cluster.broker(1).log.read_text()


def test_a_paused_broker_keeps_its_connections_and_answers_nobody(
    own_cluster: Cluster, unique: Unique
) -> None:
    cluster, topic = own_cluster, unique("orders")
    cluster.create_topic(topic)
    broker = cluster.broker(1)

    broker.pause()
    with socket.create_connection(("127.0.0.1", broker.ports["PLAINTEXT"]), timeout=10) as client:
        # ApiVersions, version 0, correlation id 1, no client id: the smallest question there is.
        client.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", "")))
        assert select.select([client], [], [], 0.3)[0] == []
        broker.resume()
        assert client.recv(4)
    produce(cluster, topic, b"after")
    broker.pause()
    broker.kill()
    assert not broker.running


@pytest.mark.kafka_long  # the exactly-once suite has it done to bridges
def test_leaders_move_when_one_broker_of_three_is_killed(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    cluster.create_topic("orders", replicas=[[1, 2, 3]], config={"min.insync.replicas": "2"})
    cluster.await_leaders("orders", among=[1])
    produce(cluster, "orders", b"before")
    cluster.broker(1).kill()
    cluster.await_leaders("orders", among=[2, 3])
    produce(cluster, "orders", b"meanwhile")
    cluster.broker(1).restart()
    cluster.await_in_sync("orders", {1, 2, 3})
    assert values(cluster, "orders", 2) == [b"before", b"meanwhile"]


@pytest.mark.kafka_long  # the exactly-once suite has it done to bridges
def test_all_brokers_end_together_and_come_back_together(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3)
    cluster.create_topic("orders", replicas=[[1, 2, 3]])
    produce(cluster, "orders", b"before")
    cluster.stop()
    assert [broker.running for broker in cluster.brokers] == [False] * 3
    cluster.restart()
    assert values(cluster, "orders", 1) == [b"before"]


@pytest.mark.kafka_long  # the exactly-once suite has it done to bridges
def test_an_unclean_election_cuts_off_what_only_the_old_leader_had(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(3, properties={"unclean.leader.election.enable": "true"})
    cluster.create_topic("orders", replicas=[[1, 2]], config={"min.insync.replicas": "1"})
    cluster.await_leaders("orders", among=[1])
    produce(cluster, "orders", b"kept")
    cluster.broker(2).pause()
    cluster.await_in_sync("orders", {1})
    produce(cluster, "orders", b"cut off")
    cluster.broker(1).kill()
    cluster.broker(2).resume()
    cluster.await_leaders("orders", among=[2])
    produce(cluster, "orders", b"in its place")
    cluster.broker(1).restart()
    cluster.await_in_sync("orders", {1, 2})
    assert values(cluster, "orders", 2) == [b"kept", b"in its place"]


def test_further_listeners_are_reached_by_their_names(own_cluster: Cluster, unique: Unique) -> None:
    cluster, topic = own_cluster, unique("orders")
    cluster.create_topic(topic)
    produce(cluster, topic, b"open")
    assert cluster.bootstrap_of("USERS") != cluster.bootstrap
    alice = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
    users = {**alice, "bootstrap.servers": cluster.bootstrap_of("USERS"), "sasl.password": "secret"}
    produce(cluster, topic, b"signed in", config=users)
    assert values(cluster, topic, 2) == [b"open", b"signed in"]


@pytest.mark.kafka_long
def test_ports_that_somebody_else_took_are_given_up_for_others(
    monkeypatch: pytest.MonkeyPatch, make_cluster: MakeCluster
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        calls: list[int] = []

        def once_taken(number: int) -> list[int]:
            calls.append(number)
            return [taken, *free_ports(number - 1)] if len(calls) == 1 else free_ports(number)

        monkeypatch.setattr(brokers, "free_ports", once_taken)
        cluster = make_cluster()
        assert len(calls) == 2
        assert taken not in cluster.broker(1).ports.values()


def test_a_broker_that_cannot_start_shows_its_log_and_leaves_nothing_running(
    make_cluster: MakeCluster,
) -> None:
    with pytest.raises(BrokerFailed, match=r"broker 1 ended with 1(.|\n)*Invalid value many"):
        make_cluster(name="broken", properties={"num.partitions": "many"})


def test_brokers_end_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, signal; from pathlib import Path; from tests.kafka.cluster.brokers import Cluster\n"
        "cluster = Cluster(directory=Path(sys.argv[1])).start()\n"
        "print(cluster.broker(1).pid, flush=True); signal.pause()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    assert owner.stdout is not None
    with owner.stdout:
        pid = int(owner.stdout.readline())
    try:
        process = os.pidfd_open(pid)
    finally:
        owner.kill()
        owner.wait()
    # A pidfd is readable once its process has ended.
    try:
        assert select.select([process], [], [], 10)[0] == [process]
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(process)


def test_what_the_machine_lacks_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(distribution.Missing, match=r"Java 17 or newer; found none .*openjdk-17-jre-headless"):
        distribution.distribution()
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o700)
    with pytest.raises(distribution.Missing, match=r"found .*java: .*11\.0\.2"):
        distribution.distribution()
    old.write_text("#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    with pytest.raises(distribution.Missing, match=r"apt install maven"):
        distribution.distribution()


def test_a_jar_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    jar = distribution.pinned()[0]
    (tmp_path / jar.name).write_bytes(b"\0" * jar.bytes)
    with pytest.raises(distribution.Missing, match=rf"{jar.name} must have SHA-256 {jar.sha256}; found"):
        distribution.check(tmp_path / jar.name, jar)
    assert not distribution.is_whole(tmp_path)


@pytest.mark.kafka_long
def test_clusters_for_people_stay_when_their_starter_ends_and_go_when_they_are_told(tmp_path: Path) -> None:
    # Each cluster's controller has the port after its own.
    ports = [str(port) for port in free_ports(4)[::2]]
    program = "import sys; from pathlib import Path; from tests.kafka.cluster.two_clusters import main\n"
    program += "main(sys.argv[2:], Path(sys.argv[1]))"

    def run(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "clusters"), *arguments],
            capture_output=True, text=True, check=False, timeout=120, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    try:
        first = run("up", *ports)
        assert [line.split()[-1] for line in first.splitlines()[:2]] == [
            f"kafka://127.0.0.1:{port}" for port in ports
        ]
        assert run("up", *ports) == first
        assert Running(f"127.0.0.1:{ports[0]}").topics() == set()
    finally:
        assert run("down") == "cluster a: ended\ncluster b: ended\n"
    assert run("down") == "cluster a: not running\ncluster b: not running\n"
