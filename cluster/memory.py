"""The nodes that this one knew when it ended, kept in its journal.

A node that is started again knows the others' queues at once, also while those are away: what only they have
waits for them. Else a subscription at another node would miss what is sent before that has been heard again.
"""

from __future__ import annotations

from typing import Final

import msgspec

from bridge.journal.journal import Journal
from bridge.journal.rules.commands import NoteCommand
from bridge.journal.sqlite.notes import read_note
from cluster.record import Record
from cluster.snapshot import Remembered
from cluster.topology import Topology

#: The name under which the journal keeps the list of nodes, and what begins the name of each.
_NODES: Final = "cluster.nodes"
_NODE: Final = "cluster.node."


class Memory:
    """The records of other nodes in the journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        #: By node: what is kept, and the record of which it was made.
        self._kept: dict[str, str] = {}
        self._seen: dict[str, Record] = {}

    async def load(self) -> list[Remembered]:
        """The nodes that were known, in the order in which they became known."""
        found = await self._journal.look(read_note, _NODES)
        nodes = [] if found is None else msgspec.json.decode(found, type=list[str])
        remembered: list[Remembered] = []
        for node in nodes:
            value = await self._journal.look(read_note, _NODE + node)
            if value is not None:
                remembered.append(msgspec.json.decode(value, type=Remembered))
                self._kept[node] = value
        return remembered

    async def keep(self, topology: Topology) -> None:
        """Keep what has changed, but for readers and for ways that are down."""
        before = list(self._kept)
        now = {one.record.node: one for one in topology.remembered()}
        changed = {
            node: msgspec.json.encode(one.at_rest()).decode()
            for node, one in now.items()
            if self._seen.get(node) is not one.record or node not in self._kept
        }
        for node, value in changed.items():
            if self._kept.get(node) != value:
                await self._journal.submit(NoteCommand, name=_NODE + node, value=value)
                self._kept[node] = value
        gone = [node for node in before if node not in now]
        for node in gone:
            del self._kept[node]
        if list(self._kept) != before:
            nodes = msgspec.json.encode(list(self._kept)).decode()
            await self._journal.submit(NoteCommand, name=_NODES, value=nodes)
        for node in gone:
            await self._journal.submit(NoteCommand, name=_NODE + node, value=None)
        self._seen = {node: one.record for node, one in now.items()}
