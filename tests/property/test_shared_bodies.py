"""Chance against bodies that several logs share: each log has its messages, and each body is kept once, while
a log has it.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.errors import JournalUnavailable
from bridge.journal.journal import Journal
from bridge.journal.target import JournalTarget
from bridge.journal.values.routing import Destination, Placement, Routing
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message
from tests.fakes.routing import Routed
from tests.harness.eventually import until
from tests.harness.rounds import rounds
from tests.integration.journal.failing import caught_up, fail_with, file, memory, once
from tests.integration.journal.helpers import (
    KIB,
    QUEUE,
    acknowledgement,
    batch,
    bodies,
    check_bodies,
    check_file,
    consume,
    deliver,
    lease,
    number,
    open_stream,
    opened,
    options,
    rows,
    target,
)

SEEDS: Final = max(3, rounds(6))  # one of a hundred has no failed transaction
ACTS: Final = 60
LOGS: Final = ("orders", "b", "c", "d")


class World:
    """What waits in each log."""

    def __init__(self, directory: Path, seed: str) -> None:
        self.rng = random.Random(seed)
        self.directory = directory
        self.options = options(directory, router=Routed(self.route))
        self.waiting: dict[str, list[str]] = {log: [] for log in LOGS}
        self.sent = self.delivered = 0
        self.seen: Counter[str] = Counter()
        self.journal: Journal
        self.end: JournalTarget

    async def begin(self) -> None:
        """With an open journal."""
        self.end = target(self.journal)
        await open_stream(self.end)
        for log in LOGS:
            await self.journal.create_queue(log, QUEUE, "earliest")

    def route(self, routing: Routing) -> Sequence[Placement]:
        """By its first byte, each message goes to all logs, or to some."""
        logs: dict[str, list[int]] = {}
        for index in routing.indices:
            for log in logs_of(routing.message(index)):
                logs.setdefault(log, []).append(index)
        return [Placement(Destination(log), indices) for log, indices in logs.items()]

    def transaction(self) -> Transaction:
        """Mostly of messages for the same logs."""
        same = self.rng.choice("0001234567")
        made = []
        for _ in range(self.rng.randint(1, 4)):
            kind = same if self.rng.random() < 0.8 else self.rng.choice("01234567")
            body = f"{kind}-{self.sent}" + "." * self.rng.choice((1, 10, 30 * KIB, 101 * KIB))
            self.sent += 1
            made.append(Sent.of("orders", Message(body.encode())))
        return Transaction(made)

    def takes(self, transaction: Transaction) -> None:
        for submission in transaction.sent:
            for log in logs_of(submission.message):
                self.waiting[log].append((submission.message.whole or b"").decode())

    async def send(self) -> None:
        """Several transactions, and what a bridge brings: most of it in one commit."""
        work: list[Coroutine[Any, Any, Any]] = []
        for _ in range(self.rng.randint(1, 4)):
            if self.rng.random() < 0.3:
                work.append(self.deliver(f"relayed-{self.delivered}"))
            else:
                transaction = self.transaction()
                self.takes(transaction)
                work.append(self.journal.commit(transaction))
        await asyncio.gather(*work)

    def deliver(self, body: str) -> Coroutine[Any, Any, Any]:
        self.waiting["orders"].append(body)
        one = batch({self.delivered: body}, self.delivered + 1)
        self.delivered += 1
        return deliver(self.end, one)

    async def read(self) -> None:
        """Some messages of one log: what was read is trimmed with this commit or a later one."""
        log = self.rng.choice(LOGS)
        page = await lease(self.journal, log, most=self.rng.choice((1, 3, 100)))
        found = bodies(page.messages)
        assert found == self.waiting[log][: len(found)]
        assert bool(found) == bool(self.waiting[log])
        if page.lease is not None:
            await self.journal.acknowledge(acknowledgement(page, address=log))
            del self.waiting[log][: len(found)]

    async def fail(self) -> None:
        """A transaction that the file refuses: nothing of it counts."""
        fail_with(self.journal, once(self.rng.choice(("INSERT INTO blocks", "COMMIT")), sqlite3.SQLITE_IOERR))
        with pytest.raises(JournalUnavailable):
            await self.journal.commit(self.transaction())
        await caught_up(self.journal)

    def check(self) -> None:
        """Logs that got the same have it once."""
        check_bodies(self.directory)
        stored = "SELECT body FROM blocks WHERE body_id IS NULL UNION ALL SELECT body FROM bodies"
        assert rows(self.directory, f"SELECT body FROM ({stored}) GROUP BY body HAVING count(*) > 1") == []

    async def drain(self) -> None:
        """Each log is read to its end, in any order, and then nothing is stored any more."""
        for log in self.rng.sample(LOGS, len(LOGS)):
            assert await consume(self.journal, log) == self.waiting[log]
        await until(lambda: number(self.directory, "SELECT count(*) FROM blocks") == 0, "what was read goes")
        assert memory(self.journal) == file(self.journal)


def logs_of(message: Message) -> Sequence[str]:
    kind = int((message.whole or b"").split(b"-")[0])
    return [log for place, log in enumerate(LOGS) if not kind >> place & 1]


ACTIONS: Final = {World.send: 8, World.read: 8, World.fail: 1}


async def simulate(directory: Path, seed: str) -> Counter[str]:
    world = World(directory, seed)
    left = ACTS
    while left > 0:
        async with opened(world.options) as world.journal:
            await world.begin()
            for _ in range(world.rng.randrange(1, 40)):
                (action,) = world.rng.choices(list(ACTIONS), list(ACTIONS.values()))
                await action(world)
                world.check()
                world.seen[action.__name__] += 1
                world.seen["shared"] += number(directory, "SELECT count(*) FROM bodies")
                left -= 1
            if left <= 0:
                await world.drain()
        check_file(directory)
        world.seen["restart"] += 1
    return world.seen


async def test_each_log_has_its_messages_and_each_body_is_there_once_until_the_last_log_lets_it_go(
    tmp_path: Path,
) -> None:
    """P5: in random orders."""
    seen: Counter[str] = Counter()
    base = random.Random().randrange(2**32)
    for turn in range(SEEDS):
        seed = f"{base}:{turn}"
        try:
            seen += await simulate(tmp_path / str(turn), seed)
        except BaseException as error:
            error.add_note(f"simulate(tmp_path, {seed!r})")
            raise
    assert all(seen[name] for name in ("send", "read", "fail", "restart", "shared"))
