"""Plans an audit: which partitions are compared with which, how far, and the bridge's confirmed positions.

The order of the questions matters (`dedup.reconcile.audit.plan`): what is confirmed is asked before the ends
of the target, so that the records behind every confirmed position are within what is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from bridge.audit.access import access
from bridge.end_kind import AuditSource, AuditTarget, Selection, kind_of
from bridge.errors import Malformed, NotFound
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings
from dedup.reconcile.audit.plan import Plan


@dataclass(frozen=True, slots=True)
class Pair:
    """Two ends to compare: a bridge's, or ones that the operator named."""

    source: str
    target: str
    selection: Selection
    #: The target's name, which must be there; empty: a bridge makes its targets when it needs them.
    target_name: str = ""
    bridge: Bridge | None = None


def of_bridge(settings: Settings, bridge: Bridge) -> Pair:
    """The ends of a bridge.

    Raises:
        Malformed: it has none to compare; names the reason.
    """
    source = bridge.source_connector
    kind = kind_of(settings, source)
    if kind.audit_source(settings, source) is None:
        read = "this node's journal" if kind.is_own else source
        raise Malformed(
            f"{bridge.name} reads {read}: an audit compares a Kafka source with its target",
            key="source-connector",
            found=bridge.source_connector,
        )
    if not bridge.use_duplicate_detection:
        raise Malformed(
            f"{bridge.name} has use-duplicate-detection = false: its records carry no ID to find them by",
            key="use-duplicate-detection",
            found="false",
        )
    if len(bridge.static_connectors) > 1:
        raise Malformed(
            f"{bridge.name} has several static-connectors: what one of their stores lacks may be at another;"
            " core-bridge reconcile holds the logs of all of them against each other",
            key="static-connectors",
            found=", ".join(bridge.static_connectors),
        )
    return Pair(
        bridge.source_connector,
        bridge.static_connectors[0],
        Selection(bridge.selects_topic, bridge.target_address),
        bridge=bridge,
    )


def of_names(settings: Settings, source: tuple[str, str], target: tuple[str, str]) -> Pair:
    """One topic and one topic or address, each with its connector.

    Raises:
        NotFound: no such connector. Malformed: the source is not Kafka.
    """
    for connector, _ in (source, target):
        if not settings.has_end(connector):
            names = ", ".join(settings.connectors) or "none"
            raise NotFound(
                f"no connector {connector}; the settings have: {names}", key="connectors", found=connector
            )
    if kind_of(settings, source[0]).audit_source(settings, source[0]) is None:
        raise Malformed(f"the source of an audit is Kafka; {source[0]} leads to a node", key="source")
    return Pair(
        source[0],
        target[0],
        Selection(lambda topic: topic == source[1], lambda _: target[1], names=(source[1],)),
        target_name=target[1],
    )


class Planner:
    """Makes the plan of one audit, and reads its ends again."""

    def __init__(self, settings: Settings, path: Path, pair: Pair) -> None:
        """`path` is the file that `settings` came from: tasks read it again."""
        self._settings = settings
        self._path = path
        self._pair = pair

    async def plan(self) -> Plan:
        """Plan what to read. Raises: NotFound: no such topic or address; BridgeError: the error of an end."""
        pair, bridge = self._pair, self._pair.bridge
        source, target = self._source(), self._target()
        streams = await source.streams(pair.selection)
        if bridge is not None and streams:
            streams = await target.confirmed(bridge, streams, source)
        letters = bridge.dead_letter_address if bridge else ""
        topics = {stream.target for stream in streams}
        places = await target.places(topics | {letters} - {""})
        name = pair.target_name
        if name and name not in {place.topic for place in places}:
            raise NotFound(f"connector {pair.target}: no {target.what} {name}", key=target.what, found=name)
        preserves_partitions = bridge is not None and bridge.preserve_partitions
        return Plan(
            bridge=bridge.name if bridge else "",
            source=access(
                self._settings,
                self._path,
                pair.source,
                bridge.name if bridge is not None and bridge.filter else "",
            ),
            target=access(self._settings, self._path, pair.target),
            store="" if bridge is None else await target.store(bridge),
            streams=tuple(streams),
            places=tuple(place for place in places if place.topic in topics),
            letters=tuple(place for place in places if place.topic == letters),
            is_filtered=bool(bridge and (bridge.filter or bridge.transformer)),
            from_latest=bridge is not None and bridge.start_position == "latest",
            preserves_partitions=preserves_partitions and target.has_partitions,
            checks_ids=bridge is None or bridge.checks_producer_ids,
        )

    async def renewed(self, plan: Plan) -> Plan:
        """The same plan with the present beginnings: what was deleted meanwhile was not read.

        Raises: BridgeError.
        """
        source = await self._source().starts((one.topic, one.partition) for one in plan.streams)
        target = await self._target().starts(plan.places)
        return replace(
            plan,
            streams=tuple(
                replace(one, start=max(one.start, source[one.topic, one.partition])) for one in plan.streams
            ),
            places=tuple(
                replace(one, start=max(one.start, target[one.topic, one.partition])) for one in plan.places
            ),
        )

    def _source(self) -> AuditSource:
        name = self._pair.source
        found = kind_of(self._settings, name).audit_source(self._settings, name)
        assert found is not None, "the pair was made of one that can be read"
        return found

    def _target(self) -> AuditTarget:
        """Raises: Malformed: an audit cannot read it."""
        name = self._pair.target
        found = kind_of(self._settings, name).audit_target(self._settings, name)
        if found is None:
            raise Malformed(
                f"the target of an audit is Kafka or a node; {name} leads elsewhere", key="target", found=name
            )
        return found
