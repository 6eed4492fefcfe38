"""The topics of a Kafka target: makes missing ones, and reads the rules of each."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

import structlog
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAuthorizationFailedError, for_code

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.client import topic_admin
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explained, explaining, topics_named
from bridge.kafka.client.metadata import ClusterClient, Topic
from bridge.kafka.client.pieces import Step
from bridge.kafka.client.topic_admin import Failed
from bridge.kafka.records.topic_rules import TopicRules, rules_of
from bridge.kafka.target.options import KafkaTargetOptions
from bridge.kafka.target.source_configs import MIN_IN_SYNC, copied
from bridge.relay.counts import Counts

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


@dataclass(slots=True)
class ReadyTopics:
    """The topics of a target as they are now."""

    #: The cluster's id.
    cluster: str
    #: The rules by name. A topic that does not exist, and is not to be made, is left out.
    rules: dict[str, TopicRules] = field(default_factory=dict)
    #: By name, why nothing can be written to a topic until a setting or a right is changed.
    refused: dict[str, TargetRefused] = field(default_factory=dict)


class TargetTopics:
    """Makes and describes the topics of one target; connects anew for each call."""

    def __init__(self, connection: KafkaConnection, options: KafkaTargetOptions, counts: Counts) -> None:
        """`counts` show how far a call with many topics has come."""
        self._connection = connection
        self._options = options
        self._counts = counts
        self._log = structlog.get_logger().bind(bridge=options.bridge)
        #: Topics with a warning that was logged already.
        self._warned: set[str] = set()

    async def ready(self, topics: Mapping[str, int], sources: Mapping[str, str] | None = None) -> ReadyTopics:
        """Make missing topics, add missing partitions where that is wanted, and read the rules of all.

        Args:
            topics: by name, the number of partitions that it should have; 0: any number.
            sources: by name, the source topic whose configuration it gets where it is made.

        Raises:
            TargetUnavailable: try again later. TargetRefused: it concerns all topics.
        """
        refused: dict[str, TargetRefused] = {}
        there: dict[str, Topic] = {}
        with self._errors("Describe", topics_named(topics)):
            async with ClusterClient(self._connection) as client:
                cluster = await client.cluster(list(topics), step=self._step("found"))
                for name, topic in cluster.topics.items():
                    if topic.error:
                        self._refuse(refused, name, Failed(topic.error, name), "Describe", f"topic {name}")
                    else:
                        there[name] = topic
                if self._options.create_topics:
                    missing = {name: least for name, least in topics.items() if name not in cluster.topics}
                    there |= await self._made(client, missing, sources or {}, refused)
                if self._options.add_partitions:
                    there |= await self._grown(client, there, topics, refused)
        return ReadyTopics(cluster.id, await self._described(there), refused)

    async def _made(
        self,
        client: ClusterClient,
        topics: Mapping[str, int],
        sources: Mapping[str, str],
        refused: dict[str, TargetRefused],
    ) -> dict[str, Topic]:
        """These topics, made, once brokers know them."""
        if not topics:
            return {}
        configs = await self._copied(client, {name: sources.get(name, "") for name in topics})
        factor = self._options.topic_replication_factor
        asked = [
            # aiokafka lets -1, the cluster's default, pass only beside assignments: none, and not None.
            NewTopic(
                name, partitions or -1, factor, {} if not partitions or factor < 0 else None, configs[name]
            )
            for name, partitions in topics.items()
        ]
        what = f"(create-topics, topic-replication-factor {factor})"
        with self._errors("Create", f"{topics_named(topics)} {what}"):
            failed = await topic_admin.make(self._connection, asked, self._step("made"))
        for name, why in failed.items():
            self._refuse(refused, name, why, "Create", f"topic {name} {what}")
        made = {name: partitions or 1 for name, partitions in topics.items() if name not in failed}
        for name in made:
            self._log.info(
                "topic-created", topic=name, **({"configs": configs[name]} if configs[name] else {})
            )
        return await self._visible(client, made)

    async def _grown(
        self,
        client: ClusterClient,
        there: Mapping[str, Topic],
        topics: Mapping[str, int],
        refused: dict[str, TargetRefused],
    ) -> dict[str, Topic]:
        """Those of the topics that had too few partitions, once brokers show enough of them."""
        small = {name: topics[name] for name, topic in there.items() if len(topic.partitions) < topics[name]}
        if not small:
            return {}
        with self._errors("Alter", f"{topics_named(small)} (add-partitions)"):
            failed = await topic_admin.add_partitions(self._connection, small)
        for name, why in failed.items():
            self._refuse(refused, name, why, "Alter", f"topic {name} (add-partitions)")
        return await self._visible(client, {name: n for name, n in small.items() if name not in failed})

    def _refuse(
        self, refused: dict[str, TargetRefused], name: str, why: Failed, operation: str, resource: str
    ) -> None:
        """Keep the error of one topic. Raises: TargetUnavailable: it passes by itself."""
        error = explained(
            for_code(why.code)(why.message),
            side="target",
            connector=self._connection.name,
            operation=operation,
            resource=resource,
        )
        if not isinstance(error, TargetRefused):
            raise error
        refused[name] = error

    async def _copied(self, client: ClusterClient, sources: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """By topic, the configuration that it gets from its source.

        Raises: SourceUnavailable, SourceRefused.
        """
        found: dict[str, dict[str, str]] = {name: {} for name in sources}
        asked = {source for source in sources.values() if source}
        if self._options.source_configs is None or not asked:
            return found
        configs = await self._options.source_configs(sorted(asked))
        replicas = self._options.topic_replication_factor
        if replicas < 0 and any(MIN_IN_SYNC in one for one in configs.values() if one is not None):
            replicas = await self._default_replicas(client)
        for name, source in sources.items():
            if not source:
                continue
            config = configs[source]
            if config is None:
                self._warn(
                    name, f"it gets no configuration of {source}: there the ACL DescribeConfigs is missing"
                )
                continue
            found[name] = copied(config, replicas)
            if len(found[name]) < len(config):
                self._warn(
                    name,
                    f"it does not get {MIN_IN_SYNC}={config[MIN_IN_SYNC]} of {source}: too few replicas",
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

    async def _visible(self, client: ClusterClient, least: Mapping[str, int]) -> dict[str, Topic]:
        """These topics once a broker shows so many partitions of each, with a leader."""
        found, missing = await topic_admin.visible(client, least, self._step("found leaders for"))
        if missing:
            first = min(missing)
            raise TargetUnavailable(
                f"{topics_named(missing)}: {least[first]} partitions with a leader are not there in time",
                key=f"topic {first}",
            )
        return found

    async def _described(self, topics: Mapping[str, Topic]) -> dict[str, TopicRules]:
        """The rules of the topics; those of one without the right DescribeConfigs are unknown."""
        found: dict[str, TopicRules] = {}
        with self._errors("DescribeConfigs", topics_named(topics)):
            answers = await topic_admin.describe(
                self._connection, topics, _ASKED, self._step("described"), looks=topic_admin.LOOKS
            )
        for name, answer in answers.items():
            partitions = len(topics[name].partitions)
            if not isinstance(answer, Failed):
                configuration = {key: value for key, (value, _source) in answer.items()}
                found[name] = rules_of(name, partitions, configuration, id_=topics[name].id)
                if found[name].log_append_time:
                    self._warn(name, "timestamps are not kept: message.timestamp.type=LogAppendTime")
            elif for_code(answer.code) is TopicAuthorizationFailedError:
                self._warn(name, "its limits are not known: the ACL DescribeConfigs is missing")
                found[name] = TopicRules(name, partitions, id=topics[name].id)
            else:
                with self._errors("DescribeConfigs", f"topic {name}"):
                    raise for_code(answer.code)(answer.message)
        return found

    def _step(self, what: str) -> Step:
        """Shows in status how far a call with many topics has come."""

        def step(done: int, total: int) -> None:
            self._counts.opening = f"{what} {done:,} of {total:,} topics of the target"

        return step

    def _warn(self, name: str, what: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            self._log.warning("target-topic", topic=name, reason=what)

    def _errors(self, operation: str, resource: str) -> AbstractContextManager[None]:
        return explaining(self._connection.name, operation, resource, side="target")
