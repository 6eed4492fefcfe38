"""Messages of a queue that readers and bridges share: each goes to one of them, once."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from bridge.errors import StaleLease
from bridge.filters import parse
from bridge.journal import shared_queues
from bridge.journal.journal import Journal
from bridge.journal.rules import moves
from bridge.journal.shared_queues import SharedQueues
from bridge.journal.values.options import (
    AddressPolicy,
    BridgeQueue,
    BridgeSelection,
    JournalOptions,
    SharedNames,
)
from bridge.journal.values.store import Page, Submission
from bridge.messages.addresses import QueueName
from bridge.messages.message import Message
from bridge.messages.stream_names import own_log
from tests.harness.rounds import rounds
from tests.integration.journal.failing import file, memory
from tests.integration.journal.helpers import (
    QUEUE,
    ManualClock,
    acknowledgement,
    bodies,
    browsed,
    check_file,
    consume,
    lease,
    opened,
    policies,
    send,
    transact,
)

SHARED: Final = SharedNames([QueueName("orders", QUEUE)])
MANY: Final = 1 << 30


def never(_address: str) -> bool:
    return False


def options(directory: Path, *bridges: str) -> JournalOptions:
    return JournalOptions(
        directory,
        addresses={"orders": [QUEUE]},
        bridges=[BridgeQueue(name, [], never, shared=SHARED) for name in bridges or ("to-hub",)],
    )


def shared(journal: Journal, bridge: str = "to-hub", window: int = MANY, condition: str = "") -> SharedQueues:
    selection = BridgeSelection(bridge, never, str, SHARED)
    return SharedQueues(journal, selection, window, parse(condition))


async def take_all(queues: SharedQueues) -> None:
    while await queues.take():
        pass


def coloured(body: str, colour: str) -> Submission:
    return Submission("orders", Message(body.encode(), headers=(("colour", colour.encode()),)))


async def test_no_more_than_a_window_is_taken_ahead_of_the_target(tmp_path: Path) -> None:
    async with opened(options(tmp_path)) as journal:
        for number in range(6):
            await send(journal, f"{number}" * 1000)
        await take_all(shared(journal, window=2_000))
        assert len(await browsed(journal, own_log("to-hub", "orders"))) == 2
        assert len(await consume(journal)) == 4, "the others are the readers'"


async def test_a_log_that_is_full_below_the_window_is_not_asked_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "MOVE_MESSAGES", 1)
    log = own_log("to-hub", "orders")
    small = policies(AddressPolicy(), **{log: AddressPolicy(max_size_bytes=1_500, full_policy="FAIL")})
    async with opened(replace(options(tmp_path), policy=small)) as journal:
        for number in range(6):
            await send(journal, f"{number}" * 1000)
        queues = shared(journal)
        assert [await queues.take() for _ in range(3)] == [True, True, False]
        assert len(await browsed(journal, log)) == 2
        assert len(await consume(journal)) == 4


async def test_what_a_filter_leaves_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_queues, "INTERVALS_MOST", 3)
    async with opened(options(tmp_path)) as journal:
        queues = shared(journal, condition="colour = 'red'")
        for number in range(5):
            await transact(journal, coloured(f"{number}", "blue"), coloured(f"{number}", "red"))
        await take_all(queues)
        await transact(journal, coloured("last", "red"))
        await take_all(queues)
        assert queues.waits == ("orders::q holds 5 intervals of messages that its filter leaves",)
        assert "last" not in await browsed(journal, own_log("to-hub", "orders"))
        page = await lease(journal, most=3)
        assert bodies(page.messages) == ["0", "1", "2"]
        await journal.acknowledge(acknowledgement(page))
        await take_all(queues)
        assert (await browsed(journal, own_log("to-hub", "orders")))[-1] == "last"
        assert not queues.waits


async def test_each_message_of_a_large_backlog_is_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    async with opened(options(tmp_path)) as journal:
        queues = shared(journal, condition="colour = 'red'")
        assert queues.condition is not None
        takes = queues.condition.takes

        class Counting:
            def takes(self, *arguments: object) -> bool:
                nonlocal asked
                asked += 1
                return takes(*arguments)  # type: ignore[arg-type]

        queues.condition = Counting()  # type: ignore[assignment]
        monkeypatch.setattr(moves, "_LOOK_BYTES", 1)  # a command looks at one block
        for number in range(40):
            await transact(journal, *(coloured(f"{number}-{index}", "blue") for index in range(10)))
            await take_all(queues)
        await transact(journal, coloured("red", "red"))
        await take_all(queues)
        assert await browsed(journal, own_log("to-hub", "orders")) == ["red"]
        assert asked == 401


class Rig:
    """A queue, readers and two bridges, one with a filter; it knows what each has got."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.clock = ManualClock()
        self.sent: list[str] = []
        self.red: set[str] = set()
        self.acknowledged: list[str] = []
        self.pages: list[Page] = []
        self.queues: list[SharedQueues] = []

    def open(self, journal: Journal) -> None:
        self.queues = [
            shared(journal, "reds", self.chance.choice([300, MANY]), "colour = 'red'"),
            shared(journal, "any", self.chance.choice([300, MANY])),
        ]

    async def step(self, journal: Journal) -> None:
        match self.chance.randrange(6):
            case 0 | 1:
                number = len(self.sent)
                names = [str(number + index) for index in range(self.chance.randint(1, 5))]
                reds = {name for name in names if self.chance.random() < 0.5}
                await transact(journal, *(coloured(n, "red" if n in reds else "blue") for n in names))
                await send(journal, "elsewhere", address="others")
                self.sent += names
                self.red |= reds
            case 2:
                page = await lease(journal, most=self.chance.randint(1, 4), lease_ms=1_000)
                if page.lease is not None:
                    self.pages.append(page)
            case 3 if self.pages:
                await self.end(journal, self.pages.pop(self.chance.randrange(len(self.pages))))
            case 4:
                await self.chance.choice(self.queues).take()
            case _:
                self.clock.advance(self.chance.choice([0, 400]))

    async def end(self, journal: Journal, page: Page) -> None:
        """End a lease, unless its time was up."""
        upto = self.chance.choice([None, page.messages[0].position])
        kind = self.chance.choice(["acknowledge", "release"])
        try:
            if kind == "release":
                await journal.release(acknowledgement(page))
                return
            await journal.acknowledge(acknowledgement(page, upto))
        except StaleLease:
            return
        count = len(page.messages) if upto is None else 1
        self.acknowledged += bodies(page.messages)[:count]


@pytest.mark.parametrize("seed", range(rounds(40)))
async def test_each_message_goes_to_one_reader_or_bridge(tmp_path: Path, seed: int) -> None:
    rig = Rig(random.Random(seed))
    for _ in range(4):
        async with opened(options(tmp_path, "reds", "any"), rig.clock) as journal:
            rig.open(journal)
            for _ in range(25):
                await rig.step(journal)
            assert memory(journal) == file(journal)
    async with opened(options(tmp_path, "reds", "any"), rig.clock) as journal:
        rig.clock.advance(10_000)
        got = {name: await browsed(journal, own_log(name, "orders")) for name in ("reds", "any")}
        rest = await consume(journal)
    check_file(tmp_path)
    everything = [*rig.acknowledged, *got["reds"], *got["any"], *rest]
    assert sorted(everything, key=int) == rig.sent, "each once"
    assert set(got["reds"]) <= rig.red
