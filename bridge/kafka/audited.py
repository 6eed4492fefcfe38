"""An audit's view of a cluster: its streams, what a bridge has confirmed, where topics begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.end_kind import AuditSource, Part, Selection, Side
from bridge.errors import NotFound, SourceUnavailable, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explained
from bridge.kafka.client.metadata import Topic
from bridge.kafka.client.options import kafka_connection
from bridge.kafka.records import identity
from bridge.kafka.records.decoding import BatchOptions, make_batches
from bridge.kafka.replay.survey import Survey
from bridge.kafka.source.options import batch_options
from bridge.messages import positions as run_arithmetic
from bridge.messages.stream_names import planned_stream
from bridge.relay.stages import Stage, filter_stage
from bridge.settings import kafka_names
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import Connector
from bridge.settings.model import Settings
from dedup.reconcile.audit.plan import Place, Stream

#: Kafka's error code for a topic that the client has no right to describe.
_DENIED: Final = 29


@dataclass(frozen=True, slots=True)
class KafkaEnd:
    """A cluster, as `dedup.reconcile.audit.kafka_source` reads it."""

    connection: KafkaConnection

    @property
    def name(self) -> str:
        """The connector's name, as errors show it."""
        return self.connection.name

    def consumer(self, **own: Any) -> Any:
        """As `KafkaConnection.consumer`."""
        return self.connection.consumer(**own)

    def counting(self, _topic: str, records: Sequence[Any]) -> Sequence[Any]:
        """All of them."""
        return records

    def told(self, error: Exception, topic: str) -> str:
        """Explains an error at reading a topic, with the right or setting that mends it."""
        resource = f"topic {topic}"
        text = explained(error, side="source", connector=self.name, operation="Read", resource=resource)
        return str(text).removeprefix(f"connector {self.name}: Read {resource}: ")


@dataclass(frozen=True, slots=True)
class FilteredEnd(KafkaEnd):
    """A cluster as the source of a bridge with a filter: records that the filter rejects do not count."""

    batches: BatchOptions
    stage: Stage

    @classmethod
    def of(cls, connection: KafkaConnection, bridge: Bridge, settings: Settings) -> KafkaEnd:
        """The source of this bridge of the settings."""
        stage = filter_stage(bridge.filter)
        if stage is None:
            return KafkaEnd(connection)
        return cls(connection, batch_options(bridge, settings), stage)

    def counting(self, topic: str, records: Sequence[Any]) -> Sequence[Any]:
        """Those that the filter takes, read as the bridge reads them."""
        if not records:
            return records
        first, end = records[0].offset, records[-1].offset + 1
        batches = make_batches(self.batches, "", records, first, end)
        taken = {
            place for batch in batches for place in run_arithmetic.positions(self.stage(batch, topic).runs)
        }
        return [record for record in records if record.offset in taken]


class _Cluster:
    """The cluster that a connector leads to."""

    def __init__(self, name: str, connector: Connector, side: Side) -> None:
        self._connection = kafka_connection(name, connector)
        self._name = name
        self._side: Side = side

    @property
    def _survey(self) -> Survey:
        return Survey(self._connection, self._side)


class KafkaAuditSource(_Cluster):
    """Implements `bridge.end_kind.AuditSource`."""

    def __init__(self, name: str, connector: Connector) -> None:
        super().__init__(name, connector, "source")

    async def streams(self, selection: Selection) -> list[Stream]:
        """As `AuditSource.streams`: one stream for each partition."""
        cluster = await self._survey.cluster(selection.names or None)
        missing = [name for name in selection.names if name not in cluster.topics]
        if missing:
            raise NotFound(f"connector {self._name}: no topic {missing[0]}", key="topic", found=missing[0])
        topics = [topic for name, topic in sorted(cluster.topics.items()) if selection.selects(name)]
        _check_described(self._name, topics, SourceUnavailable)
        ids = {topic.name: topic.id for topic in topics}
        asked = [(topic.name, number) for topic in topics for number in sorted(topic.partitions)]
        bounds = await self._survey.bounds(asked, settle=False)
        return [
            Stream(
                identity.stream_identity(self._connection.identity or cluster.id, ids[topic], partition),
                topic,
                partition,
                bound.start,
                bound.end,
                selection.forward(topic),
                compacted=bound.compacted,
            )
            for (topic, partition), bound in bounds.items()
        ]

    async def starts(self, parts: Iterable[Part]) -> Mapping[Part, int]:
        """The first offset of each partition."""
        return await self._survey.starts(parts)

    async def confirmed(self, bridge: Bridge, streams: Sequence[Stream], store: str = "") -> dict[str, int]:
        """As `AuditSource.confirmed`: the offsets that the bridge's progress group has committed.

        Each node that the bridge runs in commits under its own name. Offsets that another incarnation of its
        journal had settled are not believed.
        """
        group = identity.progress_group(bridge.own_group, store.partition(":")[0])
        offsets = await self._survey.progress(group, store)
        return {
            one.identity: offsets[key]
            for one in streams
            if (key := (one.identity.split(":")[-2], one.partition)) in offsets
        }


class KafkaAuditTarget(_Cluster):
    """Implements `bridge.end_kind.AuditTarget`."""

    what = "topic"
    has_partitions = True

    def __init__(self, name: str, connector: Connector) -> None:
        super().__init__(name, connector, "target")

    async def confirmed(self, bridge: Bridge, streams: list[Stream], source: AuditSource) -> list[Stream]:  # noqa: ARG002
        """As `AuditTarget.confirmed`: positions of the journal topics of the bridge and of its replays."""
        nexts: Mapping[str, int] = await self._survey.nexts(bridge.own_topic)
        streams = _with_replays(streams, await self._survey.nexts(kafka_names.replays_topic(bridge.name)))
        return [replace(one, confirmed=nexts.get(one.identity)) for one in streams]

    async def store(self, bridge: Bridge) -> str:  # noqa: ARG002 - all bridges have the same
        """As `AuditTarget.store`: the cluster's identity."""
        return identity.store_identity(self._connection.identity or (await self._survey.cluster(())).id)

    async def places(self, names: Iterable[str]) -> list[Place]:
        """As `AuditTarget.places`: one entry for each partition."""
        survey = self._survey
        cluster = await survey.cluster(sorted(names))
        _check_described(self._name, cluster.topics.values(), TargetUnavailable)
        asked = [(name, number) for name, topic in cluster.topics.items() for number in topic.partitions]
        bounds = await survey.bounds(sorted(asked), settle=True)
        return [
            Place(topic, partition, one.start, one.stable, one.end, compacted=one.compacted)
            for (topic, partition), one in bounds.items()
        ]

    async def starts(self, places: Sequence[Place]) -> Mapping[Part, int]:
        """The first offset of each partition."""
        return await self._survey.starts((one.topic, one.partition) for one in places)


def _with_replays(streams: Iterable[Stream], nexts: Mapping[str, int]) -> list[Stream]:
    """The streams, each with the position up to which plans have been sent, by the plans' own streams."""
    replayed: dict[str | None, int] = {}
    for planned, upto in nexts.items():
        one = planned_stream(planned)
        replayed[one] = max(replayed.get(one, 0), upto)
    return [replace(one, replayed=replayed.get(one.identity, 0)) for one in streams]


def _check_described(
    connector: str, topics: Iterable[Topic], kind: type[SourceUnavailable | TargetUnavailable]
) -> None:
    """Check that Kafka describes these topics: without the right to, a topic seems to have no partitions.

    Raises: `kind`.
    """
    for topic in topics:
        if topic.error:
            said = "TOPIC_AUTHORIZATION_FAILED (29)" if topic.error == _DENIED else f"error {topic.error}"
            raise kind(
                f"connector {connector}: Describe topic {topic.name}: {said}; it needs the right Describe",
                key=f"topic {topic.name}",
                found=topic.error,
            )
