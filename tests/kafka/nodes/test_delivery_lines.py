"""Delivery logs of bridges with a Kafka end: both sides agree, whatever dies and whenever."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.delivery_log import LineWriter
from bridge.errors import SourceUnavailable
from bridge.kafka.source.sent_log import SentLog
from bridge.kafka.source.source import KafkaSource
from bridge.messages.batch import Batch
from bridge.relay.ports import StreamState
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to
from tests.kafka.bridges import PATIENCE_S, await_progress, bridge_table, connector_tables, kafka_bridge
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.source.rig import (
    covered,
    numbered,
    open_all,
    produce,
    produce_in_transaction,
    read_messages,
    rigged,
    settle,
)
from tests.kafka.target import rig as target_rig
from tests.kafka.target.rig import kafka_stream
from tests.kafka.target.rig import numbered as messages
from tests.kafka.traffic.checker import Arrived, read

#: Where a process may die and leave the line of what its target has confirmed unwritten, or not said.
#: Only at the first is it certain that there is none: what was written outlives a killed process.
AT_SOURCE = (
    "delivery-log.before-write",
    "delivery-log.before-fsync",
    "delivery-log.after-fsync",
    "kafka-source.after-commit",
)
#: A killed member's lanes are free after the group's session time-out.
GROUP = {"session-timeout-ms": 3000, "heartbeat-interval-ms": 500}

Unique = Callable[[str], str]


@dataclass
class Side:
    """What the lines of one side say of one stream, each event once however often it is written."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    @property
    def positions(self) -> Counter[int]:
        """How often each position stands in distinct lines."""
        return Counter(
            p for line in self.lines for first, last in line["runs"] for p in range(first, last + 1)
        )

    @property
    def covered(self) -> set[int]:
        return {p for line in self.lines for p in range(line["from"], line["upto"])}


def sides(lines: Iterable[dict[str, Any]], bridge: str) -> dict[str, tuple[Side, Side]]:
    """Sent and received by stream; rejected duplicates are left out."""
    found: dict[str, tuple[Side, Side]] = {}
    seen: set[tuple[Any, ...]] = set()
    for line in lines:
        key = tuple(line[name] for name in ("side", "bridge", "stream", "from", "upto", "store"))
        if line["bridge"] != bridge or "verdict" in line or key in seen:
            continue
        seen.add(key)
        sent, received = found.setdefault(line["stream"], (Side(), Side()))
        (sent if line["side"] == "sent" else received).lines.append(line)
    return found


def check_sides(lines: Sequence[dict[str, Any]], bridge: str, messages: int) -> dict[str, tuple[Side, Side]]:
    """That nothing is missing, doubled or made up on either side, and that the log has no gap."""
    found = sides(lines, bridge)
    assert found, "no line at all"
    for stream, (sent, received) in found.items():
        assert sent.covered == received.covered == set(range(max(received.covered) + 1)), stream
        assert set(sent.positions) == set(received.positions), stream
        assert set(received.positions.values()) <= {1}, f"{stream}: received twice"
    assert sum(len(received.positions) for _, received in found.values()) == messages
    return found


def in_order(lines: Iterable[dict[str, Any]], bridge: str) -> bool:
    """Whether no line of a stream's received side comes behind a later one, each where it stands first."""
    at: dict[str, int] = {}
    seen: set[tuple[str, int, int]] = set()
    for line in lines:
        key = (line["stream"], line["from"], line["upto"])
        if line["bridge"] != bridge or line["side"] != "received" or key in seen:
            continue
        seen.add(key)
        if line["upto"] < at.get(line["stream"], 0):
            return False
        at[line["stream"]] = line["upto"]
    return True


def between_clusters(clusters: Clusters, bridge: str, topic: str, **options: Any) -> str:
    settings = kafka_bridge(clusters._asdict(), bridge, queue_name=topic, **options)
    return settings.replace("[[bridges]]", f"[connectors.b.kafka]\n{_toml(GROUP)}[[bridges]]")


def test_both_sides_agree_although_a_node_between_two_clusters_died(
    clusters: Clusters, unique: Unique, make_node: MakeNode
) -> None:
    """Design 7: line n is on disk before transaction n + 1 commits; a taker writes the last one first."""
    topic = bridge = unique("lines")
    clusters.a.create_topic(topic)
    node = make_node("node-1", between_clusters(clusters, bridge, topic))
    # The first commit initialises the lane, the second says where the stream begins, the third has messages.
    produce(clusters.a, topic, numbered(20))
    produce_in_transaction(clusters.a, topic, numbered(5), abort=True)
    produce_in_transaction(clusters.a, topic, numbered(5))
    node.crash("kafka.after-commit", 3)
    node.start()
    await_progress(clusters.a, bridge, topic)
    assert node.stop() == 0
    lines = node.delivery_lines()
    ((sent, received),) = check_sides(lines, bridge, 25).values()
    assert {line["address"] for line in (*sent.lines, *received.lines)} == {topic}
    assert {line["node-id"] for line in (*sent.lines, *received.lines)} != {""}
    assert in_order(lines, bridge)


def test_both_sides_agree_wherever_a_node_that_reads_kafka_died(
    clusters: Clusters, unique: Unique, make_node: MakeNode
) -> None:
    """What the target's word confirms and no line says is read again, and written as `recovered`."""
    topic = bridge = unique("lines")
    clusters.a.create_topic(topic, 2)
    settings = connector_tables({"a": clusters.a}) + bridge_table(
        bridge, queue_name=topic, source_connector="a", static_connectors=["journal"], concurrency=2
    )
    node = make_node("node-1", settings)
    for place in AT_SOURCE:
        for partition in range(2):
            produce(clusters.a, topic, numbered(20), partition=partition)
            produce_in_transaction(clusters.a, topic, numbered(5), partition=partition)
        node.crash(place)
    node.start()
    node_id = eventually(lambda: {line["node-id"] for line in node.delivery_lines()}, "a line is written")
    (own,) = node_id
    await_progress(clusters.a, bridge, topic, group=f"core-bridge.{bridge}.{own}.progress")
    assert node.stop() == 0
    found = check_sides(node.delivery_lines(), bridge, 2 * 25 * len(AT_SOURCE))
    assert any(line["recovered"] for sent, _ in found.values() for line in sent.lines)
    assert not any(line["recovered"] for _, received in found.values() for line in received.lines)


def test_the_sent_side_of_a_bridge_to_another_node_names_the_clocks_offset(
    clusters: Clusters, unique: Unique, make_node: MakeNode
) -> None:
    topic = bridge = unique("lines")
    clusters.a.create_topic(topic)
    produce(clusters.a, topic, numbered(10))
    hub = make_node("hub", "").start()
    settings = bridge_to(hub, bridge, f'"{topic}"', source_connector='"a"')
    edge = make_node("edge", connector_tables({"a": clusters.a}) + settings).start()
    await_progress(clusters.a, bridge, topic)
    produce(clusters.a, topic, numbered(10))
    await_progress(clusters.a, bridge, topic)
    assert edge.stop() == 0
    assert hub.stop() == 0
    ((sent, received),) = check_sides([*edge.delivery_lines(), *hub.delivery_lines()], bridge, 20).values()
    assert {line["node"] for line in sent.lines} == {"edge"}
    assert {line["node"] for line in received.lines} == {"hub"}
    offsets = [line["clock-offset"] for line in sent.lines if "clock-offset" in line]
    assert offsets, "no line has a measured offset"
    assert all(abs(offset) < 1_000 for offset in offsets), "one machine, one clock"


def test_workers_write_one_log_which_survives_the_death_of_a_worker_and_of_the_node(
    clusters: Clusters, unique: Unique, make_node: MakeNode
) -> None:
    topic = bridge = unique("lines")
    clusters.a.create_topic(topic, 4)
    node = make_node(
        "node-1", between_clusters(clusters, bridge, topic, concurrency=4), node="workers = 2"
    ).start()
    acknowledged = f'core_bridge_messages_acknowledged_total{{bridge="{bridge}"}}'

    def kill_worker() -> None:
        os.kill(worker_of(node), signal.SIGKILL)

    for kill in (kill_worker, node.kill):
        for partition in range(4):
            produce(clusters.a, topic, numbered(200, size=500), partition=partition)
        eventually(lambda: node.metrics()[acknowledged] > 0, "messages are relayed")
        kill()
    node.start()
    await_progress(clusters.a, bridge, topic)
    assert node.stop() == 0
    lines = node.delivery_lines()
    check_sides(lines, bridge, 4 * 200 * 2)
    assert in_order(lines, bridge)
    assert {line["lane"] for line in lines} == {0, 1, 2, 3}
    assert len({line["node-id"] for line in lines}) == 1
    assert all(path.name.startswith("node-1-") for path in node.segments())


def test_a_copy_goes_to_a_topic_which_holds_up_nothing_while_it_is_not_there(
    cluster_a: Reachable, unique: Unique, make_node: MakeNode
) -> None:
    topic = unique("log")
    table = f'[delivery-log]\nkafka-connector = "a"\nkafka-topic = "{topic}"\n'
    node = make_node("node-1", connector_tables({"a": cluster_a}) + table).start()
    for _ in range(3):
        assert node.api.send("orders", b"x").status == 200
    (missed,) = eventually(lambda: node.events("delivery-log-copy-waits"), "the topic is missed", PATIENCE_S)
    assert topic in missed["reason"]
    cluster_a.create_topic(topic)
    assert node.api.send("orders", b"x").status == 200
    eventually(lambda: sum(map(_count, records(cluster_a, topic))) >= 4, "all is copied", PATIENCE_S)
    node.api.send("orders", b"x")
    assert node.stop() == 0
    own = [
        line for path in node.segments() if path.suffix == ".jsonl" for line in path.read_bytes().splitlines()
    ]
    copied = [record.value for record in records(cluster_a, topic)]
    assert list(dict.fromkeys(copied)) == own
    assert {record.key for record in records(cluster_a, topic)} == {b"node-1"}


@pytest.mark.parametrize("numbers", ["remembered", "lost"])
def test_a_copy_goes_on_after_the_files_were_deleted_by_hand(
    cluster_a: Reachable, unique: Unique, make_node: MakeNode, numbers: str
) -> None:
    """While the node runs and between two runs; also where what remembers the numbers is gone, too."""
    topic = unique("log")
    cluster_a.create_topic(topic)
    table = f'[delivery-log]\nkafka-connector = "a"\nkafka-topic = "{topic}"\n'
    node = make_node("node-1", connector_tables({"a": cluster_a}) + table).start()

    def send_and_await(count: int) -> None:
        assert node.api.send("orders", b"x").status == 200
        eventually(
            lambda: sum(map(_count, records(cluster_a, topic))) == count, f"{count} are copied", PATIENCE_S
        )

    def clear() -> None:
        eventually(node.segments, "there are files")
        for path in node.segments():
            path.unlink()

    for count in range(1, 6):
        send_and_await(count)
    clear()
    send_and_await(6)
    node.kill()
    clear()
    if numbers == "lost":
        (node.data / "delivery-log.number").unlink()
    node.start()
    send_and_await(7)
    assert node.stop() == 0
    reasons = [event["reason"] for event in node.events("delivery-log-copy-lacks")]
    assert len(reasons) == 2
    assert reasons[0].startswith("file 1 was deleted before it was copied; of file 1 all before byte ")
    assert ("is of a log that was cleared" if numbers == "lost" else "file 2 was deleted") in reasons[1]
    copied = [json.loads(record.value or b"") for record in records(cluster_a, topic)]
    assert [line["from"] for line in copied] == list(range(7)), "each once, and in order"


def records(cluster: Reachable, topic: str) -> list[Arrived]:
    return sorted(read(cluster, topic), key=lambda record: (record.partition, record.offset))


def _count(record: Arrived) -> int:
    return int(json.loads(record.value or b"{}")["count"])


def worker_of(node: Node) -> int:
    """The process of a worker that lives."""
    ended = {event["worker"] for event in node.events("worker-ended")}
    started = [event for event in node.events("worker-started") if event["worker"] not in ended]
    return int(started[-1]["pid"])


# -- the target alone ----------------------------------------------------------------------------------


async def test_a_lane_that_is_taken_again_while_it_runs_writes_what_another_left_unwritten(
    cluster_b: Reachable, unique: Unique
) -> None:
    topic, disk, full = unique("retaken"), Disk(), Disk()
    stream = kafka_stream(topic)
    async with target_rig.rig(cluster_b, unique("b")) as bridge:
        renewing = bridge.target(arguments={"write_lines": disk.write}, most_records=1)
        await target_rig.opened(renewing, stream)
        await target_rig.deliver(renewing, target_rig.batch(stream, messages(0, 0)))
        other = bridge.target(arguments={"write_lines": full.write})
        await target_rig.opened(other, stream)
        full.full = True
        await target_rig.deliver(other, target_rig.batch(stream, messages(1, 1), from_=1))
        await target_rig.deliver(renewing, target_rig.batch(stream, messages(2, 2), from_=2))
        await renewing.close()
    seen = list(dict.fromkeys((line["from"], line["upto"]) for line in disk.lines))
    assert seen == [(0, 1), (1, 2), (2, 3)]


async def test_without_a_delivery_log_the_journal_topic_carries_no_lines(
    cluster_b: Reachable, unique: Unique
) -> None:
    topic, disk = unique("no-log"), Disk()
    stream = kafka_stream(topic)
    async with target_rig.rig(cluster_b, unique("b")) as bridge:
        target = bridge.target()
        await target_rig.opened(target, stream)
        await target_rig.deliver(target, target_rig.batch(stream, messages(0, 0)))
        await target.close()
        again = bridge.target(arguments={"write_lines": disk.write})
        await target_rig.opened(again, stream)
        await target_rig.deliver(again, target_rig.batch(stream, messages(1, 1), from_=1))
        await again.close()
    assert [(line["from"], line["upto"]) for line in disk.lines] == [(1, 2)]


# -- the source alone --------------------------------------------------------------------------------------


class Disk:
    """Takes lines, or does not."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.full = False

    async def write(self, lines: Sequence[str]) -> None:
        if self.full:
            raise OSError("no room for the line")
        self.lines += map(json.loads, lines)

    def log(self) -> SentLog:
        return SentLog(self.write, LineWriter(node="n", node_id="u", bridge="b", lane=0, target="t"))


async def test_what_the_target_has_and_the_log_may_lack_is_read_again_with_all_its_holes(
    cluster_a: Reachable, unique: Unique
) -> None:
    """Markers and aborted messages are covered and empty, the second time too."""
    topic, disk = unique("again"), Disk()
    cluster_a.create_topic(topic)
    produce(cluster_a, topic, numbered(3))
    produce_in_transaction(cluster_a, topic, numbered(2), abort=True)
    produce_in_transaction(cluster_a, topic, numbered(4))
    async with rigged(cluster_a, unique("b")) as rig:
        first = await rig.start(topic, sent_log=disk.log())
        batches = await read_messages(first, 7)
        ((_, stream),) = by_topic(await first.streams())
        await first.close()  # nothing was confirmed to it
        again = await rig.start(topic, sent_log=disk.log(), resume={stream: covered(batches, stream)})
        produce(cluster_a, topic, numbered(2))
        await settle(again, await read_messages(again, 2))
        await again.close()
        third = await rig.start(topic, sent_log=disk.log(), resume={stream: StreamState(13)})
        await third.close()
    assert [(line["from"], line["upto"], line["recovered"]) for line in disk.lines][-1] == (11, 13, False)
    recovered = [line for line in disk.lines if line["recovered"]]
    assert [run for line in recovered for run in line["runs"]] == [[0, 2], [6, 9]]
    assert (recovered[0]["from"], recovered[-1]["upto"]) == (0, 11)
    assert sum(line["count"] for line in disk.lines) == 9, "and nothing was written twice"


async def test_the_groups_commit_waits_for_the_log_and_the_relay_with_it(
    cluster_a: Reachable, unique: Unique
) -> None:
    topic, disk = unique("full"), Disk()
    cluster_a.create_topic(topic)
    produce(cluster_a, topic, numbered(3))
    async with rigged(cluster_a, unique("b")) as rig:
        source = await rig.start(topic, sent_log=disk.log())
        batches = await read_messages(source, 3)
        disk.full = True
        with pytest.raises(SourceUnavailable, match="no room for the line"):
            await _settle_until_it_fails(source, batches)
        with pytest.raises(SourceUnavailable, match="no room for the line"):
            await open_all(source)
        assert disk.lines == []
        assert await source.remembered() == {}
        disk.full = False
        ((_, stream),) = by_topic(await source.streams())
        await open_all(source, {stream: covered(batches, stream)})
        assert {(line["from"], line["upto"]) for line in disk.lines} == {(0, 3)}
        await source.close()
        ((_, remembered),) = (await rig.source(topic).remembered()).items()
        assert remembered.upto == 3


async def test_without_a_mark_of_where_its_log_began_nothing_is_read_again(
    cluster_a: Reachable, unique: Unique
) -> None:
    """A renamed bridge: what the old one sent is in the lines of the old one."""
    topic, disk = unique("renamed"), Disk()
    cluster_a.create_topic(topic)
    produce(cluster_a, topic, numbered(5))
    async with rigged(cluster_a, unique("b")) as rig:
        ((_, stream),) = by_topic(await rig.source(topic).streams())
        source = await rig.start(topic, sent_log=disk.log(), resume={stream: StreamState(3)})
        await settle(source, await read_messages(source, 2))
        await source.close()
    assert [(line["from"], line["upto"], line["recovered"]) for line in disk.lines] == [(3, 5, False)]


async def _settle_until_it_fails(source: KafkaSource, batches: Sequence[Batch]) -> None:
    while True:
        await settle(source, batches)


def by_topic(streams: Sequence[Any]) -> list[tuple[str, str]]:
    return [(stream.address, stream.identity) for stream in streams]


def _toml(values: dict[str, Any]) -> str:
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
