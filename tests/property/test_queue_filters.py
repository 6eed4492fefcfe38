"""Chance against queues with filters: sends, leases, settlements, changes of filters, failures and restarts.

Some messages are placed by a router or by another node: at all queues but some, or at some only.

Each queue is held to a list of the positions that its filter took when they arrived: it gets exactly these,
in order, once settled never again, and its counts are those of the list. A real journal does the work.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from bridge.errors import JournalUnavailable, StaleLease
from bridge.journal.dead_letters import DeadLetterService
from bridge.journal.journal import Journal
from bridge.journal.rules import queue_filters, queues
from bridge.journal.rules.commands import MoveCommand
from bridge.journal.rules.moves import read_movable
from bridge.journal.values.routes import EVERY, QueueSet
from bridge.journal.values.routing import Destination, Placement, Routing
from bridge.journal.values.store import Acknowledgement, Page, Sent, Transaction
from bridge.messages import value_runs
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from tests.fakes.routing import Routed
from tests.harness.eventually import until
from tests.harness.rounds import rounds
from tests.integration.journal.failing import fail_with, once
from tests.integration.journal.helpers import (
    MIB,
    STREAM,
    ManualClock,
    acknowledgement,
    check_file,
    deliver,
    open_stream,
    opened,
    options,
    target,
)

SEEDS: Final = rounds(33)
ACTS: Final = 120
ADDRESS: Final = "orders"
PLACED: Final = "journal:0a:$sf.peer/orders:0"
COLOURS: Final = ("red", "blue", "green")
#: Conditions, and what they mean.
FILTERS: Final[dict[str, Callable[[str, int], bool]]] = {
    "": lambda _colour, _number: True,
    "colour = 'red'": lambda colour, _: colour == "red",
    "colour <> 'blue'": lambda colour, _: colour != "blue",
    "number > 30 AND colour IN ('blue', 'green')": lambda colour, number: number > 30 and colour != "red",
    "colour = 'violet'": lambda _colour, _number: False,
}


@dataclass
class Queue:
    """What is addressed to a queue and not settled, in order, and what is leased of it."""

    condition: str
    waiting: list[int] = field(default_factory=list)
    leases: dict[str, tuple[list[int], int]] = field(default_factory=dict)

    def free(self, now_ms: int) -> list[int]:
        self.leases = {name: lease for name, lease in self.leases.items() if lease[1] > now_ms}
        leased = {position for positions, _ in self.leases.values() for position in positions}
        return [position for position in self.waiting if position not in leased]

    def settle(self, positions: list[int]) -> None:
        gone = set(positions)
        self.waiting = [position for position in self.waiting if position not in gone]


class World:
    """A journal, and what its queues should hold."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.directory = directory
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.queues: dict[str, Queue] = {}
        #: Bodies by position, and the positions that each name has left out, whoever has it now.
        self.bodies: dict[int, bytes] = {}
        self.left_out: dict[str, set[int]] = {}
        #: By position, the queues that a message is for.
        self.sets: dict[int, QueueSet] = {}
        self.placed: list[QueueSet] = []
        self.letters = 0
        self.numbers = 0
        self.delivered = 0
        self.brought = 0
        self.seen: Counter[str] = Counter()
        self.journal: Journal

    # -- messages

    def make(self) -> list[tuple[Message, str, int]]:
        made = []
        for _ in range(self.rng.choice((1, 1, 2, 5, 30))):
            colour = self.rng.choice(COLOURS)
            self.numbers += 1
            headers = (("colour", colour.encode()), ("number", b"%d" % self.numbers))
            made.append((Message(b"%d" % self.numbers, headers=headers), colour, self.numbers))
        return made

    def arrived(self, position: int, made: tuple[Message, str, int], queues: QueueSet = EVERY) -> None:
        message, colour, number = made
        self.bodies[position] = message.whole or b""
        self.sets[position] = queues
        for name, queue in self.queues.items():
            if queues.has(name) and FILTERS[queue.condition](colour, number):
                queue.waiting.append(position)
            else:
                self.left_out.setdefault(name, set()).add(position)

    async def send(self, *acknowledgements: Acknowledgement) -> None:
        made = self.make()
        sent = [Sent.of(ADDRESS, message) for message, _, _ in made]
        if self.rng.random() < 0.3:  # another address's positions lie between
            sent.insert(self.rng.randrange(len(sent) + 1), Sent.of("other", Message(b"x")))
        committed = await self.journal.commit(
            Transaction(sent, acknowledgements=acknowledgements, plain=False)
        )
        first, last = committed.positions[ADDRESS]
        for position, one, names in zip(range(first, last + 1), made, self.placed, strict=True):
            self.arrived(position, one, names)

    def route(self, routing: Routing) -> list[Placement] | None:
        """Leaves some queues out of some messages, as a cluster does that places them elsewhere."""
        if routing.address != ADDRESS:
            return None
        names = [*self.queues, "third"]
        pattern = self.rng.choice(([()], [()], [(), tuple(names[:1])], [tuple(names), (), ("elsewhere",)]))
        self.placed = [
            QueueSet("except", pattern[place % len(pattern)]) for place in range(len(routing.indices))
        ]
        return [
            Placement(Destination(ADDRESS, besides=besides), routing.indices[offset :: len(pattern)])
            for offset, besides in enumerate(pattern)
        ]

    async def place(self) -> None:
        """Another node places messages at queues of this one; some are gone."""
        made = self.make()
        end = target(self.journal, "$cluster.peer", places=True)
        await open_stream(end, PLACED)
        block = pack([encode_message(message) for message, _, _ in made])
        there = [*self.queues, "gone"]
        sets = [tuple(sorted(self.rng.sample(there, self.rng.randint(1, 2)))) for _ in made]
        upto = self.brought + len(made)
        runs = ((self.brought, upto - 1),)
        block = block.for_queues(value_runs.joined((1, one) for one in sets))
        before = (await self.journal.address(ADDRESS)).next
        await deliver(end, Batch(PLACED, self.brought, upto, runs, block, block.checksum))
        self.brought = upto
        self.letters += sum("gone" in one for one in sets)
        kept = [(one, names) for one, names in zip(made, sets, strict=True) if names != ("gone",)]
        after = (await self.journal.address(ADDRESS)).next
        assert after - before >= len(kept)
        for position, (one, names) in zip(range(after - len(kept), after), kept, strict=True):
            self.arrived(position, one, QueueSet("only", names))

    async def bring(self) -> None:
        made = self.make()
        end = target(self.journal)
        await open_stream(end)
        block = pack([encode_message(message) for message, _, _ in made])
        upto = self.delivered + len(made)
        before = (await self.journal.address(ADDRESS)).next
        batch = Batch(STREAM, self.delivered, upto, ((self.delivered, upto - 1),), block, block.checksum)
        await deliver(end, batch)
        self.delivered = upto
        after = (await self.journal.address(ADDRESS)).next
        assert after - before >= len(made)
        for position, one in zip(range(after - len(made), after), made, strict=True):
            self.arrived(position, one)

    async def fail(self) -> None:
        """A transaction that the file refuses: nothing of it counts, and the state is loaded again."""
        fail_with(self.journal, once("INSERT INTO blocks", sqlite3.SQLITE_IOERR))
        with pytest.raises(JournalUnavailable):
            await self.journal.commit(Transaction([Sent.of(ADDRESS, Message(b"lost"))] * 3))
        await self.send()  # with the file opened again

    # -- readers

    async def read(self) -> None:
        name = self.rng.choice(list(self.queues))
        queue = self.queues[name]
        most, lease_ms = self.rng.choice((1, 3, 10, 1000)), self.rng.choice((500, 60_000))
        page: Page = await self.journal.lease(
            ADDRESS, name, most=most, wait_ms=0, lease_ms=lease_ms, most_bytes=16 * MIB
        )
        free = queue.free(self.clock.now_ms)[:most]
        expected = free[: len(page.messages)]  # a page ends where a command has passed over enough blocks
        assert bool(expected) == bool(free), name
        assert [one.position for one in page.messages] == expected, name
        assert [one.message.body for one in page.messages] == [self.bodies[place] for place in expected]
        if page.lease is not None:
            queue.leases[page.lease] = (expected, self.clock.now_ms + lease_ms)

    def leased(self) -> tuple[str, Queue, str] | None:
        open_leases = [(name, queue, lease) for name, queue in self.queues.items() for lease in queue.leases]
        return self.rng.choice(open_leases) if open_leases else None

    async def acknowledge(self) -> None:
        found = self.leased()
        if found is None:
            return
        name, queue, lease = found
        queue.free(self.clock.now_ms)
        positions, _ = queue.leases.pop(lease, ([], 0))
        upto = self.rng.choice([None, None, *positions])
        wanted = Acknowledgement(ADDRESS, name, lease, upto)
        if not positions:
            with pytest.raises(StaleLease):
                await self.journal.acknowledge(wanted)
            return
        queue.settle([place for place in positions if upto is None or place <= upto])
        if self.rng.random() < 0.3:
            await self.send(wanted)
        else:
            await self.journal.acknowledge(wanted)

    async def release(self) -> None:
        found = self.leased()
        if found is not None:
            name, queue, lease = found
            queue.free(self.clock.now_ms)
            if lease in queue.leases:
                del queue.leases[lease]
                await self.journal.release(Acknowledgement(ADDRESS, name, lease))

    async def wait(self) -> None:
        self.clock.advance(self.rng.choice((100, 501)))

    async def move(self) -> None:
        name = self.rng.choice(list(self.queues))
        queue = self.queues[name]
        to, incarnation = Destination("moved"), self.journal.identity.incarnation
        found = await self.journal.read(read_movable, (ADDRESS, name), to, incarnation)
        moved = found.messages[: self.rng.randrange(4)]
        if moved:
            done = await self.journal.submit(MoveCommand, address=ADDRESS, queue=name, messages=moved)
            gone = [
                n for one in moved if one.first in done for low, high in one.places for n in range(low, high)
            ]
            assert set(gone) <= set(queue.free(self.clock.now_ms)), name
            queue.settle(gone)

    # -- queues

    async def change(self) -> None:
        name = self.rng.choice(list(self.queues))
        condition = self.rng.choice(list(FILTERS))
        await self.journal.create_queue(ADDRESS, name, "earliest", condition)
        self.queues[name].condition = condition

    async def make_queue(self) -> None:
        name = self.rng.choice(("first", "second", "third", "fourth"))
        if name in self.queues:
            return
        start, condition = self.rng.choice(("earliest", "latest")), self.rng.choice(["", *FILTERS])
        await self.journal.create_queue(ADDRESS, name, start, condition)  # type: ignore[arg-type]
        queue = self.queues[name] = Queue(condition)
        if start == "earliest":
            stored = await self.journal.browse(ADDRESS, after=-1, most=100_000, most_bytes=1 << 40)
            left_out = self.left_out.get(name, set())
            positions = [one.position for one in stored if one.position not in left_out]
            queue.waiting = [place for place in positions if self.sets[place].has(name)]

    async def drop_queue(self) -> None:
        if len(self.queues) > 1:
            name = self.rng.choice(list(self.queues))
            await self.journal.delete_queue(ADDRESS, name)
            del self.queues[name]

    # -- what holds

    async def check(self) -> None:
        status = await self.journal.address(ADDRESS)
        found = {one.name: (one.lag, one.leased) for one in status.queues}
        expected = {}
        for name, queue in self.queues.items():
            free = queue.free(self.clock.now_ms)
            expected[name] = (len(queue.waiting), len(queue.waiting) - len(free))
        assert found == expected
        for one in status.queues:
            if one.filter and not one.lag:
                assert one.next == status.next, one.name

    async def drain(self) -> None:
        """Everything is read to its end, and then nothing is stored any more."""
        self.clock.advance(100_000)
        for name, queue in self.queues.items():
            got: list[int] = []
            while (page := await self.journal.lease(
                ADDRESS, name, most=50, wait_ms=0, lease_ms=60_000, most_bytes=16 * MIB
            )).lease is not None:  # fmt: skip
                got += [one.position for one in page.messages]
                await self.journal.acknowledge(acknowledgement(page, queue=name))
            assert got == queue.waiting, name
        async with asyncio.timeout(20):
            await until(self.is_empty, "the address is empty")

    async def is_empty(self) -> bool:
        return (await self.journal.address(ADDRESS)).messages == 0


ACTIONS: Final = {
    World.send: 8,
    World.place: 3,
    World.bring: 2,
    World.read: 8,
    World.acknowledge: 6,
    World.release: 1,
    World.wait: 2,
    World.move: 1,
    World.change: 2,
    World.make_queue: 1,
    World.drop_queue: 1,
    World.fail: 1,
}


async def simulate(directory: Path, seed: str) -> Counter[str]:
    world = World(directory, seed)
    world.queues = {"first": Queue(""), "second": Queue("colour = 'red'")}
    left = ACTS
    given = options(directory, router=Routed(world.route))
    async with opened(given, world.clock) as world.journal:
        for name, queue in world.queues.items():
            await world.journal.create_queue(ADDRESS, name, "earliest", queue.condition)
    while left > 0:
        async with opened(given, world.clock) as world.journal:
            for _ in range(world.rng.randrange(1, 40)):
                (action,) = world.rng.choices(list(ACTIONS), list(ACTIONS.values()))
                world.seen[action.__name__] += 1
                await action(world)
                await world.check()
                left -= 1
        world.seen["restart"] += 1
        check_file(directory)
    async with opened(given, world.clock) as world.journal:
        await world.check()
        await world.drain()
        letters = await DeadLetterService(world.journal, ["dead-letters"], {}).list(most=100_000)
        assert len(letters) == world.letters
    check_file(directory)
    return world.seen


async def test_each_queue_gets_exactly_what_its_filter_took_when_it_arrived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "PASSED_BLOCKS", 3)
    monkeypatch.setattr(queue_filters, "PASSED_BLOCKS", 3)
    seen: Counter[str] = Counter()
    base = random.Random().randrange(2**32)
    for number in range(SEEDS):
        seed = f"{base}:{number}"
        try:
            seen += await simulate(tmp_path / str(number), seed)
        except BaseException as error:
            error.add_note(f"simulate(tmp_path, {seed!r})")
            raise
    assert all(seen[action.__name__] for action in ACTIONS)
