"""The names of things on Kafka: streams, lanes, topics and ids of the bridge. Pure.

A stream is one partition of one topic of one cluster, and distinct from every other that ever existed:
``kafka:<cluster id>:<topic id>:<partition>``. A re-created topic has another id, and so is another stream.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

from bridge.messages.stream_names import planned_stream

#: The name of the hash in `lane_of`, as the journal topic records it.
LANE_HASH: Final = "crc32+partition"


def stream_identity(cluster: str, topic_id: str, partition: int) -> str:
    """The identity of a partition as a stream. `topic_id` is the UUID's text."""
    return f"kafka:{cluster}:{topic_id}:{partition}"


def partition_of(identity: str) -> int | None:
    """The source partition in a stream's identity; None where the stream is no Kafka partition."""
    if not identity.startswith("kafka:"):
        return None
    return int((planned_stream(identity) or identity).rpartition(":")[2])


def store_identity(cluster: str) -> str:
    """The store identity of a Kafka cluster as a target (design section 1)."""
    return f"kafka:{cluster}"


def lane_of(topic: str, partition: int, lanes: int) -> int:
    """The lane that relays a partition: CRC-32 of the topic's name plus the partition, modulo the lanes.

    So the partitions of a topic are spread as evenly as possible (docs/decisions/0015-lanes-by-partition.md).
    """
    return (zlib.crc32(topic.encode()) + partition) % lanes


@dataclass(frozen=True, slots=True)
class LaneIndex:
    """One lane among those of its bridge: a fixed set of the partitions that the bridge selects."""

    #: From 0.
    number: int
    #: How many lanes the bridge has (`concurrency`).
    count: int

    def has(self, topic: str, partition: int) -> bool:
        """Whether the lane relays a partition."""
        return lane_of(topic, partition, self.count) == self.number


def progress_group(group: str, node_id: str = "") -> str:
    """The group under which source positions are committed: `group` is the bridge's `group-id`.

    `node_id` is the node UUID where each node has a copy of its own (Kafka to journal).
    """
    return f"{group}.{node_id}.progress" if node_id else f"{group}.progress"


def transactional_id(topic: str, generation: int, lane: int | str) -> str:
    """``<journal topic>.<generation>.<lane>``; the lane of a journal source is its node's UUID."""
    return f"{topic}.{generation}.{lane}"
