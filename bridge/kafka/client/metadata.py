"""The present state of a cluster: its id, topics with their ids, partitions with leaders and leader epochs.

aiokafka's own metadata has neither topic ids nor leader epochs. By these two the bridge distinguishes a
re-created topic and a truncated log from the one that it read a moment ago. Ask the partition's *leader*: a
broker learns of a new topic or epoch before it serves a fetch under it, and another broker may learn later.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)
from aiokafka.structs import TopicPartition

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.pieces import (
    PARTITIONS_AT_ONCE,
    TOPICS_AT_ONCE,
    Step,
    in_pieces,
    no_steps,
    pieces,
    together,
)
from bridge.kafka.client.transaction_requests import DescribeProducersRequest, ProducerState, producers_of

#: UNKNOWN_TOPIC_OR_PARTITION, and INVALID_TOPIC_EXCEPTION for a name that no topic can have.
_ABSENT: Final = (3, 17)

#: In an offset request: a time that stands for an end of the log, and an isolation level.
_EARLIEST, _LATEST = -2, -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
#: LEADER_NOT_AVAILABLE and OFFSET_NOT_AVAILABLE: the leader has just been elected, and is asked again.
_NOT_YET: Final = (5, 78)
#: Number and pause of the requests for offsets to a leader that cannot answer yet.
_LOOKS: Final = 50
_LOOK_PAUSE_MS: Final = 100
#: Longest that a leader may take to answer one request for offsets.
OFFSETS_TIMEOUT_MS: Final = 15_000


class Offset(Enum):
    """An offset of a log that its leader is asked for: a time and an isolation level."""

    #: The first that is there.
    START = (_EARLIEST, _READ_UNCOMMITTED)
    #: The last stable offset: up to there a read_committed consumer reads.
    STABLE = (_LATEST, _READ_COMMITTED)
    #: The high watermark.
    HIGH = (_LATEST, _READ_UNCOMMITTED)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, as the broker that was asked sees it."""

    #: Node id of the leader; -1: none.
    leader: int
    #: Increases with every election.
    leader_epoch: int
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; a re-created one has another `id`."""

    name: str
    #: UUID as text.
    id: str
    partitions: Mapping[int, Partition] = field(default_factory=dict)
    #: Kafka's error code for the topic; 0: none.
    error: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """The answer to one metadata request."""

    #: The cluster's id.
    id: str
    #: Node ids of the brokers that are up.
    brokers: tuple[int, ...]
    #: The topics by name; a topic that does not exist is left out.
    topics: Mapping[str, Topic] = field(default_factory=dict)
    #: By node id, host and port where clients reach the broker.
    addresses: Mapping[int, tuple[str, int]] = field(default_factory=dict)


class _MetadataResponse(Response):
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id_high", Int64),
                ("topic_id_low", Int64),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class _MetadataRequestV10(RequestStruct):
    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic_id_high", Int64),
                ("topic_id_low", Int64),
                ("name", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _MetadataRequest(Request[_MetadataRequestV10]):
    """A metadata request that never makes a topic."""

    API_KEY = 3

    def __init__(self, topics: Sequence[str] | None) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_MetadataRequestV10]) -> _MetadataRequestV10:
        asked: Any = None if self._topics is None else [(0, 0, name, {}) for name in self._topics]
        return request_struct_class(asked, False, False, False, {})


class _EpochEndResponse(Response):
    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("end_offset", Int64),
                    ),
                ),
            ),
        ),
    )


class _EpochEndRequestV3(RequestStruct):
    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = _EpochEndResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32)),
                ),
            ),
        ),
    )


class _EpochEndRequest(Request[_EpochEndRequestV3]):
    """OffsetForLeaderEpoch (KIP-320)."""

    API_KEY = 23

    def __init__(self, epochs: Mapping[TopicPartition, int]) -> None:
        self._asked = [
            (topic, [(partition, -1, epoch) for partition, epoch in asked])
            for topic, asked in _by_topic(epochs).items()
        ]

    def build(self, request_struct_class: type[_EpochEndRequestV3]) -> _EpochEndRequestV3:
        return request_struct_class(-1, self._asked)


def _by_topic(values: Mapping[TopicPartition, int]) -> dict[str, list[tuple[int, int]]]:
    """A value for each partition, as requests have it."""
    found: dict[str, list[tuple[int, int]]] = {}
    for tp, value in values.items():
        found.setdefault(tp.topic, []).append((tp.partition, value))
    return found


def _topics(answer: Any) -> dict[str, Topic]:
    found: dict[str, Topic] = {}
    for error, name, high, low, _internal, partitions, _operations, _tags in answer.topics:
        if error in _ABSENT:
            continue
        found[name] = Topic(
            name,
            str(uuid.UUID(int=(high % 2**64) << 64 | low % 2**64)),
            {
                number: Partition(leader, epoch, tuple(replicas))
                for _error, number, leader, epoch, replicas, _isr, _offline, _t in partitions
            },
            error,
        )
    return found


async def topics_as_seen(client: AIOKafkaClient, topics: Sequence[str], broker: int) -> Mapping[str, Topic]:
    """These topics as one broker sees them, asked by an existing client. Raises: KafkaError."""
    return _topics(await client.send(broker, _MetadataRequest(topics)))


class ClusterClient:
    """Asks a cluster for its state; one connection for each broker, opened when it is needed."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._client: AIOKafkaClient | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, unless the client is connected. Raises: KafkaError."""
        async with self._opening:
            if self._client is None:
                self._client = await self._connection.connected()

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def cluster(
        self, topics: Sequence[str] | None = (), *, broker: int | None = None, step: Step = no_steps
    ) -> Cluster:
        """The cluster and these topics (None: all there are), as `broker` sees them (None: any).

        Raises: KafkaError.
        """
        answers = (
            [await self._ask(_MetadataRequest(topics), broker)]
            if not topics
            else await in_pieces(
                topics, TOPICS_AT_ONCE, lambda names: self._ask(_MetadataRequest(names), broker), step
            )
        )
        answer = answers[0]
        return Cluster(
            answer.cluster_id,
            tuple(one[0] for one in answer.brokers),
            {name: topic for one in answers for name, topic in _topics(one).items()},
            {one[0]: (one[1], one[2]) for one in answer.brokers},
        )

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, broker: int
    ) -> dict[TopicPartition, int]:
        """One beyond the last offset written under each epoch or an older one, as the leader `broker` has it.

        -1 where the leader no longer knows the epoch. Raises: KafkaError.
        """
        answer = await self._ask(_EpochEndRequest(epochs), broker)
        found: dict[TopicPartition, int] = {}
        for topic, partitions in answer.topics:
            for error, partition, _epoch, end in partitions:
                if error:
                    raise for_code(error)(f"OffsetForLeaderEpoch of {topic}/{partition}")
                found[TopicPartition(topic, partition)] = int(end)
        return found

    async def high_watermarks(
        self, tps: Sequence[TopicPartition], *, broker: int
    ) -> dict[TopicPartition, int]:
        """The high watermarks of these partitions, as their leader `broker` has them; others are left out.

        Raises: KafkaError.
        """
        found, _errors = await self._offsets(tps, Offset.HIGH, broker)
        return found

    async def offsets(
        self, leaders: Mapping[TopicPartition, int], which: Offset, step: Step = no_steps
    ) -> dict[TopicPartition, int]:
        """This offset of each partition, asked of its leader; one that was just elected is asked again.

        Raises: KafkaError: also where another broker leads. TimeoutError: no answer.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp, leader in leaders.items():
            by_leader.setdefault(leader, []).append(tp)
        asked = [
            (leader, piece) for leader, tps in by_leader.items() for piece in pieces(tps, PARTITIONS_AT_ONCE)
        ]
        found: dict[TopicPartition, int] = {}

        async def more(leader: int, tps: Sequence[TopicPartition]) -> None:
            found.update(await self._settled_offsets(tps, which, leader))
            if len(asked) > 1:
                step(len(found), len(leaders))

        await together(more(*each) for each in asked)
        return found

    async def _settled_offsets(
        self, tps: Sequence[TopicPartition], which: Offset, leader: int
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for look in range(1, _LOOKS + 1):
            async with asyncio.timeout(OFFSETS_TIMEOUT_MS / 1000):
                more, errors = await self._offsets([tp for tp in tps if tp not in found], which, leader)
            found |= more
            for tp, error in errors.items():
                if error not in _NOT_YET or look == _LOOKS:
                    raise for_code(error)(f"ListOffsets of {tp.topic}/{tp.partition}")
            if not errors:
                break
            await asyncio.sleep(_LOOK_PAUSE_MS / 1000)
        return found

    async def _offsets(
        self, tps: Sequence[TopicPartition], which: Offset, broker: int
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The offsets that `broker` has, and the error codes of the others."""
        time, isolation = which.value
        asked = _by_topic(dict.fromkeys(tps, time))
        answer = await self._ask(OffsetRequest(-1, isolation, list(asked.items())), broker)
        found: dict[TopicPartition, int] = {}
        errors: dict[TopicPartition, int] = {}
        for topic, partitions in answer.topics:
            for partition, error, _timestamp, offset in partitions:
                (errors if error else found)[TopicPartition(topic, partition)] = error or offset
        return found, errors

    async def producers(self, topic: str, partition: int, *, broker: int) -> Mapping[int, ProducerState]:
        """By producer id, the producers that wrote to a partition, as its leader `broker` has them.

        The brokers forget a producer that has not written for `producer.id.expiration.ms`. Raises:
        KafkaError.
        """
        answer = await self._ask(DescribeProducersRequest([(topic, partition)]), broker)
        return producers_of(answer)[topic, partition]

    async def _ask(self, request: Request[Any], broker: int | None) -> Any:
        await self.open()
        client = self._client
        if client is None:
            raise KafkaConnectionError("the client was closed")
        node = client.get_random_node() if broker is None else broker
        return await client.send(node, request)
