"""The heir's side of a drain: the leavers for which this node answers, kept in its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import structlog

from bridge.errors import BridgeError, Conflict, described
from bridge.filters import parse
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import InheritCommand, NoteCommand, QueueCommand
from bridge.journal.sqlite.notes import read_note
from bridge.messages.addresses import WantedType
from bridge.runtime.fault_injection import crash_point
from cluster.handover import Accept, Answer, AnyCall, Apply, Done, Ids, Positions, QueueDefinition, Queues
from cluster.record import ANY_VERSION, NODES, NodeState, Record, Version

#: The name under which the journal keeps them.
_NOTE: Final = "cluster.heirs"
_TYPES: Final[dict[str, WantedType]] = {"ANYCAST": "ANYCAST", "MULTICAST": "MULTICAST"}

_log: Final = structlog.get_logger(__name__)


class Leaver(msgspec.Struct):
    """A node that hands its messages over to this one."""

    drain: str
    name: str
    #: Identity of its store.
    store: str
    #: Whether this node answers for it now.
    applied: bool = False
    #: Whether the leaver has seen that.
    done: bool = False
    #: Of the record in which it first said that it drains: an older one says nothing of it.
    version: Version = ANY_VERSION


def answering(records: Iterable[Record]) -> dict[str, Record]:
    """By leaver, the record of the node that answers for it now.

    An heir that has drained itself still names its leavers, for which its own heir answers.
    """
    return {
        leaver: record
        for record in records
        if record.state is not NodeState.DRAINED
        for leaver in record.inherited
    }


class Heirs:
    """The leavers for which this node answers, as its journal has them."""

    def __init__(
        self, journal: Journal, bridges: Callable[[], Sequence[str]], changed: Callable[[], None]
    ) -> None:
        """`bridges` returns those of the settings that read the journal.

        `changed` is called when there is another leaver to answer for.
        """
        self._journal = journal
        self._bridges = bridges
        self._changed = changed
        self.leavers: dict[str, Leaver] = {}

    async def load(self) -> None:
        """Read what the journal has."""
        found = await self._journal.look(read_note, _NOTE)
        if found is not None:
            self.leavers = msgspec.json.decode(found, type=dict[str, Leaver])

    @property
    def inherited(self) -> tuple[str, ...]:
        """UUIDs of the nodes that this node answers for."""
        return tuple(sorted(node for node, leaver in self.leavers.items() if leaver.applied))

    @property
    def stores(self) -> tuple[tuple[str, str], ...]:
        """UUID and store of the nodes that this node answers for."""
        return tuple((node, leaver.store) for node, leaver in sorted(self.leavers.items()) if leaver.applied)

    def busy(self, records: Mapping[str, Record]) -> str:
        """The name of a leaver whose drain is under way, as far as these records say; empty: none.

        A drain is taken back once a record says so that is not older than it.
        """
        for node, leaver in self.leavers.items():
            record = records.get(node)
            taken_back = (
                record is not None and record.state is NodeState.UP and record.version >= leaver.version
            )
            if not leaver.done and (leaver.applied or not taken_back):
                return leaver.name
        return ""

    async def _keep(self) -> None:
        await self._journal.submit(NoteCommand, name=_NOTE, value=msgspec.json.encode(self.leavers).decode())

    async def take(self, call: AnyCall, *, draining: bool) -> Answer:
        """Carry a call out; an error becomes its answer."""
        crash_point("cluster.heir-before")
        try:
            refused = await self._take(call, draining=draining)
        except BridgeError as error:
            refused = described(error)
        crash_point("cluster.heir-after")
        if refused:
            _log.warning("drain-refused", peer_id=call.leaver, reason=refused)
        return Answer(refused)

    async def _take(self, call: AnyCall, *, draining: bool) -> str:
        if isinstance(call, Accept):
            return await self._accept(call, draining=draining)
        leaver = self.leavers.get(call.leaver)
        if leaver is None or leaver.drain != call.drain:
            return f"there is no drain {call.drain} of {call.leaver} here"
        match call:
            case Queues(queues=queues):
                for queue in queues:
                    await self._make_queue(queue)
            case Positions(positions=positions):
                await self._journal.submit(InheritCommand, positions=positions)
            case Ids(address=address, ids=ids):
                await self._learn(address, ids)
            case Apply(inherited=inherited):
                await self._apply(call.leaver, leaver, inherited)
            case Done():
                await self._end(call.leaver, leaver)
        return ""

    async def _accept(self, call: Accept, *, draining: bool) -> str:
        known = self.leavers.get(call.leaver)
        if known is not None and known.drain == call.drain:
            return ""
        if draining:
            return "this node is draining itself"
        if len(self.leavers) >= NODES:
            return f"this node answers for {len(self.leavers)} nodes, the most there may be"
        missing = sorted(set(call.bridges).difference(self._bridges()))
        if missing and not call.force:
            names = ", ".join(missing)
            return f"this node has no bridge {names} (--force: what waits for it becomes dead letters)"
        self.leavers[call.leaver] = Leaver(call.drain, call.name, call.store, version=call.version)
        await self._keep()
        return ""

    async def _make_queue(self, wanted: QueueDefinition) -> None:
        condition = parse(wanted.filter)
        how = {"start": "latest", "filter": condition, "keeps_filter": True}
        await self._journal.submit(
            QueueCommand,
            action="create",
            address=wanted.address,
            queue=wanted.queue,
            routing_type=_TYPES.get(wanted.routing_type, ""),
            **how,
        )

    async def _learn(self, address: str, ids: Sequence[bytes]) -> None:
        """Remember IDs beside those that are known: where it is too small for both, the cache grows."""
        try:
            await self._journal.submit(InheritCommand, address=address, ids=ids)
        except Conflict as too_small:
            await self._journal.resize_id_cache(address, int(too_small.found or 0))
            await self._journal.submit(InheritCommand, address=address, ids=ids)

    async def _apply(self, node: str, leaver: Leaver, inherited: Sequence[tuple[str, str]]) -> None:
        if not leaver.applied:
            leaver.applied = True
            for one, store in inherited:
                known = Leaver(leaver.drain, one, store, applied=True, done=True)
                self.leavers.setdefault(one, known)
            await self._keep()
            _log.info("drain", phase="INHERITED", peer=leaver.name, peer_id=node)
        self._changed()

    async def _end(self, node: str, leaver: Leaver) -> None:
        if leaver.applied:
            leaver.done = True
        else:
            del self.leavers[node]
        await self._keep()
