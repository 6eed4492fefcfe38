"""Forgetting a node that is lost for good: what waits for it is placed anew, and it may not come back.

Its forward logs run through a bridge to this node itself, as those of a drained node do at its heir: a copy
whose queue is here goes there, any other one to another place of the name, or becomes a dead letter. What the
lost node may have, because it was sent and not confirmed, is in doubt: it becomes dead letters, unless the
operator wants it placed anew, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import msgspec
import structlog

from bridge.journal.journal import Journal
from bridge.journal.rules.commands import (
    DropLogCommand,
    InheritCommand,
    NoteCommand,
)
from bridge.journal.rules.owners import THIS_NODE
from bridge.journal.sqlite.backlog import Backlog, read_backlog
from bridge.journal.sqlite.notes import read_note
from bridge.journal.sqlite.reader import read_settled
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.stream_names import forward_log
from cluster.record import NODES
from cluster.routing import bridge_to

#: The name under which the journal keeps them.
_NOTE: Final = "cluster.forgotten"
#: Settlements that may not be stored yet (`bridge.journal.source.SETTLEMENTS`): each is a batch.
_SETTLEMENTS: Final = 64

InDoubt = Literal["dead-letter", "requeue"]

_log: Final = structlog.get_logger(__name__)


class Window(NamedTuple):
    """How much a bridge to another node sends ahead."""

    #: `confirmation-window-size` and `producer-window-size`.
    unconfirmed_bytes: int
    batch_bytes: int


class Forgotten(msgspec.Struct):
    """A node that is lost for good."""

    name: str
    #: Identity of its store; empty: it was never heard of.
    store: str
    #: What becomes of copies that it may have.
    in_doubt: InDoubt
    #: By stream, the position from which on nothing was sent to it.
    unsent_from: dict[str, int]


class Forgetting:
    """The lost nodes of one node."""

    def __init__(self, journal: Journal, window: Window) -> None:
        self._journal = journal
        self._sent_most = window.unconfirmed_bytes + _SETTLEMENTS * window.batch_bytes
        self.nodes: dict[str, Forgotten] = {}

    async def load(self) -> None:
        """Read what the journal has."""
        found = await self._journal.look(read_note, _NOTE)
        if found is not None:
            self.nodes = msgspec.json.decode(found, type=dict[str, Forgotten])

    @property
    def is_full(self) -> bool:
        """Whether no further node can be forgotten."""
        return len(self.nodes) >= NODES

    async def backlog(self, node: str) -> list[Backlog]:
        """The messages that wait for a node, by address."""
        return await self._journal.look(
            read_backlog, bridge_to(node), self._journal.identity.incarnation, self._sent_most
        )

    async def forget(self, node: str, name: str, in_doubt: InDoubt) -> list[Backlog]:
        """Take over what waits for it; its bridge is stopped. Repeated, it changes nothing."""
        if node in self.nodes:
            return []
        waiting = await self.backlog(node)
        settled = await self._journal.look(read_settled, bridge_to(node))
        rows = [
            (bridge_to(node), one.stream, one.next, "", 0, 0, THIS_NODE, self._journal.identity.node_id)
            for one in waiting
            if one.stream in settled
        ]
        await self._journal.submit(InheritCommand, positions=rows)
        store = next(iter(settled.values()))[1] if settled else ""
        unsent = {one.stream: one.unsent_from for one in waiting}
        self.nodes[node] = Forgotten(name, store, in_doubt, unsent)
        try:
            await self._keep()
        except BaseException:
            del self.nodes[node]
            raise
        _log.warning(
            "node-forgotten", peer=name, peer_id=node, waiting=sum(one.messages for one in waiting),
            in_doubt=sum(one.in_doubt for one in waiting), choice=in_doubt,
        )  # fmt: skip
        return waiting

    async def _keep(self) -> None:
        value = msgspec.json.encode(self.nodes).decode()
        await self._journal.submit(NoteCommand, name=_NOTE, value=value)

    def stage(self, node: str) -> DoubtStage | None:
        """The stage of the bridge that places its copies anew."""
        forgotten = self.nodes.get(node)
        if forgotten is None or forgotten.in_doubt == "requeue":
            return None
        return DoubtStage(forgotten.name, forgotten.unsent_from)


@dataclass(frozen=True, slots=True)
class DoubtStage:
    """Implements `bridge.relay.stages.Stage`: refuses the copies that a lost node may have."""

    name: str
    #: By stream.
    unsent_from: dict[str, int]

    def __call__(self, batch: Batch, _address: str) -> Batch:
        """The batch, with a refusal for each message that was perhaps delivered."""
        bound = self.unsent_from.get(batch.stream, 0)
        if batch.block is None or batch.from_ >= bound:
            return batch
        places = [place for place in run_arithmetic.positions(batch.runs) if place < bound]
        reason = f"IN_DOUBT: {self.name} is lost, and may have got the message"
        refusals = dict(batch.refusals) | dict.fromkeys(places, reason)
        return replace(batch, refusals=tuple(sorted(refusals.items())))


async def drop_forward_logs(journal: Journal, node: str) -> None:
    """Delete the forward logs of a node that has no bridge any more, if nothing waits in them."""
    for address in forward_logs(journal, node):
        await journal.submit(DropLogCommand, address=address, bridge=bridge_to(node))


def forward_logs(journal: Journal, node: str) -> Sequence[str]:
    """The forward logs of a node."""
    prefix = forward_log(node, "")
    return [address.name for address in journal.views.addresses if address.name.startswith(prefix)]


def is_empty(journal: Journal, node: str) -> bool:
    """Whether nothing waits for a node."""
    prefix = forward_log(node, "")
    return all(
        queue.next >= address.next
        for address in journal.views.addresses
        if address.name.startswith(prefix)
        for queue in journal.views.queues(address.name)
    )
