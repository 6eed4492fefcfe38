"""Kafka's ends of replay plans, made as the settings say; the counterpart of `bridge.kafka_assembly`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from bridge.clock import Clock
from bridge.delivery_log import WriteLines
from bridge.kafka import identity
from bridge.kafka.held import TopicIds
from bridge.kafka.journal_topic import JournalTopic
from bridge.kafka.partitions import Partitions
from bridge.kafka.records_in import Rules
from bridge.kafka.replaying import KafkaPlanSource, KafkaPlanTarget, KnownPositions
from bridge.kafka.target import KafkaTarget
from bridge.kafka_assembly import KafkaAssembly
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import JOURNAL
from bridge.settings.listeners import Acceptor as AcceptorSettings
from bridge.settings.model import Settings

#: How long the IDs of a topic are kept for the next call of a plan.
IDLE_S: Final = 300.0


class KafkaReplays:
    """Makes the ends; keeps the IDs of the topic that was asked last, for plans of many calls."""

    def __init__(
        self, settings: Settings, clock: Clock, assembly: KafkaAssembly, write_lines: WriteLines | None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._assembly = assembly
        self._write_lines = write_lines
        self._kept: tuple[tuple[str, str], TopicIds] | None = None
        self._dropping: asyncio.TimerHandle | None = None

    def source(self, bridge: Bridge) -> KafkaPlanSource:
        """The topics that the bridge reads, all lanes of them."""
        connection = self._assembly.connection(bridge.source_connector)
        acceptor = self._settings.acceptor or AcceptorSettings()
        partitions = Partitions(
            connection,
            selects=bridge.selects_topic,
            forward=bridge.target_address,
            lane=0,
            lanes=1,
            names=bridge.plain_addresses,
            names_only=bridge.names_only,
        )

        def rules(own_hop: bytes) -> Rules:
            return Rules(
                own_hop,
                bridge.use_duplicate_detection,
                bridge.producer_window_size_bytes,
                bridge.min_large_message_size_bytes,
                bridge.max_hops,
                acceptor.max_duplicate_id_size_bytes,
            )

        return KafkaPlanSource(
            connection,
            partitions,
            rules,
            bridge=bridge.name,
            batch_bytes=bridge.producer_window_size_bytes,
        )

    def target(self, bridge: Bridge, *, force: bool) -> KafkaPlanTarget:
        """Where the bridge delivers, with a journal topic and a producer of the replays' own."""
        name = bridge.static_connectors[0]
        connection = self._assembly.connection(name)
        known = KnownPositions()
        options = replace(
            self._assembly.target_options(bridge),
            check_producer_ids=False,
            dead_letter_address="",
            held=known,
        )
        journal = self._journal_topic(bridge)

        async def covered(stream: str) -> int | None:
            owner = self._owner(bridge)
            found = [snapshot.streams(owner).get(stream) for snapshot in await journal.look()]
            return next((record.next for record in found if record is not None), None)

        return KafkaPlanTarget(
            KafkaTarget(connection, journal, 0, options, clock=self._clock, write_lines=self._write_lines),
            connection,
            known=known,
            ids_of=None if force else lambda topic: self._ids_of(name, topic),
            covered=covered,
            stamp=bridge.use_duplicate_detection,
        )

    def _owner(self, bridge: Bridge) -> str:
        return self._assembly.node_id if bridge.source_connector == JOURNAL else ""

    def _journal_topic(self, bridge: Bridge) -> JournalTopic:
        return JournalTopic(
            self._assembly.connection(bridge.static_connectors[0]),
            bridge=bridge.name,
            topic=identity.replays_topic(bridge.name),
            lanes=1,
            replication_factor=bridge.journal_replication_factor,
            owner=self._owner(bridge),
            id_cache_size=lambda _address: 0,
            persist_ids=False,
            origin=self._assembly.origin(bridge),
        )

    def _ids_of(self, connector: str, topic: str) -> TopicIds:
        key = (connector, topic)
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, TopicIds(self._assembly.connection(connector), topic))
        if self._dropping is not None:
            self._dropping.cancel()
        self._dropping = asyncio.get_running_loop().call_later(IDLE_S, self._drop)
        return self._kept[1]

    def _drop(self) -> None:
        self._kept = self._dropping = None
