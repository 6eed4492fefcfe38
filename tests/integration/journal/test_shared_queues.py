"""Messages of a queue that readers and bridges share: each goes to one of them, once."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.errors import JournalUnavailable, StaleLease
from bridge.filters import parse
from bridge.journal import shared_queues
from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.rules import moves
from bridge.journal.rules import queues as rules_of_queues
from bridge.journal.rules.commands import LeaseCommand
from bridge.journal.shared_queues import SharedQueues
from bridge.journal.source import JournalSource
from bridge.journal.values.options import (
    AddressPolicy,
    BridgeQueue,
    BridgeSelection,
    JournalOptions,
    SharedNames,
)
from bridge.journal.values.store import Page, Sent
from bridge.messages.addresses import QueueName
from bridge.messages.message import Message
from bridge.messages.stream_names import own_log
from bridge.relay.ports import Receipt, StreamState
from dedup.verdict import Verdict
from tests.harness.eventually import until
from tests.harness.rounds import rounds
from tests.integration.journal.failing import caught_up, fail_with, file, memory, once, together
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
ORDERS: Final = ("orders", QUEUE)
STORE: Final = "store:0"
MANY: Final = 1 << 30
IOERR: Final = sqlite3.SQLITE_IOERR_FSYNC


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


def coloured(body: str, colour: str) -> Sent:
    return Sent.of("orders", Message(body.encode(), headers=(("colour", colour.encode()),)))


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


async def test_a_bridge_with_a_filter_takes_what_a_reader_could_not_settle(tmp_path: Path) -> None:
    """The bridge has asked in the group whose COMMIT failed."""
    async with opened(options(tmp_path)) as journal:
        queues = shared(journal, condition="colour = 'red'")
        await transact(journal, coloured("a", "red"))
        page = await lease(journal)
        await take_all(queues)
        queues.room_came()
        answers = await together(
            journal, once("COMMIT", IOERR), journal.acknowledge(acknowledgement(page)), queues.take()
        )
        assert [type(answer) for answer in answers] == [JournalUnavailable] * 2
        await caught_up(journal)
        await journal.release(acknowledgement(page))
        queues.room_came()
        await take_all(queues)
        assert await browsed(journal, own_log("to-hub", "orders")) == ["a"]


async def test_what_a_filter_leaves_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_queues, "INTERVALS_MOST", 3)
    clock = ManualClock()
    async with opened(options(tmp_path), clock) as journal:
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
        assert queues.due_in_s == 1
        clock.advance(1_000)
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


class Watched(SharedQueues):
    """Says when the bridge has asked for messages in vain, so that it waits for some."""

    is_idle = False

    async def take(self) -> bool:
        self.is_idle = False
        has_more = await super().take()
        self.is_idle = not has_more
        return has_more


class Consumers:
    """Three readers and a bridge that always wait for messages of the queue; they count what each has got."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.shares: list[list[int]] = [[], [], [], []]
        self.shared = Watched(journal, BridgeSelection("to-hub", never, str, SHARED), MANY)

    @property
    def taken(self) -> int:
        return sum(map(len, self.shares))

    async def all_wait(self, taken: int) -> None:
        """Return once so many messages are taken, and each of the consumers waits for another."""
        four = len(self.shares)
        await until(
            lambda: (
                (self.taken, self.journal.presence.others("", ORDERS), self.shared.is_idle)
                == (taken, four, True)
            ),
            "all of them wait",
        )

    async def read(self, share: list[int]) -> None:
        while True:
            page = await lease(self.journal, most=10, wait_ms=60_000)
            share += map(int, bodies(page.messages))
            await self.journal.acknowledge(acknowledgement(page))

    async def relay(self, share: list[int]) -> None:
        source = JournalSource(
            self.journal, self.shared.selection, Cutter(1 << 20, 1 << 17, stamp=True),
            target_name="hub", shared=self.shared,
        )  # fmt: skip
        await source.open({}, STORE)
        while True:
            for batch in await source.read():
                assert batch.block is not None
                share += [int(message.whole or b"") for message in batch.block.messages()]
                await source.settled(batch, Receipt(batch.stream, Verdict.STORED, batch.upto))
            for stream in await source.streams():
                if stream.identity not in source._cursors:
                    await source.open({stream.identity: StreamState(None)}, STORE)


async def test_readers_and_a_bridge_that_wait_take_turns(tmp_path: Path) -> None:
    quarter = max(25, rounds(150))
    async with opened(options(tmp_path)) as journal:
        consumers = Consumers(journal)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(consumers.read(share)) for share in consumers.shares[:3]]
            tasks.append(group.create_task(consumers.relay(consumers.shares[3])))
            for number in range(4 * quarter):
                await consumers.all_wait(number)
                await send(journal, str(number))
            await until(lambda: consumers.taken == 4 * quarter, "all are taken")
            for task in tasks:
                task.cancel()
    shares = [len(share) for share in consumers.shares]
    assert all(abs(share - quarter) <= 5 for share in shares), f"a quarter each: {shares}"
    assert all(share == sorted(share) for share in consumers.shares), "each in order"


async def test_a_move_leaves_the_others_a_share(tmp_path: Path) -> None:
    log = own_log("to-hub", "orders")
    async with opened(options(tmp_path)) as journal:
        await transact(journal, *(coloured(str(number), "blue") for number in range(300)))
        queues = shared(journal)
        with ExitStack() as waiting:
            for _ in range(3):
                waiting.enter_context(journal.presence.waiting(*ORDERS))
            await queues.take()
        assert len(await browsed(journal, log)) == 75, "three readers wait"
        page = await lease(journal, most=25)
        await queues.take()
        assert len(await browsed(journal, log)) == 175, "readers that are busy count as one"
        await journal.acknowledge(acknowledgement(page))
        await queues.take()
        assert len(await browsed(journal, log)) == 275, "alone it takes all"


async def test_two_bridges_leave_each_other_a_share(tmp_path: Path) -> None:
    async with opened(options(tmp_path, "one", "two")) as journal:
        one, two = shared(journal, "one"), shared(journal, "two")
        await two.take()
        await transact(journal, *(coloured(str(number), "blue") for number in range(100)))
        await one.take()
        assert len(await browsed(journal, own_log("one", "orders"))) == 50
        two.close()
        await one.take()
        assert len(await browsed(journal, own_log("one", "orders"))) == 100, "one that does not run has none"


async def test_a_bridge_that_is_not_ready_keeps_nothing_from_readers(tmp_path: Path) -> None:
    async with opened(options(tmp_path)) as journal:
        queues = shared(journal, window=500)
        await send(journal, "0" * 1000)
        await take_all(queues)
        for number in (1, 2):
            asked = asyncio.create_task(queues.take())
            await send(journal, str(number))
            assert not await asked
            page = await lease(journal)
            assert bodies(page.messages) == [str(number)]
            await journal.acknowledge(acknowledgement(page))


async def test_what_a_filter_leaves_goes_to_a_reader_that_has_asked_meanwhile(tmp_path: Path) -> None:
    async with opened(options(tmp_path)) as journal:
        queues = shared(journal, condition="colour = 'red'")
        await take_all(queues)
        await transact(journal, coloured("0", "blue"))
        taking = asyncio.create_task(take_all(queues))
        await asyncio.sleep(0)  # the bridge has asked first
        page = await lease(journal, wait_ms=10_000)
        assert bodies(page.messages) == ["0"]
        await taking
        assert await queues.take() is False


async def test_what_a_filter_leaves_stays_in_order_for_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking, gate = threading.Event(), threading.Event()

    def slow(*arguments: Any, **options: Any) -> Any:
        if options["reserved"]:
            looking.set()
            gate.wait()
        return moves.read_movable(*arguments, **options)

    async with opened(options(tmp_path)) as journal:
        queues = shared(journal, condition="colour = 'red'")
        await take_all(queues)
        monkeypatch.setattr(shared_queues, "read_movable", slow)
        await transact(journal, coloured("0", "blue"), coloured("1", "red"))
        taking = asyncio.create_task(take_all(queues))
        try:
            await asyncio.to_thread(looking.wait)
            await transact(journal, coloured("2", "blue"))
            reading = asyncio.create_task(lease(journal, wait_ms=10_000))
            assert (await lease(journal)).lease is None, "what is behind waits until the filter has decided"
        finally:
            gate.set()
        assert bodies((await reading).messages) == ["0", "2"]
        await taking
        assert await browsed(journal, own_log("to-hub", "orders")) == ["1"]


async def test_a_bridge_passes_over_what_is_not_addressed_to_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules_of_queues, "PASSED_BLOCKS", 2)
    async with opened(options(tmp_path)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest", "colour = 'red'")
        for number in range(7):
            await transact(journal, coloured(str(number), "blue"))
        await transact(journal, coloured("7", "red"))
        await take_all(shared(journal))
        assert await browsed(journal, own_log("to-hub", "orders")) == ["7"]


async def test_what_is_reserved_is_free_again_when_its_bridge_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(options(tmp_path)) as journal:
        queues = shared(journal)
        await take_all(queues)
        await send(journal, "0")
        with monkeypatch.context() as patch:
            patch.setattr(shared_queues, "read_movable", failing)
            with pytest.raises(LookupError):
                await queues.take()
        page = await lease(journal, wait_ms=10_000)
        assert bodies(page.messages) == ["0"]
        await journal.release(acknowledgement(page))
        queues.close()
        asking = asyncio.create_task(queues.take())
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        page = await lease(journal, wait_ms=10_000)
        assert bodies(page.messages) == ["0"], "cancelled while it was asking"


async def test_what_is_reserved_stays_so_when_another_commit_fails(tmp_path: Path) -> None:
    """The bridge is about to move it: what lies behind it is given to nobody before that."""
    async with opened(options(tmp_path)) as journal:
        await send(journal, "0")
        how: dict[str, Any] = {"most": 1, "most_bytes": MANY, "lease_ms": 0, "reserves": True}
        grant = await journal.submit(
            LeaseCommand, address="orders", queue=QUEUE, lease="of the bridge", **how
        )
        fail_with(journal, once("COMMIT", sqlite3.SQLITE_IOERR))
        with pytest.raises(JournalUnavailable):
            await send(journal, "1")
        await caught_up(journal)
        assert (await lease(journal)).lease is None
        await journal.give_back("orders", QUEUE, grant.lease)
        assert bodies((await lease(journal)).messages) == ["0"]


async def test_a_bridge_looks_again_at_what_a_failed_commit_did_not_settle(tmp_path: Path) -> None:
    async with opened(options(tmp_path)) as journal:
        await transact(journal, coloured("0", "red"), coloured("1", "red"))
        page = await lease(journal, most=1)
        queues = shared(journal, condition="colour = 'red'")
        taking = asyncio.create_task(queues.take())
        await asyncio.sleep(0)
        await together(
            journal,
            once("COMMIT", sqlite3.SQLITE_IOERR),
            journal.acknowledge(acknowledgement(page)),
            queues.take(),
        )
        await asyncio.wait([taking])
        await caught_up(journal)
        await journal.release(acknowledgement(page))
        await take_all(queues)
        assert sorted(await browsed(journal, own_log("to-hub", "orders"))) == ["0", "1"]


def failing(*_arguments: object, **_options: object) -> None:
    raise LookupError("no messages")


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


async def test_messages_of_one_queue_do_not_wait_for_all_that_was_taken_of_another(tmp_path: Path) -> None:
    """On a slow line: else they would be taken only once nothing is left of that."""
    names = SharedNames([QueueName("orders", QUEUE), QueueName("alarms", QUEUE)])
    both = JournalOptions(
        tmp_path,
        addresses={"orders": [QUEUE], "alarms": [QUEUE]},
        bridges=[BridgeQueue("to-hub", [], never, shared=names)],
    )
    async with opened(both) as journal:
        selection = BridgeSelection("to-hub", never, str, names)
        source = JournalSource(
            journal,
            selection,
            Cutter(1 << 20, 1 << 17, stamp=True),
            target_name="hub",
            shared=SharedQueues(journal, selection, MANY),
        )
        await source.open({}, STORE)
        await transact(journal, *(coloured("x" * 1_000, "blue") for _ in range(100)))
        came: list[str] = []
        while "fire" not in came:
            source.fit(4_000)
            for batch in await source.read():
                assert batch.block is not None
                came += [str(message.whole or b"", "utf-8") for message in batch.block.messages()]
            if len(came) == 3:
                await send(journal, "fire", address="alarms")
            for stream in await source.streams():
                if stream.identity not in source._cursors:
                    await source.open({stream.identity: StreamState(None)}, STORE)
        assert len(came) <= 12, "of a hundred"
        await source.close()
