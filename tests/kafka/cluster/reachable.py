"""A Kafka cluster as tests reach it, whoever started it: topics and their partitions, by confluent-kafka.

confluent-kafka (librdkafka) shares no code with the client that the bridge uses, so what it says counts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin

#: Any one call to a cluster that is up, in seconds.
CALL_TIMEOUT_S: Final = 30.0
#: Half of what this module offers has no types.
_ADMIN: Final[Any] = confluent_kafka.admin
#: One question for offsets: a client that heard of a dead leader waits for that one until it gives up.
OFFSETS_TIMEOUT_S: Final = 2.0
#: One question for the brokers.
BROKERS_TIMEOUT_S: Final = 5.0
#: For `list_offsets`.
EARLIEST: Final = _ADMIN.OffsetSpec.earliest()
LATEST: Final = _ADMIN.OffsetSpec.latest()
#: For clients: brokers that tests end are no news, and errors come as exceptions.
SILENT: Final = logging.getLogger("tests.kafka.client")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False
#: For `list_offsets`: whether only what is committed counts.
_LEVELS: Final = {
    False: confluent_kafka.IsolationLevel.READ_UNCOMMITTED,
    True: confluent_kafka.IsolationLevel.READ_COMMITTED,
}
#: Pause between two questions, in seconds.
ASK_AGAIN_S: Final = 0.05


class Reachable:
    """One cluster."""

    @property
    def bootstrap(self) -> str:
        """``host:port,host:port``, PLAINTEXT."""
        raise NotImplementedError

    def admin(self) -> Any:
        """An admin client of confluent-kafka."""
        return _ADMIN.AdminClient({"bootstrap.servers": self.bootstrap}, logger=SILENT)

    def producer(self, options: Mapping[str, Any] = MappingProxyType({})) -> Any:
        """A producer whose records stay in their order, with more options of librdkafka's or others.

        A broker may refuse the first batch for a partition of a new topic and take the second; without
        idempotence the first one, sent again, comes after it.
        """
        own = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True}
        return confluent_kafka.Producer({**own, **options}, logger=SILENT)

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        replicas: Sequence[Sequence[int]] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic and wait until every partition has a leader.

        Args:
            replicas: the node ids of each partition's replicas, preferred leader first; in place of
                `partitions` and `replication_factor`.
        """
        if replicas is None:
            new = _ADMIN.NewTopic(topic, partitions, replication_factor, config=dict(config or {}))
        else:
            assigned = [list(nodes) for nodes in replicas]
            new = _ADMIN.NewTopic(
                topic, len(assigned), replica_assignment=assigned, config=dict(config or {})
            )
        # Held until it has answered: a client that is let go ends with its calls.
        admin = self.admin()
        admin.create_topics([new], operation_timeout=CALL_TIMEOUT_S)[topic].result(CALL_TIMEOUT_S)
        count = partitions if replicas is None else len(replicas)
        self.await_leaders(topic, count)

    def create_topics(self, topics: Sequence[str]) -> None:
        """Make topics of one partition, all in one request."""
        admin = self.admin()
        new = [_ADMIN.NewTopic(topic, 1, -1) for topic in topics]
        for made in admin.create_topics(new, operation_timeout=CALL_TIMEOUT_S).values():
            made.result(CALL_TIMEOUT_S)
        self.await_leaders(topics[-1])

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until it has gone."""
        admin = self.admin()
        admin.delete_topics([topic], operation_timeout=CALL_TIMEOUT_S)[topic].result(CALL_TIMEOUT_S)
        _until(lambda: topic not in admin.list_topics(timeout=CALL_TIMEOUT_S).topics, f"{topic} is gone")

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Give a topic this many partitions in all."""
        new = _ADMIN.NewPartitions(topic, partitions)
        admin = self.admin()
        admin.create_partitions([new])[topic].result(CALL_TIMEOUT_S)
        self.await_leaders(topic, partitions)

    def topics(self) -> set[str]:
        """The names of all topics."""
        return set(self.admin().list_topics(timeout=CALL_TIMEOUT_S).topics)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Node id of a partition's leader; -1: none."""
        return int(self._partition(self.admin(), topic, partition).leader)

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """Node ids of a partition's in-sync replicas."""
        return set(self._partition(self.admin(), topic, partition).isrs)

    def await_leaders(self, topic: str, partitions: int = 1, *, among: Sequence[int] | None = None) -> None:
        """Return when each partition of a topic has a leader (one of `among`, where given)."""
        admin = self.admin()

        def led() -> bool:
            found = admin.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic].partitions
            leaders = [partition.leader for partition in found.values()]
            wanted = all(leader >= 0 if among is None else leader in among for leader in leaders)
            return len(leaders) == partitions and wanted

        _until(led, f"{partitions} partitions of {topic} have a leader among {among or 'any'}")

    def await_in_sync(self, topic: str, nodes: set[int], partition: int = 0) -> None:
        """Return when exactly these replicas are in sync."""
        admin = self.admin()
        _until(
            lambda: set(self._partition(admin, topic, partition).isrs) == nodes,
            f"the in-sync replicas of {topic}/{partition} are {nodes}",
        )

    def await_brokers(self, number: int) -> None:
        """Return when a client sees this many brokers and a controller: each question is another client's.

        One whose connection got no answer, from a broker that had just been resumed, asks no second time.
        """

        def seen() -> bool:
            return len(self.admin().list_topics(timeout=BROKERS_TIMEOUT_S).brokers) == number

        _until(seen, f"{number} brokers are in the cluster at {self.bootstrap}")

    def offsets(
        self, topic: str, partitions: Iterable[int] = (), spec: Any = LATEST, *, committed: bool = False
    ) -> dict[int, int]:
        """First or last offset of each partition, of all of a topic unless told otherwise.

        Of a topic that was just made or whose leader moves, librdkafka does not ask a second time by itself.

        Args:
            spec: `EARLIEST` or `LATEST`.
            committed: count no record of an open transaction, and none behind it.
        """
        admin = self._asking
        known = partitions or admin.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic].partitions
        asked = {confluent_kafka.TopicPartition(topic, partition): spec for partition in known}
        found: dict[int, int] = {}

        def answered() -> bool:
            answers = admin.list_offsets(
                asked, isolation_level=_LEVELS[committed], request_timeout=OFFSETS_TIMEOUT_S
            )
            try:
                found.update((place.partition, _offset(answer)) for place, answer in answers.items())
            except confluent_kafka.KafkaException:
                # It asks with the leader epoch that it knows, and a refusal does not teach it another.
                admin.list_topics(topic, timeout=CALL_TIMEOUT_S)
                raise
            return True

        _until(answered, f"the offsets of {topic} are told")
        return found

    @cached_property
    def _asking(self) -> Any:
        """One client for all questions about offsets, which are asked often."""
        # A broker that was away is asked again at once.
        patience = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100}
        return _ADMIN.AdminClient({"bootstrap.servers": self.bootstrap, **patience}, logger=SILENT)

    @staticmethod
    def _partition(admin: Any, topic: str, partition: int) -> Any:
        return admin.list_topics(topic, timeout=CALL_TIMEOUT_S).topics[topic].partitions[partition]


class Running(Reachable):
    """A cluster that somebody else started and will end."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        """As it was given."""
        return self._bootstrap


def _offset(answer: Any) -> int:
    return int(answer.result(CALL_TIMEOUT_S).offset)


def _until(look: Any, what: str) -> None:
    deadline = time.monotonic() + CALL_TIMEOUT_S
    last: object = None
    while time.monotonic() < deadline:
        try:
            if look():
                return
        except confluent_kafka.KafkaException as error:
            last = error
        time.sleep(ASK_AGAIN_S)
    raise TimeoutError(f"not within {CALL_TIMEOUT_S:g} s: {what} (last error: {last})")
