"""Kafka's ends of replay plans, made as the settings say."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from bridge.kafka.client.errors import explaining
from bridge.kafka.client.metadata import ClusterClient
from bridge.kafka.journal_topic.journal_topic import JournalTopic
from bridge.kafka.parts import KafkaParts
from bridge.kafka.records import identity
from bridge.kafka.replay.copy_count import CopyCount
from bridge.kafka.replay.plan_source import KafkaPlanSource
from bridge.kafka.replay.presence import KafkaPresence
from bridge.kafka.replay.topic_ids import TopicCopies, TopicIds
from bridge.kafka.source.options import batch_options
from bridge.kafka.source.partitions import Partitions
from bridge.kafka.target.target import KafkaTarget
from bridge.relay.ports import Stream
from bridge.replay.sending import PlanSource, PlanState
from bridge.settings.bridges import Bridge

#: How long the IDs of a topic are kept for the next call of a plan.
IDLE_S: Final = 300.0


class KafkaPlanEnds:
    """Makes the ends; keeps the IDs of the last topic asked about, for plans of many calls."""

    def __init__(self, parts: KafkaParts) -> None:
        self._parts = parts
        self._kept: tuple[tuple[str, str], TopicIds] | None = None
        #: The count that was begun last, of (bridge, topic, IDs).
        self._counting: tuple[tuple[str, str, frozenset[bytes]], CopyCount] | None = None
        self._dropping: asyncio.TimerHandle | None = None

    def source(self, bridge: Bridge) -> KafkaPlanSource:
        """The source of a plan: the topics that the bridge reads, in all lanes."""
        connection = self._parts.connection(bridge.source_connector)
        partitions = Partitions(connection, self._parts.topics(bridge), identity.LaneIndex(0, 1))
        return KafkaPlanSource(connection, partitions, batch_options(bridge, self._parts.node.settings))

    def target(self, bridge: Bridge, source: PlanSource, *, force: bool) -> tuple[KafkaTarget, KafkaPresence]:
        """The target, with a journal topic and a producer of the replays' own; and its presence check."""
        name = bridge.static_connectors[0]
        connection = self._parts.connection(name)
        journal = self._parts.replays_topic(bridge)

        async def plan_state(planned: Stream) -> PlanState:
            with explaining(name, "Describe", "the cluster", side="target"):
                async with ClusterClient(connection) as client:
                    cluster = (await client.cluster()).id
            nexts = await self._nexts(bridge, journal)
            return PlanState(
                identity.store_identity(connection.identity or cluster), nexts.get(planned.identity)
            )

        presence = KafkaPresence(
            source,
            plan_state=plan_state,
            ids_of=None if force else lambda topic: self._ids_of(name, topic),
            counts=lambda topic, ids: self._count(bridge, topic, ids),
            stamp=bridge.use_duplicate_detection,
            checks_ids=bridge.checks_producer_ids,
        )
        options = replace(
            self._parts.target_options(bridge),
            check_producer_ids=False,
            transactions=True,
            dead_letter_address="",
            already_present=lambda _batch: presence.known,
        )
        node = self._parts.node
        target = KafkaTarget(connection, journal, 0, options, clock=node.clock, write_lines=node.write_lines)
        return target, presence

    async def _nexts(self, bridge: Bridge, journal: JournalTopic) -> dict[str, int]:
        """By stream, the first position that the target does not cover; the greatest, if lanes disagree."""
        owner = self._parts.owner(bridge)
        nexts: dict[str, int] = {}
        for snapshot in await journal.look():
            for stream, record in snapshot.streams(owner).items():
                nexts[stream] = max(nexts.get(stream, 0), record.next)
        return nexts

    def _count(self, bridge: Bridge, topic: str, ids: frozenset[bytes]) -> CopyCount:
        key = (bridge.name, topic, ids)
        if self._counting is None or self._counting[0] != key or self._counting[1].is_done:
            connection = self._parts.connection(bridge.static_connectors[0])
            count = CopyCount(
                ids,
                TopicCopies(connection, topic, ids),
                lambda: self._nexts(bridge, self._parts.journal_topic(bridge)),
                stamp=bridge.use_duplicate_detection,
            )
            self._counting = (key, count)
        self._drop_later()
        return self._counting[1]

    def _ids_of(self, connector: str, topic: str) -> TopicIds:
        key = (connector, topic)
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, TopicIds(self._parts.connection(connector), topic))
        self._drop_later()
        return self._kept[1]

    def _drop_later(self) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
        self._dropping = asyncio.get_running_loop().call_later(IDLE_S, self._drop)

    def _drop(self) -> None:
        self._kept = self._counting = self._dropping = None
