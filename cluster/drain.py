"""A drain: this node hands everything that it has to another one, its heir, and leaves the cluster for good.

Each phase is in the journal, so that a node that is killed goes on where it was. Up to MOVE a drain can be
cancelled. Only when all messages are confirmed by the heir does it get the positions and IDs, and answer for
this node from then on (design: the drain's table in `docs/cluster.md`).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final, Literal

import msgspec
import structlog

from bridge.errors import (
    AddressFull,
    AddressNotFound,
    BridgeError,
    Conflict,
    DiskFull,
    QueueNotFound,
    StaleLease,
    TargetUnavailable,
    described,
)
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import IntakeCommand, MoveCommand, NoteCommand, ReadIdsCommand
from bridge.journal.rules.moves import Movable, read_movable
from bridge.journal.sqlite.handover import read_leases, read_positions
from bridge.journal.sqlite.notes import read_note
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.routing import Destination
from bridge.journal.values.store import Acknowledgement
from bridge.journal.values.views import AddressView, Intake
from bridge.messages.addresses import is_own
from bridge.messages.stream_names import forward_log, is_forward_log
from bridge.runtime.fault_injection import crash_point
from cluster.handover import (
    Accept,
    AnyCall,
    Apply,
    Done,
    Ids,
    Positions,
    QueueDefinition,
    Queues,
    chunks,
)
from cluster.record import Version
from cluster.routing import bridge_to

#: The name under which the journal keeps the drain.
_NOTE: Final = "cluster.drain"
#: Interval of the looks at what a phase waits for, and between attempts at a call, in seconds.
LOOK_S: Final = 0.2
#: How long leases may last after FREEZE, where the operator does not say, in ms.
LEASE_TIMEOUT_MS: Final = 60_000

_log: Final = structlog.get_logger(__name__)


class Phase(StrEnum):
    """How far a drain is."""

    #: Clients' messages are refused; readers and peers are served until nothing waits for others.
    QUIESCE = "QUIESCE"
    #: Nothing comes in; leases end.
    FREEZE = "FREEZE"
    #: The heir gets the queues.
    QUEUES = "QUEUES"
    #: The messages go to the heir.
    MOVE = "MOVE"
    #: The heir gets positions and IDs, and answers for this node.
    STATE = "STATE"
    DONE = "DONE"


class DrainState(msgspec.Struct):
    """A drain as the journal has it."""

    drain: str
    #: UUID and name of the heir.
    heir: str
    heir_name: str
    phase: Phase = Phase.QUIESCE
    force: bool = False
    lease_timeout_ms: int = LEASE_TIMEOUT_MS
    #: Messages that were moved.
    moved: int = 0


#: Calls the node with a UUID, and answers what it refuses; raises BridgeError where there is no answer.
CallHeir = Callable[[str, AnyCall], Awaitable[str]]


class Drain:
    """The drain of one node, if there is one."""

    def __init__(
        self,
        journal: Journal,
        name: str,
        bridges: Callable[[], Sequence[str]],
        call: CallHeir,
        changed: Callable[[], None],
    ) -> None:
        """Make it without a look at the journal.

        Args:
            journal: this node's, open.
            name: this node's.
            bridges: returns those of the settings that read the journal.
            call: reaches the heir.
            changed: called after each phase.
        """
        self._journal = journal
        self._name = name
        self._bridges = bridges
        self._call = call
        self._changed = changed
        self.state: DrainState | None = None
        #: Whether an heir is being asked: this node says that it drains, and accepts no leaver.
        self.beginning = False
        #: What the phase waits for; empty: for nothing, or there is no drain.
        self.waits = ""
        #: When this process first saw it frozen, by the clock of leases; None: not yet.
        self._frozen_ms: int | None = None
        self._begun = asyncio.Event()
        #: Returns UUID and store of the nodes that this node answers for.
        self.inherited: Callable[[], Iterable[tuple[str, str]]] = tuple

    async def load(self) -> None:
        """Go on with the drain that the journal has."""
        found = await self._journal.look(read_note, _NOTE)
        if found is not None:
            self.state = msgspec.json.decode(found, type=DrainState)
            self._begun.set()

    async def begin(
        self, heir: str, heir_name: str, *, force: bool, lease_timeout_ms: int, version: Version
    ) -> None:
        """Begin, once the heir has accepted. Raises: Conflict: it refuses. TargetUnavailable: no answer.

        `version`: of this node's record that says already that it drains.
        """
        drain = str(uuid.uuid4())
        state = DrainState(drain, heir, heir_name, force=force, lease_timeout_ms=lease_timeout_ms)
        identity = self._journal.identity
        accept = Accept(
            identity.node_id, drain, self._name, identity.store, tuple(self._bridges()), force, version
        )
        refused = await self._ask(heir, accept)
        if refused:
            raise Conflict(f"{heir_name} does not take over: {refused}", "to", found=heir_name)
        await self._keep(state)
        self._begun.set()

    async def cancel(self) -> Literal["", "too late"]:
        """Give it up, if no message was moved yet."""
        state = self.state
        if state is None:
            return ""
        if state.phase not in (Phase.QUIESCE, Phase.FREEZE, Phase.QUEUES):
            return "too late"
        self._begun.clear()
        with contextlib.suppress(TargetUnavailable):  # an heir that is away learns it by this node's record
            await self._ask(state.heir, Done(self._journal.identity.node_id, state.drain))
        await self._journal.submit(NoteCommand, name=_NOTE, value=None)
        await self._journal.submit(IntakeCommand, intake=Intake.OPEN)
        self.state = None
        self._changed()
        return ""

    async def turn(self) -> None:
        """Do one step of the present phase; waits where there is no drain."""
        await self._begun.wait()
        state = self.state
        if state is None or state.phase is Phase.DONE:
            self._begun.clear()
            return
        steps = {
            Phase.QUIESCE: self._quiesce,
            Phase.FREEZE: self._freeze,
            Phase.QUEUES: self._queues,
            Phase.MOVE: self._move,
            Phase.STATE: self._hand_state_over,
        }
        try:
            done = await steps[state.phase](state)
        except BridgeError as error:
            self.waits, done = described(error), False
        if done and self.state is state:
            self.waits = ""
            crash_point("cluster.drain-next")
            order = list(Phase)
            await self._keep(state, order[order.index(state.phase) + 1])
        elif not done:
            await asyncio.sleep(LOOK_S)

    async def _keep(self, state: DrainState, phase: Phase | None = None) -> None:
        """Store it with `phase`, or as it is; nobody sees the phase before it is stored."""
        phase = phase or state.phase
        stored = msgspec.structs.replace(state, phase=phase)
        await self._journal.submit(NoteCommand, name=_NOTE, value=msgspec.json.encode(stored).decode())
        state.phase = phase
        self.state = state
        _log.info("drain", phase=state.phase.value, heir=state.heir_name, moved=state.moved)
        self._changed()

    async def _ask(self, heir: str, call: AnyCall) -> str:
        return await self._call(heir, call)

    async def _tell(self, state: DrainState, call: AnyCall) -> None:
        """Make the heir do it. Raises: TargetUnavailable: it does not, now."""
        refused = await self._ask(state.heir, call)
        if refused:
            raise TargetUnavailable(f"{state.heir_name}: {refused}")
        crash_point("cluster.drain-told")

    # -- phases: each answers whether it is over --------------------------------------------------------

    async def _quiesce(self, state: DrainState) -> bool:
        """Everything that waits for others is confirmed by them; in the transaction that says so, nothing
        comes in any more.
        """
        crash_point("cluster.drain-QUIESCE")
        if self._journal.views.intake is Intake.OPEN:
            await self._journal.submit(IntakeCommand, intake=Intake.NO_CLIENTS)
        waiting: list[str] = await self._journal.submit(
            IntakeCommand, intake=Intake.CLOSED, but=bridge_to(state.heir)
        )
        self.waits = "; ".join(waiting[:10])
        return not waiting

    async def _freeze(self, state: DrainState) -> bool:
        """Leases have ended, or have had their time."""
        crash_point("cluster.drain-FREEZE")
        leases = [
            (Acknowledgement(address, queue, lease), expires_ms)
            for address, queue, lease, expires_ms in await self._journal.look(read_leases)
        ]
        now_ms = self._journal.lease_now_ms
        deadline_ms = self._lease_deadline_ms(state, now_ms)
        for lease, expires_ms in leases:
            if expires_ms <= now_ms or now_ms >= deadline_ms:
                try:
                    await self._journal.release(lease)
                except (StaleLease, QueueNotFound, AddressNotFound):
                    continue
        left = [lease for lease, expires_ms in leases if expires_ms > now_ms and now_ms < deadline_ms]
        self.waits = "; ".join(f"a lease of {lease.address}::{lease.queue}" for lease in left[:10])
        return not left

    def _lease_deadline_ms(self, state: DrainState, now_ms: int) -> int:
        """Until when leases may last: counted from this process's first look."""
        if self._frozen_ms is None:
            self._frozen_ms = now_ms
        return self._frozen_ms + state.lease_timeout_ms

    async def _queues(self, state: DrainState) -> bool:
        crash_point("cluster.drain-QUEUES")
        queues = [
            QueueDefinition(address.name, queue.name, address.routing_type, queue.condition)
            for address in self._journal.views.addresses
            if not is_own(address.name)
            for queue in self._journal.views.queues(address.name)
            if queue.bridge is None and queue.name != REPLAYED_QUEUE
        ]
        node = self._journal.identity.node_id
        for start, stop in chunks([len(one.address) + len(one.filter) + 300 for one in queues]):
            await self._tell(state, Queues(node, state.drain, tuple(queues[start:stop])))
        return True

    async def _move(self, state: DrainState) -> bool:
        """All messages are in forward logs of the heir, and confirmed by it."""
        crash_point("cluster.drain-MOVE")
        for address in self._journal.views.addresses:
            for queue in self._leaving(address):
                while await self._move_once(state, address.name, queue):
                    pass
        waiting = [
            address.name
            for address in self._journal.views.addresses
            if is_forward_log(address.name)
            for queue in self._journal.views.queues(address.name)
            if queue.next < address.next
        ]
        self.waits = "; ".join(waiting[:10])
        return not waiting

    def _leaving(self, address: AddressView) -> list[str]:
        """The queues whose messages leave; of an address without one, what no queue has taken."""
        if is_own(address.name) or not address.messages:
            return []
        known = self._journal.views.queues(address.name)
        queues = [queue for queue in known if queue.name != REPLAYED_QUEUE]
        if not queues:
            return [REPLAYED_QUEUE]
        return [queue.name for queue in queues if queue.bridge is None]

    async def _move_once(self, state: DrainState, address: str, queue: str) -> bool:
        """Whether there may be more."""
        only = () if queue == REPLAYED_QUEUE else (queue,)
        to = Destination(forward_log(state.heir, address), bridge_to(state.heir), only=only)
        movable: Movable = await self._journal.look(
            read_movable,
            (address, queue),
            to,
            self._journal.identity.incarnation,
            lease_now_ms=self._journal.lease_now_ms,
        )
        if not movable.messages:
            return movable.has_more
        try:
            moved: Sequence[int] = await self._journal.submit(
                MoveCommand,
                address=address,
                queue=queue,
                messages=movable.messages,
                size=sum(one.block.size for one in movable.messages),
                leaves=True,
            )
        except (AddressFull, DiskFull, QueueNotFound, AddressNotFound) as error:
            self.waits = described(error)
            return False
        crash_point("cluster.drain-moved")
        taken = set(moved)
        state.moved += sum(one.block.count for one in movable.messages if one.first in taken)
        return bool(moved)

    async def _hand_state_over(self, state: DrainState) -> bool:
        crash_point("cluster.drain-STATE")
        node = self._journal.identity.node_id
        rows = await self._journal.look(read_positions)
        for start, stop in chunks([len(row[0]) + len(row[1]) + 100 for row in rows]):
            await self._tell(state, Positions(node, state.drain, tuple(rows[start:stop])))
        for address in self._journal.views.addresses:
            if is_own(address.name):
                continue
            ids: list[bytes] = await self._journal.submit(ReadIdsCommand, address=address.name)
            for start, stop in chunks([len(value) + 8 for value in ids]):
                await self._tell(state, Ids(node, state.drain, address.name, tuple(ids[start:stop])))
        await self._tell(state, Apply(node, state.drain, tuple(self.inherited())))
        await self._tell(state, Done(node, state.drain))
        return True
