"""Messages that another node of a cluster has placed at queues of this one, or of a node behind it.

A copy names its places, and is put exactly there, in the transaction that moves the position of its stream:
into the queues that it names here, and into the forward log of the next node for those elsewhere. A queue
that is gone by then gets the copy at another place of its name, or a dead letter: a message is never lost,
and never kept where no reader is.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from bridge.journal.rules.arrivals import LETTER_NAMES, Came
from bridge.journal.rules.commands import DeliverCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.rules.placement import Parcel
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.routing import Destination
from bridge.messages import positions as run_arithmetic
from bridge.messages import value_runs
from bridge.messages.batch import Batch
from bridge.messages.block import Block, encoded_size
from bridge.relay.dead_letters import queue_letter

#: Begins the reason of a letter whose queue is gone.
QUEUE_GONE = "QUEUE_GONE"


class Placed(NamedTuple):
    """The copies of one batch: where each goes."""

    #: The messages whose queues are here, each for these alone; None: there is none.
    here: Block | None
    #: Their indices among those that were to be placed.
    indices: Sequence[int]
    #: The copies for other nodes, for their forward logs; dead letters that another node hands over; and the
    #: dead letters of copies whose queue is gone.
    parcels: Sequence[Parcel] = ()


class TooLargeThere(Exception):
    """A message is above what the address of one of its places holds: it can never be stored there."""

    def __init__(self, index: int, size: int, address: str, limit: int) -> None:
        """`index`: its index among those that were to be placed."""
        super().__init__(f"MESSAGE_TOO_LARGE: {size} bytes; {address} holds at most {limit}")
        self.index = index


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
    """The places of the messages of `kept`: the batch's block without those at the indices `rejected`.

    Raises: TooLargeThere.
    """
    address = group.state.addresses.get(command.address)
    there = address.queues.keys() - {REPLAYED_QUEUE} if address is not None else frozenset[str]()
    if all(name in there for _, names in kept.queues for name in names):
        _check_size(group, command.address, kept, range(kept.count))
        return Placed(kept, range(kept.count))
    ways = _ways(group, command.address, kept, there)
    for to, names in ways.elsewhere.items():
        _check_size(group, to.address, kept, list(names))
    for names in (ways.here, *ways.handed_over.values()):
        _check_size(group, command.address, kept, list(names))
    own = Destination(command.address)
    parcels = [Parcel(to, _block(kept, names)) for to, names in ways.elsewhere.items()]
    parcels += [Parcel(own, _block(kept, names), came) for came, names in ways.handed_over.items()]
    letters = _letters(group, command, fresh, kept, rejected, ways.gone) if ways.gone else ()
    at = Destination(group.options.dead_letter_address)
    parcels += [Parcel(at, letter, Came.LETTER_HERE) for letter in letters]
    return Placed(_block(kept, ways.here) if ways.here else None, list(ways.here), parcels)


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
    return _Way(shown, router.onward(address, name, group.undo))


def _check_size(group: Group, address: str, kept: Block, indices: Sequence[int]) -> None:
    """Check that the address can hold the messages at these indices. Raises: TooLargeThere."""
    limit = group.settings(address).max_size_bytes
    if kept.largest_whole <= limit or not indices:
        return
    messages = kept.messages()
    for index in indices:
        if (size := encoded_size(messages[index])) > limit:
            raise TooLargeThere(index, size, address, limit)


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
