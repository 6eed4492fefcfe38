"""Design rule 1 under fire: seeded runs of senders, cut links, zombies, refusals and restarts.

One target covers one stream. Its rule is `dedup.coverage.judge`, or a broken one, to show that the
simulation finds what breaks.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest

from dedup.coverage import Coverage, Outcome, judge
from dedup.verdict import Verdict

RUNS = 300
BROKEN_RUNS = 100
POSITIONS = 60
STEPS = 200
LARGEST_BATCH = 8

Rule = Callable[[int | None, int, int], Coverage]


@dataclass(frozen=True)
class Batch:
    from_: int
    upto: int
    #: Where its messages are; the rest of what it covers was filtered or refused.
    positions: tuple[int, ...]


@dataclass(frozen=True)
class Receipt:
    verdict: Verdict
    next: int
    position: int = -1


@dataclass(eq=False)
class Link:
    """What is on its way, in order. A link that the sender gave up may still deliver."""

    batches: deque[Batch] = field(default_factory=deque)
    receipts: deque[Receipt] = field(default_factory=deque)
    closed: bool = False

    def close(self) -> None:
        """By the receiver: nothing more comes through."""
        self.batches.clear()
        self.closed = True


class Target:
    """Commits in groups; receipts leave after the commit; a crash takes what was not committed."""

    def __init__(self, world: World, rule: Rule) -> None:
        self.world, self.rule = world, rule
        self.next: int | None = None
        self.log: list[int] = []
        self.group_next: int | None = None
        self.group: list[int] = []
        self.receipts: list[tuple[Link, Receipt]] = []

    def receive(self, link: Link) -> None:
        batch = link.batches.popleft()
        if self.world.chance.random() < 0.05:
            return self.answer(link, Verdict.NOT_NOW)
        coverage = self.rule(self.group_next, batch.from_, batch.upto)
        self.world.seen[coverage.outcome.value] += 1
        if coverage.outcome is Outcome.OUT_OF_SEQUENCE:
            return link.close()
        if coverage.outcome is Outcome.DUPLICATE:
            return self.answer(link, Verdict.DUPLICATE)
        stored = [position for position in batch.positions if position >= coverage.start]
        for position in stored:
            if position in self.world.poisoned:
                return self.answer(link, Verdict.REFUSED, position)
        self.group += stored
        self.group_next = coverage.next
        return self.answer(link, Verdict.STORED)

    def answer(self, link: Link, verdict: Verdict, position: int = -1) -> None:
        self.world.seen[verdict.value] += 1
        self.receipts.append((link, Receipt(verdict, self.group_next or 0, position)))

    def commit(self) -> None:
        self.next = self.group_next
        self.log += self.group
        for link, receipt in self.receipts:
            link.receipts.append(receipt)
        self.group, self.receipts = [], []

    def crash(self) -> None:
        self.group_next = self.next
        self.group, self.receipts = [], []
        for link in self.world.links:
            link.close()


class Sender:
    """Reads from the target's next on, cuts anew at every attempt, and forgets all when it restarts."""

    def __init__(self, world: World, *, waits: bool) -> None:
        self.world = world
        self.waits = waits
        self.link: Link | None = None
        self.cursor = 0
        self.refused: set[int] = set()
        self.starting = False

    def act(self) -> None:
        if self.link is None or (self.link.closed and not self.link.receipts):
            self.link = self.open()
        elif self.link.receipts:
            self.hear(self.link.receipts.popleft())
        elif not self.starting and self.cursor < POSITIONS:
            self.send(self.link)

    def open(self) -> Link:
        known = self.world.target.next
        link = Link()
        self.world.links.append(link)
        self.cursor = known or 0
        assert self.cursor >= self.world.freed, "the source no longer has what the target asks for"
        # To a stream never seen the first batch gives its start: nothing may overtake that one.
        self.starting = self.waits and known is None
        if self.starting:
            link.batches.append(Batch(0, 0, ()))
        return link

    def send(self, link: Link) -> None:
        upto = min(self.cursor + self.world.chance.randint(1, LARGEST_BATCH), POSITIONS)
        left_out = self.world.filtered | self.refused
        positions = tuple(position for position in range(self.cursor, upto) if position not in left_out)
        link.batches.append(Batch(self.cursor, upto, positions))
        self.cursor = upto

    def hear(self, receipt: Receipt) -> None:
        if receipt.verdict in {Verdict.STORED, Verdict.DUPLICATE}:
            self.starting = False
            self.world.freed = max(self.world.freed, receipt.next)
            return
        if receipt.verdict is Verdict.REFUSED:
            self.world.dead_letters.add(receipt.position)
            self.refused.add(receipt.position)
        self.link = None


class World:
    """One run: what happens next is drawn from the seed."""

    def __init__(self, seed: int, rule: Rule, *, waits: bool) -> None:
        self.chance = Random(seed)
        self.waits = waits
        kinds = self.chance.choices("mfp", weights=(16, 3, 1), k=POSITIONS)
        self.filtered = {position for position, kind in enumerate(kinds) if kind == "f"}
        self.poisoned = {position for position, kind in enumerate(kinds) if kind == "p"}
        self.expected = [position for position, kind in enumerate(kinds) if kind == "m"]
        self.freed = 0
        self.dead_letters: set[int] = set()
        self.seen: Counter[str] = Counter()
        self.links: list[Link] = []
        self.target = Target(self, rule)
        self.sender = Sender(self, waits=waits)
        self.zombies: list[Sender] = []

    def deliver(self) -> None:
        carrying = [link for link in self.links if link.batches]
        if carrying:
            link = self.chance.choice(carrying)
            self.seen["from an old link"] += link is not self.sender.link
            self.target.receive(link)

    def cut(self) -> None:
        """The sender hears no more; what it sent is gone, or on its way still."""
        if self.sender.link is not None and self.chance.random() < 0.5:
            self.sender.link.close()
        self.sender.link = None

    def restart_sender(self) -> None:
        if self.chance.random() < 0.5:
            self.zombies.append(self.sender)
        self.sender = Sender(self, waits=self.waits)

    def zombie_acts(self) -> None:
        if self.zombies:
            self.chance.choice(self.zombies).act()

    def run(self) -> World:
        happenings = (
            (self.sender_acts, 40),
            (self.deliver, 30),
            (self.target.commit, 12),
            (self.zombie_acts, 10),
            (self.cut, 4),
            (self.restart_sender, 2),
            (self.target.crash, 2),
        )
        calls, weights = zip(*happenings, strict=True)
        for call in self.chance.choices(calls, weights, k=STEPS):
            self.seen[call.__name__] += 1
            call()
        for _ in range(100 * STEPS):
            if self.target.next == POSITIONS:
                break
            self.chance.choice((self.sender_acts, self.deliver, self.target.commit))()
        while any(link.batches for link in self.links):
            self.deliver()  # the last zombies come when all is done
        self.target.commit()
        return self

    def sender_acts(self) -> None:
        self.sender.act()

    def lost(self) -> int:
        return len(set(self.expected) - set(self.target.log))

    def doubled(self) -> int:
        return len(self.target.log) - len(set(self.target.log))


def test_nothing_is_lost_nothing_doubled_and_order_kept_in_300_runs() -> None:
    seen: Counter[str] = Counter()
    for seed in range(RUNS):
        world = World(seed, judge, waits=True).run()
        assert world.target.log == world.expected, (
            f"seed {seed}: {world.lost()} lost, {world.doubled()} doubled"
        )
        assert world.target.next == POSITIONS, f"seed {seed}: the run did not come to its end"
        assert world.dead_letters == world.poisoned, f"seed {seed}"
        seen += world.seen
    # Every kind of trouble was there, often.
    for trouble in (
        *(word.value for word in (*Outcome, *Verdict)),
        *("from an old link", "cut", "restart_sender", "crash", "zombie_acts"),
    ):
        assert seen[trouble] > RUNS, f"{trouble}: {seen[trouble]} times in {RUNS} runs"


def accept_gaps(next_position: int | None, from_: int, upto: int) -> Coverage:
    """Positions alone: whatever lies at or beyond next is new."""
    if next_position is not None and upto > next_position:
        return Coverage(Outcome.TAKE, next_position, upto)
    return judge(next_position, from_, upto)


def store_whole(next_position: int | None, from_: int, upto: int) -> Coverage:
    """A batch that is partly new is stored as it is."""
    coverage = judge(next_position, from_, upto)
    return Coverage(coverage.outcome, from_, coverage.next)


def accept_gaps_and_store_whole(next_position: int | None, from_: int, upto: int) -> Coverage:
    coverage = accept_gaps(next_position, from_, upto)
    return Coverage(coverage.outcome, from_, coverage.next)


@pytest.mark.parametrize(
    ("rule", "waits", "loses", "doubles"),
    [
        (accept_gaps, True, True, False),
        (store_whole, True, False, True),
        (accept_gaps_and_store_whole, True, True, True),
        (judge, False, True, False),
    ],
    ids=["accept-gaps", "store-whole", "both", "first batches overtake each other"],
)
def test_the_simulation_finds_a_broken_rule(rule: Rule, waits: bool, loses: bool, doubles: bool) -> None:
    worlds = [World(seed, rule, waits=waits).run() for seed in range(BROKEN_RUNS)]
    lossy = sum(world.lost() > 0 for world in worlds)
    doubling = sum(world.doubled() > 0 for world in worlds)
    print(f"of {BROKEN_RUNS} runs, {lossy} lost and {doubling} doubled")
    assert (lossy > 0, doubling > 0) == (loses, doubles)
