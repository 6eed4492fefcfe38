"""Messages that another node of a cluster has placed at queues of this one.

A copy names its queues, and is put exactly there, in the transaction that moves the position of its stream. A
queue that is gone by then gets a dead letter for it: a message is never lost, and never kept where no reader
is.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from bridge.journal.rules.arrivals import Came
from bridge.journal.rules.commands import DeliverCommand
from bridge.journal.rules.commit_group import Group
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.messages import positions as run_arithmetic
from bridge.messages import value_runs
from bridge.messages.batch import Batch
from bridge.messages.block import Block, encode_message, pack
from bridge.relay.dead_letters import letter, place_letter, reduced

#: Begins the reason of a letter whose queue is gone.
QUEUE_GONE = "QUEUE_GONE"


def put(group: Group, command: DeliverCommand, fresh: Batch, kept: Block, rejected: Set[int]) -> Block | None:
    """The messages of `kept` whose queues are here, each for these alone; the others become dead letters.

    `kept` is the batch's block without the messages at the indices `rejected`.

    Raises: AddressNotFound, AddressFull, Blocked: at the address of dead letters.
    """
    address = group.state.addresses.get(command.address)
    there = address.queues.keys() - {REPLAYED_QUEUE} if address is not None else frozenset[str]()
    asked = [names for count, names in kept.queues for _ in range(count)]
    missing = {
        index: gone
        for index, names in enumerate(asked)
        if (gone := [name for name in names if name not in there])
    }
    if not missing:
        return kept
    _bury(group, command, fresh, kept, rejected, missing)
    placed = [
        index for index, names in enumerate(asked) if not names or len(missing.get(index, ())) < len(names)
    ]
    if not placed:
        return None
    runs = value_runs.joined((1, tuple(name for name in asked[index] if name in there)) for index in placed)
    return replace(kept.chosen(placed), queues=runs)


def _bury(
    group: Group,
    command: DeliverCommand,
    fresh: Batch,
    kept: Block,
    rejected: Set[int],
    missing: dict[int, list[str]],
) -> None:
    """Store a dead letter for each queue that a message names and that is gone."""
    positions = [
        place for index, place in enumerate(run_arithmetic.positions(fresh.runs)) if index not in rejected
    ]
    to = group.options.dead_letter_address
    limit = group.policy(to).max_size_bytes
    letters: list[Block] = []
    for index, gone in missing.items():
        alone = kept.part(index, index + 1)
        (message,) = alone.messages()
        for queue in gone:
            reason = f"{QUEUE_GONE}: {command.address} has no queue {queue} here any more"
            where = (command.bridge, command.address, fresh.stream, positions[index], reason)
            dead = encode_message(place_letter(letter(message, *where), queue))
            if len(dead) > limit:
                small = reduced(message, command.bridge, fresh.stream, positions[index], reason)
                dead = encode_message(place_letter(letter(small, *where), queue))
            letters.append(pack([dead], alone.ids, alone.origins, alone.hops))
            key = (command.address, queue)
            command.gone[key] = command.gone.get(key, 0) + 1
    group.require_room(to, max(block.largest for block in letters))
    arrivals = group.arrivals_of(group.require_address(to))
    for block in letters:
        arrivals.add_block(block, Came.LETTER_HERE)
