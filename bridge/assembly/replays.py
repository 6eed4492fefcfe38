"""The ends by which a node sends again what a replay plan names, each made as the settings say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.assembly.bridges import Assembly
from bridge.journal.journal import Journal
from bridge.journal.plan_source import JournalPlanSource
from bridge.journal.sqlite.known_messages import read_held, read_known_ids, read_next
from bridge.link import asking
from bridge.link.asking import Held, Question
from bridge.link.presence import Asked, NodePresence
from bridge.replay.plans import Ends, ReplayDesk, Route
from bridge.replay.sending import PlanSource
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import JOURNAL
from bridge.settings.model import Settings

if TYPE_CHECKING:
    from bridge.assembly.kafka_replays import KafkaReplays


def replay_desk(settings: Settings, journal: Journal, assembly: Assembly) -> ReplayDesk:
    """The desk of a node, for all its bridges."""
    made = _Routes(settings, journal, assembly)
    return ReplayDesk({bridge.name: made.route(bridge) for bridge in settings.bridges})


def held_here(journal: Journal) -> Asked:
    """What this node's journal says about messages that are to be sent again."""

    async def answer(question: Question) -> Held:
        """Raises: JournalUnavailable."""
        address = question.address
        return Held(
            store=journal.store,
            next=await journal.look(read_next, question.bridge, question.stream),
            origins=tuple(await journal.look(read_held, address, question.origins)),
            ids=tuple(await journal.look(read_known_ids, address, question.ids)),
        )

    return answer


class _Routes:
    """Makes the route of each bridge."""

    def __init__(self, settings: Settings, journal: Journal, assembly: Assembly) -> None:
        self._settings = settings
        self._journal = journal
        self._assembly = assembly
        self._kafka: KafkaReplays | None = None

    def route(self, bridge: Bridge) -> Route:
        """How to reach both ends of `bridge`."""

        def ends(*, force: bool) -> Ends:
            source = self._source(bridge)
            if self._settings.is_kafka(bridge.static_connectors[0]):
                return Ends(source, *self._kafka_ends().target(bridge, source, force=force))
            presence = NodePresence(
                bridge.name, self._asked(bridge), source, checks_ids=bridge.checks_producer_ids
            )
            return Ends(source, self._assembly.target(bridge), presence)

        return ends

    def _source(self, bridge: Bridge) -> PlanSource:
        if self._settings.is_kafka(bridge.source_connector):
            return self._kafka_ends().source(bridge)
        return JournalPlanSource(
            self._journal,
            bridge.name,
            selects=bridge.selects,
            forward=bridge.target_address,
            stamp=bridge.use_duplicate_detection,
            batch_bytes=bridge.producer_window_size_bytes,
            large_bytes=bridge.min_large_message_size_bytes,
            max_hops=bridge.max_hops,
        )

    def _asked(self, bridge: Bridge) -> Asked:
        """Of a target that is a node: this one, or at the other end of a link."""
        connector = bridge.static_connectors[0]
        if connector == JOURNAL:
            return held_here(self._journal)
        endpoint = self._assembly.endpoint(connector)
        return lambda question: asking.ask(endpoint, question, bridge.call_timeout_ms)

    def _kafka_ends(self) -> KafkaReplays:
        if self._kafka is None:
            self._kafka = self._assembly.kafka_replays()
        return self._kafka
