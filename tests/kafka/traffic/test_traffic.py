"""Traffic on a real cluster arrives as the checker expects it, and bad copies of it are found out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from dedup.ids import parse
from tests.harness.eventually import eventually
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.traffic import checker as checking
from tests.kafka.traffic.checker import Arrived, Kind, check, read, stamps_of
from tests.kafka.traffic.traffic import ID_HEADER, Traffic, produce

Unique = Callable[[str], str]


def copy(
    source: Reachable, target: Reachable, topic: str, change: Callable[[Arrived], Arrived | None]
) -> None:
    """A relay without any guarantee: every record as `change` makes it, None left out."""
    producer = target.producer({"linger.ms": 10})
    for one in map(change, read(source, topic)):
        if one is not None:
            producer.produce(
                topic, one.value, one.key, one.partition, timestamp=one.timestamp, headers=list(one.headers)
            )
    assert producer.flush(30) == 0


@pytest.fixture
def topic(clusters: Clusters, unique: Unique) -> Iterator[str]:
    name = unique("orders")
    for cluster in clusters:
        cluster.create_topic(name, partitions=3, config={"max.message.bytes": "2000000"})
    yield name
    for cluster in clusters:
        cluster.delete_topic(name)


def test_what_is_produced_is_what_the_checker_expects(clusters: Clusters, topic: str) -> None:
    traffic = Traffic(1, 3_000, partitions=3, large_every=500)
    produce(clusters.a, topic, traffic.records())
    report = check(clusters.a, topic, traffic)
    assert report.ok, report
    assert report.read == 3_000


def test_aborted_records_are_in_the_log_and_never_read(clusters: Clusters, topic: str) -> None:
    traffic = Traffic(2, 1_000, partitions=3, transaction=50, aborted=0.5)
    produce(clusters.a, topic, traffic.records())
    report = check(clusters.a, topic, traffic)
    assert report.ok, report
    assert 0 < report.read < 1_000

    uncommitted = confluent_kafka.Consumer(
        {"bootstrap.servers": clusters.a.bootstrap, "group.id": "none", "isolation.level": "read_uncommitted"}
    )
    try:
        uncommitted.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(3)])
        assert len(uncommitted.consume(1_000, timeout=30)) == 1_000
    finally:
        uncommitted.close()


def test_stamped_ids_are_those_of_the_source_records(clusters: Clusters, topic: str) -> None:
    traffic = Traffic(3, 500, partitions=3, transaction=50)
    produce(clusters.a, topic, traffic.records())
    stamps = stamps_of(clusters.a, topic, traffic)

    def stamped(one: Arrived) -> Arrived:
        if any(name == ID_HEADER for name, _ in one.headers):
            return one
        own = stamps(*traffic.place(one.timestamp))
        assert parse(own) is not None
        assert parse(own)[1] == one.offset  # type: ignore[index]
        return Arrived(
            one.partition,
            one.offset,
            one.value,
            one.key,
            (*one.headers, (ID_HEADER, own.encode())),
            one.timestamp,
        )

    copy(clusters.a, clusters.b, topic, stamped)
    assert check(clusters.b, topic, traffic, stamps=stamps).ok
    assert set(check(clusters.b, topic, traffic).counts) == {Kind.STAMP}
    assert set(check(clusters.a, topic, traffic, stamps=stamps).counts) == {Kind.STAMP}


def test_a_copy_with_a_hole_and_a_repetition_is_found_out(clusters: Clusters, topic: str) -> None:
    traffic = Traffic(4, 500, partitions=3)
    produce(clusters.a, topic, traffic.records())
    copy(clusters.a, clusters.b, topic, lambda one: None if (one.partition, one.offset) == (1, 20) else one)
    copy(clusters.a, clusters.b, topic, lambda one: one if (one.partition, one.offset) == (2, 30) else None)
    report = check(clusters.b, topic, traffic)
    assert report.counts == {Kind.LOST: 1, Kind.DOUBLED: 1}
    assert sorted(map(str, report.faults))[0].startswith("doubled: record 30 of source partition 2, at 2@")


def test_an_open_transaction_that_hides_the_end_is_said(
    clusters: Clusters, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "STALLED_S", 1.0)
    traffic = Traffic(5, 50, partitions=3)
    produce(clusters.a, topic, traffic.records())
    open_one = confluent_kafka.Producer(
        {"bootstrap.servers": clusters.a.bootstrap, "transactional.id": f"open-{topic}"}
    )
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce(topic, b"not committed", partition=1)
    assert open_one.flush(30) == 0
    with pytest.raises(TimeoutError, match=rf"{topic}: nothing more for 1 s, reached 1@\d+ of \d+$"):
        check(clusters.a, topic, traffic)
    open_one.abort_transaction(30)
    assert check(clusters.a, topic, traffic).ok


@pytest.mark.kafka_long
def test_transactions_outlive_a_broker_that_is_killed(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.create_topic("orders", partitions=3)
    traffic = Traffic(6, 2_000, partitions=3, transaction=100, aborted=0.2)
    records = traffic.records()
    before = 1_000 + 10 * 3  # each of ten transactions has ended in each partition

    def with_a_kill() -> Iterator[object]:
        for index, record in enumerate(records):
            if index == 1_050:
                # Kafka itself can forget a commit marker that is not written when the broker is killed, and
                # then the next abort covers what was committed: KAFKA-20734, trap 18 in docs/kafka-traps.md.
                eventually(lambda: sum(cluster.offsets("orders", committed=True).values()) == before, "ends")
                cluster.broker(1).kill()
                cluster.broker(1).restart()
            yield record

    produce(cluster, "orders", with_a_kill())  # type: ignore[arg-type]
    report = check(cluster, "orders", traffic)
    assert report.ok, report


@pytest.mark.kafka_long
def test_two_hundred_thousand_messages_are_checked_in_little_time(clusters: Clusters, topic: str) -> None:
    traffic = Traffic(7, 200_000, partitions=3, transaction=1_000)
    started_s = time.monotonic()
    produce(clusters.a, topic, traffic.records())
    report = check(clusters.a, topic, traffic)
    assert report.ok, report
    assert time.monotonic() - started_s < 120
