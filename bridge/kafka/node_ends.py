"""Kafka's ends as the settings say, and which lanes of a bridge each process owns.

==================  ==========================  ======================================================
bridge              lanes belong to             journal topic
==================  ==========================  ======================================================
Kafka to Kafka      a group on the journal      one partition a lane
                    topic, at the target
Kafka to node       a group on the source       none: the node remembers
Kafka to journal    this node: every node has   none: the journal remembers
                    a copy of its own
journal to Kafka    its node: one relay         one partition, each node with records of its own
==================  ==========================  ======================================================
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.delivery_log import LineWriter
from bridge.end_kind import EndsOf, Lane, NodeContext, NodeEnds, Side, SourceEnd, TargetEnd, kind_of
from bridge.kafka.journal_topic.origin import cluster_origin
from bridge.kafka.lanes.groups import JournalTopicOwnership, SourceOwnership
from bridge.kafka.lanes.lane_holders import LaneHolders
from bridge.kafka.parts import KafkaParts
from bridge.kafka.records import identity
from bridge.kafka.source.first_start import RECORDING_LANE
from bridge.kafka.source.lag_probe import KafkaLagProbe
from bridge.kafka.source.options import SourceOptions, batch_options
from bridge.kafka.source.sent_log import SentLog
from bridge.kafka.source.source import KafkaSource
from bridge.kafka.target.options import RelayHooks
from bridge.kafka.target.target import KafkaTarget
from bridge.relay.lag import LagProbe
from bridge.relay.ownership import AskDivision, Ownership
from bridge.relay.ports import Target
from bridge.replay.sending import PlanSource, Presence
from bridge.runtime import logs
from bridge.settings.bridges import Bridge

if TYPE_CHECKING:
    from bridge.kafka.plan_ends import KafkaPlanEnds


class KafkaEnds(NodeEnds):
    """Makes sources and targets at clusters."""

    def __init__(self, node: NodeContext, others: EndsOf) -> None:
        self._node = node
        self._parts = KafkaParts(node, others)
        #: Made when a replay plan is sent; workers send none.
        self._made_plans: KafkaPlanEnds | None = None
        self._duplicates: dict[str, logs.Tally] = {}

    # -- who relays what ---------------------------------------------------------------------------------

    def ownership(self, bridge: Bridge, side: Side) -> Ownership:
        """The ownership by a group, whose members are the processes that relay the bridge."""
        if side == "target":
            return JournalTopicOwnership(
                self._parts.connection(bridge.static_connectors[0]),
                group=bridge.own_group,
                topic=bridge.own_topic,
                lanes=bridge.concurrency,
                name=self._node.process,
                prepare=self._parts.journal_topic(bridge).prepare,
            )
        return SourceOwnership(
            self._parts.connection(bridge.source_connector),
            group=bridge.own_group,
            lanes=bridge.concurrency,
            bridge=bridge.name,
            name=self._node.process,
        )

    def division(self, bridge: Bridge, side: Side) -> AskDivision:
        """The division of the lanes, as the same group has it."""
        return LaneHolders(
            self._parts.connection(
                bridge.static_connectors[0] if side == "target" else bridge.source_connector
            ),
            group=bridge.own_group,
            lanes=bridge.concurrency,
            side=side,
            clock=self._node.clock,
        ).ask

    # -- sources -----------------------------------------------------------------------------------------

    def source(self, lane: Lane) -> SourceEnd:
        """The source of a lane: its partitions of the topics that the bridge reads."""
        source = self._source(lane)
        return SourceEnd(
            source,
            store=lambda: source.store,
            lag=lambda: source.lag,
            parked=lambda: source.parked,
            waits=lambda: source.waits,
            partitions=lambda: source.partition_status,
        )

    def lag_probe(self, bridge: Bridge) -> LagProbe:
        """Asks the cluster what waits in all lanes of the bridge."""
        return KafkaLagProbe(
            self._parts.connection(bridge.source_connector),
            bridge.concurrency,
            self._source_options(bridge, 0),
            self._node.clock,
        )

    def _source_options(self, bridge: Bridge, lane: int) -> SourceOptions:
        target = kind_of(self._node.settings, bridge.static_connectors[0])
        return SourceOptions(
            bridge=bridge.name,
            group=identity.progress_group(bridge.own_group, self._node.node_id if target.is_own else ""),
            topics=self._parts.topics(bridge),
            batches=batch_options(bridge, self._node.settings),
            start_position=bridge.start_position,
            gap_policy=bridge.gap_policy,
            lingers=target.has_transactions,
            records_start=lane == RECORDING_LANE,
            transforms=bool(bridge.transformer),
            open_transaction_warn_after_ms=bridge.open_transaction_warn_after_ms,
        )

    def _source(self, lane: Lane) -> KafkaSource:
        bridge = lane.bridge
        return KafkaSource(
            self._parts.connection(bridge.source_connector),
            identity.LaneIndex(lane.number, bridge.concurrency),
            self._source_options(bridge, lane.number),
            clock=self._node.clock,
            sent_log=self._sent_log(bridge, lane.number),
            filter=lane.filter,
            counts=lane.counts,
        )

    def _sent_log(self, bridge: Bridge, lane: int) -> SentLog | None:
        if self._node.write_lines is None:
            return None
        writer = LineWriter(
            node=self._node.settings.node.name,
            node_id=self._node.node_id,
            bridge=bridge.name,
            lane=lane,
            target=bridge.target,
        )
        return SentLog(self._node.write_lines, writer)

    async def origin(self, connector: str) -> str:
        """The cluster's identity."""
        return await cluster_origin(self._parts.connection(connector))()

    # -- targets -----------------------------------------------------------------------------------------

    def target(self, lane: Lane) -> TargetEnd:
        """The target of a lane: its producer, and what its journal topic remembers."""
        bridge = lane.bridge
        target = KafkaTarget(
            self._parts.connection(bridge.static_connectors[0]),
            self._parts.journal_topic(bridge),
            lane.number,
            # Of a transformed message the relay makes the letter: it holds the message as it was read.
            replace(
                self._parts.target_options(bridge),
                stores_letters=bool(bridge.dead_letter_address and not bridge.transformer),
            ),
            clock=self._node.clock,
            write_lines=self._node.write_lines,
            hooks=RelayHooks(
                confirmed=lane.confirmed,
                on_duplicates=self._duplicates_of(bridge.name).add,
                counts=lane.counts,
                dead_letters=lane.dead_letters,
            ),
        )
        return TargetEnd(
            target,
            dead_letter_sink=target if bridge.dead_letter_address else None,
            parked=lambda: target.parked,
        )

    def _duplicates_of(self, bridge: str) -> logs.Tally:
        """The tally of duplicates of all the bridge's lanes: at most one log event a second."""
        tally = self._duplicates.get(bridge)
        if tally is None:
            tally = self._duplicates[bridge] = logs.rate_limited(
                "duplicate-rejected",
                bridge=bridge,
                later=lambda delay_s, log: asyncio.get_running_loop().call_later(delay_s, log),
            )
        return tally

    # -- replay plans ------------------------------------------------------------------------------------

    @property
    def _plans(self) -> KafkaPlanEnds:
        if self._made_plans is None:
            from bridge.kafka.plan_ends import KafkaPlanEnds

            self._made_plans = KafkaPlanEnds(self._parts)
        return self._made_plans

    def plan_source(self, bridge: Bridge) -> PlanSource:
        """The records of the bridge's topics, by offset."""
        return self._plans.source(bridge)

    def plan_target(self, bridge: Bridge, source: PlanSource, *, force: bool) -> tuple[Target, Presence]:
        """A producer and a journal topic of the replays' own, and the presence check of the topic."""
        return self._plans.target(bridge, source, force=force)
