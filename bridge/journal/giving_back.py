"""Messages that a bridge has taken out of shared queues and not delivered, given back when it is forgotten.

They wait in the bridge's own logs (`shared_queues`). It sent each as soon as it had taken it, and the target
has not confirmed it: so each is in doubt, as what waits for a lost node of a cluster is
(`cluster.forgetting`). It becomes a dead letter, which a replay puts into its queue again, or goes back there
at once, where the operator would rather have it twice than wait. Step by step, each in one transaction: after
a kill the next run goes on with the rest.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from bridge.errors import AddressNotFound
from bridge.journal.journal import Journal
from bridge.journal.rules.arrivals import Came
from bridge.journal.rules.commands import DropLogCommand, MoveCommand, Moved
from bridge.journal.rules.moves import read_movable
from bridge.journal.rules.placing import QUEUE_GONE
from bridge.journal.values.options import bridge_queue_name
from bridge.journal.values.routes import unpack_sets
from bridge.journal.values.routing import Destination
from bridge.messages.addresses import QueueName
from bridge.messages.stream_names import source_address
from bridge.relay.dead_letters import queue_letter

#: The choices about messages that the target may have.
InDoubt = Literal["dead-letter", "requeue"]
#: Begins the reason of their dead letters.
IN_DOUBT: Final = "IN_DOUBT"


def read_taken(connection: sqlite3.Connection, bridge: str, log: str) -> Mapping[QueueName, int]:
    """The number of messages that wait in a bridge's own log, by the queue that they were taken from."""
    found: Counter[QueueName] = Counter()
    for first, count, routes, at in connection.execute(
        "SELECT b.first, b.count, b.routes, q.next FROM addresses a JOIN queues q USING (address_id)"
        " JOIN blocks b USING (address_id) WHERE a.name = ? AND q.name = ? AND b.first + b.count > q.next",
        (log, bridge_queue_name(bridge)),
    ):
        found[_taken_from(log, routes)] += first + count - max(first, at)
    return found


def _read(
    connection: sqlite3.Connection, bridge: str, log: str, incarnation: str
) -> list[tuple[QueueName, Moved]]:
    """The first messages of the log, for one command: those of each block, and their queue."""
    leaving = (log, bridge_queue_name(bridge))
    found = []
    for one in read_movable(connection, leaving, Destination(source_address(log)), incarnation).messages:
        (routes,) = connection.execute(
            "SELECT b.routes FROM addresses a JOIN blocks b USING (address_id)"
            " WHERE a.name = ? AND b.first <= ? ORDER BY b.first DESC LIMIT 1",
            (log, one.first),
        ).fetchone()
        found.append((_taken_from(log, routes), one))
    return found


def _taken_from(log: str, routes: bytes | None) -> QueueName:
    """The queue that the messages of a block were taken from, by its routes (`shared_queues`)."""
    address = source_address(log)
    names = unpack_sets(routes, 1)[0].names
    return QueueName(address, names[0] if names else address)


@dataclass(frozen=True, slots=True)
class GivingBack:
    """Empties the own log of a bridge that does not run."""

    journal: Journal
    bridge: str
    log: str
    in_doubt: InDoubt

    async def run(self) -> None:
        """Give back what the log holds, and delete it.

        Raises: AddressFull, AddressNotFound, DiskFull, JournalUnavailable; what was given back before that
            stays so.
        """
        journal, queue = self.journal, bridge_queue_name(self.bridge)
        while taken := await journal.look(_read, self.bridge, self.log, journal.identity.incarnation):
            messages = [moved for name, one in taken for moved in self._destined(name, one)]
            await journal.submit(
                MoveCommand,
                address=self.log,
                queue=queue,
                messages=messages,
                size=sum(one.block.size for one in messages),
                deadline_ms=journal.deadline_ms(),
            )
        await journal.submit(DropLogCommand, address=self.log, bridge=self.bridge)

    def _destined(self, name: QueueName, taken: Moved) -> Iterator[Moved]:
        """The messages of a block as they go to their queue, or each as a dead letter."""
        address = self.journal.views.address(name.address)
        if address is None or self.journal.views.queue(name.address, name.queue) is None:
            yield from self._letters(name, taken, f"{QUEUE_GONE}: there is no queue {name} any more")
        elif self.in_doubt == "dead-letter":
            reason = f"{IN_DOUBT}: {self.bridge} is forgotten, and may have delivered the message"
            yield from self._letters(name, taken, reason)
        else:
            only = (name.queue,) if address.gives_copies else ()
            yield replace(taken, to=Destination(name.address, only=only))

    def _letters(self, name: QueueName, taken: Moved, reason: str) -> Iterator[Moved]:
        options = self.journal.options
        to = Destination(options.dead_letter_address)
        most_bytes = options.policy(to.address).max_size_bytes
        log = self.journal.views.address(self.log)
        if log is None:
            raise AddressNotFound(f"no address {self.log}: it was deleted", key="address", found=self.log)
        stream = log.stream(self.journal.identity.incarnation)
        positions = [place for low, high in taken.places for place in range(low, high)]
        for index, position in enumerate(positions):
            where = (self.bridge, name.address, stream, position, reason)
            block = queue_letter(taken.block.part(index, index + 1), where, name.queue, most_bytes)
            from_ = position if index else taken.from_
            yield Moved(((position, position + 1),), from_, to, block, came=Came.LETTER_HERE)
