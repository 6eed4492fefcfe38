"""The bridges of a node, each made of its ends as the settings say.

Kafka's ends, and aiokafka with them, are loaded only where a bridge has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from bridge.assembly.credentials import Credentials
from bridge.assembly.relay_options import relay_options
from bridge.assembly.summary import BridgeSummary
from bridge.delivery_log import WriteLines
from bridge.journal.journal import Journal
from bridge.journal.source import JournalSource
from bridge.journal.target import JournalTarget
from bridge.link.frames import Hello
from bridge.link.limits import VERSION
from bridge.link.node_target import NodeTarget
from bridge.link.socket import Endpoint
from bridge.relay.dead_letters import Burier, DeadLetters
from bridge.relay.operated import Operated
from bridge.relay.ports import Source, Target
from bridge.relay.relay import Relay
from bridge.runtime.clock import Clock
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import JOURNAL
from bridge.settings.model import Settings

if TYPE_CHECKING:
    from bridge.assembly.kafka import KafkaAssembly
    from bridge.assembly.kafka_replays import KafkaReplays

#: A Kafka target writes in transactions: who reads uncommitted also reads what was aborted and sent again.
READERS: Final = "isolation.level=read_committed"


class Assembly:
    """Makes bridges for one node."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        journal: Journal,
        write_lines: WriteLines | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """`write_lines`: into the delivery log's files, what no outbox keeps: lines of Kafka's ends.

        `credentials`: of the connectors, as they are at each attempt to connect.
        """
        self._write_lines = write_lines
        self._credentials = credentials or Credentials(settings)
        self._settings = settings
        self._clock = clock
        self._journal = journal

    def summary(self, bridge: Bridge) -> BridgeSummary:
        """What is known of it besides its life."""
        settings = self._settings
        sizes = [settings.for_address(address).id_cache_size for address in bridge.plain_addresses]
        return BridgeSummary(
            source=bridge.source,
            target=bridge.target,
            guarantee=bridge.guarantee,
            check_producer_ids=bridge.checks_producer_ids,
            id_cache_size=min(sizes, default=settings.duplicate_detection.id_cache_size),
            readers=READERS if self._settings.is_kafka(bridge.static_connectors[0]) else "",
            division=self.kafka().division(bridge) if self._has_kafka(bridge) else None,
            from_journal=bridge.source_connector == JOURNAL,
        )

    def operated(self, bridge: Bridge) -> Operated:
        """The bridge, stopped."""
        if self._has_kafka(bridge):
            return self.kafka().operated(bridge)
        target = self.target(bridge)
        return Relay(
            relay_options(bridge),
            self.source(bridge),
            target,
            clock=self._clock,
            dead_letters=self.dead_letters(bridge),
        )

    def ends(self, bridge: Bridge) -> Sequence[tuple[Source, Target]]:
        """Source and target of each of its lanes, not open."""
        if self._has_kafka(bridge):
            from bridge.assembly.kafka import KafkaAssembly

            return KafkaAssembly(self._settings, self._clock, self, self._journal).ends(bridge)
        return [(self.source(bridge), self.target(bridge))]

    def _has_kafka(self, bridge: Bridge) -> bool:
        return any(map(self._settings.is_kafka, (bridge.source_connector, bridge.static_connectors[0])))

    def kafka(self) -> KafkaAssembly:
        """What makes the ends that are Kafka's."""
        from bridge.assembly.kafka import KafkaAssembly

        return KafkaAssembly(self._settings, self._clock, self, self._journal, self._write_lines)

    def kafka_replays(self) -> KafkaReplays:
        """What makes Kafka's ends for replay plans."""
        from bridge.assembly.kafka_replays import KafkaReplays

        return KafkaReplays(self._settings, self._clock, self.kafka(), self._write_lines)

    # -- ends that are not Kafka's ---------------------------------------------------------------------------

    def source(self, bridge: Bridge) -> Source:
        """This node's journal as the bridge's source."""
        return JournalSource(
            self._journal,
            bridge.name,
            selects=bridge.selects,
            forward=bridge.target_address,
            stamp=bridge.use_duplicate_detection,
            batch_bytes=bridge.producer_window_size_bytes,
            large_bytes=bridge.min_large_message_size_bytes,
            target_name=bridge.static_connectors[0],
            gap_policy=bridge.gap_policy,
            max_hops=bridge.max_hops,
        )

    def target(self, bridge: Bridge, within: str = "") -> Target:
        """This node's journal, or another node, as the target of the bridge.

        `within` is what its name is followed by where it delivers something of its own: its dead letters.
        """
        connector = bridge.static_connectors[0]
        if connector == JOURNAL:
            return self._journal_target(bridge, within, check_producer_ids=bridge.checks_producer_ids)
        return self._node_target(bridge, within)

    def _journal_target(self, bridge: Bridge, within: str, *, check_producer_ids: bool) -> JournalTarget:
        return JournalTarget(
            self._journal,
            bridge.name + within,
            check_producer_ids=check_producer_ids,
            previous=_previous(bridge, within),
        )

    def dead_letters(self, bridge: Bridge) -> Burier | None:
        """Where refused messages go: into this node's journal."""
        if not bridge.dead_letter_address:
            return None
        return DeadLetters(
            bridge.name,
            bridge.dead_letter_address,
            lambda name: self._journal_target(bridge, _within(bridge, name), check_producer_ids=False),
        )

    def dead_letters_at_target(self, bridge: Bridge) -> Burier | None:
        """The same, for a source that is not a node: to where the bridge delivers."""
        if not bridge.dead_letter_address:
            return None
        unchecked = bridge.model_copy(update={"check_producer_ids": False})
        return DeadLetters(
            bridge.name,
            bridge.dead_letter_address,
            lambda name: self.target(unchecked, _within(bridge, name)),
        )

    def _node_target(self, bridge: Bridge, within: str) -> NodeTarget:
        journal = self._journal
        hello = Hello(
            version=VERSION,
            node_id=journal.identity.node_id,
            node_name=self._settings.node.name,
            store=journal.store,
            bridge=bridge.name + within,
            previous=_previous(bridge, within),
            check_producer_ids=bridge.checks_producer_ids,
            use_duplicate_detection=bridge.use_duplicate_detection,
            producer_window=bridge.producer_window_size_bytes,
            check_period_ms=bridge.check_period_ms,
            connection_ttl_ms=bridge.connection_ttl_ms,
        )
        endpoint = self.endpoint(bridge.static_connectors[0])
        return NodeTarget(endpoint, hello, call_timeout_ms=bridge.call_timeout_ms, clock=self._clock)

    def endpoint(self, name: str) -> Endpoint:
        """How to reach the node that the connector of this name leads to."""
        return self._credentials.endpoint(name)


def _within(bridge: Bridge, name: str) -> str:
    return name.removeprefix(bridge.name)


def _previous(bridge: Bridge, within: str) -> str:
    """What the bridge's target was told to call it before (`previous-name`); empty: nothing."""
    return bridge.previous_name + within if bridge.previous_name else ""
