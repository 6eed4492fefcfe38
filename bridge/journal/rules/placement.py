"""Placement: the messages of one command as parcels, each for one log; all are stored, or none.

A client's transaction (`client_transactions`), a bridge's batch (`placing`) and a move (`moves`) find where
their messages go. The checks before anything changes, and the change itself, are here alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from bridge.journal.rules.arrivals import Arrivals, Came
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.state import AddressState
from bridge.journal.values.options import bridge_queue_name
from bridge.journal.values.routes import QueueSet
from bridge.journal.values.routing import Destination
from bridge.messages.block import Block, IndexedId, KeptBody


class ClientMessages(msgspec.Struct, frozen=True):
    """Messages that clients have sent, not in a block yet; at least one."""

    encoded: Sequence[bytes]
    #: Their producers' IDs, by index.
    ids: Sequence[IndexedId]
    #: The queues that each of them is for; None: every queue.
    sets: Sequence[QueueSet] | None = None
    #: The body of the only message, which is large; None: every message has its body.
    large: KeptBody | None = None

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.encoded)

    @property
    def largest_whole(self) -> int:
        """Bytes of the largest of them, with a large body."""
        return max(map(len, self.encoded)) + (0 if self.large is None else self.large.body.size)


class Parcel(NamedTuple):
    """Messages for one log."""

    to: Destination
    messages: Block | ClientMessages
    #: How a block comes to its address.
    came: Came = Came.RELAYED


def require_room(group: Group, parcels: Sequence[Parcel]) -> None:
    """Check that every log takes its messages, and that all missing ones may be made. Changes nothing.

    Raises:
        AddressNotFound, AddressFull, MessageTooLarge.
        Blocked: there is no room now.
    """
    if len(parcels) == 1:  # nearly always: its own check is all
        ((to, messages, _),) = parcels
        group.require_room(to.address, messages.largest_whole, may_be_made=to.bridge is not None)
        return
    largest: dict[Destination, int] = {}
    for to, messages, _ in parcels:
        largest[to] = max(largest.get(to, 0), messages.largest_whole)
    for to, size in largest.items():
        group.require_room(to.address, size, may_be_made=to.bridge is not None)
    there = group.state.addresses
    names = dict.fromkeys(to.address for to in largest if to.address not in there)
    if any(to.bridge is None and to.address in names for to in largest):
        group.check_room_for_addresses(*names)


def store(group: Group, parcels: Sequence[Parcel]) -> list[int]:
    """Add the messages to the group; answers, by parcel, how many of the group come before them.

    Where one log begins a block with clients' messages, all do: logs that get the same messages have equal
    blocks, and share their bodies.
    """
    if len(parcels) == 1:
        (parcel,) = parcels
        return [_add(group, group.arrivals_of(open_destination(group, parcel.to)), parcel, apart=False)]
    logs = [group.arrivals_of(open_destination(group, one.to)) for one in parcels]
    apart = len(logs) > 1 and not all(log.joins for log in logs)
    return [_add(group, log, parcel, apart=apart) for parcel, log in zip(parcels, logs, strict=True)]


def _add(group: Group, log: Arrivals, parcel: Parcel, *, apart: bool) -> int:
    """Add the messages to a log; answers how many of the group come before them."""
    to, messages, came = parcel
    before, large = log.count, messages.large
    if large is not None:
        group.take_upload(large.body_id)
    if isinstance(messages, Block):
        log.add_block(messages, came, to.queues)
    elif large is not None:
        log.add_large(messages.encoded[0], messages.ids, large, messages.sets)
    else:
        log.add_messages(messages.encoded, messages.ids, messages.sets, apart=apart)
    return before


def open_destination(group: Group, to: Destination) -> AddressState:
    """The destination's address; made where it is missing. Raises: AddressNotFound."""
    name, bridge = to.address, to.bridge
    if bridge is None:
        return group.require_address(name)
    address = group.state.addresses.get(name) or group.make_address(name)
    queue = bridge_queue_name(bridge)
    if queue not in address.queues:
        group.make_queue(address, queue, bridge, address.trimmed)
    return address
