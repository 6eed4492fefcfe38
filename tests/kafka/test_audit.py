"""`core-bridge audit` on real brokers: what was taken away, repeated or slipped in at the target is found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from pyspark.sql import SparkSession

from bridge.cli import main
from dedup.ids import Stamp
from dedup.reconcile.audit.kafka_source import read
from dedup.reconcile.audit.plan import Range
from tests.kafka.check import Arrived
from tests.kafka.check import read as arrived
from tests.kafka.conftest import Clusters
from tests.kafka.nodes import KafkaNode, await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.reachable import Reachable
from tests.kafka.traffic import Traffic, produce
from tests.reconcile.conftest import quick_session

ID_HEADER: Final = "_AMQ_DUPL_ID"
Unique = Callable[[str], str]
MakeNode = Callable[..., KafkaNode]


@pytest.fixture
def topic(clusters: Clusters, unique: Unique) -> Iterator[str]:
    name = unique("orders")
    clusters.a.create_topic(name, partitions=2)
    yield name
    clusters.a.delete_topic(name)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """What the commands of this file find running: starting it is most of what an audit costs."""
    yield from quick_session()


class Audit:
    """The command, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, settings: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Exit code and summary."""
        self._capsys.readouterr()
        code = main(["audit", *arguments, "--settings", str(settings), "--format", "json"])
        told = self._capsys.readouterr()
        assert told.out, told.err
        return code, json.loads(told.out)


@pytest.fixture
def audit(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Audit:
    """``audit(settings, "a-to-b", "--output", ...)``."""
    return Audit(capsys)


def write(cluster: Reachable, topic: str, records: Iterable[Arrived], *, abort: bool = False) -> None:
    """Write records as they are, in one transaction."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-{abort}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for one in records:
        producer.produce(topic, one.value, one.key, one.partition, headers=list(one.headers))
    if abort:
        assert producer.flush(30) == 0
        producer.abort_transaction(30)
    else:
        producer.commit_transaction(30)


def found(summary: dict[str, Any], kind: str) -> set[tuple[int, int, int]]:
    """Partition, first and last position of each finding of a kind."""
    return {
        (int(one["stream"].rpartition(":")[2]), one["first"], one["last"])
        for one in summary["findings"]
        if one["kind"] == kind
    }


def test_a_loss_a_double_and_a_foreign_record_are_found_by_their_positions(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode, audit: Audit, tmp_path: Path
) -> None:
    bridge = unique("a-to-b")
    node = make_node("node-1", kafka_bridge(clusters._asdict(), bridge, queue_name=topic))
    traffic = Traffic(5, 400, partitions=2, transaction=40, aborted=0.2)
    produce(clusters.a, topic, traffic.records())
    node.start()
    await_progress(clusters.a, bridge, topic)
    assert node.stop() == 0

    code, summary = audit(node.file, bridge, "--output", str(tmp_path / "clean"))
    assert (code, summary["verdict"], summary["findings"]) == (0, "clean", [])
    arrived_before = list(arrived(clusters.b, topic))
    assert sum(one["arrived"] for one in summary["streams"]) == len(arrived_before)

    # A copy of the target with faults: what is not copied is lost.
    stamp = Stamp(next(one["stream"] for one in summary["streams"] if one["partition"] == 0))
    here = [one for one in arrived_before if one.partition == 0]
    gone, twice = here[7], here[3]
    aborted_offset = min(set(range(1_000)) - offsets(clusters.a, topic, 0))
    slipped_in = Arrived(0, 0, b"x", None, ((ID_HEADER, stamp.text(aborted_offset).encode()),), 0)
    faulty = unique("faulty")
    clusters.b.create_topic(faulty, partitions=2)
    kept = [one for one in arrived_before if one is not gone]
    write(clusters.b, faulty, [*kept, twice, slipped_in])
    write(clusters.b, faulty, [gone], abort=True)  # what was aborted did not arrive

    code, summary = audit(
        node.file, "--source", "a", topic, "--target", "b", faulty, "--output", str(tmp_path / "faulty")
    )
    assert (code, summary["verdict"]) == (3, "lost")
    lost, doubled = position(clusters.a, topic, gone), position(clusters.a, topic, twice)
    assert found(summary, "lost") == {(0, lost, lost)}
    assert found(summary, "doubled") == {(0, doubled, doubled)}
    assert found(summary, "foreign") == {(0, aborted_offset, aborted_offset)}
    assert found(summary, "out-of-order") == found(summary, "unknown") == set()
    assert json.loads((tmp_path / "faulty" / "summary.json").read_text())["verdict"] == "lost"
    clusters.b.delete_topic(faulty)


def offsets(cluster: Reachable, topic: str, partition: int) -> set[int]:
    """Where there are committed records."""
    return {one.offset for one in arrived(cluster, topic) if one.partition == partition}


def position(cluster: Reachable, topic: str, record: Arrived) -> int:
    """The offset of a record's original, which has the same time and partition."""
    (one,) = [
        one
        for one in arrived(cluster, topic)
        if (one.timestamp, one.partition) == (record.timestamp, record.partition)
    ]
    return one.offset


def test_an_address_of_a_node_is_compared_with_its_source(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode, audit: Audit, tmp_path: Path
) -> None:
    bridge = unique("a-to-hub")
    hub = make_node("hub", "")
    hub.start()
    tables = f"""{connector_tables({"a": clusters.a})}
[connectors.hub]
url = "{hub.url}"
"""
    ends = {"source_connector": "a", "static_connectors": ["hub"]}
    node = make_node("edge", f"{tables}\n{bridge_table(bridge, queue_name=topic, **ends)}")
    produce(clusters.a, topic, Traffic(6, 300, partitions=2, transaction=30).records())
    node.start()
    await_progress(clusters.a, bridge, topic)
    assert node.stop() == 0
    produce(clusters.a, topic, Traffic(7, 10, partitions=2).records())  # nobody relays these

    code, summary = audit(node.file, bridge, "--output", str(tmp_path / "audit"))
    assert (code, summary["verdict"]) == (0, "clean")
    assert {one["kind"] for one in summary["findings"]} == {"open"}
    assert sum(one["open"] for one in summary["streams"]) == 10
    assert sum(one["arrived"] for one in summary["streams"]) == len(list(arrived(clusters.a, topic))) - 10


async def test_a_partition_that_brings_nothing_ends_its_task_with_a_reason(
    clusters: Clusters, topic: str
) -> None:
    from bridge.kafka.connection import KafkaConnection
    from dedup.reconcile.audit.errors import ReadFailed

    produce(clusters.a, topic, Traffic(8, 20, partitions=1).records())
    connection = KafkaConnection("a", clusters.a.bootstrap)
    beyond = Range("source", topic, 0, 5, 1_000, 0, 0, "s")
    reading = read(connection, beyond, stalled_after_ms=300)
    read_there: list[int] = []

    async def read_all() -> None:
        async for records in reading:
            read_there.extend(offset for offset, _, _ in records)

    with pytest.raises(ReadFailed, match=rf"{topic}/0 could not be read beyond offset 20 of 1000: nothing"):
        await read_all()
    assert read_there == list(range(5, 20))
