"""`core-bridge audit` on real brokers: what was taken away, repeated or slipped in at the target is found."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from pyspark.sql import SparkSession

from bridge.audit.planning import Pair, Planner, of_bridge, of_names
from bridge.cli import main
from bridge.kafka.audited import KafkaEnd
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.source.progress import Progress
from bridge.node.offline import find_bridge, read_settings
from bridge.runtime.clock import SystemClock
from bridge.settings.model import Settings
from dedup.ids import Stamp
from dedup.reconcile.audit import bounds, kafka_source, missing, source
from dedup.reconcile.audit.command import run
from dedup.reconcile.audit.errors import ReadFailed
from dedup.reconcile.audit.kafka_source import read
from dedup.reconcile.audit.plan import Range
from tests.acceptance.test_replay_plan import counts, replay
from tests.harness.eventually import eventually
from tests.harness.lossy import installed, lossy
from tests.harness.node import MakeNode
from tests.kafka.bridges import await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, Reachable
from tests.kafka.cluster.secured import PASSWORD, USER, allowed, secured_cluster
from tests.kafka.conftest import Clusters
from tests.kafka.source.rig import expire
from tests.kafka.traffic.checker import Arrived
from tests.kafka.traffic.checker import read as arrived
from tests.kafka.traffic.poison import send_poison
from tests.kafka.traffic.traffic import Traffic, produce
from tests.reconcile.conftest import quick_session

ID_HEADER: Final = "_AMQ_DUPL_ID"
WRONG_PASSWORD: Final = "wr0ng-s3cret"
#: Longest that the command may take in a process of its own, which starts a Spark of its own, in seconds.
COMMAND_TIMEOUT_S: Final = 180.0
Unique = Callable[[str], str]


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
        shown = self._capsys.readouterr()
        assert shown.out, shown.err
        return code, json.loads(shown.out)


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


def headed(*headers: tuple[str, bytes]) -> Arrived:
    """A record of partition 0, to `write`."""
    return Arrived(0, 0, b"body", None, headers, 0)


def produce_plain(cluster: Reachable, topic: str, count: int, partition: int = 0) -> None:
    """Records of 1 KB without headers, each a batch, and no transaction: offsets leave nothing out."""
    each = {"linger.ms": 0, "batch.num.messages": 1}
    producer = cluster.producer(each)
    for _ in range(count):
        producer.produce(topic, b"x" * 1_000, partition=partition)
    assert producer.flush(30) == 0


def planner(settings: Path, pair: Callable[[Settings], Pair]) -> Planner:
    """What the command plans with."""
    read_there = read_settings(settings)
    return Planner(read_there, settings, pair(read_there))


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


def test_the_plan_of_an_audit_brings_what_was_lost_and_on_request_what_the_target_has_deleted(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode, audit: Audit, tmp_path: Path
) -> None:
    bridge = unique("a-to-b")
    tables = lossy(kafka_bridge(clusters._asdict(), bridge, queue_name=topic), "b")
    node = make_node("node-1", tables, variables=installed(tmp_path))
    node.start(LOSSY_END=f"{topic}:7")
    produce_plain(clusters.a, topic, 10)
    await_progress(clusters.a, bridge, topic)
    expire(clusters.b, topic, [one.offset for one in arrived(clusters.b, topic)][3])
    settings = tmp_path / "audited.toml"  # this process has no lossy end
    settings.write_text(node.file.read_text().replace("lossy-", ""))

    def planned(*more: str) -> list[list[list[int]]]:
        """The positions of each entry."""
        code, _ = audit(settings, bridge, "--output", str(tmp_path / "audit"), *more)
        assert code == 3
        entries = json.loads((tmp_path / "audit" / "replay-plan.json").read_text())["entries"]
        return [entry["positions"] for entry in entries]

    assert planned() == [[[7, 7]]]
    assert planned("--with-deleted") == [[[0, 2], [7, 7]]]
    sent = replay(node, tmp_path / "audit" / "replay-plan.json")
    assert (sent.code, counts(sent)["sent"]) == (0, 4), sent
    assert len(list(arrived(clusters.b, topic))) == 6 + 4
    code, summary = audit(settings, bridge, "--output", str(tmp_path / "audit"))
    assert (code, summary["verdict"]) == (0, "clean")
    assert json.loads((tmp_path / "audit" / "replay-plan.json").read_text())["entries"] == []


def test_a_bridge_with_a_filter_is_compared_with_what_its_filter_takes(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode, audit: Audit, tmp_path: Path
) -> None:
    """What it rejects is not lost; nor is what it takes now, and another filter has rejected before."""
    bridge = unique("a-to-b")
    settings = kafka_bridge(clusters._asdict(), bridge, queue_name=topic, filter="animal = 'goat'")
    node = make_node("node-1", settings)
    animals = [b"goat", b"monkey", b"goat", b"ape", b"goat", b"monkey"]
    write(clusters.a, topic, [headed(("animal", animal)) for animal in animals])
    node.start()
    await_progress(clusters.a, bridge, topic)
    assert node.stop() == 0
    output = tmp_path / "audit"

    def audited(condition: str) -> tuple[int, dict[str, Any]]:
        node.rest = settings.replace("animal = 'goat'", condition)
        return audit(node.write(), bridge, "--output", str(output))

    code, summary = audited("animal = 'goat'")
    assert (code, summary["verdict"], summary["findings"]) == (0, "clean", [])
    assert sum(stream["source"] for stream in summary["streams"]) == 3
    code, summary = audited("animal <> 'ape'")
    assert (code, summary["verdict"]) == (4, "unknown")
    assert found(summary, "unknown") == {(0, 1, 1), (0, 5, 5)}
    code, summary = audited("animal = 'goat' AND AMQAddress <> 'orders' AND FALSE")
    assert (code, summary["verdict"]) == (4, "unknown")
    assert found(summary, "foreign") == {(0, 0, 0), (0, 2, 2), (0, 4, 4)}


@pytest.mark.kafka_long  # in short: reconcile/test_audit.py
def test_copies_of_an_id_that_records_share_are_counted(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode, audit: Audit, tmp_path: Path
) -> None:
    """Ten of one stamp, and in partition 1 a hundred of one producer's ID; of each, eight are lost."""
    bridge = unique("a-to-b")
    tables = kafka_bridge(clusters._asdict(), bridge, queue_name=topic, check_producer_ids=False)
    node = make_node("node-1", lossy(tables, "b"), variables=installed(tmp_path))
    stamp = Stamp("journal:1:orders:0").text(7).encode()
    ids = [stamp if 5 <= at < 15 else None for at in range(25)] + [b"again"] * 100
    write(
        clusters.a,
        topic,
        [
            Arrived(int(at >= 25), 0, b"m%d" % at, None, () if one is None else ((ID_HEADER, one),), 0)
            for at, one in enumerate(ids)
        ],
    )
    node.start(LOSSY_END=f"{topic}:5-12")
    await_progress(clusters.a, bridge, topic)
    assert node.stop() == 0
    node.file.write_text(tables)  # the audit is done where no such end is installed
    code, summary = audit(node.file, bridge, "--output", str(tmp_path / "audit"))
    assert (code, summary["verdict"]) == (3, "lost")
    counted = [(one["source"], one["arrived"], one["lost"]) for one in summary["streams"]]
    assert counted == [(25, 17, 8), (100, 92, 8)]
    assert {(one["kind"], one["count"], one["id"]) for one in summary["findings"]} == {
        ("lost", 8, stamp.decode()),
        ("lost", 8, "again"),
    }


@pytest.mark.kafka_long  # in short: reconcile/test_audit.py
def test_a_duplicate_that_was_rejected_is_not_lost_when_its_first_copy_expires(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode, audit: Audit, tmp_path: Path
) -> None:
    bridge = unique("a-to-b")
    node = make_node("node-1", kafka_bridge(clusters._asdict(), bridge, queue_name=topic))
    twice = headed((ID_HEADER, b"order-1"))
    write(clusters.a, topic, [twice, headed(), headed(), twice, headed()])
    node.start()
    await_progress(clusters.a, bridge, topic)
    assert node.stop() == 0
    assert len(list(arrived(clusters.b, topic))) == 4
    for below, verdict, unknown in ((0, "clean", set()), (1, "unknown", {(0, 0, 0)})):
        if below:
            expire(clusters.b, topic, below)
        _, summary = audit(node.file, bridge, "--output", str(tmp_path / f"audit-{below}"))
        assert (summary["verdict"], found(summary, "unknown")) == (verdict, unknown), summary["findings"]
        assert found(summary, "lost") == set()


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


def test_a_target_that_is_not_there_is_refused_as_a_source_is(
    clusters: Clusters,
    topic: str,
    unique: Unique,
    make_node: MakeNode,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = make_node("desk", connector_tables(clusters._asdict()))
    node.start()
    produce_plain(clusters.a, topic, 3)
    misspelt, output = unique("misspelt"), tmp_path / "audit"
    for connector, what in (("b", "topic"), ("journal", "address")):
        ends = ["--source", "a", topic, "--target", connector, misspelt]
        assert main(["audit", *ends, "--settings", str(node.file), "--output", str(output)]) == 2
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err == f"core-bridge: NOT_FOUND: connector {connector}: no {what} {misspelt}\n"
    assert not output.exists()


def test_what_this_node_has_deleted_is_unknown_below_what_its_bridge_has_settled(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode, audit: Audit, tmp_path: Path
) -> None:
    bridge = unique("us-to-desk")
    ends = {"source_connector": "a", "static_connectors": ["journal"], "forwarding_address": "arrived"}
    node = make_node(
        "desk", f"{connector_tables({'a': clusters.a})}\n{bridge_table(bridge, queue_name=topic, **ends)}"
    )
    node.start()
    assert node.api.make_queue("arrived", "desk") == 201
    produce_plain(clusters.a, topic, 30)
    produce_plain(clusters.a, topic, 20, partition=1)
    store = node.ops.get("/v1/status").json["store"]
    group = f"core-bridge.{bridge}.{store.partition(':')[0]}.progress"
    await_progress(clusters.a, bridge, topic, group=group)
    code, summary = audit(node.file, bridge, "--output", str(tmp_path / "whole"))
    assert (code, summary["verdict"], summary["findings"]) == (0, "clean", [])
    assert [one["covered"] for one in summary["streams"]] == [30, 20]

    # All is read by its only queue, and then gone; nobody relays what comes now.
    lease, messages = node.api.lease("arrived", "desk", "max=100")
    assert len(messages) == 50
    assert node.api.settle("acknowledge", "arrived", "desk", lease=lease).status == 204
    eventually(lambda: not node.api.browse("arrived"), "the node has deleted what it delivered")
    assert node.ops.call("POST", f"/v1/bridges/{bridge}/stop").status == 200
    node.await_state(bridge, "STOPPED")
    produce_plain(clusters.a, topic, 5)
    code, summary = audit(node.file, bridge, "--output", str(tmp_path / "emptied"))
    assert (code, summary["verdict"]) == (4, "unknown")
    assert found(summary, "unknown") == {(0, 0, 29), (1, 0, 19)}
    assert {one["detail"] for one in summary["findings"] if one["kind"] == "unknown"} == {bounds.BY_DELETION}
    assert found(summary, "open") == {(0, 30, 34)}

    # What another incarnation of the journal had settled says nothing of this one.
    async def settle_elsewhere() -> None:
        progress = Progress(KafkaConnection("a", clusters.a.bootstrap), group, SystemClock())
        marks = await progress.marks()
        await progress.commit({tp: replace(mark, store=f"{store}-before") for tp, mark in marks.items()})
        await progress.close()

    asyncio.run(settle_elsewhere())
    code, summary = audit(node.file, bridge, "--output", str(tmp_path / "elsewhere"))
    assert (code, summary["verdict"]) == (4, "unknown")
    assert [one["covered"] for one in summary["streams"]] == [None, None]
    assert found(summary, "open") == {(0, 0, 34), (1, 0, 19)}
    assert {one["detail"] for one in summary["findings"]} == {missing.UNCONFIRMED}


async def test_a_partition_that_brings_nothing_ends_its_task_with_a_reason(
    clusters: Clusters, topic: str
) -> None:
    produce(clusters.a, topic, Traffic(8, 20, partitions=1).records())
    connection = KafkaEnd(KafkaConnection("a", clusters.a.bootstrap))
    beyond = Range("source", topic, 0, 5, 1_000, 0, 0, "s")
    reading = read(connection, beyond, stalled_after_ms=300)
    read_there: list[int] = []

    async def read_all() -> None:
        async for records in reading:
            read_there.extend(offset for offset, _, _ in records)

    with pytest.raises(ReadFailed, match=rf"{topic}/0 could not be read beyond offset 20 of 1000: nothing"):
        await read_all()
    assert read_there == list(range(5, 20))


# -- headers whose names are no text -----------------------------------------------------------------------


def poison(cluster: Reachable, topic: str, partition: int = 0) -> None:
    """A record that aiokafka cannot decode."""
    asyncio.run(send_poison(cluster.bootstrap, topic, partition))


def test_a_record_that_parks_its_partition_is_open_and_so_is_what_is_behind_it(
    clusters: Clusters, topic: str, unique: Unique, make_node: MakeNode, audit: Audit, tmp_path: Path
) -> None:
    bridge = unique("a-to-b")
    node = make_node("node-1", kafka_bridge(clusters._asdict(), bridge, queue_name=topic))
    traffic = Traffic(9, 60, partitions=2, ids=0)
    produce(clusters.a, topic, traffic.records())
    parked_at = clusters.a.offsets(topic)[0]
    poison(clusters.a, topic)
    produce(clusters.a, topic, traffic.records())
    ends = clusters.a.offsets(topic)
    node.start()
    parked = node.event("partition-parked")
    assert (parked["partition"], parked["offset"]) == (0, parked_at)
    await_arrivals(clusters.b, topic, {0: parked_at, 1: ends[1]})
    assert node.stop() == 0

    code, summary = audit(node.file, bridge, "--output", str(tmp_path / "audit"))
    assert (code, summary["verdict"]) == (0, "clean"), summary["findings"]
    assert found(summary, "open") == {(0, parked_at, ends[0] - 1)}
    assert [one["source"] for one in summary["streams"]] == [ends[0], ends[1]]
    assert [one["arrived"] for one in summary["streams"]] == [parked_at, ends[1]]


def test_poison_that_is_covered_is_refused_with_its_dead_letter_and_lost_without(
    clusters: Clusters, topic: str, unique: Unique, audit: Audit, tmp_path: Path
) -> None:
    """No bridge runs: what its target holds is written by hand, others' poison included."""
    target, letters, bridge = unique("there"), unique("letters"), unique("a-to-b")
    ends = {"forwarding_address": target, "dead_letter_address": letters}
    settings = tmp_path / "settings.toml"
    settings.write_text(kafka_bridge(clusters._asdict(), bridge, queue_name=topic, **ends))
    for name in (target, letters):
        clusters.b.create_topic(name)
    produce_plain(clusters.a, topic, 2)
    poison(clusters.a, topic)  # at 2
    produce_plain(clusters.a, topic, 1)
    poison(clusters.a, topic)  # at 4
    produce_plain(clusters.a, topic, 2)
    made = planner(settings, lambda read_there: of_bridge(read_there, find_bridge(read_there, bridge)))
    planned = asyncio.run(made.plan())
    identity = next(one.identity for one in planned.streams if one.partition == 0)
    named = {"bridge": bridge.encode(), "stream": identity.encode(), "position": b"2"}
    poison(clusters.b, letters)
    write(clusters.b, letters, [headed(*((f"core-bridge-{name}", value) for name, value in named.items()))])
    poison(clusters.b, target)
    stamp = Stamp(identity)
    write(clusters.b, target, [headed((ID_HEADER, stamp.text(at).encode())) for at in (0, 1, 3, 5)])
    poison(clusters.b, target)
    write(clusters.b, target, [headed((ID_HEADER, stamp.text(6).encode()))])

    code, summary = audit(settings, bridge, "--output", str(tmp_path / "audit"))
    assert (code, summary["verdict"]) == (3, "lost"), summary["findings"]
    assert found(summary, "refused") == {(0, 2, 2)}
    assert found(summary, "lost") == {(0, 4, 4)}
    assert len(summary["findings"]) == 2, summary["findings"]
    counts = summary["streams"][0]
    assert (counts["source"], counts["arrived"], summary["others"]) == (7, 5, 2)


def await_arrivals(cluster: Reachable, topic: str, counts: dict[int, int]) -> None:
    """Return when the partitions of a topic have at least so many committed records."""

    def there() -> bool:
        numbers = Counter(one.partition for one in arrived(cluster, topic))
        return all(numbers[partition] >= count for partition, count in counts.items())

    eventually(there, f"{counts} records by partition are in {topic}")


# -- retention while an audit runs -------------------------------------------------------------------------


def test_what_is_deleted_between_planning_and_reading_is_not_lost(
    clusters: Clusters, topic: str, unique: Unique, spark: SparkSession, tmp_path: Path
) -> None:
    target = unique("there")
    clusters.b.create_topic(target)
    produce_plain(clusters.a, topic, 30)
    produce_plain(clusters.a, topic, 10, partition=1)
    settings = tmp_path / "settings.toml"
    settings.write_text(connector_tables(clusters._asdict()))
    made = planner(settings, lambda read_there: of_names(read_there, ("a", topic), ("b", target)))
    identities = {one.partition: one.identity for one in asyncio.run(made.plan()).streams}
    zero, one = Stamp(identities[0]), Stamp(identities[1])
    # Of partition 0 the first 12 have never arrived, of partition 1 but the last one has.
    ids = [zero.text(at) for at in range(12, 30)] + [one.text(9)]
    write(clusters.b, target, [headed((ID_HEADER, text.encode())) for text in ids])

    plan = asyncio.run(made.plan())
    assert [(each.start, each.end) for each in plan.streams] == [(0, 30), (0, 10)]
    expire(clusters.a, topic, 12)
    expire(clusters.a, topic, 10, partition=1)  # all of it
    expire(clusters.b, target, 3)
    summary = run(
        plan,
        lambda planned: asyncio.run(made.renewed(planned)),
        master=None,
        output=str(tmp_path / "audit"),
    )
    assert len(summary.findings) == 1, summary.findings
    (finding,) = summary.findings
    assert (finding.kind, finding.stream, finding.first, finding.last) == ("unknown", identities[0], 12, 14)
    assert finding.detail == bounds.BY_DELETION
    assert [(each.first, each.source, each.arrived) for each in summary.streams] == [(12, 18, 15), (10, 0, 0)]
    assert (summary.verdict, summary.others) == ("unknown", 1), summary


async def test_what_is_deleted_under_a_reader_is_left_out_and_it_goes_on_behind(
    clusters: Clusters, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce_plain(clusters.a, topic, 40)
    monkeypatch.setattr(kafka_source, "FETCH_BYTES", 2_000)
    end = KafkaEnd(KafkaConnection("a", clusters.a.bootstrap))
    piece = Range("source", topic, 0, 0, 40, 0, 0, "s")
    offsets_read: list[int] = []
    async with asyncio.timeout(CALL_TIMEOUT_S):
        async for records in read(end, piece):
            if not offsets_read:
                expire(clusters.a, topic, 30)
            offsets_read += [offset for offset, _, _ in records]
    assert offsets_read == [*range(len(offsets_read) - 10), *range(30, 40)]
    assert len(offsets_read) < 40, "what was deleted had been read before"
    expire(clusters.a, topic, 40)
    async with asyncio.timeout(CALL_TIMEOUT_S):
        assert [records async for records in read(end, piece) if records] == []


# -- secured clusters --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Secured:
    """Two topics of a cluster that wants TLS and a password, and settings that lead there."""

    cluster: Cluster
    settings: Path
    #: Holds the password, and is read whenever the settings are.
    password: Path
    topic: str
    target: str

    @property
    def arguments(self) -> list[str]:
        return ["--source", "eu", self.topic, "--target", "us", self.target]


@pytest.fixture(scope="module")
def secured_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Path]]:
    """With the directory of its certificates."""
    directory = tmp_path_factory.mktemp("secured")
    with secured_cluster(directory) as cluster:
        yield cluster, directory


@pytest.fixture
def secured(secured_broker: tuple[Cluster, Path], unique: Unique, tmp_path: Path) -> Iterator[Secured]:
    """Alice may audit, and nothing else."""
    cluster, directory = secured_broker
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    topic, target = unique("orders"), unique("there")
    login = {
        "security-protocol": "SASL_SSL",
        "sasl-mechanism": "SCRAM-SHA-512",
        "sasl-plain-username": USER,
        "sasl-plain-password": f"${{file:{password}}}",
        "ssl-cafile": str(directory / "authority.pem"),
    }
    brokers = cluster.bootstrap_of("SASL_SSL")
    settings = tmp_path / "settings.toml"
    settings.write_text(connector_tables({"eu": brokers, "us": brokers}, {"eu": login, "us": login}))
    for name in (topic, target):
        cluster.create_topic(name)
    rights = [("topic", name, right) for name in (topic, target) for right in ("Read", "DescribeConfigs")]
    with allowed(cluster, *rights):
        yield Secured(cluster, settings, password, topic, target)


def in_a_process(secured: Secured, output: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command, with what it and the processes that it starts print."""
    command = [sys.executable, "-m", "bridge", "audit", *secured.arguments, "--master", "local[1]"]
    return subprocess.run(
        [*command, "--settings", str(secured.settings), "--output", str(output)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def test_an_audit_reads_over_tls_with_a_password_that_no_plan_has(
    secured: Secured, audit: Audit, spark: SparkSession, tmp_path: Path
) -> None:
    produce_plain(secured.cluster, secured.topic, 5)
    made = planner(
        secured.settings,
        lambda read_there: of_names(read_there, ("eu", secured.topic), ("us", secured.target)),
    )
    plan = asyncio.run(made.plan())
    stamp = Stamp(plan.streams[0].identity)
    ids = [stamp.text(at).encode() for at in (0, 1, 3)]
    write(secured.cluster, secured.target, [headed((ID_HEADER, one)) for one in ids])

    code, summary = audit(secured.settings, *secured.arguments, "--output", str(tmp_path / "audit"))
    assert (code, found(summary, "lost"), found(summary, "open")) == (3, {(0, 2, 2)}, {(0, 4, 4)}), summary
    frame = source.read(spark, plan, "source")
    texts = [str(frame._jdf.queryExecution().toString()), str(frame.schema), repr(plan)]
    assert str(secured.settings) in repr(plan), "tasks find the password by the settings"
    assert not [text for text in texts if PASSWORD in text]


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_topic_that_may_not_be_described_is_no_topic_without_partitions(
    end: str, secured: Secured, unique: Unique, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = unique("others")
    secured.cluster.create_topic(other)
    connector, of = ("eu", secured.topic) if end == "source" else ("us", secured.target)
    arguments = [other if one == of else one for one in secured.arguments]
    given = ["--settings", str(secured.settings), "--output", str(tmp_path / "audit")]
    assert main(["audit", *arguments, *given]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"connector {connector}: Describe topic {other}: TOPIC_AUTHORIZATION_FAILED (29)" in shown.err
    assert shown.err.endswith("it needs the right Describe\n")


def test_a_wrong_password_is_one_line_that_names_the_setting(secured: Secured, tmp_path: Path) -> None:
    secured.password.write_text(WRONG_PASSWORD)
    ended = in_a_process(secured, tmp_path / "audit")
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    assert ended.stderr.count("\n") == 1, ended.stderr
    (line,) = ended.stderr.splitlines()
    assert line.startswith("core-bridge: SOURCE_REFUSED: connector eu: Describe cluster: 127.0.0.1:"), line
    assert "SASL_AUTHENTICATION_FAILED (58)" in line
    assert line.endswith("see sasl-mechanism, sasl-plain-username and sasl-plain-password")
    assert WRONG_PASSWORD not in line


def test_a_password_that_is_wrong_where_tasks_run_is_one_line_too(secured: Secured, tmp_path: Path) -> None:
    """Who plans has the right one: it is changed, or another one on Spark's machines."""
    produce_plain(secured.cluster, secured.topic, 5)
    python = tmp_path / "python-elsewhere"
    changed = f"printf %s {WRONG_PASSWORD} > '{secured.password}'"
    python.write_text(f"#!/bin/sh\n{changed}\nexec '{sys.executable}' \"$@\"\n")
    python.chmod(0o700)
    ended = in_a_process(secured, tmp_path / "audit", PYSPARK_PYTHON=str(python))
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    said = [line for line in ended.stderr.splitlines() if not line.startswith("WARNING: Using incubator")]
    assert len(said) == 1, ended.stderr
    (line,) = said
    where = f"{secured.topic}/0 could not be read beyond offset 0 of 5"
    assert line.startswith(f"core-bridge: connector eu: {where}: 127.0.0.1:"), line
    assert "SASL_AUTHENTICATION_FAILED (58)" in line
    assert line.endswith("see sasl-mechanism, sasl-plain-username and sasl-plain-password")
    assert not [secret for secret in (PASSWORD, WRONG_PASSWORD) if secret in ended.stderr]
