"""The two ports that every end implements: `Source` and `Target`, and the values that they exchange.

One pump (`bridge.relay.pump`) moves batches between any two ends; `tests/contracts` holds one suite for each
port, which fakes and real ends run alike.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from bridge.messages.addresses import WantedType
from bridge.messages.batch import Batch
from bridge.messages.block import KeptBody
from bridge.messages.positions import Runs
from bridge.messages.stream_names import StreamKind, kind_of_stream
from bridge.relay.stays import NO_STAYS, Remembered, Stays
from dedup.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Stream:
    """One ordered run of messages as a bridge sees it."""

    #: Never reused: ``journal:<incarnation>:<address>:<first sequence>`` or
    #: ``kafka:<cluster id>:<topic id>:<partition>``.
    identity: str
    #: Name at the source.
    address: str
    #: Name at the target (the forwarding address, resolved).
    target_address: str
    #: What the target keeps with `next` and returns at the next opening. Of messages the source's run: a
    #: journal's run UUID, a Kafka partition's leader epoch. Of dead letters the ranges of positions that have
    #: a letter (`bridge.relay.dead_letters`).
    run: str = ""
    #: How many partitions the source's topic has; 0 where the source has none.
    partitions: int = 0
    #: No message ever comes in it, and it needs no address: the target remembers it, and that is its only
    #: purpose (`bridge.kafka.source.first_start`).
    empty: bool = False
    #: What the address at the target becomes where it is made for this stream; empty: as the target says.
    routing_type: WantedType = ""

    @property
    def kind(self) -> StreamKind:
        """The stream's kind, from its identity."""
        return kind_of_stream(self.identity)


@dataclass(frozen=True, slots=True)
class UnfinishedBody:
    """The beginning of a large body, which a target has kept from a link that ended before the rest came."""

    #: Position of its message.
    position: int
    #: Bytes of the whole body, and of the part that is kept.
    size: int
    kept: int
    #: BLAKE2b of that part: the sender compares it with its own, because another body may be there by now.
    digest: bytes


@dataclass(frozen=True, slots=True)
class StreamState:
    """The target's record of one stream of this bridge."""

    #: First position not covered; None: never seen.
    next: int | None
    #: The sender's run that moved next last, and the checksum of the last source message below next, whether
    #: it was stored or refused; empty and 0 where none is known. A source compares both with its own past.
    run: str = ""
    checksum: int = 0
    #: Issued and stored by the target at this opening; a newer one fences this one.
    epoch: int = 0
    #: Of a stream never seen: the target remembers others of this bridge and source, so this is not its first
    #: start.
    has_run: bool = False
    #: Not of the target's word: positions from `next` on that other stores of the bridge have. They are
    #: covered and empty here; that a source no longer has them is no gap.
    elsewhere: Runs = ()
    #: What the target has kept of large bodies at positions from `next` on.
    bodies: tuple[UnfinishedBody, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """The target's answer to `Target.open`."""

    #: Store identity: which target it is.
    store: str
    #: By stream identity, one for each stream asked for.
    streams: Mapping[str, StreamState] = field(default_factory=dict)
    #: Other stores that it answers for, because it has taken over what they remember.
    inherited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Receipt:
    """The target's word on one batch."""

    stream: str
    verdict: Verdict
    #: The target's next for the stream after this batch.
    next: int
    #: REFUSED: the one position that can never be taken.
    position: int | None = None
    #: REFUSED and NOT_NOW: the rule, as `CODE: detail`.
    reason: str = ""
    #: Messages of the batch dropped: covered before, or with a producer's ID known at the address.
    duplicates: int = 0
    #: When the target committed, ms since the epoch by its clock.
    committed: int = 0
    #: Those of the duplicates with a known ID, where no receiving node counts them.
    repeated: int = 0
    #: STORED: positions of the batch that can never be taken and have dead letters, which are durable. The
    #: batch counts as one without these positions.
    dead_lettered: tuple[int, ...] = ()
    #: The target's clock less this node's, ms; None: not measured, or one clock.
    clock_offset_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The positions that a source has of one stream now."""

    #: The first position that is still there; `end` where none is.
    first: int
    #: One beyond the last.
    end: int


class Source(Protocol):
    """The end from which a bridge reads."""

    async def streams(self) -> Sequence[Stream]:
        """Every stream there is now."""

    async def remembered(self) -> Mapping[str, Remembered]:
        """The confirmed positions and their targets, by stream identity."""

    async def bounds(self) -> Mapping[str, Bounds]:
        """The first position and the end of each of `streams` now, by stream identity. Needs no `open`."""

    async def begin(self, stream: str, at: int, store: str, stays: Stays = NO_STAYS) -> None:
        """Go on at `at`, at the target whose identity is `store`: the operator has decided
        (`bridge.relay.reposition`), or the bridge changes its store (`bridge.relay.store_change`).

        Replaces the stream's entry in `remembered`: upto = `at`, confirmed by `store`, and `stays`. Moves
        back as well as forward. Positions below `at` count as settled and are logged, where lines are
        written, as covered and empty; messages above that are still there are kept. Durable when it returns.
        Called while the source is not open, or where nothing of the stream was settled yet.

        Raises:
            SourceUnavailable, JournalUnavailable: try again. SourceRefused, SourceGap: no such stream.
        """

    async def open(self, resume: Mapping[str, StreamState], store: str) -> None:
        """Go to the target's next of each stream; None: the stream's beginning as far as this bridge is
        concerned.

        `store` is the target's identity. May be called again while open, also for some streams only: messages
        of theirs that were read and are not settled will be read again. Nothing is settled or sent unless
        every stream passes.

        Raises:
            Diverged: the target covers what another copy of this source sent (`bridge.relay.divergence`).
            SourceGap: a position is gone or beyond the end.
        """

    async def read(self) -> Sequence[Batch]:
        """The next batches, one stream each, in order; waits until there is one.

        Empty: streams have appeared that are not open yet. A cancelled call has taken nothing: the next call
        goes on where it was.
        """

    def back_off(self, streams: Collection[str]) -> None:
        """Read no more of these streams until they are opened again; the others go on.

        Batches of theirs that were read in advance are dropped, and none is read to be thrown away: their
        messages wait where they are kept. Batches of theirs that were handed out may still be `settled`. Not
        called while `read` is under way. A stream that is not open (any more) is passed over.
        """

    async def settled(self, batch: Batch, receipt: Receipt) -> None:
        """The target covers `batch` for good: space may be freed. Called in order per stream."""

    async def close(self) -> None:
        """Release the source. Messages that were read and are not settled stay where they were, in order."""


@runtime_checkable
class SizedSource(Source, Protocol):
    """A source whose batches can be made to fit the line."""

    def fit(self, most_bytes: int) -> None:
        """Let each `read` from now on answer so many bytes at most, and its setting; one message may be
        larger. Not called while `read` is under way.
        """


@runtime_checkable
class LoggingSource(Source, Protocol):
    """A source that writes lines to the delivery log."""

    async def log_missing(self, stream: str, runs: Runs, store: str) -> None:
        """Write that `store` had confirmed these positions, and does not have them any more: it was put back
        from a backup. Durable when it returns. Called while the source is not open.

        Raises: SourceUnavailable, JournalUnavailable: try again.
        """


class Upload(Protocol):
    """A large body on its way into a store. Its chunks are durable one by one, and no reader sees them."""

    @property
    def kept(self) -> KeptBody:
        """The body that has come so far: that of its message, when all of it has."""

    async def add(self, chunk: bytes) -> None:
        """Store the next chunk, which is not empty; returns when it is durable.

        Raises: AddressNotFound, AddressFull, MessageTooLarge: with the first chunk; DiskFull, TooBusy,
            JournalUnavailable, Stopping; ConnectionAbortedError: it was abandoned meanwhile.
        """

    def abandon(self) -> None:
        """End the wait in `add`: the sender has left."""

    def give_up(self) -> None:
        """Let the body go, unless a message has it by now. Called however the upload ends."""


class ResumableUpload(Upload, Protocol):
    """An upload whose body is kept when its link ends, so that the next link goes on with it.

    The first piece of that link is empty where the body has come whole: `add` stores what is left of it.
    """

    def set_aside(self) -> None:
        """End the upload, and keep what has come for a later one, within the store's limits."""


class Target(Protocol):
    """The end to which a bridge delivers."""

    async def open(self, streams: Sequence[Stream]) -> Opened:
        """Connect where needed and ask for the target's record of each stream; also for streams that appear
        later.

        Raises:
            TargetUnavailable: try again later. TargetRefused: trying again does not help.
        """

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        """Store each batch, all of it or nothing. Calls may overlap; those of one stream take effect in call
        order.

        A target may store a batch in parts, in their order, where it cannot take it at once: a receipt that
        is neither STORED nor DUPLICATE then says in `next` how far it has come.

        After NOT_NOW or REFUSED nothing more of that stream is taken until it is opened again, so that no
        batch behind one that was not taken can be stored.

        Raises:
            TargetUnavailable: whether anything was stored is unknown; open again to learn it.
        """

    async def lost(self) -> None:
        """Wait until the target is lost: never returns while it is reachable; raises when it has gone, or was
        not there.

        It shows a loss while nothing is delivered. Deliveries that wait fail by themselves.

        Raises:
            TargetUnavailable (or Fenced, OutOfSequence), TargetRefused: why, as `deliver` would have said.
        """

    async def close(self) -> None:
        """Release the target. Never raises; deliveries that wait for a receipt fail with
        TargetUnavailable.
        """


@runtime_checkable
class MeasuringTarget(Target, Protocol):
    """A target that measures how far away it is."""

    @property
    def round_trip_ms(self) -> int | None:
        """The shortest round trip that this connection has lately seen, ms; None: not known yet."""

    @property
    def lacks_credit(self) -> bool:
        """Whether it holds back what it was given because the other end has not granted enough credit."""


@runtime_checkable
class ChunkTarget(Target, Protocol):
    """A target to whose store a large body comes in chunks, before its message (`Block.large`)."""

    def upload(self, stream: str, position: int, size: int, start: int) -> ResumableUpload:
        """The body, of `size` bytes, of the message at this position of the stream; it comes from byte
        `start` on.

        With 0 it replaces what is kept of a body there.

        Raises:
            TargetUnavailable: the stream is not open.
            BodyNotKept: the `start` bytes before it are not here. TooBusy.
        """
