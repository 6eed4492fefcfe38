"""Where a stopped bridge goes on, decided by a person: over the fakes, by what the relay then does."""

from __future__ import annotations

import itertools

import pytest

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.messages.message import Message
from bridge.relay import divergence, reposition
from bridge.relay.ports import StreamState
from bridge.relay.reposition import STARTS, Decision, Start
from bridge.relay.stays import Remembered
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.virtual_time import in_virtual_time

BRIDGE = "orders-to-hub"


class Stopped:
    """A bridge that has delivered positions 0 to 5 of 10 to `old`, and its ends now."""

    def __init__(self) -> None:
        self.journal = FakeJournal()
        self.journal.put("orders", *(Message(b"m%d" % n) for n in range(10)))
        self.stream = self.journal.logs["orders"].stream
        self.journal.settled[BRIDGE, self.stream] = Remembered(6, "old")
        self.store = FakeStore("new")

    def ends(self) -> tuple[FakeSource, FakeTarget]:
        return FakeSource(self.journal, BRIDGE), FakeTarget(self.store, BRIDGE)

    async def decide(self, start: Start) -> Decision:
        (decision,) = await reposition.decide(*self.ends(), start)
        return decision

    async def resumes_at(self) -> int | None:
        """What the bridge finds at its next start, which the witness lets pass."""
        source, target = self.ends()
        opened = await target.open(await source.streams())
        for stream in await source.streams():
            divergence.check(stream, (await source.remembered()).get(stream.identity), opened)
        await source.open(opened.streams, opened.store)
        return opened.streams[self.stream].next


@pytest.mark.parametrize(("start", "at"), [("group", 6), ("earliest", 0), ("latest", 10), ("target", 0)])
@in_virtual_time
async def test_a_target_that_knows_nothing_begins_where_it_is_told(start: Start, at: int) -> None:
    bridge = Stopped()
    with pytest.raises(TargetRefused, match="another store"):
        await bridge.resumes_at()
    decision = await bridge.decide(start)
    assert (decision.next, decision.at) == (None, at)
    assert await bridge.resumes_at() == at
    assert bridge.journal.settled[BRIDGE, bridge.stream] == Remembered(at, "new")
    assert bridge.store.bodies("orders") == []


@pytest.mark.parametrize("start", STARTS)
@in_virtual_time
async def test_decided_twice_it_changes_nothing_more(start: Start) -> None:
    bridge = Stopped()
    first = await bridge.decide(start)
    settled, stored = dict(bridge.journal.settled), bridge.store.next(BRIDGE, bridge.stream)
    again = await bridge.decide(start)
    assert first.changes
    assert not again.changes
    assert "nothing to do" in str(again)
    assert (bridge.journal.settled, bridge.store.next(BRIDGE, bridge.stream)) == (settled, stored)


@pytest.mark.parametrize("start", ["group", "earliest", "target"])
@in_virtual_time
async def test_a_stream_that_the_target_covers_is_never_moved_back(start: Start) -> None:
    bridge = Stopped()
    bridge.store.open(BRIDGE, (await bridge.ends()[0].streams())[0])
    bridge.store.positions[BRIDGE, bridge.stream].next = 8
    decision = await bridge.decide(start)
    assert (decision.next, decision.at, decision.tells_target) == (8, 8, False)
    assert "stays at 8" in str(decision)
    assert bridge.journal.settled[BRIDGE, bridge.stream] == Remembered(6, "new"), "8 is settled by its word"
    assert await bridge.resumes_at() == 8
    assert bridge.journal.recovered == [(bridge.stream, 6, 8)]


@in_virtual_time
async def test_latest_passes_over_what_a_known_stream_has_left_and_says_how_much() -> None:
    bridge = Stopped()
    bridge.store.open(BRIDGE, (await bridge.ends()[0].streams())[0])
    bridge.store.positions[BRIDGE, bridge.stream].next = 8
    decision = await bridge.decide("latest")
    assert "positions 8 to 9 are passed over and not delivered" in str(decision)
    assert await bridge.resumes_at() == 10


@in_virtual_time
async def test_earliest_accepts_that_what_the_target_asks_for_is_gone() -> None:
    """A restored target asks for 3; the source has nothing below 5."""
    bridge = Stopped()
    bridge.journal.settled[BRIDGE, bridge.stream] = Remembered(6, "new")
    bridge.store.open(BRIDGE, (await bridge.ends()[0].streams())[0])
    bridge.store.positions[BRIDGE, bridge.stream].next = 3
    for position in range(5):
        del bridge.journal.logs["orders"].messages[position]
    assert "positions 3 to 4 are gone" in str(await bridge.decide("target"))
    assert bridge.store.next(BRIDGE, bridge.stream) == 3
    await bridge.decide("earliest")
    assert bridge.store.next(BRIDGE, bridge.stream) == 5


@in_virtual_time
async def test_what_is_delivered_again_is_said_before() -> None:
    source, target = (bridge := Stopped()).ends()
    (decision,) = await reposition.plan(source, target, "earliest")
    assert "positions 0 to 5 were confirmed before and are delivered again" in str(decision)
    assert "unknown to the target" in str(decision)
    assert bridge.store.next(BRIDGE, bridge.stream) is None
    assert bridge.journal.settled[BRIDGE, bridge.stream] == Remembered(6, "old")


@in_virtual_time
async def test_who_does_not_approve_changes_nothing() -> None:
    bridge = Stopped()
    await reposition.decide(*bridge.ends(), "latest", lambda _: False)
    assert bridge.store.next(BRIDGE, bridge.stream) is None
    assert bridge.journal.settled[BRIDGE, bridge.stream] == Remembered(6, "old")


@pytest.mark.parametrize("start", STARTS)
@in_virtual_time
async def test_between_source_and_target_the_bridge_refuses_and_the_command_again_completes(
    start: Start,
) -> None:
    bridge = Stopped()
    bridge.store.not_now(1)  # the source has begun, the target takes nothing
    with pytest.raises(TargetUnavailable, match="did not take position"):
        await bridge.decide(start)
    with pytest.raises(TargetRefused, match="core-bridge positions"):
        await bridge.resumes_at()
    decision = await bridge.decide(start)
    assert await bridge.resumes_at() == decision.at


@in_virtual_time
async def test_a_bridge_that_never_ran_may_begin_at_the_end() -> None:
    bridge = Stopped()
    bridge.journal.settled.clear()
    await bridge.decide("latest")
    assert await bridge.resumes_at() == 10


@in_virtual_time
async def test_only_what_is_behind_the_decision_is_delivered() -> None:
    bridge = Stopped()
    await bridge.decide("group")
    source, target = bridge.ends()
    opened = await target.open(await source.streams())
    await source.open(opened.streams, opened.store)
    places = []
    for _ in itertools.count():
        (batch,) = await source.read()
        await target.deliver([batch])
        places += [batch.from_, batch.upto]
        if batch.upto == 10:
            break
    assert places[0] == 6
    assert bridge.store.places("orders") == [6, 7, 8, 9]
    assert opened.streams[bridge.stream] == StreamState(6, bridge.journal.run, 0, 2)
