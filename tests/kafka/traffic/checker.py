"""Did everything arrive, once, in order, as it was? An independent answer, by confluent-kafka.

`check` reads a topic from its beginning to its end under read_committed and holds every record against the
`Traffic` that it comes from. It shares no code with the bridge but `dedup.ids`, whose text it compares with.
Of a record that is expected it keeps eighteen bytes, so 200,000 messages take some 4 MB.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import confluent_kafka

from dedup.ids import Stamp
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, EARLIEST, Reachable
from tests.kafka.traffic.traffic import ID_HEADER, Fate, Headers, Record, Traffic

HOPS_HEADER: Final = "core-bridge-hops"
HOP_BYTES: Final = 8
#: Faults that a report tells one by one, of each kind; it counts all.
TOLD: Final = 10
#: A read that brings nothing for so long has met an open transaction, or a cluster that is down; seconds.
STALLED_S: Final = 30.0
#: Messages that one call to the client brings at most.
PAGE: Final = 5_000

#: The duplicate ID that the record at (source partition, number) must have been stamped with.
Stamps = Callable[[int, int], str]


class Kind(StrEnum):
    """What can be wrong."""

    LOST = "lost"
    DOUBLED = "doubled"
    OUT_OF_ORDER = "out of order"
    #: Body, key or headers are not as they were sent.
    ALTERED = "altered"
    #: Its transaction was aborted at the source.
    ABORTED = "aborted, and arrived"
    #: A producer's ID that was sent before.
    REPEATED = "repeated, and arrived"
    #: In another partition than at the source.
    MISPLACED = "misplaced"
    #: The stamped ID is missing, another, or one too many.
    STAMP = "stamp"
    HOPS = "hops"
    #: Never sent.
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, and where."""

    kind: Kind
    #: At the source: its partition, and the record's number in it; -1 where it comes from nowhere.
    partition: int
    number: int
    #: ``partition@offset`` at the target, of all that is meant; "" where it is not there.
    where: str = ""
    detail: str = ""

    def __str__(self) -> str:
        found = f"{self.kind}: record {self.number} of source partition {self.partition}"
        return (
            found + (f", at {self.where}" if self.where else "") + (f": {self.detail}" if self.detail else "")
        )


@dataclass
class Report:
    """What `check` has found."""

    #: Records that must arrive, and records that were read.
    expected: int = 0
    read: int = 0
    counts: Counter[Kind] = field(default_factory=Counter)
    #: The first few of each kind.
    faults: list[Fault] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all that must be is, and nothing else."""
        return not self.counts

    def add(self, fault: Fault) -> None:
        """Count a fault, and tell it if it is among the first."""
        self.counts[fault.kind] += 1
        if self.counts[fault.kind] <= TOLD:
            self.faults.append(fault)

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in self.counts.items()) or "no fault"
        return "\n".join([f"expected {self.expected}, read {self.read}: {counts}", *map(str, self.faults)])


@dataclass(frozen=True, slots=True)
class Arrived:
    """One record as a reader gets it."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp: int


class Checker:
    """Holds what arrives against what was sent; knows no cluster."""

    def __init__(
        self,
        traffic: Traffic,
        *,
        preserve_partitions: bool = True,
        stamps: Stamps | None = None,
        hops: int | None = None,
        fates: Mapping[tuple[int, int], Fate] = MappingProxyType({}),
    ) -> None:
        """Read the traffic once.

        Args:
            preserve_partitions: whether a record must be in its own partition. Else any will do, and the
                records of one source partition must be in order in each.
            stamps: IDs of records without a producer's; None: none may have one.
            hops: how many bridges every record must have come through; None: not asked.
            fates: by (source partition, number), in place of the traffic's.
        """
        self._traffic = traffic
        self._own_fates = fates
        self._preserve_partitions = preserve_partitions
        self._stamps = stamps
        self._hops = hops
        self._report = Report()
        self._digests = [array("Q") for _ in range(traffic.partitions)]
        self._fates = [bytearray() for _ in range(traffic.partitions)]
        self._has_id = [bytearray() for _ in range(traffic.partitions)]
        #: Offset at the target plus one; 0: not seen.
        self._seen = [array("Q") for _ in range(traffic.partitions)]
        #: Greatest number seen of (target partition, source partition).
        self._last: dict[tuple[int, int], int] = {}
        for record in traffic.records():
            self._expect(record)

    def take(self, arrived: Arrived) -> None:
        """One record, in the order of its partition."""
        self._report.read += 1
        partition, number = self._traffic.place(arrived.timestamp)
        where = f"{arrived.partition}@{arrived.offset}"
        if not 0 <= partition < self._traffic.partitions or not 0 <= number < len(self._digests[partition]):
            self._report.add(Fault(Kind.FOREIGN, -1, -1, where, f"timestamp {arrived.timestamp}"))
            return

        def wrong(kind: Kind, detail: str = "", at: str = where) -> None:
            self._report.add(Fault(kind, partition, number, at, detail))

        fate = Fate(self._fates[partition][number])
        if fate is not Fate.ARRIVES:
            wrong(Kind.ABORTED if fate is Fate.ABORTED else Kind.REPEATED)
            return
        first = self._seen[partition][number]
        if first:
            wrong(Kind.DOUBLED, at=f"{where}, first at offset {first - 1}")
        else:
            self._seen[partition][number] = arrived.offset + 1
            self._follow(arrived.partition, partition, number, wrong)
        if self._preserve_partitions and arrived.partition != partition:
            wrong(Kind.MISPLACED)
        self._compare(arrived, partition, number, wrong)

    def report(self) -> Report:
        """What was found; call it once, when everything has been taken."""
        for partition, seen in enumerate(self._seen):
            for number, offset in enumerate(seen):
                if not offset and self._fates[partition][number] == Fate.ARRIVES:
                    self._report.add(Fault(Kind.LOST, partition, number))
        return self._report

    def _expect(self, record: Record) -> None:
        partition = record.partition
        assert record.number == len(self._digests[partition])
        self._digests[partition].append(_digest(record.value, record.key, record.headers))
        fate = self._own_fates.get((partition, record.number), record.fate)
        self._fates[partition].append(fate)
        self._has_id[partition].append(record.producer_id is not None)
        self._seen[partition].append(0)
        self._report.expected += fate is Fate.ARRIVES

    def _follow(self, target: int, partition: int, number: int, wrong: Callable[..., None]) -> None:
        before = self._last.get((target, partition), -1)
        if number < before:
            wrong(Kind.OUT_OF_ORDER, f"behind record {before}")
        self._last[target, partition] = max(before, number)

    def _compare(self, arrived: Arrived, partition: int, number: int, wrong: Callable[..., None]) -> None:
        hops = [value for name, value in arrived.headers if name == HOPS_HEADER]
        headers = tuple(header for header in arrived.headers if header[0] != HOPS_HEADER)
        if self._hops is not None and [len(value or b"") for value in hops] != [HOP_BYTES * self._hops] * (
            self._hops > 0
        ):
            wrong(Kind.HOPS, f"found {hops}, not {self._hops}")
        if not self._has_id[partition][number]:
            stamped = [value for name, value in headers if name == ID_HEADER]
            headers = tuple(header for header in headers if header[0] != ID_HEADER)
            wanted = [] if self._stamps is None else [self._stamps(partition, number).encode()]
            if stamped != wanted:
                wrong(Kind.STAMP, f"found {stamped}, not {wanted}")
        if _digest(arrived.value, arrived.key, headers) != self._digests[partition][number]:
            wrong(Kind.ALTERED, f"now {_short(arrived.value)}, key {_short(arrived.key)}, headers {headers}")


def check(
    cluster: Reachable,
    topic: str,
    traffic: Traffic,
    *,
    preserve_partitions: bool = True,
    stamps: Stamps | None = None,
    hops: int | None = None,
) -> Report:
    """Read `topic` to its end and hold it against `traffic`; see `Checker` for the arguments.

    Raises:
        TimeoutError: the end could not be reached; says which partitions hold back what.
    """
    checker = Checker(traffic, preserve_partitions=preserve_partitions, stamps=stamps, hops=hops)
    for arrived in read(cluster, topic):
        checker.take(arrived)
    return checker.report()


def stamps_of(cluster: Reachable, topic: str, traffic: Traffic) -> Stamps:
    """The IDs that a bridge must stamp on records of this source topic: from their offsets, read here."""
    admin = cluster.admin()
    cluster_id = admin.list_topics(timeout=CALL_TIMEOUT_S).cluster_id
    described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(CALL_TIMEOUT_S)
    identity = f"kafka:{cluster_id}:{_uuid_text(described.topic_id)}"
    stamps = [Stamp(f"{identity}:{partition}") for partition in range(traffic.partitions)]
    offsets = [array("q") for _ in stamps]
    for arrived in read(cluster, topic):
        partition, number = traffic.place(arrived.timestamp)
        assert partition == arrived.partition, f"{topic} does not hold this traffic"
        # Numbers that are not there were aborted.
        offsets[partition].extend([-1] * (number - len(offsets[partition])) + [arrived.offset])
    return lambda partition, number: stamps[partition].text(offsets[partition][number])


def read(cluster: Reachable, topic: str) -> Iterator[Arrived]:
    """Every committed record, to the ends of the partitions as they are at the beginning, each in order.

    Raises:
        TimeoutError: nothing more came although the ends were not reached (an open transaction?).
    """
    # Uncommitted records included: what is open must not shorten the log unseen.
    ends = cluster.offsets(topic)
    starts = cluster.offsets(topic, spec=EARLIEST)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "checker, which commits nothing",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    with contextlib.closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(topic, *start) for start in starts.items()])
        yield from _until_ends(consumer, topic, ends)


def _until_ends(consumer: Any, topic: str, ends: dict[int, int]) -> Iterator[Arrived]:
    """What comes until every end is *reached*: past markers and aborted records, which do not show."""
    open_ends = {partition for partition, end in ends.items() if end > 0}
    reached = dict.fromkeys(ends, 0)
    progress_s = time.monotonic()
    while open_ends:
        for message in consumer.consume(PAGE, timeout=0.5):
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is None:
                if offset < ends[partition]:
                    yield _arrived(message)
                offset += 1
            elif error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                raise confluent_kafka.KafkaException(error)
            if offset > reached[partition]:
                reached[partition], progress_s = offset, time.monotonic()
            if offset >= ends[partition]:
                open_ends.discard(partition)
        if time.monotonic() - progress_s > STALLED_S:
            held = ", ".join(f"{number}@{reached[number]} of {ends[number]}" for number in open_ends)
            raise TimeoutError(f"{topic}: nothing more for {STALLED_S:g} s, reached {held}")


def _arrived(message: Any) -> Arrived:
    return Arrived(
        message.partition(),
        message.offset(),
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


def _digest(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    text = repr((value, key, headers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def _uuid_text(topic_id: Any) -> str:
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    digits = f"{(high % 2**64) << 64 | low % 2**64:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _short(value: bytes | None) -> str:
    return repr(value) if value is None or len(value) <= 40 else f"{value[:40]!r}... ({len(value)} bytes)"
