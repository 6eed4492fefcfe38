"""What tests of the Kafka source share: sources as a lane makes them, producers, and reading to an end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from confluent_kafka import Producer, TopicPartition

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.records.decoding import BatchOptions
from bridge.kafka.records.identity import LaneIndex
from bridge.kafka.source.options import SourceOptions, TopicSelection
from bridge.kafka.source.source import KafkaSource
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.message import Header, Message
from bridge.relay.ports import Receipt, Stream, StreamState
from bridge.runtime.clock import SystemClock
from dedup.verdict import Verdict
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, Reachable

#: Longest that anything a source is waited for may take, seconds.
WITHIN_S: Final = 30.0
STORE: Final = "store-1"


@dataclass(slots=True)
class Rig:
    """One bridge's sources on one cluster; `close` closes all of them."""

    cluster: Reachable
    bridge: str
    #: What a bridge is set to, besides.
    options: dict[str, Any] = field(default_factory=dict)
    opened: list[KafkaSource] = field(default_factory=list)

    @property
    def group(self) -> str:
        return f"core-bridge.{self.bridge}.progress"

    @property
    def connection(self) -> KafkaConnection:
        return KafkaConnection("here", self.cluster.bootstrap)

    def source(self, *topics: str, kind: type[KafkaSource] = KafkaSource, **options: Any) -> KafkaSource:
        """A source, as a process makes it that has just started."""
        given: dict[str, Any] = {
            "bridge": self.bridge,
            "group": self.group,
            "selects": lambda topic: topic in topics,
            "forward": lambda topic: f"to.{topic}",
            "stamp": True,
            "start_position": "earliest",
            "gap_policy": "stop",
            "batch_bytes": 1024 * 1024,
            "large_bytes": 100 * 1024,
            "max_id_bytes": 1024,
            **self.options,
            **options,
        }
        settings = SourceOptions(
            topics=_options(TopicSelection, given),
            batches=_options(BatchOptions, given),
            **_taken(SourceOptions, given),
        )
        made = kind(
            given.pop("connection", None) or self.connection,
            LaneIndex(given.pop("lane", 0), given.pop("lanes", 1)),
            settings,
            clock=given.pop("clock", None) or SystemClock(),
            **given,
        )
        self.opened.append(made)
        return made

    async def start(
        self, *topics: str, resume: Mapping[str, StreamState] | None = None, **options: Any
    ) -> KafkaSource:
        """A source whose streams are open: where `resume` says, by identity; else never seen."""
        source = self.source(*topics, **options)
        await open_all(source, resume)
        return source

    async def close(self) -> None:
        for source in self.opened:
            await source.close()


def _options(kind: type[Any], given: dict[str, Any]) -> Any:
    return kind(**_taken(kind, given))


def _taken(kind: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Those that are fields of an options object; they are no longer in `given`."""
    return {one.name: given.pop(one.name) for one in fields(kind) if one.name in given}


class Logged:
    """A log that can be waited for."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()

    def error(self, event: str, **fields: Any) -> None:
        self.events.put_nowait((event, fields))

    warning = info = error

    async def next(self, event: str) -> dict[str, Any]:
        """The fields of the next event of that name."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                name, fields = await self.events.get()
                if name == event:
                    return fields


async def open_all(
    source: KafkaSource, resume: Mapping[str, StreamState] | None = None
) -> dict[tuple[str, int], Stream]:
    """Open every stream there is, as a relay does; by topic and partition."""
    streams = await source.streams()
    given = resume or {}
    await source.open({s.identity: given.get(s.identity, StreamState(None)) for s in streams}, STORE)
    return by_partition(streams)


def by_partition(streams: Sequence[Stream]) -> dict[tuple[str, int], Stream]:
    return {(stream.address, int(stream.identity.rpartition(":")[2])): stream for stream in streams}


@contextlib.asynccontextmanager
async def rigged(cluster: Reachable, bridge: str, **options: Any) -> AsyncIterator[Rig]:
    rig = Rig(cluster, bridge, options)
    try:
        yield rig
    finally:
        await rig.close()


# -- producing -------------------------------------------------------------------------------------------


def produce(
    cluster: Reachable,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    key: bytes | None = None,
    headers: Sequence[Header] = (),
    timestamp: int = 0,
    options: Mapping[str, Any] | None = None,
) -> list[int]:
    """Send them one behind the other; answers their offsets."""
    # One request in flight keeps the order without a producer id, which takes half a second to get.
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "max.in.flight": 1, **(options or {})})
    return _send(producer, topic, values, partition, key, headers, timestamp)


def produce_in_transaction(
    cluster: Reachable,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int = 0,
    key: bytes | None = None,
    abort: bool = False,
) -> list[int]:
    """The same in one transaction, which ends with a marker of its own."""
    producer = open_transaction(cluster, f"{topic}-{partition}")
    offsets = _send(producer, topic, values, partition, key, (), 0)
    if abort:
        producer.abort_transaction(CALL_TIMEOUT_S)
    else:
        producer.commit_transaction(CALL_TIMEOUT_S)
    return offsets


def open_transaction(cluster: Reachable, transactional_id: str) -> Any:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(CALL_TIMEOUT_S)
    producer.begin_transaction()
    return producer


def _send(
    producer: Any,
    topic: str,
    values: Sequence[bytes | None],
    partition: int,
    key: bytes | None,
    headers: Sequence[Header],
    timestamp: int,
) -> list[int]:
    offsets: list[int] = []

    def delivered(error: object, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    for value in values:
        producer.produce(
            topic,
            value,
            key,
            partition,
            on_delivery=delivered,
            timestamp=timestamp,
            headers=list(headers) or None,
        )
        producer.poll(0)
    assert producer.flush(CALL_TIMEOUT_S) == 0
    return offsets


def expire(cluster: Reachable, topic: str, below: int, partition: int = 0) -> None:
    """Delete what lies below a position, as retention does."""
    admin = cluster.admin()
    for result in admin.delete_records([TopicPartition(topic, partition, below)]).values():
        result.result(CALL_TIMEOUT_S)


# -- reading ---------------------------------------------------------------------------------------------


async def read_until(source: KafkaSource, done: Callable[[Sequence[Batch]], bool]) -> list[Batch]:
    """Read on until `done` says so of everything that was read; opens what is new, as a relay does."""
    batches: list[Batch] = []
    async with asyncio.timeout(WITHIN_S):
        while not done(batches):
            more = await source.read()
            batches += more
            if not more:
                await open_new(source)
    return batches


async def open_new(source: KafkaSource) -> None:
    new = [s for s in await source.streams() if s.identity not in source._lane.cursors]
    await source.open({stream.identity: StreamState(None) for stream in new}, STORE)


async def read_messages(source: KafkaSource, count: int) -> list[Batch]:
    """Read on until `count` messages have come."""
    return await read_until(source, lambda batches: sum(batch.count for batch in batches) >= count)


async def read_upto(source: KafkaSource, stream: str, upto: int) -> list[Batch]:
    """Read on until everything of `stream` below `upto` is covered."""
    return await read_until(source, lambda all_: any(b.stream == stream and b.upto >= upto for b in all_))


def placed(batches: Sequence[Batch], stream: str) -> list[tuple[int, Message]]:
    """The messages of a stream at their positions; its batches must follow one another."""
    found: list[tuple[int, Message]] = []
    at: int | None = None
    for batch in (batch for batch in batches if batch.stream == stream):
        assert at is None or batch.from_ == at, f"covered up to {at}, then from {batch.from_}"
        at = batch.upto
        positions = list(run_arithmetic.positions(batch.runs))
        messages = batch.block.messages() if batch.block is not None else []
        found += zip(positions, messages, strict=True)
        assert all(batch.from_ <= one < batch.upto for one in positions)
    return found


def bodies(batches: Sequence[Batch], stream: str) -> list[bytes | None]:
    return [message.whole for _, message in placed(batches, stream)]


def numbered(count: int, prefix: str = "m", size: int = 0) -> list[bytes]:
    return [f"{prefix}{number}".encode().ljust(size, b".") for number in range(count)]


async def settle(source: KafkaSource, batches: Sequence[Batch]) -> None:
    for batch in batches:
        await source.settled(batch, Receipt(batch.stream, Verdict.STORED, batch.upto))


def covered(batches: Sequence[Batch], stream: str) -> StreamState:
    """What a target remembers that took all of these."""
    last = [batch for batch in batches if batch.stream == stream][-1]
    return StreamState(last.upto, checksum=last.checksum)
