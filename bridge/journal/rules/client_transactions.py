"""A client's transaction in a commit group: duplicates, then room, then leases; then all or nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.errors import DuplicateIdRejected, StaleLease
from bridge.journal.rules import routing
from bridge.journal.rules.commands import CommitCommand
from bridge.journal.rules.commit_group import Group, Pending
from bridge.journal.rules.routing import Placements
from bridge.journal.rules.state import AddressState, QueueState
from bridge.journal.values.routes import QueueSet
from bridge.journal.values.routing import Destination, Placement
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
    known = _known_submissions(group, command, by_address)
    if known and transaction.on_duplicate == "reject":
        _log(group, known)
        if transaction.plain:
            command.result = Committed(stored=False)
            return
        raise DuplicateIdRejected(
            f"{len(known)} of {len(transaction.submissions)} messages carry a duplicate ID that is known",
            duplicates=tuple(sorted(known)),
        )
    pending = Pending(command)
    if known:
        pending.skipped = sorted(index for index, _, _ in known)
        skipped = frozenset(pending.skipped)
        by_address = {
            name: [index for index in indices if index not in skipped] for name, indices in by_address.items()
        }
    placements: Placements = {}
    if group.options.router is not None:
        placements = routing.place(group, group.options.router, transaction, by_address)
    _require_room(group, command, by_address, placements)
    if transaction.acknowledgements:
        queues = _leased(group, transaction.acknowledgements)
        _settle(group, queues, transaction.acknowledgements)
    for name, indices in by_address.items():
        _accept(group, pending, name, indices, placements.get(name))
    _log(group, known)
    group.pending.append(pending)


def _settle(group: Group, queues: Sequence[QueueState], acknowledgements: Sequence[Acknowledgement]) -> None:
    """Settle the leases of these queues; what an acknowledgement leaves is free again."""
    for queue, acknowledgement in zip(queues, acknowledgements, strict=True):
        queue.acknowledge(acknowledgement.lease, acknowledgement.upto)
        group.change_queue(group.state.addresses[acknowledgement.address], queue)
        if acknowledgement.upto is not None:
            group.touched.add(acknowledgement.address)


def _by_address(transaction: Transaction) -> ByAddress:
    """The addresses that the transaction's messages go to, with their indices.

    A transaction of acknowledgements alone is known, by its ID, at the addresses where it settles.
    """
    if not transaction.submissions:
        return {acknowledgement.address: [] for acknowledgement in transaction.acknowledgements}
    by_address: ByAddress = {}
    for index, submission in enumerate(transaction.submissions):
        by_address.setdefault(submission.address, []).append(index)
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


def _known_submissions(group: Group, command: CommitCommand, by_address: ByAddress) -> list[Known]:
    """Messages whose ID is known at their address, or stands in the transaction for a second time."""
    found: list[Known] = []
    for name, indices in by_address.items():
        with_ids: list[IndexedId] = []
        for index in indices:
            value = command.transaction.submissions[index].duplicate_id
            if value is not None:
                with_ids.append((index, value))
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
        group.expire_leases(group.state.addresses[wanted.address], queue)
        key = (wanted.address, wanted.queue, wanted.lease)
        if wanted.lease not in queue.cursor.leases or key in seen:
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


def _require_room(group: Group, command: CommitCommand, by_address: ByAddress, placed: Placements) -> None:
    """Check that every address takes its messages. Raises: AddressNotFound, AddressFull, MessageTooLarge,
    Blocked.
    """
    for name, indices in by_address.items():
        if name in placed:
            largest: dict[Destination, int] = {}
            for destination, chosen in placed[name]:
                largest[destination] = max(largest.get(destination, 0), _largest(command, chosen))
            routing.require_room(group, largest)
        elif indices:
            group.require_room(name, _largest(command, indices))


def _largest(command: CommitCommand, indices: Sequence[int]) -> int:
    """Bytes of the largest of these messages, encoded, with a large body."""
    large = command.transaction.large
    beside = 0 if large is None else large.body.size
    return max([len(command.encoded[index]) for index in indices], default=0) + beside


def _accept(
    group: Group, pending: Pending, name: str, indices: list[int], placements: Sequence[Placement] | None
) -> None:
    """Take the messages for one address: their IDs are remembered there, wherever they are stored."""
    transaction = pending.command.transaction
    address = group.require_address(name, bare=placements is not None)
    ids = _ids(transaction, indices)
    values = [value for _, value in ids]
    own = transaction.duplicate_id
    if own is not None and own not in values:
        values.append(own)
    group.remember(name, values)
    if placements is not None:
        _store_placed(group, pending, name, len(indices), placements)
    elif indices:
        pending.offsets[name] = _store(group, pending.command, address, indices, ids)


def _ids(transaction: Transaction, indices: Sequence[int]) -> list[IndexedId]:
    """The producers' IDs of the messages at `indices`, by their places among them."""
    ids: list[IndexedId] = []
    for offset, index in enumerate(indices):
        value = transaction.submissions[index].duplicate_id
        if value is not None:
            ids.append((offset, value))
    return ids


def _store(
    group: Group,
    command: CommitCommand,
    address: AddressState,
    indices: Sequence[int],
    ids: list[IndexedId],
    sets: Sequence[QueueSet] | None = None,
    *,
    apart: bool = False,
) -> tuple[int, int]:
    """Store messages at an address; answers how many of the group come before them, and how many they are."""
    encoded = [command.encoded[index] for index in indices]
    arrivals, large = group.arrivals_of(address), command.transaction.large
    if large is not None:
        return arrivals.add_large(encoded[0], ids, large, sets), 1
    return arrivals.add_messages(encoded, ids, sets, apart=apart), len(indices)


def _store_placed(
    group: Group, pending: Pending, name: str, count: int, placements: Sequence[Placement]
) -> None:
    """Store the messages for `name` where the router has placed them.

    Where one log begins a block with them, all do: logs that get the same messages have equal blocks, and
    share their bodies.
    """
    pending.elsewhere[name] = count
    placed = list(routing.by_address(placements))
    logs = [routing.open_destination(group, one.destination) for one in placed]
    apart = not all(group.arrivals_of(log).joins for log in logs)
    for (destination, chosen, sets), log in zip(placed, logs, strict=True):
        ids = _ids(pending.command.transaction, chosen)
        stored = _store(group, pending.command, log, chosen, ids, sets, apart=apart)
        if destination.address == name and len(chosen) == count:
            del pending.elsewhere[name]
            pending.offsets[name] = stored
