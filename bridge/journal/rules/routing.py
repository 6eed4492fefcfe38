"""A router's decision on a client's transaction: the places of its messages, checked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from bridge.errors import JournalUnavailable, described
from bridge.journal.rules.commit_group import Group
from bridge.journal.values.options import bridge_queue_name
from bridge.journal.values.routes import EVERY, QueueSet
from bridge.journal.values.routing import Destination, Placement, Router, Routing
from bridge.journal.values.store import Transaction

#: By the address that the client named. An address that is not in it has its messages stored there.
Placements = Mapping[str, Sequence[Placement]]


def place(
    group: Group, router: Router, transaction: Transaction, by_address: Mapping[str, Sequence[int]]
) -> Placements:
    """The placements of a transaction's messages; `by_address` has their indices.

    Raises:
        AddressNotFound: there would be too many addresses.
        JournalUnavailable: the router failed, left a message without a place, or placed one twice.
    """
    placements = {}
    for name, indices in by_address.items():
        if not indices:
            continue
        routing = Routing(
            name,
            indices,
            lambda i: transaction.sent[i].message,
            group.has_room,
            _queues(group, name),
            group.undo,
        )
        placed = _asked(router, routing)
        if placed is not None:
            placements[name] = placed
    destinations = {one.destination.address for placed in placements.values() for one in placed}
    group.check_room_for_addresses(*{*by_address, *destinations})
    return placements


def _queues(group: Group, name: str) -> Collection[str]:
    """The queues of an address; of one that is not there, those of the bridges that will read it."""
    there = group.state.addresses.get(name)
    if there is not None:
        return there.queues.keys()
    return [bridge_queue_name(bridge.bridge) for bridge in group.options.bridges if bridge.selects(name)]


def _asked(router: Router, routing: Routing) -> Sequence[Placement] | None:
    try:
        placements = router(routing)
    except Exception as error:  # the group's other commands must not fail with it
        raise JournalUnavailable(f"{routing.address}: the router failed ({described(error)})") from error
    if placements is None:
        return None
    copies = [(index, one.destination.address) for one in placements for index in one.indices]
    placed = {index for index, _ in copies}
    if placed != set(routing.indices) or len(set(copies)) != len(copies):
        raise JournalUnavailable(
            f"{routing.address}: the router placed messages {sorted(index for index, _ in copies)};"
            f" expected {list(routing.indices)}, each once at an address",
            limit=len(routing.indices),
            found=len(placed),
        )
    return placements


class Chosen(NamedTuple):
    """Messages of one transaction at one address."""

    destination: Destination
    #: Indices of the messages, ascending.
    indices: Sequence[int]
    #: The queues that each of them is for; None: every queue.
    sets: Sequence[QueueSet] | None


def by_address(placements: Sequence[Placement]) -> Iterator[Chosen]:
    """The placements, those at one address as one, so that its messages keep their order."""
    found: dict[str, list[Placement]] = {}
    for one in placements:
        if one.indices:
            found.setdefault(one.destination.address, []).append(one)
    for together in found.values():
        (destination, indices), *more = together
        if not more:
            queues = destination.queues
            yield Chosen(destination, indices, None if queues == EVERY else [queues] * len(indices))
            continue
        set_of = {index: one.destination.queues for one in together for index in one.indices}
        merged = sorted(set_of)
        yield Chosen(destination, merged, [set_of[index] for index in merged])
