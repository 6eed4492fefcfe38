"""The journal's ends as a node's settings say."""

from __future__ import annotations

from bridge.end_kind import Lane, NodeContext, NodeEnds, SourceEnd, TargetEnd, needs_whole_bodies
from bridge.filters import parse
from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.plan_source import JournalPlanSource
from bridge.journal.shared_queues import SharedQueues
from bridge.journal.source import JournalSource
from bridge.journal.sqlite.known_messages import read_known_ids, read_next, read_present
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import BridgeQueue, BridgeSelection, SharedNames
from bridge.relay.ports import Target
from bridge.replay.node_presence import Asked, NodePresence, Present, Question
from bridge.replay.sending import PlanSource, Presence
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings


def bridge_queue(bridge: Bridge, settings: Settings) -> BridgeQueue:
    """The addresses of this node's journal that a bridge of the settings reads."""
    shared = _shared(bridge, settings)
    return BridgeQueue(
        bridge.name,
        bridge.plain_addresses,
        bridge.selects,
        bridge.previous_name,
        shared,
        bridge.call_timeout_ms,
    )


def _selection(bridge: Bridge, settings: Settings) -> BridgeSelection:
    return BridgeSelection(
        bridge.name,
        bridge.selects,
        bridge.target_address,
        _shared(bridge, settings),
        bridge.target_routing_type,
        transforms=bool(bridge.transformer),
    )


def _shared(bridge: Bridge, settings: Settings) -> SharedNames:
    candidates = [name for name in bridge.plain_addresses if name not in settings.addresses]
    return SharedNames(bridge.shared_queues, candidates)


def _cutter(bridge: Bridge, settings: Settings) -> Cutter:
    return Cutter(
        bridge.batch_bytes,
        bridge.min_large_message_size_bytes,
        bridge.use_duplicate_detection,
        needs_whole_bodies(settings, bridge),
    )


class JournalEnds(NodeEnds):
    """Makes ends of this node's journal."""

    def __init__(self, node: NodeContext) -> None:
        assert isinstance(node.journal, Journal), "the journal is open"
        self._journal = node.journal
        self._settings = node.settings

    def source(self, lane: Lane) -> SourceEnd:
        """The queues of the bridge."""
        bridge = lane.bridge
        selection = _selection(bridge, self._settings)
        source = JournalSource(
            self._journal,
            selection,
            _cutter(bridge, self._settings),
            target_name=bridge.target,
            gap_policy=bridge.gap_policy,
            shared=SharedQueues(
                self._journal, selection, bridge.confirmation_window_size_bytes, parse(bridge.filter)
            ),
            filter=lane.filter,
        )
        return SourceEnd(source, store=lambda: self._journal.store, waits=lambda: source.waits)

    def target(self, lane: Lane) -> TargetEnd:
        """The journal's addresses."""
        return TargetEnd(self._target(lane))

    def _target(self, lane: Lane) -> JournalTarget:
        return JournalTarget(
            self._journal,
            lane.name,
            check_producer_ids=lane.bridge.checks_producer_ids,
            previous=lane.previous_name,
        )

    def plan_source(self, bridge: Bridge) -> PlanSource:
        """The messages of the bridge that the journal still has."""
        selection, cutter = _selection(bridge, self._settings), _cutter(bridge, self._settings)
        return JournalPlanSource(self._journal, selection, cutter)

    def plan_target(
        self,
        bridge: Bridge,
        source: PlanSource,
        *,
        force: bool,  # noqa: ARG002 - asking costs nothing
    ) -> tuple[Target, Presence]:
        """The journal's addresses, and the answer to which messages they hold."""
        presence = NodePresence(
            bridge.name, present_here(self._journal), source, checks_ids=bridge.checks_producer_ids
        )
        return self._target(Lane(bridge)), presence


def present_here(journal: Journal) -> Asked:
    """Returns the function that says which messages this node's journal holds, before they are sent again."""

    async def answer(question: Question) -> Present:
        """Raises: JournalUnavailable."""
        address = question.address
        return Present(
            store=journal.store,
            next=await journal.look(read_next, question.bridge, question.stream),
            origins=tuple(await journal.look(read_present, address, question.origins)),
            ids=tuple(await journal.look(read_known_ids, address, question.ids)),
        )

    return answer
