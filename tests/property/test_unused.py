"""Chance against queues and addresses that go by themselves: none does that is used or holds messages."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Final

from bridge.errors import AddressNotFound, QueueNotFound
from bridge.journal.journal import Journal
from bridge.journal.unused import UnusedRemover
from bridge.journal.values.options import AddressPolicy, UnusedPolicy
from tests.harness.rounds import rounds
from tests.integration.journal.failing import file, memory
from tests.integration.journal.helpers import (
    ManualClock,
    acknowledgement,
    check_file,
    lease,
    opened,
    options,
    send,
)

SEEDS: Final = max(6, rounds(20))  # an eighth of them deletes no address
ACTS: Final = 80
DELAY_MS: Final = 1_000
ADDRESSES: Final = ("a", "b", "c")
QUEUES: Final = ("q", "r")


class World:
    """What clients have done, by address and queue."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.rng, self.clock = random.Random(seed), ManualClock()
        policy = UnusedPolicy(
            create_queues=True,
            delete_queues=True,
            queues_delay_ms=DELAY_MS,
            queues_message_count=self.rng.choice((0, 2)),
            delete_addresses=True,
            addresses_delay_ms=DELAY_MS,
        )
        self.most = policy.queues_message_count
        self.options = options(directory, AddressPolicy(unused=policy))
        #: By queue: when it was last used, and the messages that wait there.
        self.used: dict[tuple[str, str], int] = {}
        self.waiting: Counter[tuple[str, str]] = Counter()
        self.made_by_hand: set[tuple[str, str]] = set()
        self.ids: Counter[str] = Counter()
        #: By queue, what its readers have settled since its address is there.
        self.settled: dict[tuple[str, str], set[str]] = {}
        self.seen: Counter[str] = Counter()
        self.journal: Journal
        self.remover: UnusedRemover

    async def act(self) -> None:
        address, queue = self.rng.choice(ADDRESSES), self.rng.choice(QUEUES)
        match self.rng.randrange(6):
            case 0:
                await self.send(address)
            case 1 | 2:
                await self.read(address, queue)
            case 3 if self.rng.random() < 0.2:
                await self.journal.create_queue(address, queue, "earliest")
                self.made_by_hand.add((address, queue))  # by its maker's word from the earliest on
                self.settled.pop((address, queue), None)
                self.waiting[address, queue] = await self.lag(address, queue)
            case _:
                self.clock.advance(self.rng.choice((1, DELAY_MS // 2, DELAY_MS, 5 * DELAY_MS)))
        await self.look()

    async def send(self, address: str) -> None:
        number = self.ids[address]
        stored = await send(self.journal, f"{number}", f"{number}", address)
        assert stored.stored, "a known ID belongs to an address that is there"
        self.ids[address] += 1
        for key in self.used.keys() | self.made_by_hand:
            if key[0] == address:
                self.waiting[key] += 1

    async def read(self, address: str, queue: str) -> None:
        page = await lease(self.journal, address, queue, most=self.rng.choice((1, 10)))
        key = (address, queue)
        if key not in self.used and key not in self.made_by_hand:
            self.waiting[key] = await self.lag(address, queue)
        self.used[key] = self.clock.now_ms
        if page.lease is not None:
            await self.journal.acknowledge(acknowledgement(page, address=address, queue=queue))
            self.waiting[key] -= len(page.messages)
            self.note(key, [message.message.whole or b"" for message in page.messages])

    def note(self, key: tuple[str, str], bodies: list[bytes]) -> None:
        """A queue that went and came again brings nothing twice."""
        settled, found = self.settled.setdefault(key, set()), {body.decode() for body in bodies}
        assert len(found) == len(bodies)
        assert not settled & found, "settled before"
        if key not in self.made_by_hand:
            settled |= found

    async def lag(self, address: str, queue: str) -> int:
        found = {one.name: one.lag for one in (await self.journal.address(address)).queues}
        return found[queue]

    async def look(self) -> None:
        """One look of the remover; what it may not take is still there."""
        await self.remover.look()
        there = {one.address: {q.name: q.lag for q in one.queues} for one in await self.journal.addresses()}
        for key in [*self.used, *self.made_by_hand]:
            address, queue = key
            if queue in there.get(address, {}):
                assert there[address][queue] == self.waiting[key]
                continue
            assert key not in self.made_by_hand, "made by hand"
            assert self.waiting[key] <= self.most, "it held messages"
            assert self.clock.now_ms - self.used.pop(key) >= DELAY_MS, "it had a reader"
            del self.waiting[key]
            self.seen["queue"] += 1
        for address in self.ids.keys() - there.keys():
            assert not [key for key in self.used if key[0] == address], "it had a queue"
            del self.ids[address]
            self.settled = {key: found for key, found in self.settled.items() if key[0] != address}
            self.seen["address"] += 1


async def simulate(directory: Path, seed: str) -> Counter[str]:
    world = World(directory, seed)
    left = ACTS
    while left > 0:
        async with opened(world.options, world.clock) as world.journal:
            world.remover = UnusedRemover(world.journal)
            for _ in range(world.rng.randrange(5, 40)):
                await world.act()
                left -= 1
            assert memory(world.journal) == file(world.journal)
        world.seen["restart"] += 1
        check_file(directory)
    async with opened(world.options, world.clock) as world.journal:
        world.remover = UnusedRemover(world.journal)
        for address, queue in list(world.used):
            try:
                while (page := await lease(world.journal, address, queue)).lease is not None:
                    await world.journal.acknowledge(acknowledgement(page, address=address, queue=queue))
                    world.note((address, queue), [message.message.whole or b"" for message in page.messages])
            except (AddressNotFound, QueueNotFound):
                continue
        for _ in range(3):
            await world.remover.look()
            world.clock.advance(2 * DELAY_MS)
        await world.remover.look()
        found = {(one.address, q.name) for one in await world.journal.addresses() for q in one.queues}
        assert found == world.made_by_hand, "what is not used any more goes in the end"
    return world.seen


async def test_nothing_goes_that_is_used_and_what_is_not_goes_in_the_end(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    base = random.Random().randrange(2**32)
    for number in range(SEEDS):
        seed = f"{base}:{number}"
        try:
            seen += await simulate(tmp_path / str(number), seed)
        except BaseException as error:
            error.add_note(f"simulate(tmp_path, {seed!r})")
            raise
    assert min(seen["queue"], seen["address"], seen["restart"]) > 0
