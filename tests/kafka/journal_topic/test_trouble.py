"""A journal topic that takes little, that is made again under a bridge, or that others write to."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest
import structlog

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.journal_topic.id_blocks import MOST_ID_BYTES
from bridge.kafka.journal_topic.records import LEAST_BATCH_BYTES, StreamRecord, stream_record
from bridge.kafka.target import target as target_module
from bridge.relay.lifecycle import State
from dedup.verdict import Verdict
from tests.kafka.assembled import acknowledged, reached, started
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.target.rig import (
    NOW,
    Rig,
    batch,
    configure,
    deliver,
    kafka_stream,
    numbered,
    opened,
    rig,
    values,
)
from tests.kafka.traffic.poison import send_poison

Unique = Callable[[str], str]


@pytest.fixture
async def bridge(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(cluster_a, unique("bridge")) as made:
        yield made


def make_journal(cluster: Reachable, topic: str, **config: str) -> None:
    named = {key.replace("_", "."): value for key, value in config.items()}
    cluster.create_topic(topic, config={"cleanup.policy": "compact", **named})


async def write_nothing(lines: Sequence[str]) -> None:
    """A delivery log."""


# -- what it takes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "id_bytes", "count"),
    [(100_000, 100, 4_000), (100_000, 1_024, 1_000), (LEAST_BATCH_BYTES, MOST_ID_BYTES, 100)],
)
async def test_all_that_is_written_fits_what_the_topic_takes(
    bridge: Rig, unique: Unique, most: int, id_bytes: int, count: int
) -> None:
    """Brokers with message.max.bytes = 100000 stopped the bridge: ID blocks and lines were too large."""
    make_journal(bridge.cluster, bridge.journal_topic, max_message_bytes=str(most))
    stream = kafka_stream(unique("orders"))
    ids = [(number, b"%0*d" % (id_bytes, number)) for number in range(count)]
    target = bridge.target(arguments={"write_lines": write_nothing})
    await opened(target, stream)
    (receipt,) = await deliver(target, batch(stream, numbered(0, count - 1), ids=ids))
    assert receipt.verdict is Verdict.STORED
    # And all of it is remembered.
    successor = bridge.target(arguments={"write_lines": write_nothing})
    assert (await opened(successor, stream)).next == count
    again = batch(stream, numbered(0, count - 1), ids=ids, from_=count)
    (receipt,) = await deliver(successor, again)
    assert (receipt.verdict, receipt.duplicates) == (Verdict.STORED, count)
    assert len(await values(bridge.cluster, stream.target_address)) == count


async def test_less_than_a_bridge_needs_is_named_at_the_start(bridge: Rig, unique: Unique) -> None:
    make_journal(bridge.cluster, bridge.journal_topic, max_message_bytes=str(LEAST_BATCH_BYTES - 1))
    with pytest.raises(TargetRefused, match=r"message\.max\.bytes") as refused:
        await opened(bridge.target(), kafka_stream(unique("orders")))
    assert (refused.value.key, refused.value.limit) == ("journal-topic", LEAST_BATCH_BYTES)
    assert refused.value.found == LEAST_BATCH_BYTES - 1


async def test_a_topic_that_takes_less_than_it_did_is_found_out_at_the_next_taking(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    configure(bridge.cluster, bridge.journal_topic, max_message_bytes=str(LEAST_BATCH_BYTES))
    ids = [(number, b"%0500d" % number) for number in range(200)]
    messages = batch(stream, numbered(0, 199), ids=ids)
    with pytest.raises(TargetUnavailable, match=r"max\.message\.bytes"):
        await deliver(target, messages)
    await opened(target, stream)
    (receipt,) = await deliver(target, messages)
    assert receipt.verdict is Verdict.STORED


# -- made again --------------------------------------------------------------------------------------------


async def make_again(cluster: Reachable, topic: str) -> None:
    await asyncio.to_thread(cluster.delete_topic, topic)
    await asyncio.to_thread(make_journal, cluster, topic)


async def test_one_that_was_made_again_is_noticed_before_anything_is_committed(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(target_module, "WATCH_INTERVAL_MS", 3_600_000)
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 9)))
    await make_again(bridge.cluster, bridge.journal_topic)
    with pytest.raises(TargetRefused, match="core-bridge positions") as refused:
        await deliver(target, batch(stream, numbered(10, 19), from_=10))
    assert refused.value.key == "journal-topic"
    assert await values(bridge.cluster, stream.target_address) == [b"m%d" % n for n in range(10)]
    # Nor is it taken again.
    with pytest.raises(TargetRefused, match="made again"):
        await opened(target, stream)


async def test_an_idle_lane_notices_it_too(bridge: Rig, unique: Unique) -> None:
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 9)))
    await make_again(bridge.cluster, bridge.journal_topic)
    async with asyncio.timeout(10):
        with pytest.raises(TargetRefused, match=r"topic id .* before"):
            await target.lost()


async def test_one_that_is_gone_is_not_made_by_who_knew_it(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.kafka.client.topic_admin.LOOKS", 3)
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    await target.close()
    await asyncio.to_thread(bridge.cluster.delete_topic, bridge.journal_topic)
    with pytest.raises(TargetRefused, match="was deleted under the running bridge: "):
        await opened(target, stream)
    assert bridge.journal_topic not in await asyncio.to_thread(bridge.cluster.topics)


async def test_a_bridge_whose_journal_topic_was_made_again_loses_and_doubles_nothing(
    clusters: Clusters, unique: Unique, tmp_path: Path
) -> None:
    """It stops, stops again when it is started anew, and goes on where a person says: behind what arrived."""
    name = unique("again")
    source, journal = f"{name}.orders", f"core-bridge.{name}.journal"
    await asyncio.to_thread(clusters.a.create_topic, source)
    await asyncio.to_thread(send, clusters.a, source, 0, 200)
    file = tmp_path / "settings.toml"
    async with started(file, name, clusters.a, clusters.b) as made:
        await acknowledged(made, 200)
        await asyncio.to_thread(clusters.b.delete_topic, journal)
        partitions = {"cleanup.policy": "compact"}
        await asyncio.to_thread(clusters.b.create_topic, journal, 2, config=partitions)
        await asyncio.to_thread(send, clusters.a, source, 200, 400)
        await reached(made, State.FAILED)
        assert "core-bridge positions" in made.reason
    async with started(file, name, clusters.a, clusters.b) as made:
        await reached(made, State.FAILED)
        assert f"core-bridge positions {name}" in made.reason
    await decide(file, name)
    async with started(file, name, clusters.a, clusters.b) as made:
        await acknowledged(made, 200)
    assert await values(clusters.b, f"to.{source}") == [b"%d" % number for number in range(400)]


async def decide(file: Path, name: str) -> None:
    """``core-bridge positions NAME --from group``."""
    command = ("positions", name, "--from", "group", "--yes", "--settings", str(file))
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bridge", *command)
    async with asyncio.timeout(60):
        assert await process.wait() == 0


def send(cluster: Reachable, topic: str, first: int, upto: int) -> None:
    client = cluster.producer()
    for number in range(first, upto):
        client.produce(topic, b"%d" % number, partition=0, timestamp=NOW)
    assert client.flush(30) == 0


# -- others' records ---------------------------------------------------------------------------------------


def write(cluster: Reachable, topic: str, key: bytes, value: bytes) -> None:
    client = cluster.producer()
    client.produce(topic, value, key, partition=0)
    assert client.flush(30) == 0


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (b"stream:\xff\xfe", "not UTF-8"),
        (b"ids:\xff:1", "not UTF-8"),
        (b"ids:orders:one", "no slot"),
        (b"0b8e/stream:\xff", "not UTF-8"),
    ],
)
async def test_a_key_that_no_bridge_can_have_written_is_named_and_ignored(
    bridge: Rig, unique: Unique, key: bytes, why: str
) -> None:
    """Before: a traceback."""
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 9)))
    await target.close()
    await asyncio.to_thread(write, bridge.cluster, bridge.journal_topic, key, b"\xff")
    with structlog.testing.capture_logs() as logged:
        assert (await opened(bridge.target(), stream)).next == 10
    (event,) = {(one["where"], one["reason"]) for one in logged if one["event"] == "journal-foreign-record"}
    assert event[0].startswith(f"{bridge.journal_topic} partition 0 offset ")
    assert why in event[1]


async def test_a_damaged_record_under_a_key_of_the_bridge_is_named_with_its_place(
    bridge: Rig, unique: Unique
) -> None:
    """Going on would forget what it said."""
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 9)))
    await target.close()
    key, _ = stream_record("", stream.identity, StreamRecord(next=10))
    await asyncio.to_thread(write, bridge.cluster, bridge.journal_topic, key, b"\xff{")
    with pytest.raises(TargetRefused, match=rf"{bridge.journal_topic} partition 0 offset \d+") as refused:
        await opened(bridge.target(), stream)
    assert refused.value.key == key.decode()


async def test_a_header_that_the_client_cannot_read_is_named_with_its_partition(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("orders"))
    target = bridge.target()
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 9)))
    await target.close()
    await send_poison(bridge.cluster.bootstrap, bridge.journal_topic, key=b"any")
    with pytest.raises(TargetRefused, match=r"header is not UTF-8 .* partition 0 from \d+ on"):
        await opened(bridge.target(), stream)
