"""Checks whether the target has lost what it had confirmed, whenever streams are opened.

The journal has the offset of each stream's last messages. A topic that ends before that has been cut back;
one with another id has been re-created. Nothing at the source is read again for it: the positions are
covered, and which messages consumers read before the loss is unknown here. So the bridge continues, and logs
what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.structs import TopicPartition

from bridge.kafka.journal_topic.records import StreamRecord
from bridge.kafka.records.topic_rules import TopicRules
from bridge.relay.ports import Stream

#: Number and pause of the requests to a leader that cannot answer yet; then the end stays unknown until the
#: next opening: a leader that cannot answer takes no messages either.
_LOOKS: Final = 10
_LOOK_PAUSE_MS: Final = 100
_ANYBODY: Final = -1
_READ_UNCOMMITTED: Final = 0
_LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class Loss:
    """A partition that no longer has the records that a stream wrote to it."""

    stream: str
    topic: str
    partition: int
    #: Offset after the last existing record.
    end: int
    #: The least expected `end`.
    expected: int
    #: Whether the topic's id differs from that of the topic that the stream wrote to.
    recreated: bool


async def losses(
    streams: Iterable[tuple[Stream, StreamRecord]],
    topics: Mapping[str, TopicRules],
    ask: Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]],
) -> list[Loss]:
    """The losses of topics among these streams' messages.

    Checks only topics to which a stream writes now, and only the last transaction that wrote: no more is
    recorded.

    Args:
        streams: each with its record.
        topics: as they are now; one that does not exist is left out.
        ask: returns the ends of partitions, those that are known (`ends`).
    """
    written = [
        (stream, record, TopicPartition(topic, partition), last + 1)
        for stream, record in streams
        for topic, partition, last in record.offsets
        if topic == stream.target_address and topic in topics
    ]
    found: list[Loss] = []
    known = await ask({tp for _, _, tp, _ in written}) if written else {}
    for stream, record, tp, expected in written:
        end, now = known.get(tp), topics[tp.topic].id
        recreated = bool(record.target_id and now) and record.target_id != now
        if end is not None and (end < expected or recreated):
            found.append(Loss(stream.identity, tp.topic, tp.partition, end, expected, recreated))
    return found


async def ends(client: AIOKafkaClient, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset after the last record of each partition, committed or not: one request for each leader.

    0 for a partition that its topic does not have; one whose leader does not answer in time is left out.
    """
    found: dict[TopicPartition, int] = {}
    for look in range(_LOOKS):
        if look:
            await asyncio.sleep(_LOOK_PAUSE_MS / 1000)
            await client.force_metadata_update()
        await asyncio.gather(*[client.add_topic(topic) for topic in {tp.topic for tp in tps}])
        missing = [tp for tp in tps if tp not in found]
        found |= dict.fromkeys((tp for tp in missing if _is_beyond(client, tp)), 0)
        asked: dict[int, dict[str, list[tuple[int, int]]]] = {}
        for tp in missing:
            leader = client.cluster.leader_for_partition(tp)
            if leader is not None and leader >= 0:
                asked.setdefault(leader, {}).setdefault(tp.topic, []).append((tp.partition, _LATEST))
        for answer in await asyncio.gather(*(_asked(client, *each) for each in asked.items())):
            found |= answer
        if len(found) == len(tps):
            break
    return found


def _is_beyond(client: AIOKafkaClient, tp: TopicPartition) -> bool:
    """Whether the topic is known, and has no such partition."""
    partitions = client.cluster.partitions_for_topic(tp.topic)
    return partitions is not None and tp.partition not in partitions


async def _asked(
    client: AIOKafkaClient, leader: int, topics: Mapping[str, list[tuple[int, int]]]
) -> dict[TopicPartition, int]:
    """The ends that a leader returns; without partitions that it cannot answer for."""
    try:
        answer: Any = await client.send(
            leader, OffsetRequest(_ANYBODY, _READ_UNCOMMITTED, list(topics.items()))
        )
    except KafkaError:
        return {}  # asked again, maybe of another leader
    return {
        TopicPartition(topic, partition): offset
        for topic, partitions in answer.topics
        for partition, error, _timestamp, offset in partitions
        if not error
    }
