"""The settings of a bridge that concern its Kafka target. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from bridge.messages.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTargetOptions:
    """The settings of a Kafka target. Sizes in bytes."""

    #: The bridge's name.
    bridge: str
    #: Name and UUID of this node: for delivery-log lines.
    node: str = ""
    node_id: str = ""
    #: The connector's name: the cluster's name in delivery-log lines.
    target_name: str = ""
    #: Whether messages without an ID get that of the position where they were first stored.
    stamp: bool = True
    #: Whether producers' IDs are checked against the target address's cache.
    check_producer_ids: bool = True
    #: Kafka sources: whether a message stays in the partition of its number.
    preserve_partitions: bool = True
    #: Whether missing topics are made, and with how many replicas (-1: as the cluster does).
    create_topics: bool = True
    topic_replication_factor: int = -1
    #: Whether a target topic gets as many partitions as its source.
    add_partitions: bool = False
    #: Topic at the target for refused messages; empty: no dead letters are stored.
    dead_letter_address: str = ""
    #: Whether refused messages get their dead letters during their delivery. If not, the caller is told of
    #: them, one message at a time, and delivers the rest again.
    stores_letters: bool = False
    #: Positions of a batch whose messages the target has: left out (`bridge.kafka.replay.plan_source`).
    held: Callable[[Batch], Collection[int]] = lambda _batch: ()
