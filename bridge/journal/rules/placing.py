"""Messages that another node of a cluster has placed at queues of this one, or of a node behind it.

A copy names its places, and is put exactly there, in the transaction that moves the position of its stream:
into the queues that it names here, and into the forward log of the next node for those elsewhere. A queue
that is gone by then gets the copy at another place of its name, or a dead letter: a message is never lost,
and never kept where no reader is.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.journal.rules import routing
from bridge.journal.rules.arrivals import LETTER_NAMES, Came
from bridge.journal.rules.commands import DeliverCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.routing import Destination
from bridge.messages import positions as run_arithmetic
from bridge.messages import value_runs
from bridge.messages.batch import Batch
from bridge.messages.block import Block
from bridge.relay.dead_letters import queue_letter

#: Begins the reason of a letter whose queue is gone.
QUEUE_GONE = "QUEUE_GONE"


@dataclass(slots=True)
class Placed:
    """The copies of one batch: where each goes. Nothing is stored before all of them have room."""

    #: The messages whose queues are here, each for these alone; None: there is none.
    here: Block | None
    #: The copies for other nodes, by their forward logs.
    elsewhere: dict[Destination, Block] = field(default_factory=dict)
    #: The dead letters of copies whose queue is gone.
    letters: list[Block] = field(default_factory=list)
    #: Dead letters of `address` that another node hands over, each for its queues here alone, by how they are
    #: kept.
    handed_over: dict[Came, Block] = field(default_factory=dict)
    address: str = ""

    def require_room(self, group: Group) -> None:
        """Check that forward logs and dead letters have room.

        Raises: AddressNotFound, AddressFull, MessageTooLarge.
            Blocked: there is no room now.
        """
        routing.require_room(group, {to: block.largest_whole for to, block in self.elsewhere.items()})
        for block in self.handed_over.values():
            group.require_room(self.address, block.largest_whole)
        if self.letters:
            group.require_room(
                group.options.dead_letter_address, max(block.largest_whole for block in self.letters)
            )

    def store(self, group: Group) -> None:
        """Store the copies that do not stay here, and dead letters."""
        for came, block in self.handed_over.items():
            group.arrivals_of(group.require_address(self.address)).add_block(block, came)
        for to, block in self.elsewhere.items():
            group.arrivals_of(routing.open_destination(group, to)).add_block(block)
        if self.letters:
            arrivals = group.arrivals_of(group.require_address(group.options.dead_letter_address))
            for block in self.letters:
                arrivals.add_block(block, Came.LETTER_HERE)


@dataclass(slots=True)
class _Ways:
    """Where the messages of one block go, by their indices."""

    #: The queues here that each is for; no name: every queue.
    here: dict[int, tuple[str, ...]] = field(default_factory=dict)
    #: The same of dead letters, by how they are kept.
    handed_over: dict[Came, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    #: By forward log, the places elsewhere that each is for.
    elsewhere: dict[Destination, dict[int, tuple[str, ...]]] = field(default_factory=dict)
    #: The queues that each was for and that are gone, with the reason of its dead letter.
    gone: dict[int, list[tuple[str, str]]] = field(default_factory=dict)


def place(group: Group, command: DeliverCommand, fresh: Batch, kept: Block, rejected: Set[int]) -> Placed:
    """The places of the messages of `kept`: the batch's block without those at the indices `rejected`."""
    address = group.state.addresses.get(command.address)
    there = address.queues.keys() - {REPLAYED_QUEUE} if address is not None else frozenset[str]()
    if all(name in there for _, names in kept.queues for name in names):
        return Placed(kept)
    ways = _ways(group, command.address, kept, there)
    return Placed(
        _block(kept, ways.here) if ways.here else None,
        {to: _block(kept, names) for to, names in ways.elsewhere.items()},
        _letters(group, command, fresh, kept, rejected, ways.gone) if ways.gone else [],
        {came: _block(kept, names) for came, names in ways.handed_over.items()},
        command.address,
    )


def _ways(group: Group, address: str, kept: Block, there: Set[str]) -> _Ways:
    ways = _Ways()
    #: A name means the same for all messages of the block.
    known: dict[str, _Way] = {}
    index = 0
    for count, names in kept.queues:
        here: list[str] = []
        by_log: dict[Destination, list[str]] = {}
        gone: list[tuple[str, str]] = []
        letter = next((name for name in names if name in LETTER_NAMES), None)
        queues = [name for name in names if name not in LETTER_NAMES]
        for name in queues:
            if name not in known:
                known[name] = _way(group, address, name, there)
            queue, to = known[name]
            if to is None:
                here.append(queue)
            elif isinstance(to, Destination):
                more = (*to.only, letter) if letter else to.only
                by_log.setdefault(Destination(to.address, to.bridge), []).extend(more)
            else:
                gone.append((queue, to))
        for one in range(index, index + count):
            if here or not queues:
                there_for = (
                    ways.here if letter is None else ways.handed_over.setdefault(LETTER_NAMES[letter], {})
                )
                there_for[one] = tuple(here)
            for log, places in by_log.items():
                ways.elsewhere.setdefault(log, {})[one] = tuple(places)
            if gone:
                ways.gone[one] = gone
        index += count
    return ways


class _Way(NamedTuple):
    """Where the copy for one name goes."""

    queue: str
    #: The forward log; a text: the reason of its dead letter. None: to the queue here.
    to: Destination | str | None


def _way(group: Group, address: str, name: str, there: Set[str]) -> _Way:
    router = group.options.router
    queue = name if router is None or "/" not in name else router.queue_here(name)
    if queue is not None and queue in there:
        return _Way(queue, None)
    shown = queue or name.rpartition("/")[2]
    if router is None:
        return _Way(shown, f"{QUEUE_GONE}: {address} has no queue {name} here any more")
    return _Way(shown, router.onward(address, name))


def _block(kept: Block, names_of: dict[int, tuple[str, ...]]) -> Block:
    """The messages at these indices, each for these names."""
    indices = list(names_of)
    return kept.chosen(indices).for_queues(value_runs.joined((1, names_of[index]) for index in indices))


def _letters(
    group: Group,
    command: DeliverCommand,
    fresh: Batch,
    kept: Block,
    rejected: Set[int],
    gone_of: dict[int, list[tuple[str, str]]],
) -> list[Block]:
    """A dead letter for each queue that a message names and that is gone."""
    positions = [
        place for index, place in enumerate(run_arithmetic.positions(fresh.runs)) if index not in rejected
    ]
    most_bytes = group.policy(group.options.dead_letter_address).max_size_bytes
    letters: list[Block] = []
    for index, gone in gone_of.items():
        alone = kept.part(index, index + 1)
        for queue, reason in gone:
            where = (command.bridge, command.address, fresh.stream, positions[index], reason)
            letters.append(queue_letter(alone, where, queue, most_bytes))
            key = (command.address, queue)
            command.gone[key] = command.gone.get(key, 0) + 1
    return letters
