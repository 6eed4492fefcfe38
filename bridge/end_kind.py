"""A kind of end: everything that the rest of the bridge asks of a journal, a node or a Kafka cluster.

An adapter is a folder with an `end.py`, which has one `EndKind` and loads the rest of the folder when it is
asked for an end. `bridge.ends` names it by the scheme of its URLs; nobody else asks of what kind an end is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from bridge.settings.end_rules import EndRules

if TYPE_CHECKING:
    from bridge.delivery_log import SegmentWriter, WriteLines
    from bridge.relay.dead_letters import Burier
    from bridge.relay.ownership import AskDivision, Ownership
    from bridge.relay.ports import Source, Target
    from bridge.relay.pump import Counts
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
    """The kind of what a bridge names as an end: a connector, or this node's journal."""
    found = settings.end_rules(connector)
    assert isinstance(found, EndKind), f"{connector} leads to {type(found).__name__}, which makes no ends"
    return found


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What ends are made with in one process: a node, a worker of it, or a command."""

    settings: Settings
    clock: Clock
    #: The node's UUID and the store identity of its journal; empty where it is not needed.
    node_id: str = ""
    store: str = ""
    #: The open `bridge.journal.journal.Journal`; None in a worker, which does without.
    journal: object = None
    #: What other processes call this one: the node's name, and the worker's number.
    process: str = ""
    #: Into the delivery log's files, what no outbox keeps; None: such lines are not written.
    write_lines: WriteLines | None = None
    #: By a connector's name, the token to show and the TLS context, as their files are now.
    token: Callable[[str], str] = lambda _connector: ""
    tls: Callable[[str], FileContext | None] = lambda _connector: None


@dataclass(frozen=True, slots=True)
class Lane:
    """What one relay moves: a bridge, or one of its lanes."""

    bridge: Bridge
    number: int = 0
    #: Follows the bridge's name where something of its own is delivered: its dead letters.
    within: str = ""
    #: Returns when it has been confirmed that the lane is ours; None: it is nobody else's.
    confirmed: Callable[[], Awaitable[None]] | None = None
    #: The relay's; None: it has counts of its own.
    counts: Counts | None = None
    #: Where the source's node keeps dead letters; None: they go to the target.
    dead_letters: Burier | None = None

    @property
    def name(self) -> str:
        """What the target is told to call the bridge."""
        return self.bridge.name + self.within

    @property
    def previous_name(self) -> str:
        """What it was told before (`previous-name`); empty: nothing."""
        return self.bridge.previous_name + self.within if self.bridge.previous_name else ""


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """A source, not open, and what is seen of it besides; as `bridge.relay.relay.Relay` takes it."""

    source: Source
    lag: Callable[[], tuple[int, int | None]] | None = None
    parked: Callable[[], Sequence[str]] = tuple
    waits: Callable[[], Sequence[str]] = tuple


@dataclass(frozen=True, slots=True)
class TargetEnd:
    """A target, not open."""

    target: Target
    #: Stores dead letters together with the messages; None: they are delivered like messages.
    burier: Burier | None = None


class NodeEnds:
    """Makes the ends of one kind in one process. Made once for all bridges."""

    def source(self, lane: Lane) -> SourceEnd:
        """Where the lane's bridge reads."""
        raise NotImplementedError(f"{type(self).__name__} makes no source for {lane.name}")

    def target(self, lane: Lane) -> TargetEnd:
        """Where it delivers."""
        raise NotImplementedError(f"{type(self).__name__} makes no target for {lane.name}")

    def ownership(self, bridge: Bridge, side: Side) -> Ownership | None:
        """Divides the bridge's lanes among processes by means of its end at `side`; None: it cannot."""
        del bridge, side
        return None

    def division(self, bridge: Bridge, side: Side) -> AskDivision | None:
        """Asks who has which lane, where `ownership` divides them; None: it does not."""
        del bridge, side
        return None

    async def origin(self, connector: str) -> str:
        """Who a source is, for a target that must not take two sources for one.

        Raises:
            SourceUnavailable, SourceRefused: it cannot be asked.
        """
        return f"connector:{connector}"

    def plan_source(self, bridge: Bridge) -> PlanSource | None:
        """Where a replay plan reads again what the bridge has sent; None: nowhere."""
        del bridge
        return None

    def plan_target(
        self, bridge: Bridge, source: PlanSource, *, force: bool
    ) -> tuple[Target, Presence] | None:
        """Where a replay plan is sent, and what is there; None: nowhere.

        Args:
            bridge: the plan's.
            source: where it is read.
            force: what is there is sent again.
        """
        del bridge, source, force
        return None


EndsOf = Callable[[str], NodeEnds]


# ---------------------------------------------------------------- audits and commands


@dataclass(frozen=True, slots=True)
class Selection:
    """What an audit compares of a source."""

    #: Whether an address or topic is part of it, and its name at the target.
    selects: Callable[[str], bool]
    forward: Callable[[str], str]
    #: Those that must be there: a name that is written out and missing is a mistake.
    names: tuple[str, ...] = ()


class AuditSource(Protocol):
    """A source as an audit plans to read it. Each call raises BridgeError: what the source says."""

    async def streams(self, selection: Selection) -> list[Stream]:
        """Every stream that is selected, and its ends now.

        Raises: NotFound: one of the selection's names is not there.
        """

    async def starts(self, parts: Iterable[Part]) -> Mapping[Part, int]:
        """Where these begin now."""

    async def confirmed(
        self, bridge: Bridge, streams: Sequence[Stream], store: str = ""
    ) -> Mapping[str, int]:
        """By stream, below which position the source has it that the target covers everything.

        `store`: only what the target of this store identity has confirmed, to the node that it belongs to.
        """


class AuditTarget(Protocol):
    """A target as an audit plans to read it. Each call raises BridgeError: what the target says."""

    #: What its places are called.
    what: str
    #: Whether its places are partitions, which may be the source's (`preserve-partitions`).
    has_partitions: bool

    async def confirmed(self, bridge: Bridge, streams: list[Stream], source: AuditSource) -> list[Stream]:
        """The streams with what the bridge has confirmed, and how far replay plans were sent."""

    async def places(self, names: Iterable[str]) -> list[Place]:
        """What there is of these topics or addresses, and its ends now."""

    async def starts(self, places: Sequence[Place]) -> Mapping[Part, int]:
        """Where these begin now."""


class RecordedLanes(Protocol):
    """The number of lanes of a bridge, where its target records it (`core-bridge lanes`)."""

    #: Where at the target, for people.
    place: str

    async def now(self) -> int | None:
        """As recorded; None: the bridge has never run. Raises: TargetUnavailable, TargetRefused."""

    async def set(self, lanes: int) -> None:
        """Record another number. Raises: TargetUnavailable: run it again; TargetRefused."""


class LogCopier(Protocol):
    """Copies the delivery log somewhere else."""

    def start(self) -> None:
        """From now on."""

    async def stop(self) -> None:
        """Once more, if that is quick, and no more."""


# ---------------------------------------------------------------- the kind


class EndKind(EndRules):
    """One kind of end, in every process and for all settings. What a kind does not say is as here."""

    #: Whether its ends can be made in a worker process, without the node's journal.
    stands_alone = False
    #: Whether a target stores in transactions, one after the other: what comes meanwhile waits for the next.
    has_transactions = False
    #: What readers of a target must set so that they see each message once; empty: nothing.
    readers = ""
    #: Which of the audit's readers reads it (`dedup.reconcile.audit.plan.Access.kind`); None: none does.
    audit_reader: Literal["kafka", "node"] | None = None

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:
        """What makes its ends in this process; `others` are what makes the ends that a connector leads to."""
        raise NotImplementedError(f"{type(self).__name__} makes no ends")

    def audited(self, settings: Settings, connector: str) -> object:
        """What `audit_reader` reads it by, in a process of Spark's. Raises: BridgeError."""
        raise NotImplementedError(f"{type(self).__name__} is not audited: {connector}")

    def audit_source(self, settings: Settings, connector: str) -> AuditSource | None:
        """It as the source of an audit; None: it cannot be one. Raises: BridgeError."""
        del settings, connector
        return None

    def audit_target(self, settings: Settings, connector: str) -> AuditTarget | None:
        """It as the target of an audit; None: it cannot be one. Raises: BridgeError."""
        del settings, connector
        return None

    def recorded_lanes(self, settings: Settings, bridge: Bridge) -> RecordedLanes | None:
        """Where a target of this kind records the bridge's lanes; None: nowhere."""
        del settings, bridge
        return None

    def log_copier(
        self, settings: Settings, connector: str, topic: str, segments: SegmentWriter
    ) -> LogCopier:
        """Copies the delivery log's files to a topic; asked where `takes_log`."""
        raise NotImplementedError(f"{type(self).__name__} takes no log: {connector}, {topic}")
