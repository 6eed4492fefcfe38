"""Records for Kafka tests, all from a seed: what a producer can send, and what must come of each of them.

A record says by its timestamp which one it is (`Traffic.place`), whatever its content: so a reader of the
other end tells lost from altered from doubled without having kept a single body. `produce` sends them with
confluent-kafka, in transactions where the traffic has some.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import confluent_kafka

from tests.kafka.cluster.reachable import SILENT, Reachable

ID_HEADER: Final = "_AMQ_DUPL_ID"
Headers = tuple[tuple[str, bytes | None], ...]

#: All timestamps are this far back: brokers refuse those of the future, and delete those that are too old.
BACK_MS: Final = 3_600_000
#: Timestamps go back and forth within this many records, as they do where many producers write.
_SHUFFLE: Final = 5
#: How far behind its first copy a repeated record comes at most, counted in its partition's producer's IDs.
REPEAT_WITHIN: Final = 100
_NAMES: Final = ("trace", "type", "tenant", "Größe", "traceparent")
_KEYS: Final = (*(b"key-%d" % number for number in range(50)), b"\0\xff\xfe", b"k" * 300)
#: Longest wait for acknowledgements, with brokers that are killed meanwhile, in seconds.
FLUSH_TIMEOUT_S: Final = 120.0
#: Tries of a transaction whose brokers come and go.
TRANSACTION_ATTEMPTS: Final = 10


class Fate(IntEnum):
    """What must become of a record at the other end."""

    ARRIVES = 0
    #: Its transaction is aborted: nobody may ever see it.
    ABORTED = 1
    #: It has the producer's ID of an earlier one: rejected as a duplicate.
    REPEATED = 2


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic."""

    partition: int
    #: Its number in its partition, from 0, in the order of sending.
    number: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    #: Milliseconds since the epoch; unique in the traffic.
    timestamp: int
    fate: Fate = Fate.ARRIVES
    #: Number of its transaction; -1: none.
    transaction: int = -1

    @property
    def producer_id(self) -> bytes | None:
        """Its duplicate ID: the last header of that name."""
        ids = [value for name, value in self.headers if name == ID_HEADER]
        return ids[-1] if ids else None


@dataclass(frozen=True)
class Traffic:
    """Records, the same ones at every reading."""

    seed: int
    count: int
    partitions: int = 4
    #: Part of the records that have a producer's ID.
    ids: float = 0.5
    #: Part of those that repeat the ID of an earlier record of their partition.
    repeats: float = 0.0
    #: Records of a transaction, aborted ones included; 0: no transactions.
    transaction: int = 0
    #: Part of the transactions that are aborted.
    aborted: float = 0.1
    #: Bytes of a body, on average.
    body_bytes: int = 100
    #: Every so many records one body has `large_bytes`; 0: none.
    large_every: int = 0
    large_bytes: int = 200_000
    #: Milliseconds since the epoch.
    started_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    def records(self) -> Iterator[Record]:
        """All of them, in the order of sending."""
        chance = random.Random(self.seed)
        numbers = [0] * self.partitions
        sent_ids: list[list[bytes]] = [[] for _ in range(self.partitions)]
        fate, transaction = Fate.ARRIVES, -1
        for index in range(self.count):
            if self.transaction and index % self.transaction == 0:
                transaction += 1
                fate = Fate.ABORTED if chance.random() < self.aborted else Fate.ARRIVES
            partition = int(chance.random() * self.partitions)
            number = numbers[partition]
            numbers[partition] += 1
            large = self.large_every > 0 and index % self.large_every == self.large_every - 1
            value, key = _body(chance, self.large_bytes if large else 0, self.body_bytes)
            headers, own_fate = _headers(chance), fate
            if chance.random() < self.ids:
                known = sent_ids[partition]
                producer_id = b"%d/%d/%d" % (self.seed, partition, number)
                if fate is Fate.ARRIVES and known and chance.random() < self.repeats:
                    producer_id, own_fate = chance.choice(known[-REPEAT_WITHIN:]), Fate.REPEATED
                elif fate is Fate.ARRIVES and self.repeats:
                    known.append(producer_id)
                headers = _with_id(chance, headers, producer_id)
            stamp = self.timestamp(partition, number)
            yield Record(partition, number, value, key, headers, stamp, own_fate, transaction)

    def timestamp(self, partition: int, number: int) -> int:
        """The timestamp that says: record `number` of `partition`."""
        return self.started_ms - BACK_MS + (number ^ _SHUFFLE) * self.partitions + partition

    def place(self, timestamp: int) -> tuple[int, int]:
        """Partition and number of the record with this timestamp, sent or not."""
        number, partition = divmod(timestamp - self.started_ms + BACK_MS, self.partitions)
        return partition, number ^ _SHUFFLE


def produce(
    cluster: Reachable,
    topic: str,
    records: Iterable[Record],
    *,
    messages_per_s: float = 0,
    config: dict[str, Any] | None = None,
) -> None:
    """Send records in their order, each transaction to its fate, and return when all are acknowledged.

    Brokers may be killed and paused meanwhile: what fails is sent again by the client, without doubling (it
    is idempotent), and a transaction that cannot be committed is aborted and sent once more.

    Args:
        records: in the order of `Traffic.records`; whole transactions.
        messages_per_s: how fast; 0: as fast as it goes.

    Raises:
        KafkaException: something could not be delivered.
    """
    pace = _Pace(messages_per_s)
    sender: _Sender | None = None
    for (transaction, aborted), group in itertools.groupby(
        records, lambda record: (record.transaction, record.fate is Fate.ABORTED)
    ):
        if sender is None:
            sender = _Sender(cluster, topic, transactional=transaction >= 0, config=config or {})
        if transaction < 0:
            sender.send(group, pace)
        else:
            sender.send_transaction(list(group), pace, abort=aborted)
    if sender is not None:
        sender.flush()


class _Pace:
    """Lets so many messages through a second."""

    def __init__(self, messages_per_s: float) -> None:
        self._rate = messages_per_s
        self._started_s = time.monotonic()
        self._sent = 0

    def wait(self) -> None:
        self._sent += 1
        if self._rate:
            ahead_s = self._sent / self._rate - (time.monotonic() - self._started_s)
            if ahead_s > 0.001:
                time.sleep(ahead_s)


class _Sender:
    """One producer of one topic, transactional or not."""

    def __init__(
        self, cluster: Reachable, topic: str, *, transactional: bool, config: dict[str, Any]
    ) -> None:
        own: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 10,
            "batch.num.messages": 5_000,
            "queue.buffering.max.messages": 50_000,
            "message.timeout.ms": int(FLUSH_TIMEOUT_S * 1000),
            "reconnect.backoff.max.ms": 500,
        }
        if transactional:
            own |= {
                "transactional.id": f"traffic-{topic}",
                "transaction.timeout.ms": own["message.timeout.ms"],
            }
        self._topic = topic
        self._errors: list[Any] = []
        self._producer: Any = confluent_kafka.Producer({**own, **config}, logger=SILENT)
        if transactional:
            self._producer.init_transactions(FLUSH_TIMEOUT_S)

    def send(self, records: Iterable[Record], pace: _Pace) -> None:
        """Hand records to the client."""
        producer = self._producer
        for record in records:
            pace.wait()
            while True:
                try:
                    producer.produce(
                        self._topic, record.value, record.key, record.partition, self._delivered,
                        timestamp=record.timestamp, headers=list(record.headers),
                    )  # fmt: skip
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        self._check()

    def send_transaction(self, records: list[Record], pace: _Pace, *, abort: bool) -> None:
        """Send them together and commit or abort them; abort and send them once more where that fails."""
        for attempt in range(1, TRANSACTION_ATTEMPTS + 1):
            self._producer.begin_transaction()
            try:
                self.send(records, pace)
                # Flushed before an abort, so that the aborted records really are in the log.
                self.flush()
                self._retried(
                    self._producer.abort_transaction if abort else self._producer.commit_transaction
                )
            except confluent_kafka.KafkaException:
                if attempt == TRANSACTION_ATTEMPTS:
                    raise
                # A commit that may have worked is retried above and never comes here: what comes here did
                # not, and what is fatal raises again.
                self._errors.clear()
                self._retried(self._producer.abort_transaction)
            else:
                return

    def flush(self) -> None:
        """Wait for every acknowledgement."""
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert left == 0, f"{left} records of {self._topic} were not acknowledged in {FLUSH_TIMEOUT_S:g} s"
        self._check()

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._errors.append(error)

    def _check(self) -> None:
        if self._errors:
            raise confluent_kafka.KafkaException(self._errors[0])

    @staticmethod
    def _retried(end: Any) -> None:
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        while True:
            try:
                end(FLUSH_TIMEOUT_S)
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return


def _body(chance: random.Random, large: int, average: int) -> tuple[bytes | None, bytes | None]:
    """Value and key: ordinary ones, empty ones, tombstones, and now and then neither."""
    kind = chance.random()
    if large:
        return chance.randbytes(large), b"large"
    if kind < 0.02:
        return None, None
    key = chance.choice(_KEYS) if kind < 0.6 else b"" if kind < 0.65 else None
    if kind < 0.08:
        return None, key
    return (b"" if kind < 0.1 else chance.randbytes(1 + int(chance.random() * 2 * average))), key


def _headers(chance: random.Random) -> Headers:
    """None for half of the records, else up to four, also of the same name, null and empty."""
    kind = chance.random()
    if kind < 0.5:
        return ()
    names = chance.choices(_NAMES, k=1 + int(kind * 8) - 4)
    values = (None, b"", b"\0\xff", b"eu-west")
    return tuple((name, chance.choice(values)) for name in names)


def _with_id(chance: random.Random, headers: Headers, producer_id: bytes) -> Headers:
    """The headers with the ID somewhere among them; sometimes it is there twice."""
    place = int(chance.random() * (len(headers) + 1))
    own: Headers = ((ID_HEADER, producer_id),)
    if chance.random() < 0.05:
        own = own * 2
    return (*headers[:place], *own, *headers[place:])
