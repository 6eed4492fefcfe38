"""Bridges in a commit group: batches delivered to this journal, and sent ones settled."""

from __future__ import annotations

import zlib
from collections.abc import Sequence, Set
from typing import Annotated, NamedTuple

import msgspec

from bridge.errors import (
    Fenced,
    JournalUnavailable,
    Malformed,
    OutOfSequence,
    SourceGap,
)
from bridge.journal.rules import placing
from bridge.journal.rules.commands import (
    BeginCommand,
    DeliverCommand,
    SettleCommand,
)
from bridge.journal.rules.commit_group import Blocked, Group
from bridge.journal.rules.handover import check_open
from bridge.journal.rules.placement import Parcel, require_room, store
from bridge.journal.rules.state import PositionState, SettledState
from bridge.journal.values.options import bridge_queue_name
from bridge.journal.values.queue_cursor import Cursor, common
from bridge.journal.values.routing import Destination
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block, FreshBlock, KeptBody, encoded_size
from bridge.messages.message import MESSAGE_SLACK, Header, LargeBody
from bridge.messages.positions import Runs
from bridge.messages.stream_names import first_position, source_of
from bridge.relay.ports import Receipt
from dedup.coverage import Outcome, judge
from dedup.verdict import Verdict

_elements = msgspec.msgpack.Decoder(list[msgspec.Raw])


class _Small(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message as every reader can decode it."""

    body: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    #: A whole number of eight bytes, as on Kafka.
    timestamp: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] = -1


class _Large(_Small, array_like=True, frozen=True, gc=False):
    """The same, with a view of its body: copying large bodies takes most of the time."""

    body: memoryview | None  # type: ignore[assignment]


class _OfLarge(_Small, array_like=True, frozen=True, gc=False):
    """A message whose large body is beside it."""

    body: LargeBody  # type: ignore[assignment]


_of_large = msgspec.msgpack.Decoder(list[_OfLarge])
_small, _large = msgspec.msgpack.Decoder(list[_Small]), msgspec.msgpack.Decoder(list[_Large])
#: Mean size of messages from which a view is made in less time than a copy.
_LARGE_BYTES = 1024


def deliver(group: Group, command: DeliverCommand) -> None:
    """Decide a batch: design rule 1, then room, then producers' IDs where they are asked for (rule 4).

    Raises:
        Fenced, OutOfSequence, Malformed, AddressNotFound, AddressFull.
        Blocked: there is no room now.
        msgspec.DecodeError: the batch's messages cannot be read.
    """
    batch = command.batch
    key = (command.bridge, batch.stream)
    position = _current(group, command)
    check_open(group, position.owner)
    if position.refused_epoch == command.epoch:
        reason = "NOT_NOW: a batch before this one was not taken; open the stream again"
        command.result = Receipt(batch.stream, Verdict.NOT_NOW, position.next or 0, reason=reason)
        return
    if key in group.blocked_streams:
        raise Blocked(group.blocked_streams[key])
    begins = first_position(batch.stream) if position.next is None else position.next
    judgement = judge(begins, batch.from_, batch.upto)
    if judgement.outcome is Outcome.OUT_OF_SEQUENCE:
        raise OutOfSequence(
            f"{batch.stream}: the batch begins at {batch.from_}; expected at most {begins}",
            limit=begins,
            found=batch.from_,
        )
    if batch.block is not None:
        _check_readable(batch.block)  # before any field of the batch is relied on
    if judgement.outcome is Outcome.DUPLICATE:
        group.log.replayed(command, batch)
        command.result = _receipt(group, batch, Verdict.DUPLICATE, judgement.next, duplicates=batch.count)
        return
    fresh = batch.after(judgement.start)
    before = len(group.undo)
    taken = _refusal(group, command.address, fresh) or _take(group, command, fresh)
    if isinstance(taken, _Refusal):
        group.take_back(before)
        place, reason = taken
        position.refused_epoch = command.epoch
        command.result = Receipt(
            batch.stream, Verdict.REFUSED, position.next or 0, place, reason, committed=group.now_ms
        )
        return
    rejected = taken
    if position.next is None:
        group.state.brought.add((command.bridge, source_of(batch.stream)))
    position.next, position.run, position.checksum = batch.upto, command.run, batch.checksum
    group.changed_positions[key] = position
    if fresh.from_ < fresh.upto:
        group.log.received(command, fresh, rejected)
    command.rejected = len(rejected)
    duplicates = batch.count - fresh.count + len(rejected)
    command.result = _receipt(group, batch, Verdict.STORED, batch.upto, duplicates=duplicates)


def _check_readable(block: Block) -> None:
    """Check that the body agrees with its fields: a damaged one, once stored, would block all behind it.

    Takes 0.1 to 0.2 µs a message. It is done here and not where frames arrive, so that it costs the event
    loop nothing. A block that this process has encoded itself is not checked.

    Raises:
        Malformed, msgspec.DecodeError: the body does not agree.
    """
    if isinstance(block, FreshBlock):
        return
    elements = _elements.decode(block.body)
    if len(elements) != block.count:
        raise Malformed(
            f"a block of {block.count} messages holds {len(elements)}", limit=block.count, found=len(elements)
        )
    largest = max(map(len, elements))
    if largest > block.largest:
        raise Malformed(
            f"a block says its largest message has {block.largest} bytes; one has {largest}",
            limit=block.largest,
            found=largest,
        )
    checksum = zlib.crc32(elements[-1])
    if checksum != block.checksum:
        raise Malformed(
            f"a block says the checksum of its last message is {block.checksum}; found {checksum}",
            limit=block.checksum,
            found=checksum,
        )
    if block.large is not None:
        _check_large(block, block.large)
        return
    decoder = _large if len(block.body) >= _LARGE_BYTES * block.count else _small
    decoder.decode(block.body)


def _check_large(block: Block, kept: KeptBody) -> None:
    """Check that the block's message is that of its large body. Raises: Malformed, msgspec.DecodeError."""
    (message, *more) = _of_large.decode(block.body)
    if more or message.body != kept.body:
        detail = "a large body is not that of its message"
        raise Malformed(detail, limit=message.body.size, found=kept.body.size)


def _current(group: Group, command: DeliverCommand) -> PositionState:
    """The stream's position, if this link opened it last. Raises: Fenced."""
    stream = command.batch.stream
    position = group.state.positions.get((command.bridge, stream))
    if position is None or position.epoch != command.epoch:
        found = position.epoch if position is not None else None
        raise Fenced(
            f"a newer link has opened {stream}: epoch {found}; this one has {command.epoch}",
            limit=found,
            found=command.epoch,
        )
    return position


class _Refusal(NamedTuple):
    """A message that can never be stored here."""

    position: int
    #: The rule.
    reason: str


def _take(group: Group, command: DeliverCommand, fresh: Batch) -> Set[int] | _Refusal:
    """Store the batch's messages; answers the indices of those left out, by known IDs or as `present`.

    Raises: AddressNotFound, AddressFull, Blocked.
    """
    block = fresh.block
    if block is None:
        return frozenset()
    rejected = _present(fresh.runs, command.present)
    here = block.without(rejected) if rejected else block
    #: The indices in the block of the messages of `here`.
    indices: Sequence[int] = range(block.count)
    if rejected:
        indices = [index for index in indices if index not in rejected]
    parcels: list[Parcel] = []
    if here is not None and here.queues:
        try:
            here, chosen, others = placing.place(group, command, fresh, here, rejected)
        except placing.TooLargeThere as refused:
            return _Refusal(next(run_arithmetic.at(fresh.runs, (indices[refused.index],))), str(refused))
        indices = [indices[index] for index in chosen]
        parcels += others
    own = [] if here is None else [Parcel(Destination(command.address), here, command.came)]
    require_room(group, [*parcels, *own])
    if here is not None:
        address = group.require_address(command.address, command.routing_type)
        if command.check_ids and here.ids and address.cache.capacity:
            asked = here.ids
            known = [asked[place] for place in group.accept(address.name, [value for _, value in asked])]
            if known:
                group.log.duplicate(address.name, [value for _, value in known])
                rejected |= {indices[index] for index, _ in known}
                here = here.without(index for index, _ in known)
        if here is not None:
            parcels.append(Parcel(Destination(command.address), here, command.came))
    store(group, parcels)
    return rejected


def _present(runs: Runs, present: Set[int]) -> Set[int]:
    """Indices of the messages at positions that are `present`."""
    if not present:
        return frozenset()
    return {index for index, place in enumerate(run_arithmetic.positions(runs)) if place in present}


def _refusal(group: Group, name: str, batch: Batch) -> _Refusal | None:
    """The first message that can never be stored, wherever it goes, or at this address where all go there;
    None: there is none.
    """
    block = batch.block
    if block is None:
        return None
    found = [one for one in (_too_large(group, name, batch, block), _bad_id(group, batch, block)) if one]
    return min(found, default=None)


def _bad_id(group: Group, batch: Batch, block: Block) -> _Refusal | None:
    """The first message whose producer's ID is one that no client may set."""
    most = group.options.max_id_bytes
    for index, value in block.ids:
        if not 1 <= len(value) <= most:
            rule = f"INVALID_DUPLICATE_ID: an ID has 1 to {most} bytes; found {len(value)}"
            return _Refusal(next(run_arithmetic.at(batch.runs, (index,))), rule)
    return None


def _too_large(group: Group, name: str, batch: Batch, block: Block) -> _Refusal | None:
    """The first message above what a message, or the address, may hold. Of messages that name their places,
    `placing` asks each place.
    """
    body_limit, address_limit = group.options.max_message_bytes, group.policy(name).max_size_bytes
    limits = (body_limit,) if block.queues else (body_limit, address_limit)
    if block.largest_whole <= min(limits):
        return None
    encoded_limit = body_limit + MESSAGE_SLACK
    for place, message in zip(run_arithmetic.positions(batch.runs), block.messages(), strict=True):
        size = len(message.body or b"")
        if size > body_limit:
            return _Refusal(
                place, f"MESSAGE_TOO_LARGE: the body has {size} bytes; the target takes {body_limit}"
            )
        size = encoded_size(message)
        if size > encoded_limit:
            rule = f"the target takes {encoded_limit} with key and headers"
            return _Refusal(place, f"MESSAGE_TOO_LARGE: {size} bytes; {rule}")
        if size > address_limit and not block.queues:
            return _Refusal(place, f"MESSAGE_TOO_LARGE: {size} bytes; {name} holds at most {address_limit}")
    return None


def _receipt(group: Group, batch: Batch, verdict: Verdict, next_position: int, *, duplicates: int) -> Receipt:
    return Receipt(batch.stream, verdict, next_position, duplicates=duplicates, committed=group.now_ms)


def settle(group: Group, command: SettleCommand) -> None:
    """Move the bridge's queue past the messages that the target covers for good.

    Raises:
        JournalUnavailable: the settlement before it failed; the next opening recovers both, in order.
    """
    batch = command.batch
    key = (command.bridge, batch.stream)
    settled = group.state.settled.get(key)
    address = group.state.addresses.get(command.address)
    queue = address.queues.get(bridge_queue_name(command.bridge)) if address is not None else None
    moves = queue is not None and batch.upto > queue.cursor.next
    if not moves and settled is not None and settled.store == command.store:
        return
    if queue is not None and batch.from_ > queue.cursor.next:
        raise JournalUnavailable(
            f"{batch.stream}: the settlement before {batch.from_} failed; open the stream again",
            limit=queue.cursor.next,
            found=batch.from_,
        )
    if settled is None:
        settled = group.state.settled[key] = SettledState(batch.upto, batch.checksum, command.store)
    elif batch.upto >= settled.upto:
        settled.upto, settled.checksum, settled.store = batch.upto, batch.checksum, command.store
    group.changed_settled[key] = settled
    if address is not None and queue is not None:
        queue.cursor.settle((queue.cursor.next, batch.upto))
        group.change_queue(address, queue)
    if batch.upto > batch.from_:
        lost = [] if address is None else common(address.lost, [(batch.from_, batch.upto)])
        group.log.sent(command, lost)


def begin(group: Group, command: BeginCommand) -> None:
    """Move a bridge's queue to the operator's position, and remember the target that it continues with.

    Raises:
        SourceGap: the bridge reads no such stream, or `at` is beyond its end.
    """
    address = group.state.addresses.get(command.address)
    queue = address.queues.get(bridge_queue_name(command.bridge)) if address is not None else None
    if address is None or queue is None or command.at > address.next:
        end = address.next if address is not None else 0
        raise SourceGap(
            f"{command.stream}: nothing begins at {command.at}; it ends at {end}",
            key=command.stream,
            limit=end,
            found=command.at,
        )
    if command.at > queue.cursor.next:
        group.log.passed_over(command, queue.cursor.next)
    queue.cursor = Cursor(max(command.at, address.trimmed))
    group.change_queue(address, queue)
    key = (command.bridge, command.stream)
    group.state.settled[key] = group.changed_settled[key] = SettledState(
        command.at, 0, command.store, command.stays
    )
