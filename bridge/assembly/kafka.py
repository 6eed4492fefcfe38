"""Bridges with a Kafka end, made of sources, targets and lanes as the settings say.

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
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.assembly.relay_options import relay_options
from bridge.delivery_log import WriteLines
from bridge.delivery_log.line_writer import LineWriter
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.options import kafka_connection
from bridge.kafka.journal_topic.journal_topic import JournalTopic
from bridge.kafka.journal_topic.origin import Origin, cluster_origin, journal_origin
from bridge.kafka.lanes.groups import JournalTopicOwnership, SourceOwnership
from bridge.kafka.lanes.lane_holders import LaneHolders
from bridge.kafka.records import identity
from bridge.kafka.source.first_start import RECORDING_LANE
from bridge.kafka.source.sent_log import SentLog
from bridge.kafka.source.source import KafkaSource
from bridge.kafka.target.target import KafkaTarget, KafkaTargetOptions
from bridge.relay.lanes import LanedRelay
from bridge.relay.operated import Operated
from bridge.relay.ownership import AllLanes, AskDivision, Ownership
from bridge.relay.ports import Source, Target
from bridge.relay.pump import Counts
from bridge.relay.relay import Relay
from bridge.runtime import logs
from bridge.runtime.clock import Clock
from bridge.settings import kafka_names
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import JOURNAL
from bridge.settings.listeners import Acceptor as AcceptorSettings
from bridge.settings.model import Settings

if TYPE_CHECKING:
    from bridge.assembly.bridges import Assembly
    from bridge.journal.journal import Journal
    from bridge.relay.dead_letters import Burier


class KafkaAssembly:
    """Makes bridges with a Kafka end; `others` makes the ends that are not Kafka's."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        others: Assembly | None = None,
        journal: Journal | None = None,
        write_lines: WriteLines | None = None,
        node_id: str = "",
        worker: int | None = None,
    ) -> None:
        """Without `others` and `journal` only bridges from Kafka to Kafka can be made: in a worker.

        `write_lines` makes delivery-log lines durable; without it none are written. `node_id` is the node's
        UUID where there is no journal to say it; `worker` the number of a worker process.
        """
        #: What other nodes call this process.
        self._member_name = settings.node.name + ("" if worker is None else f" worker {worker}")
        self._write_lines = write_lines
        #: What the log has been told of journal topics: once for all lanes.
        self._warned: set[str] = set()
        self._settings = settings
        self._clock = clock
        self._others = others
        #: The node's UUID.
        self.node_id = node_id if journal is None else journal.identity.node_id
        self._duplicates: dict[str, logs.Tally] = {}

    def operated(self, bridge: Bridge) -> Operated:
        """The bridge, stopped."""
        if bridge.source_connector == JOURNAL:
            return self._from_journal(bridge)
        ownership = self._ownership(bridge)
        return LanedRelay(
            relay_options(bridge),
            ownership,
            lambda lane: self._lane(bridge, lane, ownership),
        )

    def ends(self, bridge: Bridge) -> Sequence[tuple[Source, Target]]:
        """Source and target of each of its lanes, not open (`bridge.node.offline`)."""
        if bridge.source_connector == JOURNAL:
            assert self._others is not None
            return [(self._others.source(bridge), self._target(bridge, 0, None))]
        return [
            (self._source(bridge, lane), self._target_of_lane(bridge, lane))
            for lane in range(bridge.concurrency)
        ]

    def _target_of_lane(self, bridge: Bridge, lane: int) -> Target:
        if self._settings.is_kafka(bridge.static_connectors[0]):
            return self._target(bridge, lane, None)
        assert self._others is not None
        return self._others.target(bridge)

    # -- who relays what ---------------------------------------------------------------------------------

    def _ownership(self, bridge: Bridge) -> Ownership:
        target = bridge.static_connectors[0]
        if target == JOURNAL:
            return AllLanes(bridge.concurrency)
        group, name = bridge.own_group, self._member_name
        if self._settings.is_kafka(target):
            return JournalTopicOwnership(
                self.connection(target),
                group=group,
                topic=bridge.own_topic,
                lanes=bridge.concurrency,
                name=name,
                prepare=self.journal_topic(bridge).prepare,
            )
        return SourceOwnership(
            self.connection(bridge.source_connector),
            group=group,
            lanes=bridge.concurrency,
            bridge=bridge.name,
            name=name,
        )

    def division(self, bridge: Bridge) -> AskDivision | None:
        """Asks who has which lane of the bridge; None where it shares lanes with no other process."""
        source, target = bridge.source_connector, bridge.static_connectors[0]
        if JOURNAL in (source, target):
            return None
        at_target = self._settings.is_kafka(target)
        return LaneHolders(
            self.connection(target if at_target else source),
            group=bridge.own_group,
            lanes=bridge.concurrency,
            side="target" if at_target else "source",
            clock=self._clock,
        ).ask

    # -- relays ------------------------------------------------------------------------------------------

    def _from_journal(self, bridge: Bridge) -> Relay:
        assert self._others is not None
        counts, dead_letters = Counts(), self._others.dead_letters(bridge)
        return Relay(
            relay_options(bridge),
            self._others.source(bridge),
            self._target(bridge, 0, None, counts=counts, dead_letters=dead_letters),
            clock=self._clock,
            dead_letters=dead_letters,
            counts=counts,
        )

    def _lane(self, bridge: Bridge, lane: int, ownership: Ownership) -> Relay:
        source = self._source(bridge, lane)
        dead_letters: Burier | None
        if self._settings.is_kafka(bridge.static_connectors[0]):
            counts = Counts()
            target = self._target(bridge, lane, ownership, counts=counts)
            dead_letters = target if bridge.dead_letter_address else None
            return Relay(
                relay_options(bridge),
                source,
                target,
                clock=self._clock,
                dead_letters=dead_letters,
                lag=lambda: source.lag,
                parked=lambda: source.parked,
                waits=lambda: source.waits,
                counts=counts,
            )
        assert self._others is not None
        return Relay(
            relay_options(bridge),
            source,
            self._others.target(bridge),
            clock=self._clock,
            dead_letters=self._others.dead_letters_at_target(bridge),
            lag=lambda: source.lag,
            parked=lambda: source.parked,
            waits=lambda: source.waits,
        )

    def _source(self, bridge: Bridge, lane: int) -> KafkaSource:
        node_id = self.node_id if bridge.static_connectors[0] == JOURNAL else ""
        acceptor = self._settings.acceptor or AcceptorSettings()
        return KafkaSource(
            self.connection(bridge.source_connector),
            bridge=bridge.name,
            group=identity.progress_group(bridge.own_group, node_id),
            selects=bridge.selects_topic,
            names=bridge.plain_addresses,
            names_only=bridge.names_only,
            forward=bridge.target_address,
            lane=lane,
            lanes=bridge.concurrency,
            stamp=bridge.use_duplicate_detection,
            start_position=bridge.start_position,
            gap_policy=bridge.gap_policy,
            batch_bytes=bridge.producer_window_size_bytes,
            large_bytes=bridge.min_large_message_size_bytes,
            max_hops=bridge.max_hops,
            max_id_bytes=acceptor.max_duplicate_id_size_bytes,
            clock=self._clock,
            sent_log=self._sent_log(bridge, lane),
            lingers=self._settings.is_kafka(bridge.static_connectors[0]),
            records_start=lane == RECORDING_LANE,
            open_transaction_warn_after_ms=bridge.open_transaction_warn_after_ms,
        )

    def _sent_log(self, bridge: Bridge, lane: int) -> SentLog | None:
        if self._write_lines is None:
            return None
        writer = LineWriter(
            node=self._settings.node.name,
            node_id=self.node_id,
            bridge=bridge.name,
            lane=lane,
            target=bridge.static_connectors[0],
        )
        return SentLog(self._write_lines, writer)

    def _target(
        self,
        bridge: Bridge,
        lane: int,
        ownership: Ownership | None,
        *,
        counts: Counts | None = None,
        dead_letters: Burier | None = None,
    ) -> KafkaTarget:
        return KafkaTarget(
            self.connection(bridge.static_connectors[0]),
            self.journal_topic(bridge),
            lane,
            replace(self.target_options(bridge), buries=bool(bridge.dead_letter_address)),
            clock=self._clock,
            confirmed=None if ownership is None else lambda: ownership.confirmed(lane),
            write_lines=self._write_lines,
            on_duplicates=self._duplicates_of(bridge.name).add,
            counts=counts,
            dead_letters=dead_letters,
        )

    def target_options(self, bridge: Bridge) -> KafkaTargetOptions:
        """The bridge's settings, as far as its target is concerned."""
        return KafkaTargetOptions(
            stamp=bridge.use_duplicate_detection,
            check_producer_ids=bridge.checks_producer_ids,
            preserve_partitions=bridge.preserve_partitions,
            create_topics=bridge.create_topics,
            add_partitions=bridge.add_partitions,
            topic_replication_factor=bridge.topic_replication_factor,
            dead_letter_address=bridge.dead_letter_address,
            bridge=bridge.name,
            node=self._settings.node.name,
            node_id=self.node_id,
            target_name=bridge.static_connectors[0],
        )

    def _duplicates_of(self, bridge: str) -> logs.Tally:
        """Of all its lanes together: at most one line a second for a bridge."""
        tally = self._duplicates.get(bridge)
        if tally is None:
            tally = self._duplicates[bridge] = logs.rate_limited(
                "duplicate-rejected",
                bridge=bridge,
                later=lambda delay_s, tell: asyncio.get_running_loop().call_later(delay_s, tell),
            )
        return tally

    def journal_topic(self, bridge: Bridge) -> JournalTopic:
        """Where a bridge to Kafka keeps what its target covers."""
        settings = self._settings
        return JournalTopic(
            self.connection(bridge.static_connectors[0]),
            bridge=bridge.name,
            topic=bridge.own_topic,
            lanes=1 if bridge.source_connector == JOURNAL else bridge.concurrency,
            replication_factor=bridge.journal_replication_factor,
            owner=self.node_id if bridge.source_connector == JOURNAL else "",
            id_cache_size=lambda address: settings.for_address(address).id_cache_size,
            persist_ids=settings.duplicate_detection.persist_id_cache,
            previous_topic=kafka_names.journal_topic(bridge.previous_name) if bridge.previous_name else "",
            origin=self.origin(bridge),
            warned=self._warned,
        )

    def origin(self, bridge: Bridge) -> Origin:
        """Tells where the bridge's messages come from."""
        if bridge.source_connector == JOURNAL:
            return journal_origin
        return cluster_origin(self.connection(bridge.source_connector))

    def connection(self, name: str) -> KafkaConnection:
        """How to reach the cluster that a connector names."""
        return kafka_connection(name, self._settings.connectors[name])
