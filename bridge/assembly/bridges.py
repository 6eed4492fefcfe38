"""The bridges of a node, each made of its ends by the settings.

Only the registry knows the kind of an end; a kind's modules are loaded where a bridge has such an end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from bridge.assembly.relay_options import relay_options, stages, transformer_options
from bridge.assembly.summary import BridgeSummary
from bridge.end_kind import EndKind, Lane, NodeContext, NodeEnds, Side, kind_of, needs_whole_bodies
from bridge.relay.connectors import Connector
from bridge.relay.counts import Counts
from bridge.relay.dead_letters import DeadLetters, DeadLetterSink
from bridge.relay.filtering import FilterRecord
from bridge.relay.lanes import LanedRelay
from bridge.relay.operated import Operated
from bridge.relay.ownership import AllLanes, AskDivision, Ownership
from bridge.relay.pacing import Pacer
from bridge.relay.ports import Source, Target
from bridge.relay.relay import LaneEnds, Relay
from bridge.relay.shared_lines import SharedLines
from bridge.relay.stages import filter_stage
from bridge.relay.transforming import Transformers, Transforming
from bridge.runtime.proxies import Proxy
from bridge.settings.bridges import Bridge
from bridge.transformers.loading import load

_TARGET_FIRST: tuple[Side, Side] = ("target", "source")
#: Stands for a lane where a bridge's transformer serves replays.
REPLAYS: Final = -1


class Assembly:
    """Makes bridges for one process."""

    def __init__(
        self,
        node: NodeContext,
        transformers: Transformers | None = None,
        shared: SharedLines | None = None,
        *,
        processes: int = 1,
    ) -> None:
        """`transformers`, and `shared` lines: of the process, where other settings come and go in it.
        `processes` of this node divide the lanes of each bridge, and its `max-rate`.
        """
        self._node = node
        self._processes = processes
        self._settings = node.settings
        #: By kind: the ends' factory for all bridges of the process.
        self._ends: dict[EndKind, NodeEnds] = {}
        self._transformers = Transformers() if transformers is None else transformers
        self._shared = SharedLines() if shared is None else shared
        self._transformers.forget_others(bridge.name for bridge in node.settings.bridges)
        #: By bridge and lane, for all its relays: a transformer that does not return keeps one thread a lane.
        self._transforming: dict[tuple[str, int], Transforming] = {}

    def ends_of(self, connector: str) -> NodeEnds:
        """The factory of the ends that a connector, or ``journal``, leads to."""
        kind = kind_of(self._settings, connector)
        if kind not in self._ends:
            self._ends[kind] = kind.in_process(self._node, self.ends_of)
        return self._ends[kind]

    def _at(self, bridge: Bridge, side: Side) -> NodeEnds:
        return self.ends_of(bridge.static_connectors[0] if side == "target" else bridge.source_connector)

    def summary(self, bridge: Bridge) -> BridgeSummary:
        """The facts about a bridge that do not change while it runs."""
        settings = self._settings
        sizes = [settings.for_address(address).id_cache_size for address in bridge.plain_addresses]
        target = kind_of(settings, bridge.static_connectors[0])
        return BridgeSummary(
            source=bridge.source,
            target=bridge.target,
            guarantee=bridge.guarantee,
            check_producer_ids=bridge.checks_producer_ids and target.checks_producer_ids,
            id_cache_size=min(sizes, default=settings.duplicate_detection.id_cache_size),
            readers=target.readers if bridge.use_duplicate_detection else "",
            division=self._division(bridge),
            filter=bridge.filter,
            transformer=bridge.transformer,
            concurrency=bridge.calls_at_a_time,
            from_journal=kind_of(settings, bridge.source_connector).is_own,
            proxies={name: str(found) for name in bridge.static_connectors if (found := self._proxy(name))},
        )

    def _proxy(self, connector: str) -> Proxy | None:
        found = self._settings.connectors.get(connector)
        return None if found is None else found.end_rules.proxy(found)

    def operated(self, bridge: Bridge) -> Operated:
        """The bridge, stopped."""
        ownership, record = self._ownership(bridge), FilterRecord()
        pacer = Pacer(bridge.max_rate_bytes / self._processes) if bridge.max_rate_bytes else None
        return LanedRelay(
            relay_options(bridge),
            ownership,
            lambda lane: self._relay(bridge, lane, partial(ownership.confirmed, lane), record, pacer),
            numbered=self._has_lanes(bridge),
            record=record,
            clock=self._node.clock,
            probe=self._at(bridge, "source").lag_probe(bridge),
        )

    def ends(self, bridge: Bridge) -> Sequence[tuple[Source, Target]]:
        """Source and target of each of its lanes, not open."""
        lanes = [Lane(bridge, lane) for lane in range(self._lanes(bridge))]
        sources, targets = self._at(bridge, "source"), self._at(bridge, "target")
        return [(sources.source(lane).source, targets.target(lane).target) for lane in lanes]

    # -- lanes and their ownership -----------------------------------------------------------------------

    def _has_lanes(self, bridge: Bridge) -> bool:
        return kind_of(self._settings, bridge.source_connector).has_lanes

    def _lanes(self, bridge: Bridge) -> int:
        return bridge.concurrency if self._has_lanes(bridge) else 1

    def whole_bodies(self, bridge: Bridge) -> bool:
        """Whether the bridge needs large bodies whole."""
        return needs_whole_bodies(self._settings, bridge)

    def _dividers(self, bridge: Bridge) -> Iterator[tuple[NodeEnds, Side]]:
        """The ends that may divide its lanes among processes, the target's first. None where no other process
        may relay lanes of it: those into a target that only this process has.
        """
        if self._has_lanes(bridge) and not kind_of(self._settings, bridge.static_connectors[0]).is_own:
            for side in _TARGET_FIRST:
                yield self._at(bridge, side), side

    def _ownership(self, bridge: Bridge) -> Ownership:
        """The ownership of its lanes: the target divides them where it can; else the source; else all are
        this process's.
        """
        found = (ends.ownership(bridge, side) for ends, side in self._dividers(bridge))
        return next(filter(None, found), None) or AllLanes(self._lanes(bridge))

    def _division(self, bridge: Bridge) -> AskDivision | None:
        """Asks for the owner of each lane; None where the bridge shares lanes with no other process."""
        found = (ends.division(bridge, side) for ends, side in self._dividers(bridge))
        return next(filter(None, found), None)

    # -- relays ------------------------------------------------------------------------------------------

    def _relay(
        self,
        bridge: Bridge,
        lane: int,
        confirmed: Callable[[], Awaitable[None]],
        record: FilterRecord,
        pacer: Pacer | None,
    ) -> Relay:
        sources = self._at(bridge, "source")
        from_own = kind_of(self._settings, bridge.source_connector).is_own
        letters_here = self._dead_letters(bridge, sources) if from_own else None
        passes = filter_stage(bridge.filter, record)
        part = Lane(
            bridge,
            lane,
            confirmed=confirmed,
            counts=Counts(),
            dead_letters=letters_here,
            filter=passes,
            pacer=pacer,
        )
        source = sources.source(part)
        first, *others = [self._connector(part, name) for name in bridge.static_connectors]
        parking = [source.parked, *(way.parked for way in (first, *others))]
        return Relay(
            relay_options(bridge),
            LaneEnds(
                source.source,
                first.target,
                first.dead_letters,
                source.lag,
                lambda: {place: why for end in parking for place, why in end().items()},
                source.waits,
                source.partitions,
                connector=first.name,
                failovers=others,
            ),
            clock=self._node.clock,
            counts=part.counts,
            stages=stages(bridge, passes, source.store, whole_bodies=self.whole_bodies(bridge)),
            transforming=self.transforming(bridge, lane),
            pacer=pacer,
            shared=self._shared,
        )

    def _connector(self, part: Lane, name: str) -> Connector:
        """The way to the target that the connector of this name leads to."""
        alone = part.bridge.by(name)
        targets = self.ends_of(name)
        target = targets.target(replace(part, bridge=alone))
        dead_letters = part.dead_letters
        if not kind_of(self._settings, alone.source_connector).is_own:
            dead_letters = target.dead_letter_sink or self._dead_letters(alone, targets)
        return Connector(name, target.target, dead_letters, target.parked)

    def transforming(self, bridge: Bridge, lane: int) -> Transforming | None:
        """The transformer of a lane (`REPLAYS`: of the bridge's replays), the same at each call; None: the
        bridge has none.
        """
        if not bridge.transformer:
            return None
        key = (bridge.name, lane)
        if key not in self._transforming:
            find = partial(load, bridge.transformer, bridge.transformer_properties)
            self._transforming[key] = self._transformers.make(
                self,
                (bridge.name, bridge.previous_name),
                find,
                transformer_options(bridge),
                replays=lane == REPLAYS,
            )
        return self._transforming[key]

    def _dead_letters(self, bridge: Bridge, where: NodeEnds) -> DeadLetterSink | None:
        """The sink of refused messages: this node's journal where it is the source, otherwise the target."""
        if not bridge.dead_letter_address:
            return None
        # Dead letters are identified by their own stream; the IDs that the messages brought are not checked.
        unchecked = bridge.model_copy(update={"check_producer_ids": False})
        return DeadLetters(
            bridge.name,
            bridge.dead_letter_address,
            lambda name: where.target(Lane(unchecked, within=name.removeprefix(bridge.name))).target,
        )
