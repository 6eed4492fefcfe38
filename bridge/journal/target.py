"""The journal as a target: the receiving side of a bridge stores here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from bridge.errors import (
    InvalidAddress,
    JournalDamaged,
    JournalUnavailable,
    Malformed,
    Stopping,
    TargetRefused,
    TargetUnavailable,
)
from bridge.journal.journal import Journal
from bridge.journal.rules.arrivals import Came
from bridge.journal.rules.commands import DeliverCommand, OpenCommand, WriteCommand
from bridge.journal.rules.owners import THIS_NODE, Caller
from bridge.journal.sqlite.known_messages import read_present
from bridge.journal.unfinished import BodyPlace, BridgeUpload
from bridge.messages import positions as run_arithmetic
from bridge.messages.addresses import check_name
from bridge.messages.batch import Batch
from bridge.messages.origins import disjoint, positions_of
from bridge.messages.stream_names import StreamKind
from bridge.relay.ports import Opened, Receipt, Stream, StreamState

#: Longest time for which a batch is blocked for want of room (BLOCK, full disk); less where `call-timeout` is
#: less. Receipts are in order over all streams of a link: a full address must not delay the others for long.
BLOCKED_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Open:
    stream: Stream
    state: StreamState
    #: Of a plan's stream messages that are here already must not be stored again.
    kind: StreamKind


class JournalTarget:
    """Implements `bridge.relay.ports.Target` for one bridge; the rules are
    `bridge.journal.rules.bridge_batches`'s.
    """

    def __init__(
        self,
        journal: Journal,
        bridge: str,
        *,
        check_producer_ids: bool,
        previous: str = "",
        caller: Caller | None = None,
        places: bool = False,
    ) -> None:
        """`previous`: the name that the bridge had before (`previous-name`); empty: none.

        `caller`: the caller that delivers; None: this node. `places`: whether it may say which queues its
        messages are for.
        """
        self._journal = journal
        self._caller = caller or Caller(node=journal.identity.node_id)
        self._bridge = bridge
        self._previous = previous
        self._check_producer_ids = check_producer_ids
        self._places = places
        self._open: dict[str, _Open] = {}
        self._waiting: set[asyncio.Future[Any]] = set()
        self._closed = asyncio.Event()
        self._closed.set()

    async def open(self, streams: Sequence[Stream]) -> Opened:
        """Issue each stream a new epoch, which fences older links of this bridge on it.

        Raises:
            TargetUnavailable: the journal failed or stops.
            TargetRefused: no address here can have the name that a stream is to be stored under, the caller
                may not send to it, its positions are another caller's, or another bridge has adopted what
                this one delivered (`previous-name`).
        """
        for stream in streams:
            try:
                check_name(stream.target_address, "target-address")
            except InvalidAddress as error:
                raise TargetRefused(error.detail, error.key, error.limit, error.found) from error
            self._caller.check_address(stream.target_address)
        with _unavailable():
            commands = [
                self._journal.send(
                    OpenCommand,
                    bridge=self._bridge,
                    stream=stream.identity,
                    previous=self._previous,
                    owner=self._caller.owns(stream.identity),
                )
                for stream in streams
            ]
            states: list[StreamState] = await self._answers(commands)
        answer: dict[str, StreamState] = {}
        for stream, state in zip(streams, states, strict=True):
            identity = stream.identity
            self._open[identity] = _Open(stream, state, stream.kind)
            owner = self._caller.owns(identity)
            bodies = await self._journal.unfinished.kept(owner, self._bridge, identity, state.next or 0)
            answer[identity] = replace(state, bodies=tuple(bodies)) if bodies else state
        self._closed.clear()
        return Opened(self._journal.store, answer)

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        """Store each batch, all of it or nothing.

        Raises:
            OutOfSequence, Fenced: nothing of that batch was stored.
            TargetUnavailable: whether anything was stored is unknown.
        """
        with _unavailable():
            found = [await self._present(batch) for batch in batches if self._asks(batch)]
            present = frozenset[int]().union(*found)
            receipts: list[Receipt] = await self._answers([self._send(batch, present) for batch in batches])
        return receipts

    def upload(self, stream: str, position: int, size: int, start: int) -> BridgeUpload:
        """As `bridge.relay.ports.ChunkTarget.upload`."""
        opened = self._open.get(stream)
        if opened is None:
            raise TargetUnavailable(f"{stream} is not open", key="stream", found=stream)
        address = "" if self._places else opened.stream.target_address
        place = BodyPlace(self._caller.owns(stream), self._bridge, stream, position)
        begin = partial(self._journal.upload_of_bridge, address, size, BLOCKED_MS)
        return self._journal.unfinished.begin(place, size, start, begin)

    async def lost(self) -> None:
        """Wait until `close`: no connection lies between this target and its journal.

        Raises:
            TargetUnavailable: it was closed, or never opened.
        """
        await self._closed.wait()
        raise TargetUnavailable("the target is closed")

    def _asks(self, batch: Batch) -> bool:
        opened = self._open.get(batch.stream)
        return opened is not None and opened.kind is StreamKind.PLAN and batch.block is not None

    async def _present(self, batch: Batch) -> set[int]:
        """Positions of a plan's messages that the address has by where they were first stored.

        Looked up before the batch is handed to the writer. So a message that comes by another route in
        between is not seen; and batches of plans, of which a sender has one on its way at a time, may be
        overtaken.
        """
        assert batch.block is not None
        origins, address = batch.block.origins, self._open[batch.stream].stream.target_address
        present = await self._journal.look(read_present, address, disjoint(origins))
        positions = run_arithmetic.positions(batch.runs)
        return positions_of(origins, positions, present, dict(batch.copies)) if present else set()

    def _send(self, batch: Batch, present: Set[int]) -> DeliverCommand:
        opened = self._open.get(batch.stream)
        if opened is None:
            raise TargetUnavailable(f"{batch.stream} is not open", key="stream", found=batch.stream)
        if batch.block is not None and batch.block.queues and not self._places:
            detail = f"{self._bridge} is no node of a cluster, and names queues for its messages"
            raise Malformed(detail, key="queues", found=len(batch.block.queues))
        return self._journal.send(
            DeliverCommand,
            bridge=self._bridge,
            address=opened.stream.target_address,
            batch=batch,
            run=opened.stream.run,
            epoch=opened.state.epoch,
            routing_type=opened.stream.routing_type,
            check_ids=self._check_producer_ids and opened.kind.checks_ids,
            present=present if opened.kind is StreamKind.PLAN else frozenset(),
            came=self._came(opened.kind),
            size=0 if batch.block is None else batch.block.size,
            deadline_ms=min(self._journal.deadline_ms(), self._journal.clock.monotonic_ms() + BLOCKED_MS),
        )

    def _came(self, kind: StreamKind) -> Came:
        """The way that the stream's blocks came. A slash is in no bridge's name, so without one they are not
        dead letters (`bridge.relay.dead_letters`).
        """
        if "/" not in self._bridge or kind is not StreamKind.DEAD_LETTERS:
            return Came.RELAYED
        return Came.LETTER_HERE if self._caller.principal == THIS_NODE else Came.LETTER

    async def _answers(self, commands: Sequence[WriteCommand]) -> list[Any]:
        """The journal's answers to all of the commands, or the first error."""
        futures = [command.future for command in commands]
        del commands
        self._waiting.update(futures)
        try:
            answers = await asyncio.gather(*futures, return_exceptions=True)
        finally:
            self._waiting.difference_update(futures)
            del futures
        error = next((answer for answer in answers if isinstance(answer, BaseException)), None)
        if error is None:
            return answers
        try:
            raise error
        finally:
            # The error refers to this frame, and the commands refer to the error: they must not keep each
            # other alive.
            del error, answers

    async def close(self) -> None:
        """Fail the deliveries that wait; the journal stores the commands that it has been given, or not."""
        self._open.clear()
        self._closed.set()
        for future in self._waiting:
            if not future.done():
                future.set_exception(TargetUnavailable("the target was closed"))


@contextlib.contextmanager
def _unavailable() -> Iterator[None]:
    """Report a journal that fails or stops as a target that is not available."""
    try:
        yield
    except (JournalUnavailable, JournalDamaged, Stopping) as error:
        raise TargetUnavailable(error.detail, error.key, error.limit, error.found) from error
