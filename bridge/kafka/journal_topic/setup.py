"""Makes a bridge's journal topic, and checks an existing one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

import structlog
from aiokafka.admin import NewTopic
from aiokafka.errors import for_code

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.client import topic_admin
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining
from bridge.kafka.client.metadata import Cluster, ClusterClient, Topic
from bridge.kafka.client.topic_admin import Failed
from bridge.kafka.journal_topic.records import DEFAULT_BATCH_BYTES, LEAST_BATCH_BYTES

#: With fewer in-sync replicas than this nothing is written, where there are three replicas.
MIN_IN_SYNC_REPLICAS: Final = 2
#: The value of `journal-replication-factor = -1`, if there are so many brokers.
REPLICATION_FACTOR: Final = 3
#: A taker reads what has not been compacted: at most some of these segments, and what was written in the
#: cleaner's pause. Kafka's default of 1 GiB would take minutes to read.
SEGMENT_BYTES: Final = 16 * 1024 * 1024
#: Share of uncompacted bytes at which the cleaner starts.
_DIRTY_RATIO: Final = "0.1"
_POLICY: Final = "cleanup.policy"
_IN_SYNC: Final = "min.insync.replicas"
_MOST_BYTES: Final = "max.message.bytes"
_CHECKED: Final = (_POLICY, _IN_SYNC, _MOST_BYTES)


def check_partitions(found: Topic, lanes: int) -> None:
    """Raises TargetRefused where a topic that no bridge has used has too few partitions for this one."""
    if len(found.partitions) < lanes:
        raise TargetRefused(
            f"the journal topic {found.name} has {len(found.partitions)} partitions and the bridge {lanes}"
            " lanes: add partitions, or delete the topic if no bridge has used it",
            key="journal-topic",
            limit=lanes,
            found=len(found.partitions),
        )


def replaced(topic: str, what: str, found: str = "") -> TargetRefused:
    """The error where the journal topic that holds the bridge's state was replaced by another."""
    return TargetRefused(
        f"the journal topic {topic} was deleted under the running bridge{what}: what it remembered there is"
        " gone, and nothing more is written. Stop the bridge's nodes, and decide with `core-bridge positions`"
        " where it goes on (--from group: behind what was confirmed)",
        key="journal-topic",
        found=found,
    )


def _check_config(topic: str, config: Mapping[str, str], replicas: int) -> None:
    """Raises TargetRefused where the topic may forget what was committed, so that all would be sent again."""
    policy = config.get(_POLICY, "")
    if policy != "compact":  # by age or size it would forget the next of a quiet stream
        raise TargetRefused(
            f"the journal topic {topic} has cleanup.policy={policy}, and would forget what the bridge has"
            " sent: it was made by hand or by the broker (auto.create.topics.enable). If no bridge has"
            " used it, delete it: it is made anew. Otherwise set cleanup.policy=compact",
            key="journal-topic",
            limit="compact",
            found=policy,
        )
    in_sync = config.get(_IN_SYNC, "")
    # With fewer replicas it is a trade-off between loss and availability; with these it costs nothing.
    if replicas >= REPLICATION_FACTOR and in_sync.isdecimal() and int(in_sync) < MIN_IN_SYNC_REPLICAS:
        raise TargetRefused(
            f"the journal topic {topic} has {replicas} replicas and min.insync.replicas={in_sync}: what one"
            " broker alone has confirmed may be lost with it, and would be sent again. Set"
            f" min.insync.replicas={MIN_IN_SYNC_REPLICAS} on the topic (kafka-configs)",
            key="journal-topic",
            limit=MIN_IN_SYNC_REPLICAS,
            found=int(in_sync),
        )


def _most_bytes(topic: str, config: Mapping[str, str]) -> int:
    """Bytes of a record batch that the topic takes; the brokers' `message.max.bytes` where it has none set.

    Raises: TargetRefused: too little for any bridge.
    """
    text = config.get(_MOST_BYTES, "")
    found = int(text) if text.isdecimal() else DEFAULT_BATCH_BYTES
    if found < LEAST_BATCH_BYTES:
        raise TargetRefused(
            f"the journal topic {topic} takes record batches of {found} bytes, and a bridge needs"
            f" {LEAST_BATCH_BYTES}: set max.message.bytes on the topic, or message.max.bytes of the brokers",
            key="journal-topic",
            limit=LEAST_BATCH_BYTES,
            found=found,
        )
    return found


class JournalSetup:
    """Makes and checks journal topics of one cluster."""

    def __init__(
        self, connection: KafkaConnection, *, replication_factor: int = -1, warned: set[str] | None = None
    ) -> None:
        """`warned`: the warnings already logged, which are not repeated; the caller may share it."""
        self._connection = connection
        self._replication_factor = replication_factor
        self._warned = set() if warned is None else warned
        #: Bytes of a record batch that the topic takes, as of the last `ready`.
        self.most_bytes = DEFAULT_BATCH_BYTES

    async def find(self, topic: str) -> Topic | None:
        """The topic as it is now; None: it does not exist, and this does not make it. Raises: as `ready`."""
        return (await self._look(topic)).topics.get(topic)

    async def _look(self, topic: str) -> Cluster:
        with self._errors("Describe", f"topic {topic} (journal-topic)"):
            async with ClusterClient(self._connection) as client:
                cluster = await client.cluster([topic])
            found = cluster.topics.get(topic)
            if found is not None and found.error:
                raise for_code(found.error)(f"topic {topic}")
        return cluster

    async def ready(self, topic: str, lanes: int, *, known: str = "") -> Topic:
        """The journal topic: the existing one, if it can hold a journal, or a new one for that many lanes.

        One with fewer replicas than a new one would have is logged as a warning: the cluster may have grown.

        Args:
            topic: its name.
            lanes: number of partitions of a new topic.
            known: the topic's id as this process found it before: no other is accepted, and none is made.

        Raises:
            TargetUnavailable: try again later.
            TargetRefused: it is not compacted and nothing else, it may lose what was committed, it cannot
                be made, or it is not the one that it was.
        """
        cluster = await self._look(topic)
        asked = self._replicas(len(cluster.brokers))
        found = cluster.topics.get(topic)
        if found is None and known:
            try:
                found = await self._visible(topic, 1)  # a broker that has just started may not know it yet
            except TargetUnavailable as error:
                raise replaced(topic, "") from error
        elif found is None:
            await self._make(topic, lanes, asked)
            found = await self._visible(topic, lanes)
        if known and found.id != known:
            raise replaced(topic, f" and made again (topic id {known} before)", found.id)
        replicas = min((len(partition.replicas) for partition in found.partitions.values()), default=0)
        config = await self._config(topic)
        _check_config(topic, config, replicas)
        self.most_bytes = _most_bytes(topic, config)
        if replicas < asked:
            self._warn(
                topic,
                f"it has {replicas} replicas, and would be made with {asked} now"
                f" (journal-replication-factor = {self._replication_factor}): where they are lost, what was"
                " sent comes again. kafka-reassign-partitions adds some",
            )
        return found

    def _replicas(self, brokers: int) -> int:
        """The number of replicas of a new topic."""
        if self._replication_factor >= 0:
            return self._replication_factor
        return min(REPLICATION_FACTOR, brokers)

    def _warn(self, topic: str, reason: str) -> None:
        if (said := f"{topic}: {reason}") not in self._warned:
            self._warned.add(said)
            structlog.get_logger().warning("journal-topic", topic=topic, reason=reason)

    async def grow(self, topic: str, lanes: int) -> Topic:
        """The topic with at least that many partitions, added if need be. Raises: as `ready`."""
        found = await self.find(topic)
        if found is not None and len(found.partitions) < lanes:
            with self._errors("Alter", f"topic {topic} (journal-topic)"):
                for failed in (await topic_admin.add_partitions(self._connection, {topic: lanes})).values():
                    raise for_code(failed.code)(failed.message)
        return await self._visible(topic, lanes)

    async def _make(self, topic: str, lanes: int, factor: int) -> None:
        resource = f"topic {topic} (journal-replication-factor {self._replication_factor})"
        with self._errors("Create", resource):
            options = {
                _POLICY: "compact",
                "segment.bytes": str(SEGMENT_BYTES),
                "min.cleanable.dirty.ratio": _DIRTY_RATIO,
            }
            if factor >= REPLICATION_FACTOR:
                options[_IN_SYNC] = str(MIN_IN_SYNC_REPLICAS)
            # Another worker, or another node with the same settings, may be faster.
            new = NewTopic(topic, lanes, factor, topic_configs=options)
            for failed in (await topic_admin.make(self._connection, [new])).values():
                raise for_code(failed.code)(failed.message)

    async def _visible(self, topic: str, partitions: int) -> Topic:
        """The topic once brokers know it, with a leader for each partition."""
        with self._errors("Describe", f"topic {topic} (journal-topic)"):
            async with ClusterClient(self._connection) as client:
                found, _missing = await topic_admin.visible(client, {topic: partitions})
        if topic in found:
            return found[topic]
        raise TargetUnavailable(
            f"the journal topic {topic} has no {partitions} partitions with a leader after"
            f" {topic_admin.LOOKS * topic_admin.LOOK_PAUSE_MS} ms",
            key="journal-topic",
        )

    async def _config(self, topic: str) -> Mapping[str, str]:
        """The configuration of a topic that a broker knows; the one that is asked may not know it yet."""
        with self._errors("DescribeConfigs", f"topic {topic} (journal-topic)"):
            described = await topic_admin.describe(
                self._connection, [topic], _CHECKED, looks=topic_admin.LOOKS
            )
            config = described[topic]
            if isinstance(config, Failed):
                raise for_code(config.code)(config.message)
        return {key: str(value) for key, (value, _source) in config.items()}

    def _errors(self, operation: str, resource: str) -> AbstractContextManager[None]:
        return explaining(self._connection.name, operation, resource, side="target")
