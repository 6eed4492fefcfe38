"""What a source topic holds as committed, by Kafka's own consumer, and what must become of it.

After a kill of its only broker Kafka 4.3 may skip the markers of a transaction (KAFKA-20734, trap 18 of
docs/kafka-traps.md). The producer's next transaction then commits records that were aborted, or aborts
committed ones. The producer cannot see this, and the bridge relays what is committed: so where a broker has
logged that it skipped markers of a topic, its records' fates are what the topic holds.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import confluent_kafka

from dedup.ids import Stamp
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, SILENT, Reachable
from tests.kafka.traffic.checker import Stamps
from tests.kafka.traffic.traffic import Fate, Traffic

#: A broker logs this, and the partitions, when it takes a transaction for complete without its markers.
SKIPPED: Final = "Couldn't find leader endpoint for partitions"
#: Longest wait for the markers of the last transactions, in seconds; a skipped one never comes.
SETTLED_S: Final = 10.0
#: Pause between two looks, in seconds.
LOOK_AGAIN_S: Final = 0.1

#: A record of a traffic: its partition, and its number there.
Place = tuple[int, int]


@dataclass(frozen=True)
class Changes:
    """The records whose fate at the source is not the one that they were sent to."""

    fates: Mapping[Place, Fate] = field(default_factory=dict)
    #: Aborted, and committed at the source.
    revealed: tuple[Place, ...] = ()
    #: Committed, and not there.
    lost: tuple[Place, ...] = ()
    #: How many more must arrive than were sent to; below 0: fewer.
    more: int = 0

    def __str__(self) -> str:
        return (
            f"KAFKA-20734: {len(self.revealed)} aborted records are committed at the source"
            f" ({_ranges(self.revealed)}), {len(self.lost)} committed ones are not ({_ranges(self.lost)})"
        )


def changes_at(cluster: Reachable, topic: str, traffic: Traffic) -> Changes:
    """What the brokers have made of the traffic; nothing, unless they say that they skipped markers there."""
    if not traffic.transaction or not has_skipped(cluster, topic):
        return Changes()
    _settle(cluster, topic)
    return changes_of(traffic, offsets_at(cluster, topic, traffic).keys())


def has_skipped(cluster: Reachable, topic: str) -> bool:
    """Whether a broker of this cluster has logged that it skipped markers of this topic."""
    # ``Couldn't find leader endpoint for partitions Set(orders-0, orders-2) while trying to send ...``
    named = re.compile(rf"{re.escape(SKIPPED)} .*[( ]{re.escape(topic)}-\d+[,)]")
    for broker in cluster.brokers if isinstance(cluster, Cluster) else ():
        with broker.log.open(encoding="utf-8", errors="replace") as lines:
            if any(named.search(line) for line in lines if SKIPPED in line):
                return True
    return False


def changes_of(traffic: Traffic, committed: Collection[Place]) -> Changes:
    """The same of a traffic with these records committed; of a producer's ID the first one arrives."""
    fates: dict[Place, Fate] = {}
    revealed, lost = [], []
    more = 0
    known: set[tuple[int, bytes]] = set()
    for record in traffic.records():
        place, own_id = (record.partition, record.number), record.producer_id
        if place not in committed:
            fate = Fate.ABORTED
        elif own_id is not None and (record.partition, own_id) in known:
            fate = Fate.REPEATED
        else:
            fate = Fate.ARRIVES
            if own_id is not None:
                known.add((record.partition, own_id))
        if fate is record.fate:
            continue
        fates[place] = fate
        more += (fate is Fate.ARRIVES) - (record.fate is Fate.ARRIVES)
        if record.fate is Fate.ABORTED:
            revealed.append(place)
        elif fate is Fate.ABORTED:
            lost.append(place)
    return Changes(fates, tuple(revealed), tuple(lost), more)


def stamps_at(cluster: Reachable, topic: str, traffic: Traffic) -> Stamps:
    """The IDs to be stamped on records of a source topic, from their offsets; strangers there are skipped."""
    admin = cluster.admin()
    cluster_id = admin.list_topics(timeout=CALL_TIMEOUT_S).cluster_id
    described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(CALL_TIMEOUT_S)
    digits = f"{described.topic_id.get_most_significant_bits() % 2**64:016x}"
    digits += f"{described.topic_id.get_least_significant_bits() % 2**64:016x}"
    topic_id = "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]])
    stamps = [Stamp(f"kafka:{cluster_id}:{topic_id}:{number}") for number in range(traffic.partitions)]
    offsets = offsets_at(cluster, topic, traffic)
    return lambda partition, number: stamps[partition].text(offsets[partition, number])


def offsets_at(cluster: Reachable, topic: str, traffic: Traffic) -> dict[Place, int]:
    """The committed records' offsets. Headers, which may be poison, are not read."""
    consumer = reader(cluster, {"enable.partition.eof": True})
    left = set(range(traffic.partitions))
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in left])
    offsets: dict[Place, int] = {}
    with contextlib.closing(consumer):
        while left:
            for one in consumer.consume(5_000, timeout=0.2):
                if one.error() is None:
                    offsets[traffic.place(one.timestamp()[1])] = one.offset()
                else:
                    assert one.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, one.error()
                    left.discard(one.partition())
    return offsets


def reader(cluster: Reachable, config: Mapping[str, Any]) -> Any:
    """A consumer of what is committed, which commits nothing."""
    own = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "rig, which commits nothing",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "reconnect.backoff.max.ms": 500,
    }
    return confluent_kafka.Consumer({**own, **config}, logger=SILENT)


def _settle(cluster: Reachable, topic: str) -> None:
    """Return when no transaction is open in the topic, or when one hangs, which commits nothing."""
    deadline = time.monotonic() + SETTLED_S
    while cluster.offsets(topic, committed=True) != cluster.offsets(topic):
        if time.monotonic() > deadline:
            return
        time.sleep(LOOK_AGAIN_S)


def _ranges(places: Iterable[Place]) -> str:
    """``partition 0: 17-35, 40-41; partition 1: 20``."""
    found = []
    for partition, group in itertools.groupby(sorted(places), lambda place: place[0]):
        ranges: list[list[int]] = []
        for _, number in group:
            if ranges and number == ranges[-1][1] + 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        texts = (f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)
        found.append(f"partition {partition}: {', '.join(texts)}")
    return "; ".join(found) or "none"
