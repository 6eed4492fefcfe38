"""A bridge's settings, as far as its Kafka target is concerned. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bridge.messages.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTargetOptions:
    """Sizes in bytes."""

    #: The bridge's name.
    bridge: str
    #: Name and UUID of this node: for delivery-log lines.
    node: str = ""
    node_id: str = ""
    #: The connector's name: what lines call the cluster.
    target_name: str = ""
    #: Whether messages without an ID get that of the place where they were first stored.
    stamp: bool = True
    #: Whether producers' IDs are held against the target address's cache.
    check_producer_ids: bool = True
    #: Kafka sources: a message stays in the partition of its number.
    preserve_partitions: bool = True
    #: Whether missing topics are made, and with how many replicas (-1: as the cluster does).
    create_topics: bool = True
    topic_replication_factor: int = -1
    #: Whether a target topic gets as many partitions as its source.
    add_partitions: bool = False
    #: Topic at the target for what it refuses; empty: nothing is buried.
    dead_letter_address: str = ""
    #: Whether what is refused gets its dead letter in the course of its delivery. If not, whoever delivers is
    #: told, a message at a time, and delivers the rest again.
    buries: bool = False
    #: Positions of a batch whose messages the target has: left out (`bridge.kafka.replay.plan_source`).
    held: Callable[[Batch], Collection[int]] = lambda _batch: ()
