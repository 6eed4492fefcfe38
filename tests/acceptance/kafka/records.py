"""A user's client of Kafka: sends records and reads what is committed, by confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import confluent_kafka

from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, SILENT, Reachable

ID_HEADER: Final = "_AMQ_DUPL_ID"
HOPS_HEADER: Final = "core-bridge-hops"
#: Longest that relaying may take in these tests, in seconds.
PATIENCE_S: Final = 40.0
#: One call to the client, in seconds.
POLL_S: Final = 0.2
#: Room for the largest records of these tests.
LARGEST: Final = 64 * 1024 * 1024

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Record:
    """A record, as it is sent and as it is read."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = 0
    #: Milliseconds since the epoch; 0: now.
    timestamp: int = 0
    #: Where it was read.
    offset: int = -1

    @property
    def ids(self) -> list[bytes | None]:
        """Its duplicate IDs."""
        return [value for name, value in self.headers if name == ID_HEADER]

    @property
    def own_headers(self) -> Headers:
        """Without what bridges add to a message that has no ID."""
        return tuple((name, value) for name, value in self.headers if name not in (ID_HEADER, HOPS_HEADER))

    def header(self, name: str) -> bytes | None:
        """The last header of this name."""
        values = [value for found, value in self.headers if found == name]
        assert values, f"no header {name}: {self.headers}"
        return values[-1]


def with_id(value: bytes, duplicate_id: bytes, partition: int = 0) -> Record:
    """A record with a producer's ID."""
    return Record(value, headers=((ID_HEADER, duplicate_id),), partition=partition)


def plain(*values: bytes | str, partition: int = 0) -> list[Record]:
    """Records with a body only."""
    return [
        Record(value if isinstance(value, bytes) else value.encode(), partition=partition) for value in values
    ]


def send(
    cluster: Reachable, topic: str, records: Iterable[Record], *, transaction: str = "", abort: bool = False
) -> None:
    """Send records and wait until all are acknowledged; with `transaction` in one transaction of that id."""
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 1,
        "message.max.bytes": LARGEST,
    }
    if transaction:
        settings["transactional.id"] = transaction
    producer: Any = confluent_kafka.Producer(settings, logger=SILENT)
    failed: list[object] = []
    if transaction:
        producer.init_transactions(CALL_TIMEOUT_S)
        producer.begin_transaction()
    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp=record.timestamp,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(CALL_TIMEOUT_S) == 0
    assert not failed, failed[0]
    if transaction:
        (producer.abort_transaction if abort else producer.commit_transaction)(CALL_TIMEOUT_S)


def read(cluster: Reachable, topic: str, count: int = 0, within_s: float = PATIENCE_S) -> list[Record]:
    """All committed records, by partition and offset, once there are `count` and the end is reached.

    More than `count` fail: nothing may arrive twice.
    """
    consumer: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": LARGEST,
            "receive.message.max.bytes": 2 * LARGEST,
            "fetch.max.bytes": LARGEST,
            "topic.metadata.refresh.interval.ms": 500,
        },
        logger=SILENT,
    )
    deadline = time.monotonic() + within_s
    try:
        partitions = _partitions(consumer, topic, deadline)
        consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in partitions])
        found: list[Record] = []
        ended: set[int] = set()
        while len(found) < count or ended != partitions:
            if time.monotonic() > deadline:
                values = [(record.value or b"")[:40] for record in found]
                raise AssertionError(
                    f"{len(found)} of {count} records in {topic} in {within_s:g} s: {values}"
                )
            message = consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error() is None:
                ended.discard(message.partition())
                found.append(_record(message))
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    finally:
        consumer.close()
    found.sort(key=lambda record: (record.partition, record.offset))
    assert len(found) <= count or not count, f"{len(found)} records in {topic}, not {count}: {found}"
    return found


def values(records: Sequence[Record]) -> list[bytes | None]:
    """Their bodies."""
    return [record.value for record in records]


def partitions_of(cluster: Reachable, topic: str) -> int:
    """How many partitions a topic has."""
    admin = cluster.admin()
    return len(admin.list_topics(topic, CALL_TIMEOUT_S).topics[topic].partitions)


def delete_before(cluster: Reachable, topic: str, offset: int, partition: int = 0) -> None:
    """Take a partition's first records away, as retention does."""
    place = confluent_kafka.TopicPartition(topic, partition, offset)
    admin = cluster.admin()
    admin.delete_records([place])[place].result(CALL_TIMEOUT_S)


def _partitions(consumer: Any, topic: str, deadline: float) -> set[int]:
    while True:
        found = consumer.list_topics(topic, CALL_TIMEOUT_S).topics[topic]
        if found.error is None and found.partitions:
            return set(found.partitions)
        if time.monotonic() > deadline:
            raise AssertionError(f"there is no topic {topic}: {found.error}")
        time.sleep(POLL_S)


def _record(message: Any) -> Record:
    headers: Headers = tuple(message.headers() or ())
    return Record(
        message.value(),
        message.key(),
        headers,
        message.partition(),
        message.timestamp()[1],
        message.offset(),
    )
