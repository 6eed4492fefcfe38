"""Requests about transactions that none of aiokafka's clients offers.

They ask which producers have a transaction open in a partition (DescribeProducers, KIP-664), read the records
there with their producers, and end a transaction to which nothing is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiokafka
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import ConcurrentTransactions, KafkaError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest
from aiokafka.protocol.types import (
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)
from aiokafka.record.memory_records import MemoryRecords

from bridge.kafka.client import producers

#: Bytes of a fetch, unless one record batch is larger.
FETCH_BYTES: Final = 1024 * 1024
_FETCH_WAIT_MS: Final = 100
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_OUT_OF_RANGE: Final = 1
#: OPERATION_NOT_ATTEMPTED: another partition of the request is the reason.
_NOT_ATTEMPTED: Final = 55
#: Pause before the coordinator is asked again where it could not answer.
RETRY_MS: Final = 100

#: Topic and partition.
Partition = tuple[str, int]


class _DescribeProducersResponse(Response):
    API_KEY = 61
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("error_message", CompactString("utf-8")),
                        (
                            "active_producers",
                            CompactArray(
                                ("producer_id", Int64),
                                ("producer_epoch", Int32),
                                ("last_sequence", Int32),
                                ("last_timestamp", Int64),
                                ("coordinator_epoch", Int32),
                                ("current_txn_start_offset", Int64),
                                ("tags", TaggedFields),
                            ),
                        ),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _DescribeProducersRequestV0(RequestStruct):
    API_KEY = 61
    API_VERSION = 0
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _DescribeProducersResponse
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("name", CompactString("utf-8")),
                ("partitions", CompactArray(Int32)),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class DescribeProducersRequest(Request[_DescribeProducersRequestV0]):
    """Only a partition's leader answers for it. Needs the right to read the topic."""

    API_KEY = 61

    def __init__(self, tps: Iterable[Partition]) -> None:
        self._topics = _by_topic(tps)

    def build(self, request_struct_class: type[_DescribeProducersRequestV0]) -> _DescribeProducersRequestV0:
        """Build the request as aiokafka asks for it."""
        tags: dict[int, bytes] = {}
        asked = [(topic, partitions, tags) for topic, partitions in self._topics.items()]
        return request_struct_class(asked, {})


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of one producer, as a partition's leader knows it."""

    epoch: int
    #: Sequence number of the last record.
    last_sequence: int
    #: First offset of its open transaction; -1: none is open.
    open_from: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """The content of a partition from an offset on."""

    #: One beyond the last record that is replicated, and one beyond the last that is decided.
    high_watermark: int
    stable: int
    #: Aborted transactions in what was fetched: producer id and first offset.
    aborted: Sequence[tuple[int, int]]
    #: aiokafka's record batches. The first may begin before the offset.
    batches: Sequence[Any]


def producers_of(answer: Any) -> Mapping[Partition, Mapping[int, ProducerState]]:
    """A leader's producers, by partition and producer id. Raises: KafkaError, names the topic."""
    found: dict[Partition, Mapping[int, ProducerState]] = {}
    for topic, partitions, _ in answer.topics:
        for partition, error, _message, active, _tags in partitions:
            if error:
                raise for_code(error)(topic)
            found[topic, partition] = {
                producer_id: ProducerState(epoch, last_sequence, open_from)
                for producer_id, epoch, last_sequence, _time, _coordinator, open_from, _tags in active
            }
    return found


class TransactionRequests:
    """Sends requests on behalf of a started producer, over its connections."""

    def __init__(self, producer: aiokafka.AIOKafkaProducer, transactional_id: str) -> None:
        self._client = producer.client
        self._transactional_id = transactional_id
        #: Given by the coordinator for the transactional id: the id stays, the epoch grows with every start.
        self.producer_id, self._epoch = producers.identity(producer)

    async def describe(
        self, tps: Iterable[Partition], *, leader: int
    ) -> Mapping[Partition, Mapping[int, ProducerState]]:
        """By partition and producer id, the producers there. Raises: KafkaError, names the topic."""
        return producers_of(await self._client.send(leader, DescribeProducersRequest(tps)))

    async def fetch(self, tp: Partition, offset: int, *, leader: int, committed: bool) -> Fetched | None:
        """Fetch from `offset` on; None: the partition begins after it, or ends before. Raises: KafkaError."""
        topic, partition = tp
        isolation = _READ_COMMITTED if committed else _READ_UNCOMMITTED
        request = FetchRequest(
            _FETCH_WAIT_MS, 1, FETCH_BYTES, isolation, [(topic, [(partition, offset, FETCH_BYTES)])]
        )
        answer = await self._client.send(leader, request)
        ((_topic, ((_partition, error, high, stable, _start, aborted, _replica, data),)),) = answer.topics
        if error == _OUT_OF_RANGE:
            return None
        if error or answer.error_code:
            raise for_code(error or answer.error_code)("Fetch")
        return Fetched(high, stable, aborted or (), list(_batches(data)))

    async def end(self, tps: Iterable[Partition], *, commit: bool, within_ms: int) -> None:
        """Have the coordinator write the markers of a transaction over these partitions.

        Both requests go out together: a process that dies between them would leave an open transaction,
        which its successor's start aborts. For the same reason they are repeated rather than given up.

        Raises:
            KafkaError: fenced, or without the right. TimeoutError: the coordinator could not end it in time.
        """
        topics = _by_topic(tps)
        who = (self._transactional_id, self.producer_id, self._epoch)
        async with asyncio.timeout(within_ms / 1000):
            while True:
                try:
                    return await self._end(
                        AddPartitionsToTxnRequest(*who, list(topics.items())), EndTxnRequest(*who, commit)
                    )
                except KafkaError as error:
                    if not (error.retriable or isinstance(error, ConcurrentTransactions)):
                        raise
                await asyncio.sleep(RETRY_MS / 1000)

    async def _end(self, add: Request[Any], end: Request[Any]) -> None:
        group = ConnectionGroup.COORDINATION
        node = await self._client.coordinator_lookup(CoordinationType.TRANSACTION, self._transactional_id)
        await self._client.ready(
            node, group=group
        )  # both requests are written at once below, and in this order
        added, ended = await asyncio.gather(
            self._client.send(node, add, group=group), self._client.send(node, end, group=group)
        )
        errors = [error for _topic, partitions in added.errors for _partition, error in partitions]
        for error in (*errors, ended.error_code):
            if error and error != _NOT_ATTEMPTED:
                raise for_code(error)(self._transactional_id)


def _by_topic(tps: Iterable[Partition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in tps:
        topics.setdefault(topic, []).append(partition)
    return topics


def _batches(data: bytes | None) -> Iterable[Any]:
    records = MemoryRecords(data or b"")
    while records.has_next():
        yield records.next_batch()
