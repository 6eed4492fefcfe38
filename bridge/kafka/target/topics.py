"""The topics of a Kafka target: makes missing ones, and reads the rules of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

import structlog
from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAuthorizationFailedError, for_code

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining
from bridge.kafka.client.metadata import ClusterClient, Topic
from bridge.kafka.records.topic_rules import TopicRules, rules_of
from bridge.kafka.target.options import KafkaTargetOptions
from bridge.kafka.target.source_configs import MIN_IN_SYNC, copied

#: Number and pause of the checks for new topics or partitions.
_LOOKS: Final = 50
_LOOK_PAUSE_MS: Final = 100
_TOPIC_ALREADY_EXISTS: Final = 36
_INVALID_PARTITIONS: Final = 37
#: Of a broker: the replicas of topics that are made with -1.
_DEFAULT_FACTOR: Final = "default.replication.factor"
#: The keys of a topic's configuration that are read.
_ASKED: Final = (
    "max.message.bytes",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.type",
    "cleanup.policy",
    "min.insync.replicas",
)


class TargetTopics:
    """Makes and describes the topics of one target; connects anew for each call."""

    def __init__(self, connection: KafkaConnection, options: KafkaTargetOptions) -> None:
        self._connection = connection
        self._options = options
        self._log = structlog.get_logger().bind(bridge=options.bridge)
        #: Topics with a warning that was logged already.
        self._warned: set[str] = set()

    async def ready(
        self, topics: Mapping[str, int], sources: Mapping[str, str] | None = None
    ) -> tuple[str, dict[str, TopicRules]]:
        """The cluster's id, and the topics' present rules.

        Args:
            topics: by name, the least number of partitions; 0: any number.
            sources: by name, the source topic whose configuration it gets where it is made.

        Returns:
            A topic that does not exist, and is not to be made, is left out.

        Raises:
            TargetUnavailable: try again later.
            TargetRefused: a topic cannot be made, or has too few partitions and may not get more.
        """
        there: dict[str, Topic] = {}
        with self._errors("Describe", f"topics {', '.join(sorted(topics))}"):
            async with ClusterClient(self._connection) as client:
                cluster = await client.cluster(list(topics))
                for name, partitions in topics.items():
                    source = (sources or {}).get(name, "")
                    topic = await self._fit(client, name, cluster.topics.get(name), partitions, source)
                    if topic is not None:
                        there[name] = topic
            return cluster.id, await self._described(there)

    async def _fit(
        self, client: ClusterClient, name: str, topic: Topic | None, least: int, source: str
    ) -> Topic | None:
        """The topic with at least so many partitions; None: it does not exist, and is not to be made."""
        if topic is not None and topic.error:
            with self._errors("Describe", f"topic {name}"):
                raise for_code(topic.error)(name)
        if topic is None:
            if not self._options.create_topics:
                return None
            await self._make(name, least, await self._copied(client, name, source))
            return await self._visible(client, name, least or 1)
        if len(topic.partitions) >= least:
            return topic
        if not self._options.add_partitions:
            raise TargetRefused(
                f"topic {name} has {len(topic.partitions)} partitions at the target, its source {least}: "
                "with preserve-partitions = true it needs as many; set add-partitions = true, or "
                "preserve-partitions = false",
                key="add-partitions",
                limit=least,
                found=len(topic.partitions),
            )
        with self._errors("Alter", f"topic {name} (add-partitions)"):
            async with self._connection.administering() as admin:
                with contextlib.suppress(for_code(_INVALID_PARTITIONS)):  # another lane was faster
                    await admin.create_partitions({name: NewPartitions(least)})
        return await self._visible(client, name, least)

    async def _copied(self, client: ClusterClient, name: str, source: str) -> dict[str, str]:
        """The configuration that the topic gets from its source. Raises: SourceUnavailable, SourceRefused."""
        if self._options.source_configs is None or not source:
            return {}
        configs = await self._options.source_configs(source)
        if configs is None:
            self._warn(
                name, f"it gets no configuration of {source}: there the ACL DescribeConfigs is missing"
            )
            return {}
        replicas = self._options.topic_replication_factor
        if replicas < 0 and MIN_IN_SYNC in configs:
            replicas = await self._default_replicas(client)
        found = copied(configs, replicas)
        if len(found) < len(configs):
            self._warn(
                name, f"it does not get {MIN_IN_SYNC}={configs[MIN_IN_SYNC]} of {source}: too few replicas"
            )
        return found

    async def _default_replicas(self, client: ClusterClient) -> int:
        """The replicas of a topic made with the cluster's default; 1 where that may not be read."""
        broker = (await client.cluster()).brokers[0]
        asked = ConfigResource(ConfigResourceType.BROKER, str(broker), {_DEFAULT_FACTOR: None})
        async with self._connection.administering() as admin:
            (answer,) = await admin.describe_configs([asked])
        ((code, _message, _type, _name, entries),) = answer.resources
        return 1 if code else int(entries[0][1])

    async def _make(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        factor = self._options.topic_replication_factor
        with self._errors("Create", f"topic {name} (create-topics, topic-replication-factor {factor})"):
            # aiokafka lets -1, the cluster's default, pass only beside assignments: none, and not None.
            by_default = not partitions or factor < 0
            topic = NewTopic(name, partitions or -1, factor, {} if by_default else None, dict(configs))
            async with self._connection.administering() as admin:
                answer = await admin.create_topics([topic])
            for _, code, *message in answer.topic_errors:
                if code not in (0, _TOPIC_ALREADY_EXISTS):
                    raise for_code(code)(*message)
        self._log.info("topic-created", topic=name, **({"configs": dict(configs)} if configs else {}))

    async def _visible(self, client: ClusterClient, name: str, partitions: int) -> Topic:
        """The topic once a broker shows so many partitions of it, each with a leader."""
        for _ in range(_LOOKS):
            topic = (await client.cluster([name])).topics.get(name)
            if topic is not None and sum(one.leader >= 0 for one in topic.partitions.values()) >= partitions:
                return topic
            await asyncio.sleep(_LOOK_PAUSE_MS / 1000)
        raise TargetUnavailable(
            f"topic {name} has no {partitions} partitions with a leader after {_LOOKS * _LOOK_PAUSE_MS} ms",
            key=f"topic {name}",
        )

    async def _described(self, topics: Mapping[str, Topic]) -> dict[str, TopicRules]:
        """The rules of the topics; those of one without the right DescribeConfigs are unknown."""
        found: dict[str, TopicRules] = {}
        if not topics:
            return found
        asked = [ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(_ASKED)) for name in topics]
        async with self._connection.administering() as admin:
            (answer,) = await admin.describe_configs(asked)
        for code, message, _type, name, entries in answer.resources:
            partitions = len(topics[name].partitions)
            if for_code(code) is TopicAuthorizationFailedError:
                self._warn(name, "its limits are not known: the ACL DescribeConfigs is missing")
                found[name] = TopicRules(name, partitions, id=topics[name].id)
                continue
            if code:
                raise for_code(code)(message)
            configuration = {entry[0]: entry[1] for entry in entries}
            rules = rules_of(name, partitions, configuration, id_=topics[name].id)
            if rules.log_append_time:
                self._warn(name, "timestamps are not kept: message.timestamp.type=LogAppendTime")
            found[name] = rules
        return found

    def _warn(self, name: str, what: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            self._log.warning("target-topic", topic=name, reason=what)

    def _errors(self, operation: str, resource: str) -> AbstractContextManager[None]:
        return explaining(self._connection.name, operation, resource, side="target")
