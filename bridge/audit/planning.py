"""Plans an audit: which partitions are compared with which, how far, and what the bridge says of them.

The order of the questions matters (`dedup.reconcile.audit.plan`): what is confirmed is asked before the ends
of the target, so that the records behind every confirmed position are within what is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from bridge.audit.access import access, node_end
from bridge.ends import JOURNAL
from bridge.errors import Malformed, NotFound, SourceUnavailable, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.metadata import Topic
from bridge.kafka.client.options import kafka_connection
from bridge.kafka.records import identity
from bridge.kafka.replay.survey import Survey
from bridge.kafka.source.progress import Kind, Progress
from bridge.messages.stream_names import planned_stream
from bridge.runtime.clock import SystemClock
from bridge.settings import kafka_names
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings
from dedup.reconcile.audit.plan import Place, Plan, Stream

#: Kafka's code for a topic that may not be described.
_DENIED: Final = 29


@dataclass(frozen=True, slots=True)
class Pair:
    """Two ends to compare: a bridge's, or ones that somebody named."""

    source: str
    target: str
    #: Whether a topic of the source is part of it, and its name at the target.
    selects: Callable[[str], bool]
    forward: Callable[[str], str]
    #: Topics that must be there: a name that is written out and missing is a mistake.
    names: tuple[str, ...] = ()
    #: The target's name likewise; empty: a bridge makes its targets when it needs them.
    target_name: str = ""
    bridge: Bridge | None = None


def of_bridge(bridge: Bridge) -> Pair:
    """The ends of a bridge.

    Raises:
        Malformed: it has none to compare, and why.
    """
    if bridge.source_connector == JOURNAL:
        raise Malformed(
            f"{bridge.name} reads this node's journal: an audit compares a Kafka source with its target",
            key="source-connector",
            found=bridge.source_connector,
        )
    if not bridge.use_duplicate_detection:
        raise Malformed(
            f"{bridge.name} has use-duplicate-detection = false: its records carry no ID to find them by",
            key="use-duplicate-detection",
            found="false",
        )
    return Pair(
        bridge.source_connector,
        bridge.static_connectors[0],
        bridge.selects_topic,
        bridge.target_address,
        bridge=bridge,
    )


def of_names(settings: Settings, source: tuple[str, str], target: tuple[str, str]) -> Pair:
    """One topic and one topic or address, each with its connector.

    Raises:
        NotFound: no such connector. Malformed: the source is not Kafka.
    """
    for connector, _ in (source, target):
        if connector not in settings.connectors and connector != JOURNAL:
            names = ", ".join(settings.connectors) or "none"
            raise NotFound(
                f"no connector {connector}; the settings have: {names}", key="connectors", found=connector
            )
    if not settings.is_kafka(source[0]):
        raise Malformed(f"the source of an audit is Kafka; {source[0]} leads to a node", key="source")
    return Pair(
        source[0],
        target[0],
        lambda topic: topic == source[1],
        lambda _: target[1],
        names=(source[1],),
        target_name=target[1],
    )


class Planner:
    """Makes the plan of one audit, and looks at its ends again."""

    def __init__(self, settings: Settings, path: Path, pair: Pair) -> None:
        """`path` is the file that `settings` came from: tasks read it again."""
        self._settings = settings
        self._path = path
        self._pair = pair

    async def plan(self) -> Plan:
        """What is to be read. Raises: NotFound: no such topic or address; BridgeError: what the ends say."""
        pair, bridge = self._pair, self._pair.bridge
        streams = await self._confirmed(await self._streams())
        letters = bridge.dead_letter_address if bridge else ""
        topics = {stream.target for stream in streams}
        places = await self._places(topics | {letters} - {""})
        name = pair.target_name
        if name and name not in {place.topic for place in places}:
            what = "topic" if self._to_kafka else "address"
            raise NotFound(f"connector {pair.target}: no {what} {name}", key=what, found=name)
        return Plan(
            bridge=bridge.name if bridge else "",
            source=access(self._settings, self._path, pair.source),
            target=access(self._settings, self._path, pair.target),
            streams=tuple(streams),
            places=tuple(place for place in places if place.topic in topics),
            letters=tuple(place for place in places if place.topic == letters),
            is_filtered=bool(bridge and (bridge.filter or bridge.transformer)),
            from_latest=bridge is not None and bridge.start_position == "latest",
            preserves_partitions=bridge is not None and bridge.preserve_partitions and self._to_kafka,
            checks_ids=bridge is None or bridge.checks_producer_ids,
        )

    async def renewed(self, plan: Plan) -> Plan:
        """The same plan with beginnings as they are now: what was deleted meanwhile was not read.

        Raises: BridgeError.
        """
        source = await self._source.starts((one.topic, one.partition) for one in plan.streams)
        target = await self._starts(plan.places)
        return replace(
            plan,
            streams=tuple(
                replace(one, start=max(one.start, source[one.topic, one.partition])) for one in plan.streams
            ),
            places=tuple(
                replace(one, start=max(one.start, target[one.topic, one.partition])) for one in plan.places
            ),
        )

    # -- the source --------------------------------------------------------------------------------------

    @property
    def _source(self) -> Survey:
        return self._survey(self._pair.source, "source")

    async def _streams(self) -> list[Stream]:
        pair = self._pair
        connection = self._connection(pair.source)
        cluster = await self._source.cluster(pair.names or None)
        missing = [name for name in pair.names if name not in cluster.topics]
        if missing:
            raise NotFound(f"connector {pair.source}: no topic {missing[0]}", key="topic", found=missing[0])
        topics = [topic for name, topic in sorted(cluster.topics.items()) if pair.selects(name)]
        _check_described(pair.source, topics, SourceUnavailable)
        ids = {topic.name: topic.id for topic in topics}
        asked = [(topic.name, number) for topic in topics for number in sorted(topic.partitions)]
        bounds = await self._source.bounds(asked, settle=False)
        return [
            Stream(
                identity.stream_identity(connection.identity or cluster.id, ids[topic], partition),
                topic,
                partition,
                bound.start,
                bound.end,
                pair.forward(topic),
                compacted=bound.compacted,
            )
            for (topic, partition), bound in bounds.items()
        ]

    async def _confirmed(self, streams: list[Stream]) -> list[Stream]:
        """The streams with what their bridge has confirmed; without a bridge, as they are."""
        pair, bridge = self._pair, self._pair.bridge
        if bridge is None or not streams:
            return streams
        if self._to_kafka:
            survey = self._survey(pair.target, "target")
            nexts: Mapping[str, int] = await survey.nexts(bridge.own_topic)
            streams = _with_replays(streams, await survey.nexts(kafka_names.replays_topic(bridge.name)))
        elif pair.target == JOURNAL:
            nexts = await self._settled_here(bridge, streams)
        else:
            committed = await self._source.progress(identity.progress_group(bridge.own_group))
            nexts = {
                one.identity: committed[key]
                for one in streams
                if (key := (one.identity.split(":")[-2], one.partition)) in committed
            }
        return [replace(one, confirmed=nexts.get(one.identity)) for one in streams]

    async def _settled_here(self, bridge: Bridge, streams: list[Stream]) -> dict[str, int]:
        """By stream, below which offset this node's journal covers everything, as its progress group has it.

        Each node that the bridge runs in commits under its own name, and what another incarnation of this
        one's journal had settled is not believed.
        """
        async with node_end(self._settings, JOURNAL).open() as node:
            store = await node.store(bridge.name)
        group = identity.progress_group(bridge.own_group, store.partition(":")[0])
        progress = Progress(self._connection(self._pair.source), group, SystemClock())
        try:
            marks = await progress.marks()
        finally:
            await progress.close()
        settled = {
            (mark.topic_id, tp.partition): mark.offset
            for tp, mark in marks.items()
            if mark.kind is Kind.SETTLED and mark.store == store
        }
        return {
            one.identity: settled[key]
            for one in streams
            if (key := (one.identity.split(":")[-2], one.partition)) in settled
        }

    # -- the target --------------------------------------------------------------------------------------

    @property
    def _to_kafka(self) -> bool:
        return self._settings.is_kafka(self._pair.target)

    async def _places(self, names: Iterable[str]) -> list[Place]:
        """What there is of these topics or addresses."""
        if not self._to_kafka:
            return await self._addresses(sorted(names))
        survey = self._survey(self._pair.target, "target")
        cluster = await survey.cluster(sorted(names))
        _check_described(self._pair.target, cluster.topics.values(), TargetUnavailable)
        asked = [(name, number) for name, topic in cluster.topics.items() for number in topic.partitions]
        bounds = await survey.bounds(sorted(asked), settle=True)
        return [
            Place(topic, partition, one.start, one.stable, one.end, compacted=one.compacted)
            for (topic, partition), one in bounds.items()
        ]

    async def _starts(self, places: Sequence[Place]) -> Mapping[tuple[str, int], int]:
        """Where places begin now; one that has gone begins at its end."""
        if self._to_kafka:
            survey = self._survey(self._pair.target, "target")
            return await survey.starts((one.topic, one.partition) for one in places)
        now = {(one.topic, 0): one.start for one in await self._addresses(one.topic for one in places)}
        return {(one.topic, 0): now.get((one.topic, 0), one.end) for one in places}

    async def _addresses(self, names: Iterable[str]) -> list[Place]:
        found: list[Place] = []
        async with node_end(self._settings, self._pair.target).open() as node:
            firsts = {name: await node.bounds(name) for name in names}
            for name, first in firsts.items():
                now = await node.bounds(name)
                if first is not None and now is not None:
                    found.append(Place(name, 0, first[0], first[1], now[1]))
        return found

    def _survey(self, connector: str, side: Literal["source", "target"]) -> Survey:
        return Survey(self._connection(connector), side)

    def _connection(self, connector: str) -> KafkaConnection:
        return kafka_connection(connector, self._settings.connectors[connector])


def _with_replays(streams: Iterable[Stream], nexts: Mapping[str, int]) -> list[Stream]:
    """The streams with how far plans have been sent, by the plans' own streams."""
    replayed: dict[str | None, int] = {}
    for planned, upto in nexts.items():
        one = planned_stream(planned)
        replayed[one] = max(replayed.get(one, 0), upto)
    return [replace(one, replayed=replayed.get(one.identity, 0)) for one in streams]


def _check_described(
    connector: str, topics: Iterable[Topic], kind: type[SourceUnavailable | TargetUnavailable]
) -> None:
    """See that Kafka tells what these have: one that may not be described seems to have no partitions.

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
