"""The settings of a bridge that concern its Kafka target, and how the target reaches its relay. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.messages.batch import Batch
from bridge.relay.counts import Counts
from bridge.relay.dead_letters import DeadLetterSink

#: Records a producer may write to one partition: its sequence numbers end at 2^31 (docs/kafka-traps.md 4).
MOST_RECORDS: Final = 1_500_000_000
#: By the name of a topic, its configuration; None: it may not be read.
SourceConfigs = Callable[[Collection[str]], Awaitable[Mapping[str, Mapping[str, str] | None]]]


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
    #: Whether messages and state are stored in one transaction, or one after the other
    #: (`use-duplicate-detection`).
    transactions: bool = True
    #: Kafka sources: whether a message stays in the partition of its number.
    preserve_partitions: bool = True
    #: Whether missing topics are made, and with how many replicas (-1: as the cluster does).
    create_topics: bool = True
    topic_replication_factor: int = -1
    #: Reads the configuration of source topics, by their names, for the topics that are made for them; it has
    #: None for one where the right is missing. None: topics that are made get the cluster's defaults.
    source_configs: SourceConfigs | None = None
    #: Whether a target topic gets as many partitions as its source.
    add_partitions: bool = False
    #: Topic at the target for refused messages; empty: no dead letters are stored.
    dead_letter_address: str = ""
    #: Whether refused messages get their dead letters during their delivery. If not, the caller hears of
    #: them, one message at a time, and delivers the rest again.
    stores_letters: bool = False
    #: Positions of a batch whose messages the target has: left out (`bridge.kafka.replay.plan_source`).
    already_present: Callable[[Batch], Collection[int]] = lambda _batch: ()
    #: Records that a producer writes to one partition before it is replaced.
    most_records: int = MOST_RECORDS


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayHooks:
    """The ways in which a target reaches the relay of its lane; None: there is no such part."""

    #: Awaited before the lane is taken again after it was fenced: returns when the group has confirmed, after
    #: the call, that this process owns the lane; else raises TargetUnavailable.
    confirmed: Callable[[], Awaitable[None]] | None = None
    #: Called with the number of messages not stored because they were there already.
    on_duplicates: Callable[[int], None] | None = None
    #: Gets the number of records sent again, and the time that brokers made the target wait.
    counts: Counts | None = None
    #: The sink for `KafkaTargetOptions.stores_letters`; None: the target stores the letters itself.
    dead_letters: DeadLetterSink | None = None
