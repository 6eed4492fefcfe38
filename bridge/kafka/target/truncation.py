"""Has the target lost what it had confirmed? Asked whenever streams are opened.

The journal says where each stream's last messages stand. A topic that ends before that has been cut back; one
with another id has been made again. Nothing at the source is read again for it: the positions are covered,
and what readers had before it was lost is not known here. So the bridge goes on, and says what is missing.
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

#: How often, and after what pause, a leader that cannot say yet is asked; then the end stays unknown, and it
#: is asked at the next opening: who cannot say takes no messages either.
_LOOKS: Final = 10
_LOOK_PAUSE_MS: Final = 100
_ANYBODY: Final = -1
_READ_UNCOMMITTED: Final = 0
_LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class Loss:
    """A partition that no longer has what a stream wrote to it."""

    stream: str
    topic: str
    partition: int
    #: Offset after the last record that is there.
    end: int
    #: What `end` must be at least.
    expected: int
    #: Whether the topic is another one than the stream wrote to, by its id.
    recreated: bool


async def losses(
    streams: Iterable[tuple[Stream, StreamRecord]],
    topics: Mapping[str, TopicRules],
    ask: Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]],
) -> list[Loss]:
    """What topics have lost of these streams.

    Only where a stream writes now, and only of the last transaction that wrote: no more is recorded.

    Args:
        streams: with what is remembered of each.
        topics: as they are now; one that is not there is left out.
        ask: the ends of partitions, those that are known (`ends`).
    """
    written = [
        (stream, record, TopicPartition(topic, partition), last + 1)
        for stream, record in streams
        for topic, partition, last in record.offsets
        if topic == stream.target_address and topic in topics
    ]
    found: list[Loss] = []
    known = await ask({place for _, _, place, _ in written}) if written else {}
    for stream, record, place, expected in written:
        end, now = known.get(place), topics[place.topic].id
        recreated = bool(record.target_id and now) and record.target_id != now
        if end is not None and (end < expected or recreated):
            found.append(Loss(stream.identity, place.topic, place.partition, end, expected, recreated))
    return found


async def ends(client: AIOKafkaClient, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """The offset after the last record of each partition, committed or not: one request a leader.

    0 for a partition that its topic does not have; one whose leader does not say in time is left out.
    """
    found: dict[TopicPartition, int] = {}
    for look in range(_LOOKS):
        if look:
            await asyncio.sleep(_LOOK_PAUSE_MS / 1000)
            await client.force_metadata_update()
        await asyncio.gather(*[client.add_topic(topic) for topic in {place.topic for place in places}])
        missing = [place for place in places if place not in found]
        found |= dict.fromkeys((place for place in missing if _is_beyond(client, place)), 0)
        asked: dict[int, dict[str, list[tuple[int, int]]]] = {}
        for place in missing:
            leader = client.cluster.leader_for_partition(place)
            if leader is not None and leader >= 0:
                asked.setdefault(leader, {}).setdefault(place.topic, []).append((place.partition, _LATEST))
        for answer in await asyncio.gather(*(_asked(client, *each) for each in asked.items())):
            found |= answer
        if len(found) == len(places):
            break
    return found


def _is_beyond(client: AIOKafkaClient, place: TopicPartition) -> bool:
    """Whether the topic is known, and has no such partition."""
    partitions = client.cluster.partitions_for_topic(place.topic)
    return partitions is not None and place.partition not in partitions


async def _asked(
    client: AIOKafkaClient, leader: int, topics: Mapping[str, list[tuple[int, int]]]
) -> dict[TopicPartition, int]:
    """What a leader says; nothing of partitions that it cannot speak for."""
    try:
        answer: Any = await client.send(
            leader, OffsetRequest(_ANYBODY, _READ_UNCOMMITTED, list(topics.items()))
        )
    except KafkaError:
        return {}  # asked again, maybe of another
    return {
        TopicPartition(topic, partition): offset
        for topic, partitions in answer.topics
        for partition, error, _timestamp, offset in partitions
        if not error
    }
