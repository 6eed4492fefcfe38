"""A plan's part of a stream sent again: each message once, whatever happens in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from bridge.errors import Conflict, TargetUnavailable
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Origin, encode_message, pack
from bridge.messages.message import Message
from bridge.messages.positions import Runs
from bridge.messages.stream_names import is_forced, is_replay, plan_stream, planned_stream, replay_address
from bridge.relay.ports import Stream
from bridge.replay.sending import Part, Resending, Resent, Sibling, Wanted, without
from tests.fakes.ends import FakeStore, FakeTarget

PLAN = "0123456789abcdef"
STREAM = Stream("journal:i:orders:0", "orders", "orders")
BRIDGE = "orders-to-hub"


class FakePlanSource:
    """Positions 0 to `end`, less those that are gone; so many messages at a time, and a batch."""

    def __init__(self, end: int = 100, *, most: int = 4, together: int = 2) -> None:
        self.there = set(range(end))
        self.loops: set[int] = set()
        self.most = most
        self.together = together

    @property
    def store(self) -> str:
        return "store-0"

    async def stream(self, identity: str) -> Stream | None:
        return STREAM if identity == STREAM.identity else None

    async def siblings(self, stream: Stream) -> Sequence[Sibling]:
        return [Sibling(stream, 0, max(self.there, default=-1) + 1, is_whole=True)]

    async def copies(self, stream: Stream, origins: Sequence[Origin]) -> Sequence[tuple[Origin, int]]:
        return ()

    async def read(self, stream: Stream, wanted: Runs) -> Part:
        found = [place for place in run_arithmetic.positions(wanted) if place in self.there]
        chosen = found[: self.most]
        upto = chosen[-1] + 1 if len(found) > self.most else wanted[-1][1] + 1
        groups = [chosen[at : at + self.together] for at in range(0, len(chosen), self.together)]
        return Part([self._batch(stream, group) for group in groups], upto)

    def _batch(self, stream: Stream, places: Sequence[int]) -> Batch:
        runs = run_arithmetic.join((place, place) for place in places)
        block = pack([encode_message(Message(b"m%d" % place)) for place in places])
        refusals = tuple((place, "LOOP: it is") for place in places if place in self.loops)
        return Batch(
            stream.identity,
            places[0],
            places[-1] + 1,
            runs,
            block.stamped(stream.identity, runs),
            refusals=refusals,
        )

    async def close(self) -> None:
        pass


async def resend(
    source: FakePlanSource, store: FakeStore, positions: Runs, *, force: bool = False, seconds: float = 5
) -> Resent:
    wanted = Wanted(PLAN, BRIDGE, STREAM.identity, "store-1", positions, force)
    deadline_s = asyncio.get_running_loop().time() + seconds
    target = FakeTarget(store)
    try:
        return await Resending(source, target, wanted, deadline_s=deadline_s).run(STREAM)
    finally:
        await target.close()


def test_a_plans_stream_names_the_one_it_stands_for() -> None:
    for stream in ("journal:i:orders:0", "kafka:c:t:3", f"journal:i:{replay_address('b', 'a')}:7"):
        for force in (False, True):
            identity = plan_stream(stream, PLAN, force=force)
            assert (planned_stream(identity), is_forced(identity)) == (stream, force)
            assert not is_replay(identity), "it is the plan's rules that count"
        assert planned_stream(stream) is None
        assert planned_stream(f"{stream}:dead-letters") is None


async def test_exactly_what_is_wanted_is_sent_in_order_under_the_plans_stream() -> None:
    store = FakeStore()
    outcome = await resend(FakePlanSource(), store, ((3, 7), (20, 20), (50, 53)))
    assert outcome == Resent(sent=10)
    assert store.places("orders") == [3, 4, 5, 6, 7, 20, 50, 51, 52, 53]
    assert {arrived.stream for arrived in store.addresses["orders"]} == {f"{STREAM.identity}:replay:{PLAN}"}
    assert store.next(BRIDGE, STREAM.identity) is None, "the bridge's own place is not touched"
    assert all(one.upto == other.from_ for one, other in zip(store.batches, store.batches[1:], strict=False))


async def test_again_nothing_is_sent_and_forced_all_of_it_once() -> None:
    store, source = FakeStore(), FakePlanSource()
    await resend(source, store, ((3, 7),))
    assert await resend(source, store, ((3, 7),)) == Resent(earlier=5)
    assert await resend(source, store, ((3, 7),), force=True) == Resent(sent=5)
    assert await resend(source, store, ((3, 7),), force=True) == Resent(earlier=5)
    assert store.places("orders") == [3, 4, 5, 6, 7] * 2


async def test_what_is_gone_is_listed_and_covered() -> None:
    store, source = FakeStore(), FakePlanSource(end=52)
    source.there -= {4, 5, 20}
    outcome = await resend(source, store, ((3, 7), (20, 20), (50, 53)))
    assert outcome == Resent(sent=5, gone=[(4, 5), (20, 20), (52, 53)])
    assert store.next(BRIDGE, plan_stream(STREAM.identity, PLAN, force=False)) == 54
    assert await resend(source, store, ((3, 7), (20, 20), (50, 53))) == Resent(earlier=10)


async def test_nothing_is_there_any_more() -> None:
    assert await resend(FakePlanSource(end=0), FakeStore(), ((3, 7),)) == Resent(gone=[(3, 7)])


async def test_what_the_target_or_the_bridge_refuses_is_listed_and_the_rest_goes_on() -> None:
    store, source = FakeStore(), FakePlanSource()
    store.refuse(4, 7)
    source.loops = {5}
    outcome = await resend(source, store, ((3, 8),))
    assert sorted(outcome.refused) == [
        (4, "MESSAGE_TOO_LARGE: it is"), (5, "LOOP: it is"), (7, "MESSAGE_TOO_LARGE: it is"),
    ]  # fmt: skip
    assert (outcome.sent, store.places("orders")) == (3, [3, 6, 8])


async def test_a_target_that_has_no_room_now_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.replay.sending.RETRY_MS", 0)
    store = FakeStore()
    store.not_now(3)
    assert await resend(FakePlanSource(), store, ((3, 8),)) == Resent(sent=6)
    store.full.add("orders")
    with pytest.raises(TargetUnavailable, match="cannot take it now: ADDRESS_FULL"):
        await resend(FakePlanSource(), store, ((30, 31),), seconds=0)


async def test_one_call_ends_when_its_time_is_up_and_says_where() -> None:
    store, source = FakeStore(), FakePlanSource()
    wanted: Runs = ((3, 7), (50, 53))
    outcomes = []
    while wanted:
        outcomes.append(await resend(source, store, wanted, seconds=0))
        wanted = () if outcomes[-1].rest is None else run_arithmetic.from_position(wanted, outcomes[-1].rest)
    assert [(outcome.sent, outcome.rest) for outcome in outcomes] == [(4, 7), (4, 53), (1, None)]
    assert store.places("orders") == [3, 4, 5, 6, 7, 50, 51, 52, 53]


async def test_a_store_that_is_another_gets_nothing() -> None:
    store = FakeStore("store-2")
    with pytest.raises(Conflict, match=r"made for the store store-1; .* delivers to store-2 now"):
        await resend(FakePlanSource(), store, ((3, 7),))
    assert store.addresses == {}


async def test_two_at_a_time_send_each_message_once() -> None:
    store, source = FakeStore(), FakePlanSource()
    outcomes = await asyncio.gather(
        *(resend(source, store, ((3, 40),)) for _ in range(3)), return_exceptions=True
    )
    assert await resend(source, store, ((3, 40),)) is not None
    assert store.places("orders") == list(range(3, 41))
    assert all(isinstance(one, Resent | TargetUnavailable) for one in outcomes)


@pytest.mark.parametrize("seed", range(20))
async def test_cut_short_at_random_and_repeated_it_sends_each_message_once(seed: int) -> None:
    chance = random.Random(seed)
    store = FakeStore()
    wanted = run_arithmetic.join(
        (place, place) for place in sorted(chance.sample(range(100), chance.randint(1, 60)))
    )
    source = FakePlanSource(most=chance.randint(1, 20), together=chance.randint(1, 5))
    gone = set(chance.sample(range(100), 10))
    source.there -= gone
    for _ in range(100):
        store.cut_after(chance.randint(1, 4))
        try:
            outcome = await resend(source, store, wanted, seconds=chance.choice((0, 5)))
        except TargetUnavailable:
            continue
        if outcome.rest is None:
            break
    else:
        pytest.fail(f"seed {seed}: it does not end")
    assert store.places("orders") == [p for p in run_arithmetic.positions(wanted) if p not in gone]


@pytest.mark.parametrize("seed", range(50))
def test_what_is_left_without_some_runs(seed: int) -> None:
    chance = random.Random(seed)
    runs, taken = (
        run_arithmetic.join((p, p) for p in sorted(chance.sample(range(30), chance.randint(0, 25))))
        for _ in range(2)
    )
    expected = sorted(set(run_arithmetic.positions(runs)) - set(run_arithmetic.positions(taken)))
    left = without(runs, taken)
    assert list(run_arithmetic.positions(left)) == expected
    assert all(first <= last for first, last in left)
