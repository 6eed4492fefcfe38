"""Reads the checksum of the last message below a position in the log, as the target keeps it.

A marker, an aborted record or a hole may lie between that message and the position, but compaction may also
have removed that very message and left a hole. So a message further below counts only where nothing is
compacted; where that is unknown the checksum is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from bridge.kafka.client import topic_admin
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.topic_admin import Config, Failed
from bridge.kafka.records.decoding import Record, checksum_of
from bridge.kafka.source.consumer import Reading

#: How far below a position its last message is searched for.
LOOK_BACK: Final = 64
#: The search ends after this long without another message found; what has not arrived by then is unknown.
LOOK_BACK_TIMEOUT_MS: Final = 5_000
_WAIT_MS: Final = 100
_POLICY: Final = "cleanup.policy"


async def last_checksums(
    connection: KafkaConnection,
    reading: Reading,
    wanted: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """CRC-32 of the last message below each position; a partition whose message is unknown is left out.

    Leaves `reading` assigned to these partitions: assign it anew.

    Args:
        connection: to ask for the topics' policies.
        reading: reads them.
        wanted: the position, by partition.
        starts: the first existing position, by partition.

    Raises: SourceUnavailable, SourceRefused.
    """
    from_ = {tp: max(starts[tp], position - LOOK_BACK) for tp, position in wanted.items()}
    await reading.assign({tp: at for tp, at in from_.items() if at < wanted[tp]})
    last = await _read_last(reading, wanted)
    apart = {tp.topic for tp, record in last.items() if record.offset != wanted[tp] - 1}
    unsure = await maybe_compacted(connection, apart) if apart else set()
    return {
        tp: checksum_of(record)
        for tp, record in last.items()
        if record.offset == wanted[tp] - 1 or tp.topic not in unsure
    }


async def _read_last(reading: Reading, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
    """The last record below each position, of the partitions that were read up to there."""
    last: dict[TopicPartition, Record] = {}
    reached: set[TopicPartition] = set()
    try:
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(LOOK_BACK_TIMEOUT_MS / 1000) as limit:
            while reached < reading.partitions:
                for tp, fetched in (await reading.fetch(_WAIT_MS)).items():
                    for record in fetched.records:
                        if record.offset < wanted[tp]:
                            last[tp] = record
                    if fetched.upto >= wanted[tp] and tp not in reached:
                        reached.add(tp)
                        limit.reschedule(clock() + LOOK_BACK_TIMEOUT_MS / 1000)
    except TimeoutError:
        pass  # partitions that were not reached are unknown
    return {tp: record for tp, record in last.items() if tp in reached}


async def maybe_compacted(connection: KafkaConnection, topics: Collection[str]) -> set[str]:
    """The topics that are compacted, and those that cannot be asked (no right to DescribeConfigs)."""
    try:
        found = await topic_admin.describe(connection, topics, (_POLICY,))
    except (KafkaError, OSError, TimeoutError):
        return set(topics)
    return {topic for topic in topics if not _is_kept(found.get(topic))}


def _is_kept(config: Config | None) -> bool:
    """Whether a topic is certainly not compacted."""
    if config is None or isinstance(config, Failed):
        return False
    policy, _source = config.get(_POLICY, ("compact", 0))
    return "compact" not in (policy or "compact")
