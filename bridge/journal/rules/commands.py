"""Commands to the writer's thread: each is decided, stored and answered within one commit group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal

from bridge.filters import Filter
from bridge.journal.rules.arrivals import Came
from bridge.journal.rules.owners import Owner
from bridge.journal.values.options import BridgeQueue, JournalOptions
from bridge.journal.values.queue_cursor import Cursor, Interval
from bridge.journal.values.routing import Destination
from bridge.journal.values.store import Acknowledgement, Transaction
from bridge.journal.values.views import Changes, Intake
from bridge.messages.addresses import WantedType
from bridge.messages.batch import Batch
from bridge.messages.block import Block
from bridge.messages.positions import Runs


@dataclass(slots=True, eq=False, kw_only=True)
class WriteCommand:
    """Base of all commands: the future of its answer, its size, and until when it may be blocked for want of
    room.
    """

    future: asyncio.Future[Any]
    size: int = 0
    #: Monotonic ms; None: never blocked, answered at once.
    deadline_ms: int | None = None
    #: Gives the order of those that have waited for room; 0: it has not.
    ticket: int = 0
    #: The answer, or the error instead; set while deciding, handed over after COMMIT.
    result: Any = None
    error: Exception | None = None

    def forget_answer(self) -> None:
        """Forget the values that a decision has set: the command is decided again, or was not taken."""
        self.result = self.error = None

    @property
    def grows(self) -> bool:
        """Whether it brings messages. Other commands are stored on a full disk, too, as far as that is
        possible.
        """
        return False

    @property
    def patient(self) -> bool:
        """Whether it has no deadline: it is blocked until there is room, however long that takes."""
        return False


@dataclass(slots=True, eq=False, kw_only=True)
class CommitCommand(WriteCommand):
    """A client's transaction. Answer: `bridge.journal.values.store.Committed`."""

    transaction: Transaction

    @property
    def grows(self) -> bool:
        """Whether it has messages: acknowledgements alone free room."""
        return bool(self.transaction.sent)


@dataclass(slots=True, eq=False, kw_only=True)
class OpenCommand(WriteCommand):
    """A bridge opens a stream. Answer: `bridge.relay.ports.StreamState`."""

    bridge: str
    stream: str
    #: `previous-name`: the bridge whose position it adopts where it has none of its own; empty: none.
    previous: str = ""
    #: The caller that opens it.
    owner: Owner


@dataclass(slots=True, eq=False, kw_only=True)
class DeliverCommand(WriteCommand):
    """A bridge's batch. Answer: `bridge.relay.ports.Receipt`."""

    bridge: str
    address: str
    batch: Batch
    run: str
    epoch: int
    check_ids: bool
    #: What the address becomes where it is made for them; empty: as the settings say.
    routing_type: WantedType = ""
    #: Positions of messages that are known to be at the address: left out, as those with a known ID are.
    present: Set[int] = frozenset()
    came: Came = Came.RELAYED
    #: Messages left out because they, or their producers' IDs, were known at the address.
    rejected: int = 0
    #: Messages that became dead letters because their queue is gone, by address and queue.
    gone: dict[tuple[str, str], int] = field(default_factory=dict)

    def forget_answer(self) -> None:
        """As `WriteCommand.forget_answer`."""
        self.result = self.error = None
        self.rejected, self.gone = 0, {}

    @property
    def grows(self) -> bool:
        """True for coverage alone, too: batches of one stream keep their order."""
        return True


@dataclass(slots=True, eq=False, kw_only=True)
class SettleCommand(WriteCommand):
    """The target's word about what this node sent. Answer: None."""

    bridge: str
    address: str
    target: str
    batch: Batch
    store: str
    #: When the target committed, ms by its clock; 0 where only its next is known.
    committed: int
    duplicates: int
    #: Learnt when the stream was opened, not from a receipt; whether the delivery log gets a line of it.
    recovered: bool
    logged: bool = True
    #: The target's clock less this node's, ms; None: not measured.
    clock_offset: int | None = None

    @property
    def patient(self) -> bool:
        """True: a settlement can wait, but the target does not repeat it."""
        return True


@dataclass(slots=True, eq=False, kw_only=True)
class BeginCommand(WriteCommand):
    """The operator has decided where a bridge goes on (`bridge.relay.ports.Source.begin`). Answer: None."""

    bridge: str
    address: str
    target: str
    stream: str
    at: int
    store: str
    #: As the source keeps it (`bridge.relay.stays`).
    stays: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class LogMissingCommand(WriteCommand):
    """A target does not have positions any more that it had confirmed. Answer: None."""

    bridge: str
    address: str
    target: str
    stream: str
    runs: Runs
    store: str


@dataclass(slots=True, eq=False, kw_only=True)
class DisownCommand(WriteCommand):
    """Let the positions of a bridge belong to the first caller that opens them. Answer: `{stream: Owner}`
    before.
    """

    bridge: str
    #: False: only report the owners.
    really: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """Messages of one block that are to be moved to one destination."""

    #: Where they are: half-open intervals of positions, ascending, each full of messages.
    places: Sequence[Interval]
    #: One beyond the message before the first of them on its address; `first` where that is directly before.
    from_: int
    to: Destination
    #: The messages with the IDs, origins and hops that they keep.
    block: Block
    #: Whether the destination remembers the producers' IDs, as if it had accepted the messages itself.
    learns_ids: bool = False
    #: How they come to the destination.
    came: Came = Came.RELAYED

    @property
    def first(self) -> int:
        """Position of the first."""
        return self.places[0][0]

    @property
    def end(self) -> int:
        """One beyond the last position."""
        return self.places[-1][1]


@dataclass(slots=True, eq=False, kw_only=True)
class MoveCommand(WriteCommand):
    """Move messages from a queue to other addresses. Answer: the first position of each block that was moved.

    Blocks of which a message is settled or leased by now stay where they are. All others are moved, or none.
    """

    address: str
    #: A readers' queue, that of the letters that were sent again, or that of a bridge which does not run.
    queue: str
    #: Ascending by position.
    messages: Sequence[Moved]
    #: Whether a bridge takes them, so that they leave the node soon: then a full disk does not hold them up.
    leaves: bool = False
    #: The reservation that ends with it; empty: there is none.
    lease: str = ""

    @property
    def grows(self) -> bool:
        """Whether it may have to wait for room: it stores the messages at their destinations before their old
        blocks are trimmed.
        """
        return not self.leaves


@dataclass(slots=True, eq=False, kw_only=True)
class QueueCommand(WriteCommand):
    """Make or delete a queue, or change its filter. Answer: whether it was made."""

    action: Literal["create", "delete"]
    address: str
    queue: str
    start: Literal["earliest", "latest"] | int = "earliest"
    #: The queue's filter from this command on; None: it takes every message.
    filter: Filter | None = None
    #: Whether a queue that is there already keeps the filter that it has.
    keeps_filter: bool = True
    #: Whether a reader makes it by asking for its messages.
    automatic: bool = False
    #: The type of an address that is made with it; empty: as the settings say.
    routing_type: WantedType = ""
    #: Whether the caller may give a queue that is there another filter.
    may_change_filter: bool = True
    #: The condition that was replaced by another; set while deciding. None: none was.
    replaced: str | None = None

    def forget_answer(self) -> None:
        """As `WriteCommand.forget_answer`."""
        self.result = self.error = self.replaced = None


@dataclass(slots=True, eq=False, kw_only=True)
class BridgeCommand(WriteCommand):
    """Let a bridge read this journal from now on, or no more. "put": in place of one of its name, if there is
    one. Answer: None.
    """

    action: Literal["add", "put", "remove"]
    bridge: BridgeQueue


@dataclass(slots=True, eq=False, kw_only=True)
class ConfigureCommand(WriteCommand):
    """Let the addresses have the settings of these options from now on. Answer: None."""

    options: JournalOptions


@dataclass(frozen=True, slots=True)
class Branch:
    """The position where a bridge goes on with an address under a new incarnation of the journal."""

    bridge: str
    address: str
    at: int
    #: Store identity of the target that has the messages below.
    store: str


@dataclass(slots=True, eq=False, kw_only=True)
class BranchCommand(WriteCommand):
    """Give the journal another incarnation; it must be closed then. Answer: None."""

    incarnation: str
    branches: Sequence[Branch]


@dataclass(slots=True, eq=False, kw_only=True)
class ForgetCommand(WriteCommand):
    """Drop the leftovers of a bridge that is not configured any more. Answer:
    `bridge.journal.rules.forgetting.Forgotten`.
    """

    bridge: str
    #: Only this address, which the bridge may leave out though it is configured; None: all of them.
    address: str | None
    #: False: only report what there is.
    really: bool


@dataclass(slots=True, eq=False)
class Grant:
    """The answer of a lease command: the lease and where its messages are."""

    lease: str
    intervals: Sequence[Interval]
    #: Messages in them.
    count: int


@dataclass(slots=True, eq=False, kw_only=True)
class LeaseCommand(WriteCommand):
    """Lease messages, or reserve them for a bridge. Answer: `Grant`; or None, and then `retry_ms` is the next
    lease's end, if any; or 0: the command has passed over as many blocks as one may.
    """

    address: str
    queue: str
    lease: str
    most: int
    most_bytes: int
    lease_ms: int
    retry_ms: int | None = None
    #: Whether a bridge is about to move them: they are reserved in memory, which takes no commit.
    reserves: bool = False
    #: Consumers with which the bridge shares what is free: readers that wait, and other bridges.
    others: int = 0
    #: Positions that the bridge's filter has left, settled in it; None: it takes all. The command's own.
    left: Cursor | None = None
    #: The same, and what is settled in the queue; set while deciding.
    left_now: Cursor | None = None

    def forget_answer(self) -> None:
        """As `WriteCommand.forget_answer`."""
        self.result = self.error = self.retry_ms = self.left_now = None


@dataclass(slots=True, eq=False, kw_only=True)
class EndLeaseCommand(WriteCommand):
    """Acknowledge or release a lease. Answer: None."""

    acknowledgement: Acknowledgement
    settle: bool


@dataclass(slots=True, eq=False, kw_only=True)
class CacheCommand(WriteCommand):
    """Clear an address's ID cache (`capacity` None) or resize it. Answer: the number of IDs removed."""

    address: str
    capacity: int | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class DeleteAddressCommand(WriteCommand):
    """Delete an address. Answer: None."""

    address: str


@dataclass(slots=True, eq=False, kw_only=True)
class DropLogCommand(WriteCommand):
    """Delete a log that one bridge alone has read and that does not run any more, if nothing waits in it, and
    what the bridge has settled of it. Answer: whether it went.
    """

    address: str
    bridge: str


@dataclass(slots=True, eq=False, kw_only=True)
class DeleteUnusedCommand(WriteCommand):
    """Delete a queue, or with None an address, if it may go by itself. Answer: whether it went."""

    address: str
    queue: str | None


@dataclass(slots=True, eq=False, kw_only=True)
class ForgetLinesCommand(WriteCommand):
    """Delivery-log lines up to this one are on disk in their segment. Answer: None."""

    upto: int

    @property
    def patient(self) -> bool:
        """True: lines that were copied can stay in the outbox for longer."""
        return True


@dataclass(slots=True, eq=False, kw_only=True)
class IntakeCommand(WriteCommand):
    """Take less from others, or everything again. Answer: what is in the way, one text each; empty: done."""

    intake: Intake
    #: The bridge that may have messages left.
    but: str = ""


@dataclass(slots=True, eq=False, kw_only=True)
class NoteCommand(WriteCommand):
    """Keep a value for an extension, or with None drop it. Answer: None."""

    name: str
    value: str | None


@dataclass(slots=True, eq=False, kw_only=True)
class InheritCommand(WriteCommand):
    """Remember what another journal did. Answer: None."""

    #: As rows of `positions`: bridge, stream, next, session, checksum, epoch, the owner's principal and node.
    positions: Sequence[tuple[str, str, int, str, int, int, str, str]] = ()
    #: IDs that were accepted at `address` there, the oldest first.
    address: str = ""
    ids: Sequence[bytes] = ()


@dataclass(slots=True, eq=False, kw_only=True)
class ReadIdsCommand(WriteCommand):
    """Read an address's ID cache. Answer: its IDs, the oldest first.

    Only the writer's thread may read a cache, and not all IDs are in the file (`persist-id-cache`).
    """

    address: str


@dataclass(slots=True)
class CommittedEvents:
    """The events of one commit, for the rest of the process."""

    #: Commands to be answered.
    answered: list[WriteCommand] = field(default_factory=list)
    #: Addresses with new or returned messages.
    touched: set[str] = field(default_factory=set)
    #: New addresses.
    made: list[str] = field(default_factory=list)
    #: Readers' queues were made or deleted, or have another filter.
    queues_changed: bool = False
    #: Messages that no queue of their address took, by address.
    unrouted: dict[str, int] = field(default_factory=dict)
    #: Messages for which the filter of a queue could not be evaluated, by address and queue.
    not_evaluated: dict[tuple[str, str], int] = field(default_factory=dict)
    #: Outbox rows were written.
    logged: bool = False
    #: Addresses and queues as they are after it; None: none has changed.
    views: Changes | None = None
