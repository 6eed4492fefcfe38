"""A kind of end: the interface of a journal, a node or a Kafka cluster to the rest of the bridge.

An adapter is a folder with an `end.py`, which has one `EndKind` and loads the rest of the folder when it is
asked for an end. `bridge.ends` names it by the scheme of its URLs; no other code asks for the kind of an end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from bridge.settings.end_rules import EndRules

if TYPE_CHECKING:
    from bridge.delivery_log import SegmentWriter, WriteLines
    from bridge.messages.block import KeptBody
    from bridge.relay.counts import Counts
    from bridge.relay.dead_letters import DeadLetterSink
    from bridge.relay.lag import Lag, LagProbe, PartitionStatus
    from bridge.relay.ownership import AskDivision, Ownership
    from bridge.relay.pacing import Pacer
    from bridge.relay.ports import Source, Target
    from bridge.relay.stages import Stage
    from bridge.replay.sending import PlanSource, Presence
    from bridge.runtime.clock import Clock
    from bridge.runtime.tls import FileContext
    from bridge.settings.bridges import Bridge
    from bridge.settings.model import Settings
    from dedup.reconcile.audit.plan import Place, Stream

Side = Literal["source", "target"]
#: An address or topic, and the number of a partition; 0 where there are none.
Part = tuple[str, int]


def kind_of(settings: Settings, connector: str) -> EndKind:
    """The kind of an end that a bridge names: a connector, or this node's journal."""
    found = settings.end_rules(connector)
    assert isinstance(found, EndKind), f"{connector} leads to {type(found).__name__}, which makes no ends"
    return found


def needs_whole_bodies(settings: Settings, bridge: Bridge) -> bool:
    """Whether the bridge's transformer, or its target, needs large bodies whole, not in chunks."""
    targets = (kind_of(settings, connector) for connector in bridge.static_connectors)
    return bool(bridge.transformer) or not all(target.takes_chunks for target in targets)


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The context for making ends in one process: a node, a worker of it, or a command."""

    settings: Settings
    clock: Clock
    #: The node's UUID and the store identity of its journal; empty where it is not needed.
    node_id: str = ""
    store: str = ""
    #: The open `bridge.journal.journal.Journal`; None in a worker, which does without.
    journal: object = None
    #: Reads a chunk of a large body of the journal (`Journal.read_chunk`); None where there is no journal.
    read_chunk: Callable[[KeptBody, int], Awaitable[bytes]] | None = None
    #: The name of this process for others: the node's name, and the worker's number.
    process: str = ""
    #: Writes to the delivery log's files the lines that no outbox keeps; None: they are not written.
    write_lines: WriteLines | None = None
    #: By a connector's name, the token to show and the TLS context, from their present files.
    token: Callable[[str], str] = lambda _connector: ""
    tls: Callable[[str], FileContext | None] = lambda _connector: None


@dataclass(frozen=True, slots=True)
class Lane:
    """The part of a bridge that one relay moves: the bridge, or one of its lanes."""

    bridge: Bridge
    number: int = 0
    #: Suffix of the bridge's name where it delivers something of its own: its dead letters.
    within: str = ""
    #: Returns when it is confirmed that this process owns the lane; None: no other process can own it.
    confirmed: Callable[[], Awaitable[None]] | None = None
    #: The relay's counts; None: it has counts of its own.
    counts: Counts | None = None
    #: The sink for dead letters at the source's node; None: they go to the target.
    dead_letters: DeadLetterSink | None = None
    #: The bridge's filter, the one of its relay: a source asks it what it has sent, where it reads that again
    #: for the delivery log (`recovered`). None: it has none.
    filter: Stage | None = None
    #: The bridge's `max-rate`: an end that sends large bodies beside their batches waits for it. None: the
    #: bridge has none.
    pacer: Pacer | None = None

    @property
    def name(self) -> str:
        """The bridge's name for the target."""
        return self.bridge.name + self.within

    @property
    def previous_name(self) -> str:
        """The former name for the target (`previous-name`); empty: none."""
        return self.bridge.previous_name + self.within if self.bridge.previous_name else ""


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """A source, not open, with its status functions; as `bridge.relay.relay.Relay` takes it."""

    source: Source
    #: Its store identity, once it is open: with the bridge's name, the hop that messages take
    #: (`bridge.relay.stages.LoopGuard`).
    store: Callable[[], str]
    lag: Callable[[], Lag | None] = lambda: None
    parked: Callable[[], Mapping[Part, str]] = dict
    waits: Callable[[], Sequence[str]] = tuple
    partitions: Callable[[], Sequence[PartitionStatus]] = tuple


@dataclass(frozen=True, slots=True)
class TargetEnd:
    """A target, not open."""

    target: Target
    #: The sink that stores dead letters together with the messages; None: they are delivered like messages.
    dead_letter_sink: DeadLetterSink | None = None
    #: The source's partitions that it cannot take as its topics are, each with the reason.
    parked: Callable[[], Mapping[Part, str]] = dict


class NodeEnds:
    """Makes the ends of one kind in one process. Created once for all bridges."""

    def source(self, lane: Lane) -> SourceEnd:
        """The source that the lane's bridge reads."""
        raise NotImplementedError(f"{type(self).__name__} makes no source for {lane.name}")

    def target(self, lane: Lane) -> TargetEnd:
        """The target to which it delivers."""
        raise NotImplementedError(f"{type(self).__name__} makes no target for {lane.name}")

    def ownership(self, bridge: Bridge, side: Side) -> Ownership | None:
        """Divides the bridge's lanes among processes by its end at `side`; None: it cannot."""
        del bridge, side
        return None

    def division(self, bridge: Bridge, side: Side) -> AskDivision | None:
        """Asks for the owners of the lanes, where `ownership` divides them; None: it does not."""
        del bridge, side
        return None

    def lag_probe(self, bridge: Bridge) -> LagProbe | None:
        """Asks this end, a source, what waits for the bridge; None: its sources say it, or its store."""
        del bridge
        return None

    async def origin(self, connector: str) -> str:
        """The identity of a source, for a target that must not take two sources for one.

        Raises:
            SourceUnavailable, SourceRefused: it cannot be asked.
        """
        return f"connector:{connector}"

    def plan_source(self, bridge: Bridge) -> PlanSource | None:
        """The source from which a replay plan reads again what the bridge has sent; None: there is none."""
        del bridge
        return None

    def plan_target(
        self, bridge: Bridge, source: PlanSource, *, force: bool
    ) -> tuple[Target, Presence] | None:
        """The target of a replay plan, and its presence check; None: there is none.

        Args:
            bridge: the plan's bridge.
            source: the source that the plan is read from.
            force: also send messages again that the target has.
        """
        del bridge, source, force
        return None


EndsOf = Callable[[str], NodeEnds]


# ---------------------------------------------------------------- audits and commands


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a source that an audit compares."""

    #: Whether an address or topic is part of it, and its name at the target.
    selects: Callable[[str], bool]
    forward: Callable[[str], str]
    #: The names that must exist: a name that is written out and missing is an error.
    names: tuple[str, ...] = ()


class AuditSource(Protocol):
    """A source as an audit plans to read it. Each call raises BridgeError: the source's error."""

    async def streams(self, selection: Selection) -> list[Stream]:
        """Every selected stream, with its present ends.

        Raises: NotFound: one of the selection's names does not exist.
        """

    async def starts(self, parts: Iterable[Part]) -> Mapping[Part, int]:
        """The present beginnings of these parts."""

    async def confirmed(
        self, bridge: Bridge, streams: Sequence[Stream], store: str = ""
    ) -> Mapping[str, int]:
        """By stream, the position below which the target covers everything, as the source has it.

        `store`: only positions that the target of this store identity has confirmed to its node.
        """


class AuditTarget(Protocol):
    """A target as an audit plans to read it. Each call raises BridgeError: the target's error."""

    #: The word for its places in texts.
    what: str
    #: Whether its places are partitions, which may be the source's (`preserve-partitions`).
    has_partitions: bool

    async def confirmed(self, bridge: Bridge, streams: list[Stream], source: AuditSource) -> list[Stream]:
        """The streams with what the bridge has confirmed, and how far replay plans were sent."""

    async def store(self, bridge: Bridge) -> str:
        """Its store identity, as a replay plan of the bridge names it."""

    async def places(self, names: Iterable[str]) -> list[Place]:
        """The existing ones of these topics or addresses, with their present ends."""

    async def starts(self, places: Sequence[Place]) -> Mapping[Part, int]:
        """The present beginnings of these places."""


class RecordedLanes(Protocol):
    """The number of lanes of a bridge, where its target records it (`core-bridge lanes`)."""

    #: The place at the target, for people.
    place: str

    async def now(self) -> int | None:
        """The recorded number; None: the bridge has never run. Raises: TargetUnavailable, TargetRefused."""

    async def set(self, lanes: int) -> None:
        """Record another number. Raises: TargetUnavailable: run it again; TargetRefused."""


class LogCopier(Protocol):
    """Copies the delivery log to another place."""

    def start(self) -> None:
        """Start copying."""

    async def stop(self) -> None:
        """Copy the remaining lines, if that is quick, and stop."""


# ---------------------------------------------------------------- the kind


class EndKind(EndRules):
    """One kind of end, in every process and for all settings. A kind overrides the defaults here."""

    #: Whether a target stores in transactions, one after the other: later batches wait for the next one.
    has_transactions = False
    #: Whether a target takes large bodies in chunks. Others get them whole, up to `WHOLE_BODY_BYTES`; what is
    #: larger is refused before.
    takes_chunks = False
    #: The setting that readers of a target need so that they see each message once, where the bridge promises
    #: it; empty: none.
    readers = ""
    #: Whether a target can drop messages whose producer's ID it knows (`check-producer-ids`); False: the
    #: log says of no bridge to it that it does.
    checks_producer_ids = True
    #: The audit's reader for it (`dedup.reconcile.audit.plan.Access.kind`); None: there is none.
    audit_reader: Literal["kafka", "node"] | None = None

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:
        """The maker of its ends in this process; `others` returns the makers of other connectors' ends."""
        raise NotImplementedError(f"{type(self).__name__} makes no ends")

    def audited(self, settings: Settings, connector: str, bridge: Bridge | None = None) -> object:
        """The end as `audit_reader` reads it, in a process of Spark's. Raises: BridgeError.

        `bridge`: it is read as this bridge's source, without what its filter rejects.
        """
        raise NotImplementedError(f"{type(self).__name__} is not audited: {connector}")

    def audit_source(self, settings: Settings, connector: str) -> AuditSource | None:
        """The end as the source of an audit; None: it cannot be one. Raises: BridgeError."""
        del settings, connector
        return None

    def audit_target(self, settings: Settings, connector: str) -> AuditTarget | None:
        """The end as the target of an audit; None: it cannot be one. Raises: BridgeError."""
        del settings, connector
        return None

    def recorded_lanes(self, settings: Settings, bridge: Bridge) -> RecordedLanes | None:
        """The bridge's lanes as a target of this kind records them; None: it does not."""
        del settings, bridge
        return None

    def log_copier(
        self, settings: Settings, connector: str, topic: str, segments: SegmentWriter
    ) -> LogCopier:
        """Makes the task that copies the delivery log's files to a topic; called where `takes_log`."""
        raise NotImplementedError(f"{type(self).__name__} takes no log: {connector}, {topic}")
