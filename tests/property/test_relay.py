"""Chance against a bridge: whatever is cut, delayed, refused, full, restarted or fenced, each message
arrives once.

Fakes in virtual time, so that a seed is a few milliseconds; batches are cut anew at every reading.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from bridge.errors import BridgeError, TargetUnavailable
from bridge.messages.batch import Batch
from bridge.messages.message import Message
from bridge.relay.backoff import Backoff
from bridge.relay.dead_letters import DeadLetters
from bridge.relay.lifecycle import Command, State
from bridge.relay.ports import Receipt
from bridge.relay.relay import LaneEnds, RelayOptions
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.one_lane import OneLane
from tests.fakes.virtual_time import VirtualClock, run
from tests.harness.eventually import until
from tests.harness.rounds import rounds

BRIDGE = "orders-to-hub"
ADDRESSES = ("orders", "invoices", "returns")
#: Runs of the simulation in one test run, 200 unless the profile says otherwise; acts of trouble in each.
SEEDS = rounds(200)
ACTS = 40
TROUBLES = ("put", "put", "put", "cut", "down", "full", "home-full", "restart", "zombie", "pause")
#: Of virtual time: until then everything must have arrived once the trouble is over.
LONGEST_S = 120


class LateStore(FakeStore):
    """A store on the far end of slow wires: a batch may arrive after its link was cut and another opened."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        self.on_the_wire: set[asyncio.Task[None]] = set()


class LateTarget(FakeTarget):
    """Batches and receipts take their time; what is on the wire when the link is cut may still arrive."""

    store: LateStore

    def __init__(self, store: LateStore) -> None:
        super().__init__(store, BRIDGE)
        self._wire = asyncio.Lock()  # first in, first out

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        broken, wire = self._broken, self._wire
        (batch,) = batches
        stream, epoch = self.opened(batch)
        answer: asyncio.Future[Receipt | BridgeError] = asyncio.get_running_loop().create_future()

        async def arrive() -> None:
            async with wire:
                await asyncio.sleep(self.store.rng.choice((0, 0, 0.01, 0.2)))
                if broken.is_set() and self.store.rng.random() < 0.5:
                    return  # lost with the link
                try:
                    outcome: Receipt | BridgeError = self.store.take(BRIDGE, stream, epoch, batch)
                except BridgeError as error:
                    outcome = error
                if not answer.done():
                    answer.set_result(outcome)

        task = asyncio.create_task(arrive())
        self.store.on_the_wire.add(task)
        task.add_done_callback(self.store.on_the_wire.discard)
        cut = asyncio.create_task(broken.wait())
        try:
            await asyncio.wait((answer, cut), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(self.store.rng.choice((0, 0, 0.01, 0.3)))
        finally:
            cut.cancel()
        if broken.is_set() or not answer.done():
            raise TargetUnavailable("the link was cut")
        outcome = answer.result()
        if isinstance(outcome, BridgeError):
            raise outcome
        return [outcome]

    def cut(self) -> None:
        super().cut()
        self._wire = asyncio.Lock()


@dataclass
class World:
    """One journal, one store, and the one or two relays of the same bridge between them."""

    rng: random.Random
    journal: FakeJournal = field(default_factory=FakeJournal)
    home: FakeStore = field(default_factory=lambda: FakeStore("home"))
    relays: list[OneLane] = field(default_factory=list)
    sent: dict[str, dict[int, bytes]] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.store = LateStore(self.rng)
        self.journal.make(ADDRESSES[0])

    def relay(self) -> OneLane:
        source = FakeSource(self.journal)
        source.most = lambda: self.rng.randint(1, 7)
        source.filtered = lambda message: message.whole is not None and message.whole.endswith(b"filtered")
        options = RelayOptions(
            BRIDGE,
            Backoff(50, 2.0, 400),
            confirmation_window_size=self.rng.choice((1, 60, 1 << 20)),
            pending_ack_timeout_ms=self.rng.choice((0, 100, 1000)),
        )
        letters = DeadLetters(BRIDGE, "dead", lambda name: FakeTarget(self.home, name))
        return OneLane(options, LaneEnds(source, LateTarget(self.store), letters), clock=VirtualClock())

    def put(self) -> None:
        address = self.rng.choice(ADDRESSES)
        kinds = self.rng.choices((b"", b" refused", b" filtered"), (16, 1, 1), k=self.rng.randint(1, 12))
        first = self.journal.sequence
        values = [b"%d%s" % (first + index, kind) for index, kind in enumerate(kinds)]
        positions = self.journal.put(address, *map(Message, values))
        refused = {p for p, value in zip(positions, values, strict=True) if value.endswith(b"refused")}
        self.refused |= refused
        self.store.refuse(*refused)
        self.sent.setdefault(address, {}).update(zip(positions, values, strict=True))

    async def trouble(self) -> None:
        rng = self.rng
        match rng.choice(TROUBLES):
            case "put":
                self.put()
            case "cut":
                self.store.cut()
            case "down":
                self.store.down = not self.store.down
                self.store.cut()
            case "full":
                self.store.not_now(rng.randint(1, 4))
            case "home-full":
                self.home.not_now(rng.randint(1, 2))
            case "restart":
                relay = self.relays.pop(rng.randrange(len(self.relays)))
                await relay.command(Command.STOP)
                await self.begin()
            case "zombie" if len(self.relays) < 2:
                await self.begin()
            case "pause":
                relay = rng.choice(self.relays)
                await relay.command(Command.PAUSE)
                await relay.command(rng.choice((Command.START, Command.RESUME)))
        await asyncio.sleep(rng.choice((0, 0, 0.001, 0.05, 0.5)))

    async def begin(self) -> None:
        relay = self.relay()
        self.relays.append(relay)
        await relay.command(Command.START)

    async def end_of_trouble(self) -> None:
        self.store.down = False
        self.store.not_now(0)
        self.home.not_now(0)
        for relay in self.relays[1:]:
            await relay.command(Command.STOP)

        def is_settled() -> bool:
            return not any(self.journal.backlog(BRIDGE, address) for address in self.journal.logs)

        await until(is_settled, "everything is settled", LONGEST_S, 0.1)
        await self.relays[0].command(Command.STOP)
        await asyncio.gather(*self.store.on_the_wire)

    def check(self) -> None:
        for address, sent in self.sent.items():
            expected = [
                (position, value)
                for position, value in sent.items()
                if position not in self.refused and not value.endswith(b"filtered")
            ]
            arrived = [(one.position, one.message.body) for one in self.store.addresses.get(address, [])]
            assert arrived == expected
        dead = sorted(int(body.split()[0]) for body in self.home.bodies("dead") if body is not None)
        assert dead == sorted(self.refused)
        for relay in self.relays:
            assert relay.state is State.STOPPED, relay.reason
            assert (relay.window.bytes, relay.window.messages, relay.window.batches) == (0, 0, 0)


async def simulate(seed: str) -> None:
    world = World(random.Random(seed))
    await world.begin()
    for _ in range(ACTS):
        await world.trouble()
    await world.end_of_trouble()
    world.check()


@pytest.mark.parametrize("chunk", range(10))
def test_every_message_arrives_once_in_order_or_is_a_dead_letter_once(chunk: int, rng: random.Random) -> None:
    """R12, B9, B23"""
    base = rng.randrange(1 << 32)
    for number in range(SEEDS // 10):
        seed = f"{base}:{chunk}:{number}"
        try:
            run(simulate(seed))
        except BaseException as error:
            error.add_note(f"simulate({seed!r})")
            raise
