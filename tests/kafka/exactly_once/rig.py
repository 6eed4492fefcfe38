"""What every scenario here does: send traffic while something breaks, wait for all of it, and check it all.

    way = make_way(partitions=4)
    node = make_node("node-1", way.settings(concurrency=4))
    node.spawn()
    with way.feed.flowing(messages_per_s=250):
        way.await_more(200)
        node.kill()
    way.finish(node.start())

A moment is chosen by what has *arrived* (`await_more`), so that something was going on when it came.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final

import confluent_kafka

from tests.harness.eventually import eventually
from tests.harness.node import Node
from tests.kafka.bridges import bridge_table, connector_tables
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, SILENT, Reachable
from tests.kafka.exactly_once.at_source import Changes, changes_at, offsets_at, reader, stamps_at
from tests.kafka.traffic.checker import Arrived, Checker, Report, Stamps, read
from tests.kafka.traffic.traffic import Fate, Record, Traffic, produce

#: Lanes of a killed worker are free after this; brokers here allow it (`conftest`).
GROUP: Final[Mapping[str, int]] = {"session-timeout-ms": 1_500, "heartbeat-interval-ms": 300}
#: When nothing more has arrived for so long, nothing will, in seconds.
STALLED_S: Final = 60.0
#: Most records of one traffic, whatever it is planned for.
MOST_MESSAGES: Final = 100_000_000
#: Milliseconds between two traffics into one topic: their records are told apart by their timestamps.
APART_MS: Final = 600_000


@dataclass(frozen=True)
class Form:
    """How much of everything a scenario does."""

    name: str
    #: Records of a scenario's traffic, aborted ones included.
    messages: int
    #: How often something breaks.
    rounds: int
    #: Records of a transaction at the source.
    transaction: int
    #: How fast records come while something breaks.
    messages_per_s: float

    def traffic(self, seed: int, partitions: int, *, messages: int = 0, **options: Any) -> Traffic:
        """All kinds of records: with and without IDs, repeated IDs, tombstones, aborted transactions."""
        options = {"transaction": self.transaction, "repeats": 0.05, **options}
        return Traffic(seed, messages or self.messages, partitions, **options)

    def part(self, rounds: int) -> int:
        """How many records make one of `rounds` equal parts; whole transactions."""
        return max(1, self.messages // rounds // self.transaction) * self.transaction


#: `make test`.
SHORT: Final = Form("short", messages=3_000, rounds=2, transaction=50, messages_per_s=300)
#: `make test-kafka-long`.
LONG: Final = Form("long", messages=200_000, rounds=40, transaction=500, messages_per_s=1_200)


class Feed:
    """Sends a traffic into a topic, part by part; more than was planned where something takes longer."""

    def __init__(self, cluster: Reachable, topic: str, traffic: Traffic) -> None:
        self.cluster = cluster
        self.topic = topic
        self._traffic = traffic
        #: How many records were handed out so far, and how many of them must arrive.
        self.taken = self.expected = 0
        self._records = replace(traffic, count=MOST_MESSAGES).records()

    @property
    def sent(self) -> Traffic:
        """What was handed out so far."""
        return replace(self._traffic, count=self.taken)

    def take(self, count: int) -> list[Record]:
        """The next records, for whoever sends them."""
        records = list(itertools.islice(self._records, count))
        self.taken += count
        self.expected += sum(record.fate is Fate.ARRIVES for record in records)
        return records

    def send(self, count: int | None = None, **config: Any) -> None:
        """Send the next records (all that is planned), and return when they are acknowledged."""
        left = max(0, self._traffic.count - self.taken)
        self.send_these(self.take(left if count is None else count), **config)

    def send_these(self, records: Iterable[Record], **config: Any) -> None:
        """The same with records from `take`."""
        produce(self.cluster, self.topic, records, config=_dotted(config))

    @contextlib.contextmanager
    def flowing(self, messages_per_s: float) -> Iterator[None]:
        """Send records meanwhile, as many as there is time for; at the end they are acknowledged."""
        ending = threading.Event()
        with ThreadPoolExecutor(1) as other:
            sent = other.submit(
                produce, self.cluster, self.topic, self._until(ending), messages_per_s=messages_per_s
            )
            try:
                yield
            finally:
                ending.set()
            sent.result()

    def _until(self, ending: threading.Event) -> Iterator[Record]:
        """The next records, whole transactions."""
        while not ending.is_set():
            yield from self.take(self._traffic.transaction or 1)


class OpenTransaction:
    """Somebody's transaction with some records, which stays open until `end`."""

    def __init__(self, cluster: Reachable, topic: str, records: Sequence[Record], name: str) -> None:
        self._abort = records[0].fate is Fate.ABORTED
        own = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name}
        self._producer: Any = confluent_kafka.Producer(own, logger=SILENT)
        self._producer.init_transactions(CALL_TIMEOUT_S)
        self._producer.begin_transaction()
        for one in records:
            self._producer.produce(
                topic, one.value, one.key, one.partition, timestamp=one.timestamp, headers=list(one.headers)
            )
        assert self._producer.flush(CALL_TIMEOUT_S) == 0

    def end(self) -> None:
        """To its fate."""
        end = self._producer.abort_transaction if self._abort else self._producer.commit_transaction
        end(CALL_TIMEOUT_S)


class Arrivals:
    """Counts committed records of a topic as they arrive; content and order are `check_all`'s."""

    def __init__(self, cluster: Reachable, topic: str, partitions: int) -> None:
        self.count = 0
        self._cluster, self._topic, self._partitions = cluster, topic, partitions
        self._consumer = reader(cluster, {})
        self._consumer.assign(
            [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
        )

    def look(self, wait_s: float = 0.1) -> int:
        """How many there are, after a look at what is new."""
        self._messages(wait_s)
        return self.count

    def await_new(self, count: int, stalled_s: float = STALLED_S) -> None:
        """Return when so many have arrived beyond what the topic holds now. Raises: TimeoutError."""
        held = self._cluster.offsets(self._topic, range(self._partitions))
        left, progress_s = count, time.monotonic()
        while left > 0:
            new = sum(one.offset() >= held[one.partition()] for one in self._messages(0.1))
            left -= new
            if new:
                progress_s = time.monotonic()
            if time.monotonic() - progress_s > stalled_s:
                raise TimeoutError(f"{count - left} of {count} new ones, and no more for {stalled_s:g} s")

    def _messages(self, wait_s: float) -> list[Any]:
        found = [one for one in self._consumer.consume(5_000, timeout=wait_s) if one.error() is None]
        self.count += len(found)
        return found

    def await_count(self, count: int, stalled_s: float = STALLED_S) -> None:
        """Return when there are so many. Raises: TimeoutError: nothing came for `stalled_s`."""
        progress_s = time.monotonic()
        while self.count < count:
            before = self.count
            if self.look() > before:
                progress_s = time.monotonic()
            if time.monotonic() - progress_s > stalled_s:
                raise TimeoutError(f"{self.count} of {count} arrived, and no more for {stalled_s:g} s")

    def close(self) -> None:
        """Let go."""
        self._consumer.close()


@dataclass
class Way:
    """A topic at the source, a bridge, and the topic where it leads to; both topics are made here."""

    source: Reachable
    target: Reachable
    #: Of the topics and of the bridge.
    name: str
    traffic: Traffic
    hops: int = 1
    preserve_partitions: bool = True
    target_topic: str = ""
    source_config: Mapping[str, str] = field(default_factory=dict)
    target_config: Mapping[str, str] = field(default_factory=dict)
    #: How patient the bridge's group is.
    group: Mapping[str, int] = field(default_factory=lambda: GROUP)
    replication_factor: int = -1
    #: Node ids of each source partition's replicas, preferred leader first.
    replicas: Sequence[Sequence[int]] | None = None

    def __post_init__(self) -> None:
        self.topic = self.bridge = self.name
        self.target_topic = self.target_topic or self.name
        partitions, factor = self.traffic.partitions, self.replication_factor
        self.source.create_topic(
            self.topic,
            partitions,
            replication_factor=factor,
            replicas=self.replicas,
            config=self.source_config,
        )
        self.target.create_topic(
            self.target_topic, partitions, replication_factor=factor, config=self.target_config
        )
        self.feed = Feed(self.source, self.topic, self.traffic)
        self.arrivals = Arrivals(self.target, self.target_topic, partitions)
        #: Traffics of topics that were deleted since, with the IDs they must have been stamped with.
        self.past: list[tuple[Feed, Stamps, Changes]] = []
        #: What the source's brokers have changed last, for the summary of the run; "": nothing.
        self.note = ""

    @property
    def expected(self) -> int:
        """How many records must have arrived in the end, of all that was sent so far."""
        return self.feed.expected + sum(feed.expected + changes.more for feed, _, changes in self.past)

    def settings(self, rest: str = "", **options: Any) -> str:
        """TOML of the bridge and its connectors; `rest` goes behind."""
        own = {"name": self.bridge, "source_connector": "a", "static_connectors": ["b"]}
        if self.target_topic != self.topic:
            own["forwarding_address"] = self.target_topic
        table = bridge_table(**{**own, "queue_name": self.topic, **options})
        return "\n".join([self.connectors(), table, rest])

    def connectors(self) -> str:
        """TOML of both clusters."""
        return connector_tables({"a": self.source, "b": self.target}, {"a": self.group, "b": self.group})

    def await_more(self, count: int, stalled_s: float = STALLED_S) -> None:
        """Return when so many more have arrived than there are now."""
        self.arrivals.await_new(count, stalled_s)

    def await_all(self, stalled_s: float = STALLED_S) -> None:
        """Return when as many have arrived as must. Fails with what is missing."""
        try:
            self.arrivals.await_count(self.expected + self._changes().more, stalled_s)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.report()}") from error

    def report(self) -> Report:
        """All that is at the target against all that was sent."""
        return check_all(
            read(self.target, self.target_topic),
            [(feed.sent, stamps, changes) for feed, stamps, changes in [*self.past, self._present()]],
            preserve_partitions=self.preserve_partitions,
            hops=self.hops,
        )

    def finish(self, *nodes: Node) -> None:
        """Send what is left, wait for all of it, end these nodes in order, and check everything."""
        self.feed.send()
        self.await_all()
        for node in nodes:
            assert node.stop() == 0
        self.check()

    def check(self) -> None:
        """Everything has arrived, once, in order, as it was, with the right IDs."""
        report = self.report()
        assert report.ok, f"{report}\n{self._at_source()}"

    def _at_source(self) -> str:
        """The records of the source by Kafka's own consumer: it shows whether the traffic's producer did what
        it was told.
        """
        sent = self.feed.sent
        committed = offsets_at(self.source, self.topic, sent).keys()
        aborted = {(one.partition, one.number) for one in sent.records() if one.fate is Fate.ABORTED}
        found = f"committed at the source: {len(committed)}, {len(committed & aborted)} of which were aborted"
        return f"{found}\n{self.note}"

    def renew(self, traffic: Traffic) -> None:
        """Delete the source topic, make it again under its name, and have another traffic for it."""
        self.past.append(self._present())
        self.source.delete_topic(self.topic)
        self.source.create_topic(self.topic, traffic.partitions)
        self.traffic = traffic
        self.feed = Feed(self.source, self.topic, traffic)

    def _present(self) -> tuple[Feed, Stamps, Changes]:
        """The traffic of the topic that is there now."""
        changes = self._changes()
        return self.feed, stamps_at(self.source, self.topic, self.feed.sent), changes

    def _changes(self) -> Changes:
        """What the source's brokers have made of it."""
        changes = changes_at(self.source, self.topic, self.feed.sent)
        if changes.fates:
            self.note = f"{self.topic}: {changes}"
        return changes


def check_all(
    arrived: Iterable[Arrived], sent: Sequence[tuple[Traffic, Stamps | None, Changes]], **options: Any
) -> Report:
    """As `tests.kafka.traffic.checker.check`, of several traffics that went into one topic.

    Their timestamps are `APART_MS` apart. What belongs to none is the first one's fault.
    """
    checkers = [
        (traffic, Checker(traffic, stamps=stamps, fates=changes.fates, **options))
        for traffic, stamps, changes in sent
    ]
    for one in arrived:
        theirs = [checker for traffic, checker in checkers if is_of(traffic, one)]
        (theirs[0] if theirs else checkers[0][1]).take(one)
    total = Report()
    for _, checker in checkers:
        report = checker.report()
        total.expected += report.expected
        total.read += report.read
        total.counts.update(report.counts)
        total.faults += report.faults
    return total


def is_of(traffic: Traffic, arrived: Arrived) -> bool:
    """Whether a record belongs to this traffic."""
    partition, number = traffic.place(arrived.timestamp)
    return 0 <= number <= traffic.count and 0 <= partition < traffic.partitions


def _dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in config.items()}


def started(node: Node) -> Node:
    """The node, once it is ready."""
    node.start()
    return node


def failed(node: Node, bridge: str) -> str:
    """Why the bridge is FAILED, once it is; the node may still be starting."""
    try:
        eventually(
            lambda: node.ops.get("/ready").json["bridges"].get(bridge) == "FAILED",
            f"{bridge} fails",
            STALLED_S,
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{node.status(bridge)}") from error
    return str(node.status(bridge)["reason"])
