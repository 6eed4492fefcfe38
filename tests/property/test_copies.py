"""Chance against copies: journals are copied, restored and set back while they relay, and nothing vanishes.

A message counts as safe while its own journal still keeps it for the bridge. One that a journal let go of
because "the target has it" must be at the target, it and no other. The world is that of `test_relay`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from bridge.messages.message import Message
from bridge.relay.backoff import Backoff
from bridge.relay.lifecycle import Command, State
from bridge.relay.relay import LaneEnds, RelayOptions
from tests.fakes import ends
from tests.fakes.ends import FakeJournal, FakeSource
from tests.fakes.one_lane import OneLane
from tests.fakes.virtual_time import VirtualClock, run
from tests.harness.eventually import until
from tests.harness.rounds import rounds
from tests.property.test_relay import ADDRESSES, BRIDGE, LONGEST_S, LateStore, LateTarget

#: Runs of the simulation in one test run, 100 unless the profile says otherwise; acts of trouble in each.
SEEDS = max(20, rounds(100))
ACTS = 40
BROKEN_SEEDS = max(20, SEEDS // 2)
#: Copies at a time.
NODES = 3
#: What happens to a node that nobody copies.
ALWAYS = ("put", "put", "put", "put", "put to all", "cut", "down", "full", "restart", "restart", "start")
#: A copy with a run of its own; one in the same run, with its memory; a backup, and its return.
COPYING = ("copy", "snapshot", "back up", "restore")


@dataclass
class Node:
    """A journal and the process that has it open."""

    journal: FakeJournal
    relay: OneLane


class Lost(AssertionError):
    """A journal let go of a message that is not at the target."""


@dataclass
class World:
    rng: random.Random
    troubles: tuple[str, ...]
    #: How often each of them came, and each reason of a failure.
    seen: Counter[str]
    nodes: list[Node] = field(default_factory=list)
    backups: list[FakeJournal] = field(default_factory=list)
    put_so_far: int = 0

    def __post_init__(self) -> None:
        self.store = LateStore(self.rng)

    def relay(self, journal: FakeJournal) -> OneLane:
        source = FakeSource(journal)
        source.most = lambda: self.rng.randint(1, 7)
        source.filtered = lambda message: message.whole is not None and message.whole.endswith(b"filtered")
        options = RelayOptions(
            BRIDGE,
            Backoff(50, 2.0, 400),
            confirmation_window_size=self.rng.choice((1, 60, 1 << 20)),
            pending_ack_timeout_ms=self.rng.choice((0, 100, 1000)),
        )
        return OneLane(options, LaneEnds(source, LateTarget(self.store)), clock=VirtualClock())

    async def begin(self, journal: FakeJournal) -> None:
        node = Node(journal, self.relay(journal))
        self.nodes.append(node)
        await node.relay.command(Command.START)

    async def end(self) -> FakeJournal:
        """One of the processes ends; answers its journal."""
        node = self.nodes.pop(self.rng.randrange(len(self.nodes)))
        await self.stop(node)
        return node.journal

    async def stop(self, node: Node) -> None:
        self.see(node)
        await node.relay.command(Command.STOP)

    def see(self, node: Node) -> None:
        """A bridge that failed must have said why."""
        if node.relay.state is State.FAILED:
            code = node.relay.reason.partition(":")[0]
            assert code in {"DIVERGED", "SOURCE_GAP"}, node.relay.reason
            self.seen[code] += 1

    def put(self, node: Node) -> None:
        """Every message is another one."""
        kinds = self.rng.choices((b"", b" filtered"), (12, 1), k=self.rng.randint(1, 12))
        values = [b"%d%s" % (self.put_so_far + index, kind) for index, kind in enumerate(kinds)]
        self.put_so_far += len(values)
        node.journal.put(self.rng.choice(ADDRESSES[:2]), *map(Message, values))

    async def trouble(self) -> None:
        rng = self.rng
        node = rng.choice(self.nodes)
        trouble = rng.choice(self.troubles)
        self.seen[trouble] += 1
        match trouble:
            case "put":
                self.put(node)
            case "put to all":
                for each in self.nodes:
                    self.put(each)
            case "cut":
                self.store.cut()
            case "down":
                self.store.down = not self.store.down
                self.store.cut()
            case "full":
                self.store.not_now(rng.randint(1, 4))
            case "start" if node.relay.state is State.FAILED:
                self.see(node)
                await node.relay.command(Command.START)
            case "back up":
                self.backups.append(node.journal.copy())
            case _:
                await self.open(trouble, node)
        await asyncio.sleep(rng.choice((0, 0, 0.001, 0.05, 0.5)))

    async def open(self, trouble: str, node: Node) -> None:
        """Another process begins, in the place of one or beside it."""
        match trouble:
            case "restart":
                journal = await self.end()
            case "restore" if self.backups:
                await self.end()
                journal = self.rng.choice(self.backups).copy()
            case "copy" | "snapshot" if len(self.nodes) < NODES:
                journal = node.journal.copy()
            case _:
                return
        if trouble != "snapshot":
            journal.reopen()
        await self.begin(journal)

    def unsettled(self, node: Node) -> bool:
        return any(node.journal.backlog(BRIDGE, address) for address in node.journal.logs)

    async def end_of_trouble(self) -> None:
        self.store.down = False
        self.store.not_now(0)

        def is_over() -> bool:
            return all(node.relay.state is State.FAILED or not self.unsettled(node) for node in self.nodes)

        await until(is_over, "every node has failed or settled everything", LONGEST_S, 0.1)
        for node in self.nodes:
            await self.stop(node)
        await asyncio.gather(*self.store.on_the_wire)

    def check(self) -> None:
        """Nothing is doubled, order is kept, and what was let go of is there."""
        there: dict[tuple[str, int], bytes | None] = {}
        for arrived in self.store.addresses.values():
            places = [(one.stream, one.position) for one in arrived]
            assert len(set(places)) == len(places)
            for stream in {stream for stream, _ in places}:
                positions = [position for name, position in places if name == stream]
                assert positions == sorted(positions)
            there.update(zip(places, (one.message.whole for one in arrived), strict=True))
        for node in self.nodes:
            for log in node.journal.logs.values():
                settled = node.journal.settled_upto(BRIDGE, log.stream)
                for position, message in log.messages.items():
                    body = message.whole or b""
                    if position < settled and not body.endswith(b"filtered"):
                        found = there.get((log.stream, position))
                        if found != body:
                            raise Lost(f"{log.stream} {position}: {body!r} is gone; {found!r} has its place")


async def simulate(seed: str, troubles: tuple[str, ...], seen: Counter[str]) -> None:
    world = World(random.Random(seed), troubles, seen)
    journal = FakeJournal()
    journal.make(ADDRESSES[0])
    await world.begin(journal)
    for _ in range(ACTS):
        await world.trouble()
    await world.end_of_trouble()
    world.check()


def runs(rng: random.Random, count: int, troubles: tuple[str, ...]) -> Counter[str]:
    """So many simulations; answers what happened in them."""
    seen: Counter[str] = Counter()
    base = rng.randrange(1 << 32)
    for number in range(count):
        seed = f"{base}:{number}"
        try:
            run(simulate(seed, troubles, seen))
        except BaseException as error:
            error.add_note(f"simulate({seed!r}, {troubles!r}, Counter())")
            raise
    return seen


def test_however_journals_are_copied_and_restored_no_message_vanishes(rng: random.Random) -> None:
    """B12, B13"""
    seen = runs(rng, SEEDS, ALWAYS + COPYING)
    for happening in (*COPYING, "DIVERGED"):
        assert seen[happening] > SEEDS / 2, f"{happening}: {seen[happening]} times in {SEEDS} runs"


def test_a_node_that_nobody_copies_never_diverges_however_often_it_is_opened(rng: random.Random) -> None:
    seen = runs(rng, SEEDS, ALWAYS)
    assert (seen["DIVERGED"], seen["SOURCE_GAP"]) == (0, 0)
    assert seen["restart"] > SEEDS


def test_the_simulation_finds_the_losses_that_there_are_without_the_check(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "check_past", lambda *_: None)
    losses = 0
    for _ in range(BROKEN_SEEDS):
        try:
            runs(rng, 1, ALWAYS + COPYING)
        except Lost:
            losses += 1
    assert losses > BROKEN_SEEDS / 5, f"{losses} losses in {BROKEN_SEEDS} runs"
