"""The simulation's checks, over what the journals of all nodes have committed.

Each message, with each queue name at which its entry node has placed it, is in exactly one place: a queue,
a forward log beyond the receiver's next, the dead letters, or settled by a reader. Messages of one entry node
at one place keep their order, but for those that were moved.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.journal.rules.commands import EndLeaseCommand, MoveCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.sqlite.reader import read_block
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.queue_cursor import Cursor
from bridge.journal.values.routes import QueueSet, unpack_sets
from bridge.journal.values.store import Acknowledgement
from bridge.messages.message import Message
from bridge.messages.stream_names import FORWARD_PREFIX, is_forward_log
from bridge.relay.dead_letters import queue_of
from cluster.routing import bridge_to, parse_place
from tests.cluster.simulation.node import SimNode

DEAD_LETTERS: Final = "dead-letters"

#: (message, queue name).
Pair = tuple[str, str]


class Bad(Exception):
    """A check failed."""


def body_of(message: Message) -> str:
    assert message.whole is not None
    return message.whole.decode()


@dataclass
class Entry:
    """A message that a client's transaction has stored."""

    node: str
    #: Counts the messages that entered there.
    number: int
    #: By the queue names at which it was placed, the UUIDs of the places' nodes.
    places: Mapping[str, str]


@dataclass
class Ledger:
    """What commits have done, told by their COMMIT."""

    nodes: Mapping[str, SimNode]
    entered: dict[str, Entry] = field(default_factory=dict)
    #: What a commit ought not to have done.
    wrong: list[str] = field(default_factory=list)
    #: By node, what readers have settled there.
    acknowledged: Counter[Pair] = field(default_factory=Counter)
    #: Messages of queues that were moved or rerouted: their order is not kept.
    moved: set[Pair] = field(default_factory=set)
    #: By node, address and queue, what came, in order.
    came: dict[tuple[str, str, str], list[str]] = field(default_factory=dict)
    #: By lease, the messages that a reader knows it has.
    leases: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    _numbers: Counter[str] = field(default_factory=Counter)
    #: By node, the sequence up to which stored blocks were looked at.
    _seen: dict[str, int] = field(default_factory=dict)
    moves: int = 0
    #: As `_read_next` found it last.
    _next: list[dict[tuple[str, str], int]] = field(default_factory=list)

    def committed(self, node: SimNode, group: Group, connection: sqlite3.Connection) -> None:
        """A group is durable."""
        for pending in group.pending:
            for index, submission in enumerate(pending.command.transaction.sent):
                if index not in pending.skipped:
                    self._enter(node, body_of(submission.message))
        for command in group.decided:
            if command.error is None and isinstance(command, EndLeaseCommand) and command.settle:
                self._settle(command.acknowledgement)
            elif command.error is None and isinstance(command, MoveCommand):
                self._move(group, command)
        self._look_at_new(node, group, connection)

    def _settle(self, wanted: Acknowledgement) -> None:
        for position, body in self.leases.pop(wanted.lease):
            if wanted.upto is None or position <= wanted.upto:
                self.acknowledged[body, wanted.queue] += 1

    def _move(self, group: Group, command: MoveCommand) -> None:
        taken = [one for one in command.messages if one.first in command.result]
        for one in taken:
            self.moves += one.block.count
            if not command.leaves:  # a drain keeps the order
                self.moved |= {(body_of(message), command.queue) for message in one.block.messages()}
        address = group.state.addresses.get(command.address)
        queue = None if address is None else address.queues.get(command.queue)
        for lease in () if queue is None else queue.cursor.leases.values():
            if lease.expires_ms > group.lease_now_ms and any(
                _within(lease.intervals, position)
                for one in taken
                for low, high in one.places
                for position in range(low, high)
            ):
                self.wrong.append(f"leased: {command.address}::{command.queue} lost messages under a lease")

    def _enter(self, node: SimNode, body: str) -> None:
        if body in self.entered:
            self.wrong.append(f"doubled: {body} entered twice")
        self._numbers[node.name] += 1
        places = {queue: place or node.uuid for queue, place in node.router.places[body].items()}
        self.entered[body] = Entry(node.name, self._numbers[node.name], places)

    def _look_at_new(self, node: SimNode, group: Group, connection: sqlite3.Connection) -> None:
        start = self._seen.get(node.name, 0)
        self._seen[node.name] = group.state.sequence
        if start == group.state.sequence:
            return
        for address_id, messages in read_messages(connection, start):
            address = group.state.by_id[address_id]
            queues = address.queues.keys() - {REPLAYED_QUEUE}
            for _, message, names in messages:
                if is_forward_log(address.name):
                    places = [parse_place(name) for name in names.names]
                    self.moved |= {(body_of(message), one.queue) for one in places if one.reroutes}
                    continue
                for queue in queues:
                    if names.has(queue):
                        self.came.setdefault((node.name, address.name, queue), []).append(body_of(message))

    # -- checks ------------------------------------------------------------------------------------------

    def conserve(self) -> Counter[Pair]:
        """Check that each message is in one place; answers those that still wait somewhere. Raises: Bad."""
        if self.wrong:
            raise Bad(self.wrong[0])
        waiting, dead = self._places()
        found = waiting + dead + self.acknowledged
        expected = {(body, name) for body, entry in self.entered.items() for name in entry.places}
        for pair in sorted(expected | found.keys()):
            if found[pair] != (pair in expected):
                where = [name for name, in_it in self._by_node().items() if pair in in_it]
                what = "lost" if not found[pair] else "doubled"
                raise Bad(
                    f"{what}: {pair} is in {found[pair]} places: waits {waiting[pair]} at {where}, dead"
                    f" {dead[pair]}, settled {self.acknowledged[pair]}; {self.entered.get(pair[0])}"
                )
        return waiting

    def order(self) -> None:
        """Check the order of what came to each place. Raises: Bad."""
        for (node, address, queue), bodies in self.came.items():
            last: dict[tuple[str, str], int] = {}
            for body in bodies:
                entry = self.entered.get(body)
                if entry is None or (body, queue) in self.moved:
                    continue
                place = (entry.node, entry.places.get(queue, ""))
                if entry.number <= last.get(place, 0):
                    raise Bad(
                        f"order: {address}::{queue} at {node} got message {entry.number} of {entry.node},"
                        f" {body}, behind its message {last[place]}"
                    )
                last[place] = entry.number

    def dead_letters(self) -> int:
        """How many there are."""
        return self._places()[1].total()

    def waiting_at(self, node: SimNode) -> set[tuple[str, str]]:
        """The queues of a node's addresses at which messages wait."""
        connection = node.connect()
        try:
            addresses = dict(connection.execute("SELECT address_id, name FROM addresses"))
            cursors = _cursors(connection)
            return {
                (addresses[address_id], queue)
                for address_id, messages in read_messages(connection)
                for queue, cursor in cursors.get(address_id, {}).items()
                for position, _, names in messages
                if _is_unsettled(cursor, position)
                and (names.has(queue) or is_forward_log(addresses[address_id]))
            }
        finally:
            connection.close()

    def _by_node(self) -> dict[str, Counter[Pair]]:
        return {name: self._waiting_at(node)[0] for name, node in self.nodes.items()}

    def _places(self) -> tuple[Counter[Pair], Counter[Pair]]:
        self._next = self._read_next()
        waiting: Counter[Pair] = Counter()
        dead: Counter[Pair] = Counter()
        for node in self.nodes.values():
            some, letters = self._waiting_at(node)
            waiting += some
            dead += letters
        return waiting, dead

    def _waiting_at(self, node: SimNode) -> tuple[Counter[Pair], Counter[Pair]]:
        """What waits at a node, and its dead letters."""
        waiting: Counter[Pair] = Counter()
        dead: Counter[Pair] = Counter()
        connection = node.connect()
        try:
            addresses = dict(connection.execute("SELECT address_id, name FROM addresses"))
            cursors = _cursors(connection)
            beyond = self._beyond(node, connection)
            for address_id, messages in read_messages(connection):
                name = addresses[address_id]
                queues = cursors.get(address_id, {})
                if is_forward_log(name):
                    (cursor,) = queues.values()
                    for position, message, names in messages:
                        if position < max(cursor.next, beyond.get(name, 0)):
                            continue
                        if name.endswith(f"/{DEAD_LETTERS}"):  # on its way to an heir
                            dead[body_of(message), queue_of(message)] += 1
                            continue  # its names say how it is kept there
                        waiting.update((body_of(message), parse_place(one).queue) for one in names.names)
                elif name == DEAD_LETTERS:
                    dead.update((body_of(message), queue_of(message)) for _, message, _ in messages)
                else:
                    for position, message, names in messages:
                        for queue, cursor in queues.items():
                            if names.has(queue) and _is_unsettled(cursor, position):
                                waiting[body_of(message), queue] += 1
        finally:
            connection.close()
        return waiting, dead

    def _beyond(self, node: SimNode, connection: sqlite3.Connection) -> dict[str, int]:
        """By forward log, the next of those who answer for its node."""
        found: dict[str, int] = {}
        for name, first in connection.execute("SELECT name, first FROM addresses"):
            if is_forward_log(name):
                peer = name.removeprefix(FORWARD_PREFIX).partition("/")[0]
                stream = f"journal:{node.stream_origin}:{name}:{first}"
                found[name] = max(next_.get((bridge_to(peer), stream), 0) for next_ in self._next)
        return found

    def _read_next(self) -> list[dict[tuple[str, str], int]]:
        """By node, the positions that it has committed of others' streams."""
        found = []
        for node in self.nodes.values():
            connection = node.connect()
            try:
                rows = connection.execute("SELECT bridge, stream, next FROM positions WHERE next IS NOT NULL")
                found.append({(bridge, stream): next_ for bridge, stream, next_ in rows})
            finally:
                connection.close()
        return found


def _cursors(connection: sqlite3.Connection) -> dict[int, dict[str, Cursor]]:
    found: dict[int, dict[str, Cursor]] = {}
    for address_id, name, next_, packed in connection.execute(
        "SELECT address_id, name, next, cursor FROM queues"
    ):
        if name != REPLAYED_QUEUE:
            found.setdefault(address_id, {})[name] = Cursor.unpack(next_, packed)
    return found


def read_messages(
    connection: sqlite3.Connection, start: int = 0
) -> Iterator[tuple[int, list[tuple[int, Message, QueueSet]]]]:
    """By block from `start` on: its address, and its messages with their positions and queues."""
    rows = connection.execute(
        "SELECT first, address_id, count, routes FROM blocks WHERE first >= ? ORDER BY first", (start,)
    ).fetchall()
    for first, address_id, count, routes in rows:
        messages = read_block(connection, first).block.messages()
        sets = unpack_sets(routes, count)
        yield address_id, [(first + index, one, sets[index]) for index, one in enumerate(messages)]


def _is_unsettled(cursor: Cursor, position: int) -> bool:
    return position >= cursor.next and not _within(cursor.settled, position)


def _within(intervals: Iterable[tuple[int, int]], position: int) -> bool:
    return any(low <= position < high for low, high in intervals)
