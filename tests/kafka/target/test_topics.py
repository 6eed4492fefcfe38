"""Topics of a Kafka target: made, given partitions, and what they do not take."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial

import pytest
from confluent_kafka.admin._config import ConfigResource, ConfigSource
from structlog.testing import LogCapture

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.target.source_configs import source_configs
from bridge.kafka.target.target import KafkaTarget
from bridge.messages.message import Message
from bridge.relay.ports import Receipt, Stream
from bridge.runtime.clock import SystemClock
from dedup.verdict import Verdict
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, Reachable
from tests.kafka.target.rig import (
    NOW,
    Rig,
    batch,
    configure,
    deliver,
    journal_stream,
    kafka_stream,
    numbered,
    opened,
    rig,
    values,
)

HOUR_MS = 3_600_000
#: A value that is set for the topic itself.
ON_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
Unique = Callable[[str], str]


@pytest.fixture
async def bridge(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(cluster_a, unique("bridge")) as made:
        yield made


def partitions(cluster: Reachable, topic: str) -> int:
    return len(cluster.admin().list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic].partitions)


class ClockAhead(SystemClock):
    """Two hours before everybody else."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 2 * HOUR_MS


# -- made --------------------------------------------------------------------------------------------------


async def test_a_missing_topic_is_made_with_the_partitions_of_its_source(bridge: Rig, unique: Unique) -> None:
    kept, hashed, node = unique("kept"), unique("hashed"), unique("node")
    await opened(bridge.target(topic_replication_factor=1), kafka_stream(kept, 2, partitions=3))
    await opened(bridge.target(preserve_partitions=False), kafka_stream(hashed, 2, partitions=3))
    await opened(bridge.target(), journal_stream(node))
    assert partitions(bridge.cluster, kept) == 3
    # As the cluster does it, where the number does not matter.
    assert partitions(bridge.cluster, hashed) == partitions(bridge.cluster, node) == 1


def topic_config(cluster: Reachable, topic: str) -> dict[str, str]:
    """Of a topic, what is set for the topic itself."""
    resource = ConfigResource("topic", topic)
    admin = cluster.admin()
    found = admin.describe_configs([resource])[resource].result(CALL_TIMEOUT_S)
    return {name: entry.value for name, entry in found.items() if entry.source == ON_TOPIC}


async def test_a_topic_that_is_made_gets_its_sources_configuration(
    bridge: Rig, unique: Unique, log: LogCapture
) -> None:
    """Compacted stays compacted; what is not copied is in docs/kafka.md."""
    source, topic = unique("source"), unique("made")
    mine = {
        "cleanup.policy": "compact,delete",
        "retention.ms": "777600000",
        "retention.bytes": "123456789",
        "max.message.bytes": "2000000",
        "compression.type": "zstd",
    }
    others = {"segment.ms": "3600000", "min.insync.replicas": "2"}  # the cluster makes one replica
    bridge.cluster.create_topic(source, config={**mine, **others})
    connection = KafkaConnection("here", bridge.cluster.bootstrap)
    target = bridge.target(source_configs=partial(source_configs, connection))
    await opened(target, kafka_stream(source, partitions=1, target_address=topic))
    assert topic_config(bridge.cluster, topic) == mine
    assert any("min.insync.replicas=2" in str(entry) for entry in log.entries), log.entries


async def test_a_configuration_that_may_not_be_read_is_logged_and_the_topic_made(
    bridge: Rig, unique: Unique, log: LogCapture
) -> None:
    async def unreadable(topics: Collection[str]) -> dict[str, None]:
        return dict.fromkeys(topics)

    topic = unique("made")
    target = bridge.target(source_configs=unreadable)
    await opened(target, kafka_stream(topic, partitions=1))
    assert topic_config(bridge.cluster, topic) == {}
    assert any("DescribeConfigs is missing" in str(entry) for entry in log.entries), log.entries


async def test_lanes_that_make_a_topic_at_the_same_time_all_open(
    cluster_a: Reachable, unique: Unique
) -> None:
    topic = unique("raced")
    async with rig(cluster_a, unique("bridge"), lanes=3) as made:
        # The first makes the journal topic; that is another race.
        await made.target(lane=0).open([])
        targets = [made.target(lane=lane) for lane in range(3)]
        streams = [kafka_stream(topic, lane, partitions=3) for lane in range(3)]
        await asyncio.gather(*map(opened, targets, streams))
        for n, (target, stream) in enumerate(zip(targets, streams, strict=True)):
            (receipt,) = await deliver(target, batch(stream, numbered(n, n)))
            assert receipt.verdict is Verdict.STORED
        assert await values(cluster_a, topic) == [b"m0", b"m1", b"m2"]


async def test_a_topic_that_cannot_be_made_names_topic_and_setting(bridge: Rig, unique: Unique) -> None:
    topic = unique("replicas")
    with pytest.raises(TargetRefused) as refused:
        await opened(bridge.target(topic_replication_factor=7), kafka_stream(topic, partitions=1))
    assert f"topic {topic}" in str(refused.value)
    assert "topic-replication-factor" in str(refused.value)


async def test_a_partition_that_the_target_lacks_waits_alone_and_goes_on_once_it_is_there(
    bridge: Rig, unique: Unique
) -> None:
    """As when a source topic has got more partitions."""
    topic, other = unique("few"), unique("other")
    bridge.cluster.create_topic(topic, 2)
    target = bridge.target()
    streams = [kafka_stream(topic, n, partitions=3) for n in range(3)] + [kafka_stream(other, partitions=1)]
    await opened(target, *streams)
    *taken, waiting, elsewhere = [batch(stream, numbered(n, n)) for n, stream in enumerate(streams)]
    receipts = await deliver(target, *taken, waiting, elsewhere)
    assert [one.verdict for one in receipts] == [Verdict.STORED] * 2 + [Verdict.NOT_NOW, Verdict.STORED]
    ((place, why),) = target.parked.items()
    assert (place, why) == ((topic, 2), receipts[2].reason)
    for word in ("TOO_FEW_PARTITIONS", f"partition 2 of {topic}", "which has 2", "add-partitions"):
        assert word in why
    bridge.cluster.add_partitions(topic, 3)
    await opened(target, streams[2])  # as a relay does from time to time
    assert target.parked == {}
    (receipt,) = await deliver(target, waiting)
    assert receipt.verdict is Verdict.STORED
    assert await values(bridge.cluster, topic) == [b"m0", b"m1", b"m2"]


async def test_a_topic_that_cannot_be_made_waits_alone_unless_it_is_the_only_one(
    bridge: Rig, unique: Unique
) -> None:
    topic, impossible = unique("orders"), "x" * 250
    target = bridge.target()
    streams = [kafka_stream(impossible, partitions=1), kafka_stream(topic, partitions=1)]
    await opened(target, *streams)
    receipts = await deliver(target, *(batch(stream, numbered(1, 1)) for stream in streams))
    assert [one.verdict for one in receipts] == [Verdict.NOT_NOW, Verdict.STORED]
    assert "INVALID_TOPIC" in receipts[0].reason
    assert [*target.parked] == [(impossible, 0)]
    alone = bridge.target(lane=0)
    with pytest.raises(TargetRefused, match="INVALID_TOPIC"):
        await opened(alone, streams[0])


async def test_partitions_are_added_where_that_is_set_also_under_a_running_bridge(
    bridge: Rig, unique: Unique
) -> None:
    topic = unique("added")
    bridge.cluster.create_topic(topic, 1)
    target = bridge.target(add_partitions=True)
    await opened(target, kafka_stream(topic, 0, partitions=1))
    await deliver(target, batch(kafka_stream(topic, 0), numbered(0, 0)))
    # The source topic has got more partitions: streams that appear while the lane is held.
    later = [kafka_stream(topic, n, partitions=3) for n in (1, 2)]
    await opened(target, *later)
    assert partitions(bridge.cluster, topic) == 3
    receipts = await deliver(
        target, *(batch(stream, numbered(n, n)) for n, stream in enumerate(later, start=1))
    )
    assert [receipt.verdict for receipt in receipts] == [Verdict.STORED] * 2
    assert await values(bridge.cluster, topic) == [b"m0", b"m1", b"m2"]


async def test_a_topic_deleted_under_the_bridge_is_not_made_by_writing_to_it(
    bridge: Rig, unique: Unique
) -> None:
    """aiokafka's own metadata requests let the broker make what is missing, with its own defaults."""
    topic = unique("deleted")
    bridge.cluster.create_topic(topic)
    stream = journal_stream(topic)
    target = bridge.target(create_topics=False)
    await opened(target, stream)
    await deliver(target, batch(stream, numbered(0, 0)))
    await asyncio.to_thread(bridge.cluster.delete_topic, topic)
    waiting = asyncio.create_task(deliver(target, batch(stream, numbered(1, 1), from_=1)))
    # The watch has asked for metadata of this topic several times by then.
    _, pending = await asyncio.wait((waiting,), timeout=2.5)
    assert pending
    await target.close()
    with pytest.raises(TargetUnavailable):
        await waiting
    assert topic not in bridge.cluster.topics()
    await opened(target, stream)
    (receipt,) = await deliver(target, batch(stream, numbered(1, 1), from_=1))
    assert receipt.verdict is Verdict.NOT_NOW
    assert receipt.reason.startswith("ADDRESS_NOT_FOUND: ")
    assert topic in receipt.reason


# -- refused alone -----------------------------------------------------------------------------------------


async def refused_alone(target: KafkaTarget, stream: Stream, bad: Message, cluster: Reachable) -> Receipt:
    """Deliver a batch with `bad` at position 2; the receipt of the refusal, once all else is there."""
    (receipt,) = await deliver(
        target, batch(stream, [*numbered(0, 1, key=b"k"), bad, *numbered(3, 4, key=b"k")])
    )
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 2)
    assert await values(cluster, stream.target_address) == []
    await opened(target, stream)
    kept = [*numbered(0, 1, key=b"k"), *numbered(3, 4, key=b"k")]
    (rest,) = await deliver(target, batch(stream, kept, runs=((0, 1), (3, 4)), refused=(2,)))
    assert rest.verdict is Verdict.STORED
    assert await values(cluster, stream.target_address) == [b"m0", b"m1", b"m3", b"m4"]
    return receipt


async def test_a_message_too_large_is_refused_with_size_limit_and_setting(
    bridge: Rig, unique: Unique
) -> None:
    """Trap 13: headers count."""
    stream = kafka_stream(unique("large"))
    bridge.cluster.create_topic(stream.target_address, config={"max.message.bytes": "2000"})
    target = bridge.target()
    await opened(target, stream)
    bad = Message(b"x" * 1_900, b"k", (("h", b"y" * 100),), NOW)
    receipt = await refused_alone(target, stream, bad, bridge.cluster)
    assert receipt.reason.startswith("MESSAGE_TOO_LARGE: ")
    for word in (stream.target_address, "2000", "max.message.bytes"):
        assert word in receipt.reason


async def test_what_just_fits_is_stored_and_one_byte_more_is_not(bridge: Rig, unique: Unique) -> None:
    """The size that counts is that of the record batch, as the broker measures it."""
    stream = kafka_stream(unique("fits"))
    bridge.cluster.create_topic(stream.target_address, config={"max.message.bytes": "2000"})
    target = bridge.target(stamp=False)
    await opened(target, stream)
    # 61 bytes of batch header; length, attributes, two deltas, key, value length, headers: 9.
    (receipt,) = await deliver(target, batch(stream, [Message(b"x" * (2_000 - 70), None, (), NOW)]))
    assert receipt.verdict is Verdict.STORED
    (receipt,) = await deliver(target, batch(stream, [Message(b"x" * (2_000 - 69), None, (), NOW)], from_=1))
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 1)
    assert "2001 bytes" in receipt.reason


async def test_messages_that_fit_one_by_one_are_stored_though_their_batch_is_above_the_limit(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("split"))
    bridge.cluster.create_topic(stream.target_address, config={"max.message.bytes": "2000"})
    target = bridge.target()
    await opened(target, stream)
    messages = [Message(b"%03d" % n + b"x" * 1_000, None, (), NOW) for n in range(40)]
    (receipt,) = await deliver(target, batch(stream, messages))
    assert receipt.verdict is Verdict.STORED
    assert await values(bridge.cluster, stream.target_address) == [message.body for message in messages]


async def test_the_clients_own_limit_does_not_hold_back_what_the_topic_takes(
    bridge: Rig, unique: Unique
) -> None:
    """aiokafka's max_request_size is 1 MiB."""
    stream = kafka_stream(unique("huge"))
    bridge.cluster.create_topic(stream.target_address, config={"max.message.bytes": "6000000"})
    target = bridge.target()
    await opened(target, stream)
    body = os.urandom(5_000_000)
    (receipt,) = await deliver(target, batch(stream, [*numbered(0, 0), Message(body, None, (), NOW)]))
    assert receipt.verdict is Verdict.STORED
    assert await values(bridge.cluster, stream.target_address) == [b"m0", body]


async def test_a_timestamp_too_far_ahead_is_refused_alone(bridge: Rig, unique: Unique) -> None:
    """Trap 12: Kafka 4 takes one hour. The broker says so, of this record alone, and the lane goes on."""
    stream = kafka_stream(unique("ahead"))
    target = bridge.target()
    await opened(target, stream)
    bad = Message(b"bad", b"k", (), SystemClock().wall_ms() + 2 * HOUR_MS)
    receipt = await refused_alone(target, stream, bad, bridge.cluster)
    assert receipt.reason.startswith("INVALID_TIMESTAMP: ")
    for word in (stream.target_address, "3600000", "message.timestamp.after.max.ms"):
        assert word in receipt.reason


async def test_a_message_without_a_key_is_refused_alone_by_a_compacted_topic(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("compacted"))
    bridge.cluster.create_topic(stream.target_address, config={"cleanup.policy": "compact"})
    target = bridge.target()
    await opened(target, stream)
    receipt = await refused_alone(target, stream, Message(b"bad", None, (), NOW), bridge.cluster)
    assert receipt.reason.startswith("INVALID_RECORD: ")
    assert "cleanup.policy" in receipt.reason


# -- refused by the broker, though nothing was known against it ---------------------------------------------


async def found_alone(target: KafkaTarget, stream: Stream, messages: list[Message], bad: int) -> Receipt:
    """Deliver: one message is refused, and no other, and the rest is stored without it."""
    await opened(target, stream)
    (receipt,) = await deliver(target, batch(stream, messages))
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, bad)
    await opened(target, stream)
    kept = [message for n, message in enumerate(messages) if n != bad]
    runs = tuple(run for run in ((0, bad - 1), (bad + 1, len(messages) - 1)) if run[0] <= run[1])
    (rest,) = await deliver(target, batch(stream, kept, runs=runs, refused=(bad,)))
    assert rest.verdict is Verdict.STORED
    return receipt


async def test_a_record_that_only_the_broker_knows_to_be_too_large_is_found_and_refused_alone(
    bridge: Rig, unique: Unique
) -> None:
    """Compressed, sizes are known to nobody before. Nothing else is lost or refused."""
    stream, other = kafka_stream(unique("compressed")), kafka_stream(unique("beside"))
    bridge.cluster.create_topic(stream.target_address, config={"max.message.bytes": "2000"})
    bridge.connection = {"producer_options": {"compression_type": "gzip"}}
    target = bridge.target()
    await opened(target, other)
    await deliver(target, batch(other, numbered(0, 0)))
    # Larger than the limit, and smaller when compressed: no reason to refuse it.
    messages = [Message(b"%03d" % n + b"x" * 3_000, None, (), NOW) for n in range(60)]
    messages[33] = Message(os.urandom(3_000), None, (), NOW)
    receipt = await found_alone(target, stream, messages, 33)
    assert receipt.reason.startswith("MESSAGE_TOO_LARGE: ")
    assert stream.target_address in receipt.reason
    kept = [message.body for n, message in enumerate(messages) if n != 33]
    assert await values(bridge.cluster, stream.target_address) == kept


async def test_a_batch_the_broker_refuses_takes_nothing_of_its_transaction_with_it(
    bridge: Rig, unique: Unique
) -> None:
    """Trap 1: aiokafka commits although a batch failed; the rest would be visible, and its positions gone."""
    stream, other = kafka_stream(unique("lowered")), kafka_stream(unique("beside"))
    target = bridge.target()
    await opened(target, stream, other)
    configure(bridge.cluster, stream.target_address, max_message_bytes="2000")
    bad = [*numbered(0, 1), Message(b"x" * 3_000, None, (), NOW)]
    (stored,), (receipt,) = await asyncio.gather(
        deliver(target, batch(other, numbered(0, 4))), deliver(target, batch(stream, bad))
    )
    assert stored.verdict is Verdict.STORED
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 2)
    assert receipt.reason.startswith("MESSAGE_TOO_LARGE: ")
    assert await values(bridge.cluster, other.target_address) == [b"m%d" % n for n in range(5)]
    assert await values(bridge.cluster, stream.target_address) == []
    assert (await opened(target, stream)).next is None
    # The limit was read again at the opening: the one message is refused before anything is sent.
    (receipt,) = await deliver(target, batch(stream, bad))
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 2)


async def test_a_timestamp_that_only_the_brokers_clock_refuses_is_found(bridge: Rig, unique: Unique) -> None:
    stream = kafka_stream(unique("skewed"))
    target = bridge.target(clock=ClockAhead())
    messages = numbered(0, 39)
    messages[7] = Message(b"bad", None, (), SystemClock().wall_ms() + 2 * HOUR_MS)
    receipt = await found_alone(target, stream, messages, 7)
    assert receipt.reason.startswith("INVALID_TIMESTAMP: ")
    assert len(await values(bridge.cluster, stream.target_address)) == 39


async def test_a_topic_that_became_compacted_refuses_the_one_without_a_key(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("became"))
    target = bridge.target()
    await opened(target, stream)
    configure(bridge.cluster, stream.target_address, cleanup_policy="compact")
    messages = [*numbered(0, 9, key=b"k"), Message(b"bad", None, (), NOW), *numbered(11, 12, key=b"k")]
    (receipt,) = await deliver(target, batch(stream, messages))
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 10)
    assert receipt.reason.startswith("INVALID_RECORD: ")
    await found_alone(target, stream, messages, 10)
