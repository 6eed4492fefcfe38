"""A client's transaction in a commit group: duplicates, then room, then leases; then all or nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.errors import DuplicateIdRejected, StaleLease
from bridge.journal.rules import routing
from bridge.journal.rules.commands import CommitCommand
from bridge.journal.rules.commit_group import Group, Pending
from bridge.journal.rules.placement import ClientMessages, Parcel, require_room, store
from bridge.journal.rules.state import QueueState
from bridge.journal.values.routes import QueueSet
from bridge.journal.values.routing import Destination
from bridge.journal.values.store import Acknowledgement, Committed, Transaction
from bridge.messages.block import IndexedId
from dedup.cache import repeated

#: By address, indices of the transaction's messages.
ByAddress = dict[str, list[int]]
#: (index in the transaction, address, ID), as `DuplicateIdRejected` has it.
Known = tuple[int, str, bytes]


def commit(group: Group, command: CommitCommand) -> None:
    """Decide a transaction; only when nothing can fail any more is anything changed.

    Raises:
        AddressNotFound, AddressFull, MessageTooLarge, DuplicateIdRejected, StaleLease, QueueNotFound,
        JournalUnavailable: the router failed.
        Blocked: there is no room now.
    """
    transaction = command.transaction
    by_address = _by_address(transaction)
    for name in by_address:
        group.policy(name)
    if len(by_address) > 1:  # for one, its policy has checked it
        group.check_room_for_addresses(*by_address)
    if _is_known(group, command, by_address):
        command.result = Committed(stored=False)
        return
    known = _known_messages(group, command, by_address)
    if known and transaction.on_duplicate == "reject":
        _log(group, known)
        if transaction.plain:
            command.result = Committed(stored=False)
            return
        raise DuplicateIdRejected(
            f"{len(known)} of {len(transaction.sent)} messages carry a duplicate ID that is known",
            duplicates=tuple(sorted(known)),
        )
    pending = Pending(command)
    if known:
        pending.skipped = sorted(index for index, _, _ in known)
        skipped = frozenset(pending.skipped)
        by_address = {
            name: [index for index in indices if index not in skipped] for name, indices in by_address.items()
        }
    placed = _placed(group, transaction, by_address)
    for parcels in placed.values():
        require_room(group, parcels)
    if transaction.acknowledgements:
        queues = _leased(group, transaction.acknowledgements)
        _settle(group, queues, transaction.acknowledgements)
    for name, indices in by_address.items():
        _accept(group, pending, name, indices, placed.get(name, ()))
    _log(group, known)
    group.pending.append(pending)


def _settle(group: Group, queues: Sequence[QueueState], acknowledgements: Sequence[Acknowledgement]) -> None:
    """Settle the leases of these queues; what an acknowledgement leaves is free again."""
    for queue, acknowledgement in zip(queues, acknowledgements, strict=True):
        group.expire_leases(group.state.addresses[acknowledgement.address], queue)
        queue.acknowledge(acknowledgement.lease, acknowledgement.upto)
        group.change_queue(group.state.addresses[acknowledgement.address], queue)
        if acknowledgement.upto is not None:
            group.touched.add(acknowledgement.address)


def _by_address(transaction: Transaction) -> ByAddress:
    """The addresses that the transaction's messages go to, with their indices.

    A transaction of acknowledgements alone is known, by its ID, at the addresses where it settles.
    """
    if not transaction.sent:
        return {acknowledgement.address: [] for acknowledgement in transaction.acknowledgements}
    by_address: ByAddress = {}
    for index, one in enumerate(transaction.sent):
        by_address.setdefault(one.address, []).append(index)
    return by_address


def _is_known(group: Group, command: CommitCommand, by_address: ByAddress) -> bool:
    """Whether the transaction's own ID is known at an address that it touches."""
    own = command.transaction.duplicate_id
    if own is None:
        return False
    if not any(group.known(name, [own]) for name in by_address):
        return False
    # All its messages are duplicates, those for an address that does not know the ID any more among them.
    for name, indices in by_address.items():
        if name in group.state.addresses:
            group.log.duplicate_transaction(name, own, len(indices))
    return True


def _known_messages(group: Group, command: CommitCommand, by_address: ByAddress) -> list[Known]:
    """Messages whose ID is known at their address, or stands in the transaction for a second time."""
    found: list[Known] = []
    sent = command.transaction.sent
    for name, indices in by_address.items():
        with_ids = [(index, value) for index in indices if (value := sent[index].duplicate_id) is not None]
        if not with_ids or not group.cache_capacity(name):
            continue
        values = [value for _, value in with_ids]
        places = {*group.known(name, values), *repeated(values)}
        found += [(with_ids[place][0], name, values[place]) for place in sorted(places)]
    return found


def _log(group: Group, known: list[Known]) -> None:
    for _, name, value in known:
        if name in group.state.addresses:
            group.log.duplicate(name, [value])


def _leased(group: Group, acknowledgements: Sequence[Acknowledgement]) -> list[QueueState]:
    """The queue of each acknowledgement, whose lease runs.

    Raises: StaleLease, QueueNotFound, AddressNotFound.
    """
    queues: list[QueueState] = []
    seen: set[tuple[str, str, str]] = set()
    for wanted in acknowledgements:
        queue = group.require_queue(wanted.address, wanted.queue)
        key = (wanted.address, wanted.queue, wanted.lease)
        if key in seen or not group.has_lease(queue, wanted.lease):
            raise stale_lease(wanted)
        seen.add(key)
        queues.append(queue)
    return queues


def stale_lease(wanted: Acknowledgement) -> StaleLease:
    """The error for a lease that has ended or never began."""
    return StaleLease(
        f"the lease has ended, or never was, on {wanted.address}/{wanted.queue}",
        key="lease",
        found=wanted.lease,
    )


def _placed(group: Group, transaction: Transaction, by_address: ByAddress) -> dict[str, Sequence[Parcel]]:
    """By address, its messages at the places that the router has given them; an address that it does not
    name has its messages itself.

    Raises:
        AddressNotFound: there would be too many addresses. JournalUnavailable: the router failed.
    """
    router = group.options.router
    placements = {} if router is None else routing.place(group, router, transaction, by_address)
    placed: dict[str, Sequence[Parcel]] = {}
    for name, indices in by_address.items():
        if name in placements:
            chosen = routing.by_address(placements[name])
            placed[name] = [Parcel(to, _messages(transaction, places, sets)) for to, places, sets in chosen]
        elif indices:
            placed[name] = (Parcel(Destination(name), _messages(transaction, indices)),)
    return placed


def _messages(
    transaction: Transaction, indices: Sequence[int], sets: Sequence[QueueSet] | None = None
) -> ClientMessages:
    sent = transaction.sent
    encoded = [sent[index].encoded for index in indices]
    return ClientMessages(encoded, _ids(transaction, indices), sets, transaction.large)


def _accept(
    group: Group, pending: Pending, name: str, indices: Sequence[int], parcels: Sequence[Parcel]
) -> None:
    """Take the messages for one address: their IDs are remembered there, wherever they are stored."""
    transaction = pending.command.transaction
    before = store(group, parcels)
    if len(parcels) == 1 and parcels[0].to.address == name:  # nearly always: all of them, and there
        pending.offsets[name] = (before[0], len(indices))
        ids = parcels[0].messages.ids
    else:
        ids = _ids(transaction, indices)
        group.require_address(name, bare=bool(parcels))
        if parcels:
            pending.elsewhere[name] = len(indices)
        for parcel, offset in zip(parcels, before, strict=True):
            if parcel.to.address == name and parcel.messages.count == len(indices):
                del pending.elsewhere[name]
                pending.offsets[name] = (offset, len(indices))
    values = [value for _, value in ids]
    own = transaction.duplicate_id
    if own is not None and own not in values:
        values.append(own)
    group.remember(name, values)


def _ids(transaction: Transaction, indices: Sequence[int]) -> list[IndexedId]:
    """The producers' IDs of the messages at `indices`, by their places among them."""
    sent = transaction.sent
    return [
        (offset, value)
        for offset, index in enumerate(indices)
        if (value := sent[index].duplicate_id) is not None
    ]
