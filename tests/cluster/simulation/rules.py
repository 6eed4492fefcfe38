"""The rules of the cluster's design, each of which can be taken out of the code while a simulation runs.

Each switch replaces one function of the code under test, here and nowhere else. What the design's own
simulation shows on a model is shown here on the code: without any one of these rules some history loses or
doubles a message, mixes up an order, or never comes to rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest.mock import patch

import msgspec

from bridge.journal.rules import bridge_batches, dispatch, moves, placing
from bridge.journal.rules.commands import DeliverCommand, MoveCommand, Moved, WriteCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.placement import Parcel
from bridge.journal.rules.placing import Placed
from bridge.journal.rules.state import AddressState, PositionState, State
from bridge.journal.source import JournalSource
from bridge.journal.sqlite import reader
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.queue_cursor import Cursor
from bridge.journal.values.routing import Destination, Routing
from bridge.journal.writer import writer
from bridge.messages import value_runs
from bridge.messages.batch import Batch
from bridge.messages.block import Block
from bridge.relay.ports import Receipt, Stream
from bridge.relay.session import Session
from cluster import extension, redistribution
from cluster.record import ANY_VERSION, Record, Version
from cluster.topology import Heard, Topology, _Entry
from dedup import coverage
from tests.cluster.simulation.node import SimNode

_FOR_EVER_MS: Final = 2**62
#: Groups between the two halves of what ought to be one transaction.
_LATER_GROUPS: Final = 3


@contextmanager
def _both(*switches: AbstractContextManager[object]) -> Iterator[None]:
    with ExitStack() as stack:
        for switch in switches:
            stack.enter_context(switch)
        yield


# -- destinations-fixed ------------------------------------------------------------------------------------


def _routes_anew() -> AbstractContextManager[object]:
    def place(group: Group, command: DeliverCommand, fresh: Batch, kept: Block, rejected: Set[int]) -> Placed:
        del fresh, rejected
        address, messages = group.state.addresses.get(command.address), kept.messages()
        there = () if address is None else tuple(address.queues.keys() - {REPLAYED_QUEUE})
        assert group.options.router is not None
        routing = Routing(
            command.address, range(kept.count), messages.__getitem__, group.has_room, sorted(there)
        )
        here: dict[int, tuple[str, ...]] = {}
        parcels: list[Parcel] = []
        placements = group.options.router(routing)
        if placements is None:
            return Placed(kept.for_queues(()), range(kept.count))
        for to, indices in placements:
            if to.bridge is None:
                here |= dict.fromkeys(indices, tuple(one for one in there if one not in to.besides))
            else:
                alone = kept.chosen(indices).for_queues(((len(indices), to.only),))
                parcels.append(Parcel(Destination(to.address, to.bridge), alone))
        if not here:
            return Placed(None, (), parcels)
        indices = sorted(here)
        names = value_runs.joined((1, here[index]) for index in indices)
        return Placed(kept.chosen(indices).for_queues(names), indices, parcels)

    return patch.object(placing, "place", place)


# -- next-with-messages, move-atomic: two transactions where there is one ----------------------------------


@dataclass
class _Later:
    """The second halves of changes, which are made some groups later; a kill loses them."""

    #: By the identity of a journal's state: that state, the groups since, and the changes.
    left: dict[int, tuple[State, list[Group], list[Callable[[Group], None]]]] = field(default_factory=dict)

    def leave(self, group: Group, change: Callable[[Group], None]) -> None:
        self.left.setdefault(id(group.state), (group.state, [group], []))[2].append(change)

    def watched(self) -> AbstractContextManager[object]:
        """Make the changes with the next groups, whatever these have to do."""
        apply = dispatch._apply

        def make_and_apply(group: Group, connection: sqlite3.Connection, command: WriteCommand) -> None:
            self._make(group)
            apply(group, connection, command)

        return patch.object(dispatch, "_apply", make_and_apply)

    def _make(self, group: Group) -> None:
        state, groups, changes = self.left.get(id(group.state), (None, [], []))
        if state is not group.state:
            return
        if group not in groups[-1:]:
            groups.append(group)
        if len(groups) > _LATER_GROUPS:
            del self.left[id(group.state)]
            for change in changes:
                change(group)


def _next_comes_later() -> AbstractContextManager[object]:
    later, deliver = _Later(), bridge_batches.deliver

    def deliver_messages(group: Group, command: DeliverCommand) -> None:
        deliver(group, command)
        key = (command.bridge, command.batch.stream)
        position = group.changed_positions.pop(key, None)
        if position is not None:
            later.leave(group, lambda next_group: _change_position(next_group, key, position))

    return _both(later.watched(), patch.object(bridge_batches, "deliver", deliver_messages))


def _change_position(group: Group, key: tuple[str, str], position: PositionState) -> None:
    group.changed_positions[key] = position


def _settles_later() -> AbstractContextManager[object]:
    later, move = _Later(), moves.move

    def copy(group: Group, command: MoveCommand) -> None:
        queue = group.require_queue(command.address, command.queue)
        cursor, messages = queue.cursor, queue.messages
        queue.cursor = Cursor(cursor.next, list(cursor.settled), dict(cursor.leases))
        try:
            move(group, command)
        finally:
            queue.cursor, queue.messages = cursor, messages
        taken = [one for one in command.messages if one.first in command.result]
        later.leave(group, lambda next_group: _settle(next_group, command, taken))

    return _both(later.watched(), patch.object(moves, "move", copy))


def _settle(group: Group, command: MoveCommand, taken: Sequence[Moved]) -> None:
    address = group.state.addresses.get(command.address)
    queue = None if address is None else address.queues.get(command.queue)
    if address is None or queue is None:
        return
    queue.cursor.settle(*(place for one in taken for place in one.places))
    if queue.messages is not None:
        queue.messages -= sum(one.block.count for one in taken)
    group.change_queue(address, queue)


# -- the others --------------------------------------------------------------------------------------------


def _streams_of_openings() -> AbstractContextManager[object]:
    find = JournalSource._find_streams

    async def find_streams(source: JournalSource) -> list[tuple[Stream, reader.BridgeQueueRow]]:
        own = source._journal.identity
        return [
            (replace(stream, identity=stream.identity.replace(own.incarnation, own.session_id, 1)), row)
            for stream, row in await find(source)
        ]

    of_opening = property(lambda node: node.journal.identity.session_id)
    return _both(
        patch.object(JournalSource, "_find_streams", find_streams),
        patch.object(SimNode, "stream_origin", of_opening),
    )


def _answers_before_commit() -> AbstractContextManager[object]:
    decide = dispatch.decide

    def decide_and_answer(group: Group, connection: Any, command: Any) -> None:
        decide(group, connection, command)
        if isinstance(command.result, Receipt) and not command.future.done():
            command.future.set_result(command.result)

    return patch.object(writer, "decide", decide_and_answer)


def _keeps_for_queues_that_are_gone() -> AbstractContextManager[object]:
    way = placing._way

    def keep(group: Group, address: str, name: str, there: Set[str]) -> placing._Way:
        found = way(group, address, name, there)
        router = group.options.router
        assert router is not None
        here = router.queue_here(name)
        return found if here is None else placing._Way(here, None)

    return patch.object(placing, "_way", keep)


def _takes_older_records() -> AbstractContextManager[object]:
    update = Topology._update

    def update_always(
        topology: Topology, entry: _Entry, record: Record, path: tuple[str, ...] | None, neighbour: str
    ) -> Heard:
        if record.version < entry.record.version:
            entry.record = msgspec.structs.replace(entry.record, version=ANY_VERSION)
        return update(topology, entry, record, path, neighbour)

    return patch.object(Topology, "_update", update_always)


def _versions_without_openings() -> AbstractContextManager[object]:
    return patch.object(extension, "Version", lambda _opening, counter: Version(0, counter))


def _moves_what_is_leased() -> AbstractContextManager[object]:
    free, read = moves._free, moves.read_movable

    def free_or_leased(group: Group, command: MoveCommand, address: AddressState, cursor: Cursor) -> Any:
        return free(group, command, address, Cursor(cursor.next, cursor.settled))

    def read_all(*arguments: Any, **options: Any) -> moves.Movable:
        return read(*arguments, **options | {"lease_now_ms": _FOR_EVER_MS})

    return _both(
        patch.object(moves, "_free", free_or_leased), patch.object(redistribution, "read_movable", read_all)
    )


def _takes_batches_beyond_next() -> AbstractContextManager[object]:
    def judge(next_position: int | None, from_: int, upto: int) -> coverage.Coverage:
        begins = from_ if next_position is not None and from_ > next_position else next_position
        return coverage.judge(begins, from_, upto)

    return patch.object(bridge_batches, "judge", judge)


def _begins_where_the_first_batch_does() -> AbstractContextManager[object]:
    """Two locks hold here: the target's, and the sender's, which has one batch of such a stream in flight."""
    open_ = Session._open

    async def open_at_once(session: Session, streams: Sequence[Stream]) -> None:
        await open_(session, streams)
        session.unseen.clear()

    return _both(
        patch.object(bridge_batches, "first_position", lambda _stream: None),
        patch.object(Session, "_open", open_at_once),
    )


def _takes_from_older_links() -> AbstractContextManager[object]:
    def current(group: Group, command: DeliverCommand) -> PositionState:
        return group.state.positions[command.bridge, command.batch.stream]

    return patch.object(bridge_batches, "_current", current)


#: By rule: what it says, and the switch that takes it out of the code.
RULES: Final[dict[str, tuple[str, Callable[[], AbstractContextManager[object]]]]] = {
    "destinations-fixed": ("a receiver places a copy by its places, and never routes it anew", _routes_anew),
    "next-with-messages": ("next commits in the transaction of the messages", _next_comes_later),
    "move-atomic": ("a move copies and settles in one transaction", _settles_later),
    "stable-stream": ("a stream's identity survives restarts of both ends", _streams_of_openings),
    "answer-after-commit": ("receipts leave after COMMIT", _answers_before_commit),
    "gone-queue": (
        "a copy for a queue that is gone goes to another place, or becomes a dead letter",
        _keeps_for_queues_that_are_gone,
    ),
    "topology-version": ("of two records of one node the newer one holds", _takes_older_records),
    "opening-in-version": ("a version begins with the journal's opening", _versions_without_openings),
    "skip-leased": ("leased messages are not moved", _moves_what_is_leased),
    "coverage": ("a batch beyond next is not taken", _takes_batches_beyond_next),
    "stream-start": (
        "a stream never seen begins at the first position in its identity",
        _begins_where_the_first_batch_does,
    ),
    #: A rule of the clients': the simulation's producers obey it.
    "sticky-producer": ("an unanswered send is repeated at the same node only", nullcontext),
    "epoch": ("a newer link fences the older one", _takes_from_older_links),
}
#: Rules that save work, and on which nothing rests: without them nothing fails.
NOT_NEEDED: Final = frozenset({"epoch"})


@contextmanager
def rules_off(without: Iterable[str]) -> Iterator[None]:
    """Take these rules out."""
    with ExitStack() as stack:
        for rule in without:
            stack.enter_context(RULES[rule][1]())
        yield
