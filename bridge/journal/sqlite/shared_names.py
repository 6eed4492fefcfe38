"""The queues that a bridge shares with others by its `queue-name`, and what waits there."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bridge.errors import listed
from bridge.journal.sqlite import reader
from bridge.journal.sqlite.reader import BridgeLag, find_address
from bridge.journal.values.options import BridgeQueue, SharedNames
from bridge.messages.addresses import QueueName


@dataclass(frozen=True, slots=True)
class Found:
    """The queues that are there."""

    queues: Sequence[QueueName] = ()
    #: Why others are not there yet, one text each.
    missing: Sequence[str] = ()
    #: The reason why a name can never be right; empty: there is none.
    refused: str = ""


def find_shared(connection: sqlite3.Connection, selects: Callable[[str], bool], shared: SharedNames) -> Found:
    """The shared queues of a bridge: those that it names, with or without their addresses, and those of the
    ANYCAST addresses that it selects.

    A name whose address is not there is refused where another address has the queue (Artemis ignores the
    address).
    """
    queues, missing, refused = [], [], ""
    for name in shared.queues:
        holders = _holders(connection, name.queue)
        if name.address in holders:
            queues.append(name)
            continue
        others = listed(str(QueueName(address, name.queue)) for address in holders)
        if others and find_address(connection, name.address) is None:
            refused = f"{name}: there is no address {name.address}; the queue is {others}"
        missing.append(f"there is no queue {name} yet" + (f"; there is {others}" if others else ""))
    for candidate in shared.candidates:
        holders = [] if _has_messages(connection, candidate) else _holders(connection, candidate)
        if len(holders) == 1:
            queues.append(QueueName(holders[0], candidate))
        elif holders:
            names = " or ".join(str(QueueName(address, candidate)) for address in holders)
            missing.append(f"{candidate} is the name of several queues: write {names}")
    anycast = connection.execute("SELECT name FROM addresses WHERE routing_type = 'ANYCAST' ORDER BY name")
    queues += [QueueName(name, name) for (name,) in anycast if selects(name)]
    return Found(list(dict.fromkeys(queues)), missing, refused)


def _holders(connection: sqlite3.Connection, queue: str) -> list[str]:
    """The addresses with a readers' queue of this name."""
    rows = connection.execute(
        "SELECT a.name FROM queues q JOIN addresses a USING (address_id)"
        " WHERE q.name = ? AND q.bridge IS NULL ORDER BY a.name",
        (queue,),
    )
    return [name for (name,) in rows]


def _has_messages(connection: sqlite3.Connection, address: str) -> bool:
    """Whether an address of this name has ever had a message."""
    row = connection.execute("SELECT total FROM addresses WHERE name = ?", (address,)).fetchone()
    return row is not None and row[0] > 0


def bridge_lags(connection: sqlite3.Connection, bridges: Sequence[BridgeQueue]) -> list[BridgeLag]:
    """The messages that wait for each bridge: at its own queues, and at those that it shares, where readers
    may take them first.
    """
    lags = reader.bridge_lags(connection)
    for bridge in bridges:
        for name in find_shared(connection, bridge.selects, bridge.shared).queues:
            lags.append(reader.queue_lag(connection, bridge.bridge, name))
    return lags
