"""Chance against a bridge with several connectors: whatever goes, comes back, is cut, restarted or put back
from a backup, each message arrives, and twice only within the ranges that were logged as in doubt.

Fakes in virtual time, as in `tests.property.test_relay`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from structlog.testing import capture_logs

from bridge.messages.message import Message
from bridge.relay.backoff import Backoff
from bridge.relay.connectors import Connector
from bridge.relay.lifecycle import Command, State
from bridge.relay.relay import LaneEnds, RelayOptions
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore
from tests.fakes.one_lane import OneLane
from tests.fakes.virtual_time import VirtualClock, run
from tests.harness.eventually import until
from tests.harness.rounds import rounds
from tests.property.test_relay import LateStore, LateTarget

BRIDGE = "orders-to-hub"
ADDRESSES = ("orders", "invoices")
STORES = ("store-a", "store-b", "store-c")
#: Runs of the simulation in one test run, 100 unless the profile says otherwise; acts of trouble in each.
SEEDS = rounds(100)
#: Those with stores that are put back.
SEEDS_WITH_BACKUPS = rounds(30)
ACTS = 30
TROUBLES = ("put", "put", "put", "cut", "down", "down", "restart", "failback")
#: The same with stores that are put back from backups.
WITH_BACKUPS = (*TROUBLES, "back up", "back up", "put back", "put back")
#: Of virtual time: until then everything must have arrived once the trouble is over.
LONGEST_S = 120


@dataclass
class World:
    """One journal, three stores, and a bridge with a connector to each."""

    rng: random.Random
    troubles: Sequence[str] = TROUBLES
    journal: FakeJournal = field(default_factory=FakeJournal)

    def __post_init__(self) -> None:
        self.stores = [LateStore(self.rng) for _ in STORES]
        for store, name in zip(self.stores, STORES, strict=True):
            store.identity = name
        self.fail_back = self.rng.random() < 0.3
        self.backups: dict[str, FakeStore] = {}

    async def begin(self) -> None:
        source = FakeSource(self.journal)
        source.most = lambda: self.rng.randint(1, 7)
        options = RelayOptions(
            BRIDGE,
            Backoff(50, 2.0, 400),
            reconnect_attempts_same_node=self.rng.choice((0, 0, 2, 10)),
            fail_back=self.fail_back,
            changes_store=True,
            confirmation_window_size=self.rng.choice((1, 60, 1 << 20)),
            pending_ack_timeout_ms=self.rng.choice((0, 100, 1000)),
        )
        first, *others = [Connector(store.identity, LateTarget(store)) for store in self.stores]
        ends = LaneEnds(source, first.target, connector=first.name, failovers=others)
        self.relay = OneLane(options, ends, clock=VirtualClock())
        await self.relay.command(Command.START)

    def put(self) -> None:
        first = self.journal.sequence
        values = [b"%d" % (first + index) for index in range(self.rng.randint(1, 12))]
        self.journal.put(self.rng.choice(ADDRESSES), *map(Message, values))

    async def trouble(self) -> None:
        rng = self.rng
        store = rng.choice(self.stores)
        match rng.choice(self.troubles):
            case "put":
                self.put()
            case "cut":
                store.cut()
            case "down":
                store.down = not store.down
                store.cut()
            case "restart":
                await self.relay.command(Command.STOP)
                await self.begin()
            case "failback":
                await self.relay.command(Command.FAILBACK)
            case "back up":
                self.backups[store.identity] = store.backup()
            case "put back" if store.identity in self.backups:
                store.cut()
                await asyncio.gather(*store.on_the_wire)
                if _known(store) == _known(self.backups[store.identity]):  # else the bridge refuses it
                    store.restore(self.backups[store.identity])
        await asyncio.sleep(rng.choice((0, 0, 0.001, 0.05, 0.5)))

    async def end_of_trouble(self) -> None:
        for store in self.stores:
            store.down = False
        await self._everything_is_settled()
        # What a store lacks is noticed when the bridge comes back to it.
        for last in self.stores if self.backups else ():
            for store in self.stores:
                store.down = store is not last
                if store.down:
                    store.cut()
            await until(lambda last=last: self._is_at(last), f"it is at {last.identity}", LONGEST_S, 0.1)  # type: ignore[misc]
            await self._everything_is_settled()
        await self.relay.command(Command.STOP)
        await asyncio.gather(*(wire for store in self.stores for wire in store.on_the_wire))

    async def _everything_is_settled(self) -> None:
        def is_settled() -> bool:
            return not any(self.journal.backlog(BRIDGE, address) for address in self.journal.logs)

        await until(is_settled, "everything is settled", LONGEST_S, 0.1)

    def _is_at(self, store: LateStore) -> bool:
        return self.relay.state is State.RUNNING and self.relay.store == store.identity

    def check(self, log: Iterable[Mapping[str, Any]]) -> list[int]:
        """Check what has arrived against the log; answers the positions that are there more than once."""
        assert self.relay.state is State.STOPPED, self.relay.reason
        in_doubt = [entry for entry in log if entry["event"] == "failover-in-doubt"]
        doubled: list[int] = []
        for address, sent in self.journal.logs.items():
            places = [store.places(address) for store in self.stores]
            assert all(one < other for some in places for one, other in pairwise(some)), "in order"
            counted = Counter(place for some in places for place in some)
            assert counted.keys() == sent.messages.keys()
            ranges = [(one["from"], one["upto"]) for one in in_doubt if one["stream"] == sent.stream]
            for place in (place for place, times in counted.items() if times > 1):
                assert any(first <= place < end for first, end in ranges), f"{sent.stream} {place}: {ranges}"
                doubled.append(place)
        return doubled


def _known(store: FakeStore) -> set[tuple[str, str]]:
    """The streams of which a store covers something."""
    return {key for key, position in store.positions.items() if position.next is not None}


async def simulate(
    seed: str, doubled: list[int], troubles: Sequence[str] = TROUBLES, went_back: list[str] | None = None
) -> None:
    """Run one history. `went_back` gets a store each time that it lacked what it had confirmed."""
    with capture_logs() as log:
        world = World(random.Random(seed), troubles)
        await world.begin()
        for _ in range(ACTS):
            await world.trouble()
        await world.end_of_trouble()
    doubled += world.check(log)
    if went_back is not None:
        went_back += [entry["store"] for entry in log if entry["event"] == "target-went-back"]


def test_every_message_arrives_and_is_doubled_only_where_the_log_says_so(rng: random.Random) -> None:
    """R22"""
    base, doubled = rng.randrange(1 << 32), list[int]()
    for number in range(SEEDS):
        seed = f"{base}:{number}"
        try:
            run(simulate(seed, doubled))
        except BaseException as error:
            error.add_note(f"simulate({seed!r})")
            raise
    assert doubled, "the simulation shows nothing"


def test_what_a_store_lost_that_was_put_back_comes_again_and_nothing_else(rng: random.Random) -> None:
    base, doubled, went_back = rng.randrange(1 << 32), list[int](), list[str]()
    for number in range(SEEDS_WITH_BACKUPS):
        seed = f"{base}:{number}"
        try:
            run(simulate(seed, doubled, WITH_BACKUPS, went_back))
        except BaseException as error:
            error.add_note(f"simulate({seed!r}, [], WITH_BACKUPS)")
            raise
    assert went_back, "the simulation shows nothing"
