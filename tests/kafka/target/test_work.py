"""What a Kafka target sends for what arrives: refusals, quotas, a clock that is wrong. Counts, not times."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import TargetUnavailable
from bridge.kafka.source.stream_cursor import StreamCursor
from bridge.kafka.target import lane, transaction
from bridge.kafka.target.options import RelayHooks
from bridge.messages.message import Message
from bridge.relay.counts import Counts
from bridge.runtime.clock import SystemClock
from dedup.verdict import Verdict
from tests.kafka.assembled import acknowledged, started
from tests.kafka.cluster.quotas import limit
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.conftest import Clusters
from tests.kafka.target.rig import (
    NOW,
    Rig,
    arrived,
    batch,
    configure,
    deliver,
    kafka_stream,
    numbered,
    opened,
    rig,
    values,
)
from tests.kafka.target.sent_counts import produced

HOUR_MS = 3_600_000
#: Records sent over records arrived, at most.
MOST_SENT = 1.2
Unique = Callable[[str], str]


@pytest.fixture
async def bridge(cluster_a: Reachable, unique: Unique) -> AsyncIterator[Rig]:
    async with rig(cluster_a, unique("bridge")) as made:
        yield made


class ClockBehind(SystemClock):
    """Finds all that is sent now two hours ahead."""

    def wall_ms(self) -> int:
        return super().wall_ms() - 2 * HOUR_MS


# -- refused records ---------------------------------------------------------------------------------------

RECORDS, BAD_EVERY = 1_000, 50
BAD = RECORDS // BAD_EVERY


def fill(cluster: Reachable, topic: str, bad: dict[str, Any]) -> None:
    """Records of which every fiftieth is another one."""
    # A record batch that is larger than what a quota allows in its window is never fetched.
    client = cluster.producer({"batch.num.messages": 50})
    for number in range(RECORDS):
        good = {"value": b"x" * 200, "key": b"%d" % number, "timestamp": NOW}
        changed = bad if number % BAD_EVERY == BAD_EVERY - 1 else {}
        client.produce(topic, partition=0, **{**good, **changed})
    assert client.flush(30) == 0


LATE = {"timestamp": int(time.time() * 1000) + 5 * HOUR_MS}


@pytest.mark.parametrize(
    ("bad", "config", "at_least"),
    [
        pytest.param(LATE, {}, BAD, id="too late"),
        pytest.param(LATE, {"cleanup.policy": "compact"}, BAD, id="too late for a compacted topic"),
        pytest.param({"key": None}, {"cleanup.policy": "compact"}, 0, id="without a key"),
        pytest.param({"value": b"x" * 30_000}, {"max.message.bytes": "20000"}, 0, id="too large"),
    ],
)
async def test_a_refused_record_in_fifty_costs_itself(
    clusters: Clusters,
    unique: Unique,
    tmp_path: Path,
    bad: dict[str, Any],
    config: dict[str, str],
    at_least: int,
) -> None:
    """Before: 91,170 sent for 2,940 that arrived, and 112,650 with a compacted target."""
    name = unique("refused")
    source, target, letters = f"{name}.orders", f"to.{name}.orders", f"{name}.letters"
    lenient = {"message.timestamp.after.max.ms": str(10 * HOUR_MS)}
    await asyncio.to_thread(clusters.a.create_topic, source, config=lenient)
    await asyncio.to_thread(clusters.b.create_topic, target, config=config)
    await asyncio.to_thread(fill, clusters.a, source, bad)
    more = f'dead-letter-address = "{letters}"'
    with produced() as sent:
        async with started(tmp_path / "settings.toml", name, clusters.a, clusters.b, more) as made:
            await acknowledged(made, RECORDS - BAD)
            counts = made.counts
    assert (counts.refused, counts.acknowledged) == (BAD, RECORDS - BAD)
    assert counts.sent <= MOST_SENT * (RECORDS - BAD)
    assert sent[target] + sent[letters] <= MOST_SENT * RECORDS
    assert counts.resent == at_least
    assert [record.key for record in await arrived(clusters.b, target)] == [
        b"%d" % number for number in range(RECORDS) if number % BAD_EVERY != BAD_EVERY - 1
    ]
    assert len(await arrived(clusters.b, letters)) == BAD


async def test_what_brokers_teach_about_a_topic_is_kept(bridge: Rig, unique: Unique) -> None:
    """Nothing was known of the topic: the first transaction pays for it, those after it do not."""
    stream = kafka_stream(unique("became"))
    target = bridge.target(stores_letters=True, dead_letter_address=unique("dead"))
    await opened(target, stream)
    configure(bridge.cluster, stream.target_address, cleanup_policy="compact")
    with produced() as sent:
        for first in range(0, 3_000, 300):
            messages = numbered(first, first + 299, key=b"k")
            for index in range(10, 300, 50):
                messages[index] = Message(b"bad", None, (), NOW)
            (receipt,) = await deliver(target, batch(stream, messages, from_=first))
            assert (receipt.verdict, len(receipt.dead_lettered)) == (Verdict.STORED, 6)
    # 300 for the attempt that was refused, and every bad one once more to ask.
    assert sent[stream.target_address] == 3_000 - 60 + 300 + 54
    good = [b"m%d" % n for n in range(3_000) if n % 300 % 50 != 10]
    assert await values(bridge.cluster, stream.target_address) == good


async def test_the_limit_of_a_topic_that_nobody_told_is_found_and_kept(bridge: Rig, unique: Unique) -> None:
    stream = kafka_stream(unique("lowered"))
    target = bridge.target()
    await opened(target, stream)
    configure(bridge.cluster, stream.target_address, max_message_bytes="30000")
    body = b"x" * 1_000
    with produced() as sent:
        for first in range(0, 1_000, 100):
            messages = [Message(body, None, (), NOW)] * 100
            (receipt,) = await deliver(target, batch(stream, messages, from_=first))
            assert receipt.verdict is Verdict.STORED
    # The first transactions are small enough.
    assert 1_000 < sent[stream.target_address] <= 1_000 + 100
    assert len(await values(bridge.cluster, stream.target_address)) == 1_000


async def test_a_wrong_clock_costs_the_records_that_it_doubts_first(bridge: Rig, unique: Unique) -> None:
    """The broker takes them all: it is asked once."""
    stream = kafka_stream(unique("behind"))
    target = bridge.target(clock=ClockBehind())
    await opened(target, stream)
    with produced() as sent:
        for first in range(0, 1_000, 100):
            (receipt,) = await deliver(target, batch(stream, numbered(first, first + 99), from_=first))
            assert receipt.verdict is Verdict.STORED
    assert sent[stream.target_address] <= 1_000 + 100
    assert await values(bridge.cluster, stream.target_address) == [b"m%d" % n for n in range(1_000)]


async def test_a_letter_that_cannot_be_kept_leaves_the_refusal_to_who_delivers(
    bridge: Rig, unique: Unique
) -> None:
    stream = kafka_stream(unique("orders"))
    bridge.cluster.create_topic(stream.target_address, config={"cleanup.policy": "compact"})
    target = bridge.target(stores_letters=True, dead_letter_address=unique("dead"), create_topics=False)
    await opened(target, stream)
    (receipt,) = await deliver(target, batch(stream, numbered(0, 1)))
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 0)
    assert await values(bridge.cluster, stream.target_address) == []


# -- quotas ------------------------------------------------------------------------------------------------


async def test_a_throttled_connection_is_no_dead_one(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: 63,171 records for 6,462 that arrived, and "no broker answers"."""
    # Less than the brokers ask to wait.
    monkeypatch.setattr(lane, "REACHABLE_TIMEOUT_MS", 1_500)
    monkeypatch.setattr(transaction, "SEND_TIMEOUT_MS", 1_500)
    client, stream, counts = unique("throttled"), kafka_stream(unique("orders")), Counts()
    await limit(bridge.cluster, client, producer_byte_rate=100_000)
    bridge.connection = {"producer_options": {"client_id": client}}
    target = bridge.target(arguments={"hooks": RelayHooks(counts=counts)})
    await opened(target, stream)
    seen = []
    with produced() as sent:
        for first in range(0, 1_200, 400):
            messages = [Message(b"x" * 1_000, None, (), NOW)] * 400
            (receipt,) = await deliver(target, batch(stream, messages, from_=first))
            assert receipt.verdict is Verdict.STORED
            seen.append(counts.throttled)
    assert sent[stream.target_address] == 1_200
    assert len(await values(bridge.cluster, stream.target_address)) == 1_200
    assert counts.throttled_ms > 1_500
    assert counts.resent == 0
    assert any("producer_byte_rate" in text for text in seen)


async def test_a_quota_that_no_transaction_can_keep_is_named_with_the_settings(
    bridge: Rig, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "SEND_TIMEOUT_MS", 700)
    monkeypatch.setattr(transaction, "END_TRANSACTION_TIMEOUT_MS", 59_000)
    client, stream = unique("strangled"), kafka_stream(unique("orders"))
    await limit(bridge.cluster, client, producer_byte_rate=5_000)
    bridge.connection = {"producer_options": {"client_id": client}}
    target = bridge.target()
    await opened(target, stream)
    with pytest.raises(TargetUnavailable, match="producer_byte_rate") as found:
        await deliver(target, batch(stream, [Message(b"x" * 400_000, None, (), NOW)]))
    for setting in ("transaction-timeout-ms", "producer-window-size"):
        assert setting in str(found.value)
    assert (await opened(target, stream)).next is None
    assert await values(bridge.cluster, stream.target_address) == []


@pytest.mark.kafka_long  # quotas are of seconds; it has always been so
async def test_a_fetch_quota_makes_nothing_be_read_twice(
    clusters: Clusters, unique: Unique, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, client = unique("slow"), unique("fetches")
    await limit(clusters.a, client, consumer_byte_rate=18_000)
    await asyncio.to_thread(clusters.a.create_topic, f"{name}.orders")
    await asyncio.to_thread(fill, clusters.a, f"{name}.orders", {})
    taken = 0
    take = StreamCursor.take

    def counted(cursor: StreamCursor, rules: Any, fetched: Any) -> None:
        nonlocal taken
        taken += len(fetched.records)
        take(cursor, rules, fetched)

    monkeypatch.setattr(StreamCursor, "take", counted)
    more = f'[connectors.here.kafka]\nclient-id = "{client}"\nmax-partition-fetch-bytes = 20000'
    async with started(tmp_path / "settings.toml", name, clusters.a, clusters.b, more) as made:
        await acknowledged(made, RECORDS)
        counts = made.counts
    assert (taken, counts.sent, counts.resent) == (RECORDS, RECORDS, 0)


# -- what is reported -------------------------------------------------------------------------------------


async def test_status_and_metrics_tell_what_was_sent_twice(bridge: Rig, unique: Unique) -> None:
    stream, counts = kafka_stream(unique("late")), Counts()
    letters = unique("dead")
    target = bridge.target(
        arguments={"hooks": RelayHooks(counts=counts)}, stores_letters=True, dead_letter_address=letters
    )
    await opened(target, stream)
    late = Message(b"late", None, (), SystemClock().wall_ms() + 2 * HOUR_MS)
    (receipt,) = await deliver(target, batch(stream, [*numbered(0, 3), late, late]))
    assert (receipt.verdict, receipt.dead_lettered) == (Verdict.STORED, (4, 5))
    assert counts.resent == 2
    (record,) = [
        json.loads(one.value or b"")
        for one in await arrived(bridge.cluster, bridge.journal_topic)
        if (one.key or b"").startswith(b"stream:")
    ]
    assert record["next"] == 6
