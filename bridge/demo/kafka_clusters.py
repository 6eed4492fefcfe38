"""Two clusters as the demo's clients use them: topics made and removed, rows sent, and the proof read.

These are ordinary clients. Nothing here knows how the bridge works, but for the name of the group
under which it commits what it has covered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Self

import aiokafka
from aiokafka.admin import NewTopic
from aiokafka.errors import for_code
from aiokafka.structs import TopicPartition

from bridge.errors import TargetUnavailable
from bridge.kafka.client.diagnosis import Connection
from bridge.kafka.client.errors import Side, explaining
from bridge.kafka.client.metadata import ClusterClient
from dedup.ids import ID_HEADER

#: Longest that a cluster may take to answer at first.
REACH_TIMEOUT_MS: Final = 15_000
#: Longest that removing topics may take.
REMOVE_TIMEOUT_MS: Final = 15_000
#: Longest that reading may stand still.
READ_TIMEOUT_MS: Final = 30_000
#: Number and pause of the checks for a new topic.
_LOOKS: Final = 100
_LOOK_PAUSE_MS: Final = 100
#: Records that are in flight to the source at a time.
_SENT_AT_ONCE: Final = 50
_READ_WAIT_MS: Final = 200
_UNKNOWN_TOPIC: Final = 3


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """One record, as sent and as read."""

    partition: int
    key: bytes | None
    value: bytes | None
    #: The duplicate ID that its producer set; None: it has none, or more than one.
    id: bytes | None


class DemoCluster:
    """One cluster, to be used as an async context manager."""

    def __init__(self, side: Side, brokers: str) -> None:
        """`brokers` is ``host:port,host:port``; no TLS, no SASL."""
        self._side = side
        self._connection = Connection(side, brokers)
        self._admin: Any = None

    async def __aenter__(self) -> Self:
        """Connect. Raises: TargetUnavailable, SourceUnavailable and the like: no broker answers."""
        # The client logs each failed attempt; the errors raised suffice.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        self._admin = self._connection.admin()
        try:
            with self._errors("Describe", "cluster"):
                async with asyncio.timeout(REACH_TIMEOUT_MS / 1000):
                    await self._admin.start()
        except BaseException:
            await self._admin.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._admin.close()

    async def cluster_id(self) -> str:
        """The cluster's id."""
        with self._errors("Describe", "cluster"):
            async with ClusterClient(self._connection) as client:
                return (await client.cluster([])).id

    async def make_topic(self, topic: str, partitions: int) -> None:
        """Make the topic, with the cluster's defaults; returns when every partition has a leader."""
        with self._errors("Create", f"topic {topic}"):
            # aiokafka lets -1, the cluster's default, pass only beside assignments: none, and not None.
            answer = await self._admin.create_topics([NewTopic(topic, partitions, -1, {})])
            _raise_first((code, *text) for _, code, *text in answer.topic_errors)
            async with ClusterClient(self._connection) as client:
                for _ in range(_LOOKS):
                    found = (await client.cluster([topic])).topics.get(topic)
                    there = () if found is None else found.partitions.values()
                    if sum(partition.leader >= 0 for partition in there) == partitions:
                        return
                    await asyncio.sleep(_LOOK_PAUSE_MS / 1000)
        raise TargetUnavailable(f"topic {topic} has no leader after {_LOOKS * _LOOK_PAUSE_MS} ms")

    async def remove_topics(self, topics: Sequence[str]) -> None:
        """Delete the existing ones of these topics."""
        with self._errors("Delete", f"topics {', '.join(topics)}"):
            async with asyncio.timeout(REMOVE_TIMEOUT_MS / 1000):
                for topic in topics:
                    answer = await self._admin.delete_topics([topic])
                    _raise_first(
                        (code,) for _, code, *_rest in answer.topic_error_codes if code != _UNKNOWN_TOPIC
                    )

    async def committed(self, group: str, topic: str) -> dict[int, int]:
        """By partition, the offset that a group has committed; empty: none."""
        with self._errors("Read", f"group {group}"):
            found = await self._admin.list_consumer_group_offsets(group)
        return {tp.partition: place.offset for tp, place in found.items() if tp.topic == topic}

    async def ends(self, topic: str, partitions: int) -> dict[int, int]:
        """By partition, the end of the committed records."""
        async with self._consumer() as consumer:
            with self._errors("Read", f"topic {topic}"):
                ends = await consumer.end_offsets([TopicPartition(topic, n) for n in range(partitions)])
        return {tp.partition: offset for tp, offset in ends.items()}

    async def read(self, topic: str, partitions: int) -> AsyncIterator[DemoRecord]:
        """Every committed record, up to the present ends; each partition in order."""
        tps = [TopicPartition(topic, number) for number in range(partitions)]
        async with self._consumer() as consumer:
            with self._errors("Read", f"topic {topic}"):
                consumer.assign(tps)
                await consumer.seek_to_beginning(*tps)
                ends = await consumer.end_offsets(tps)
                while behind := [tp for tp in tps if await consumer.position(tp) < ends[tp]]:
                    async with asyncio.timeout(READ_TIMEOUT_MS / 1000):
                        while not (page := await consumer.getmany(*behind, timeout_ms=_READ_WAIT_MS)):
                            if all([await consumer.position(tp) >= ends[tp] for tp in behind]):
                                break  # markers at the end bring no records
                    for records in page.values():
                        for record in records:
                            yield _demo_record(record)

    @contextlib.asynccontextmanager
    async def sender(self, topic: str) -> AsyncIterator[DemoSender]:
        """A sender to `topic`: idempotent, ``acks=all``, and without transactions."""
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._connection.brokers, enable_idempotence=True, acks="all"
        )
        try:
            with self._errors("Write", f"topic {topic}"):
                await producer.start()
                yield DemoSender(producer, topic)
        finally:
            await producer.stop()

    @contextlib.asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Any]:
        consumer = self._connection.consumer()
        try:
            with self._errors("Read", "cluster"):
                await consumer.start()
            yield consumer
        finally:
            await consumer.stop()

    def _errors(self, operation: str, resource: str) -> AbstractContextManager[None]:
        return explaining(self._connection.name, operation, resource, side=self._side)


class DemoSender:
    """Sends records in order."""

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def send(self, records: Sequence[DemoRecord]) -> None:
        """Send the records; returns when all replicas have them. Raises: as `DemoCluster.sender`."""
        for start in range(0, len(records), _SENT_AT_ONCE):
            futures = [
                await self._producer.send(
                    self._topic,
                    record.value,
                    key=record.key,
                    partition=record.partition,
                    headers=[(ID_HEADER, record.id)],
                )
                for record in records[start : start + _SENT_AT_ONCE]
            ]
            await asyncio.gather(*futures)


def _demo_record(record: Any) -> DemoRecord:
    ids = [value for name, value in record.headers if name == ID_HEADER]
    return DemoRecord(record.partition, record.key, record.value, ids[0] if len(ids) == 1 else None)


def _raise_first(answers: Iterable[tuple[Any, ...]]) -> None:
    """Raise the first error in an answer of code and text, where there is one."""
    for code, *text in answers:
        if code:
            raise for_code(code)(*text)
