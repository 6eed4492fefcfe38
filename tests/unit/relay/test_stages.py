"""What stages make of batches."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bridge.messages import hops, value_runs
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.dead_letters import DeadLetters
from bridge.relay.lifecycle import Command
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.relay.stages import LoopGuard, Stage, staged
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.one_lane import OneLane
from tests.fakes.virtual_time import VirtualClock, in_virtual_time

OWN, OTHER = hops.hop("first", "store"), hops.hop("second", "store")
GUARD = LoopGuard("first", 2, lambda: "store")


def batch(*passed: bytes) -> Batch:
    """Messages with these hops, at the positions 10, 20, ..."""
    runs = tuple((10 * number, 10 * number) for number in range(1, len(passed) + 1))
    taken = value_runs.joined((1, one) for one in passed)
    block = pack([encode_message(Message(b"m"))] * len(passed), hops=taken)
    return Batch("s", 10, 10 * len(passed) + 1, runs, block)


def hops_of(one: Batch) -> list[bytes]:
    assert one.block is not None
    return [value for count, value in one.block.hops for _ in range(count)]


def test_each_message_takes_the_hop_of_the_bridge_from_its_store() -> None:
    guarded = GUARD(batch(b"", OTHER), "orders")
    assert hops_of(guarded) == [OWN, OTHER + OWN]
    assert guarded.refusals == ()
    assert hops_of(LoopGuard("first", 2, lambda: "another")(batch(b""), "orders")) == [
        hops.hop("first", "another")
    ]


def test_a_message_that_may_not_take_it_is_refused_by_position() -> None:
    refusals = GUARD(batch(b"", OWN, OTHER, OTHER + OTHER), "orders").refusals
    assert [(place, reason.partition(":")[0]) for place, reason in refusals] == [
        (20, "LOOP"),
        (40, "TOO_MANY_HOPS"),
    ]


def test_earlier_refusals_stay_and_a_loop_says_more_than_they_do() -> None:
    earlier = replace(
        batch(b"", OWN, b""), refusals=((20, "INVALID_DUPLICATE_ID: x"), (30, "INVALID_DUPLICATE_ID: x"))
    )
    refusals = GUARD(earlier, "orders").refusals
    assert [(place, reason.partition(":")[0]) for place, reason in refusals] == [
        (20, "LOOP"),
        (30, "INVALID_DUPLICATE_ID"),
    ]


def test_coverage_alone_goes_through_as_it_is() -> None:
    alone = Batch("s", 10, 20)
    assert GUARD(alone, "orders") is alone


def test_stages_follow_each_other() -> None:
    def named(name: str) -> Stage:
        return lambda one, _address: replace(one, refusals=(*one.refusals, (10, name)))

    assert staged(batch(b""), [named("a"), named("b")], "orders").refusals == ((10, "a"), (10, "b"))


@in_virtual_time
async def test_what_a_stage_takes_out_is_covered_and_what_it_refuses_is_a_dead_letter() -> None:
    journal, store, home = FakeJournal(), FakeStore(), FakeStore("home")
    journal.put("orders", *(Message(b"m%d" % number) for number in range(9)))

    def without_the_first(one: Batch, _address: str) -> Batch:
        first = {place for place, _ in one.runs if place == 0}
        return replace(one.without(first), refused=()) if first else one

    def refusing_the_fifth(one: Batch, _address: str) -> Batch:
        fifth = [place for place, last in one.runs if place <= 4 <= last]
        return replace(one, refusals=((4, "NO_ROUTE: to nowhere"),)) if fifth else one

    relay = OneLane(
        RelayOptions("out"),
        LaneEnds(
            FakeSource(journal, "out"),
            FakeTarget(store, "out"),
            DeadLetters("out", "dead-letters", lambda name: FakeTarget(home, name)),
        ),
        clock=VirtualClock(),
        stages=(without_the_first, refusing_the_fifth),
    )
    await relay.command(Command.START)
    while journal.backlog("out", "orders"):  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.001)
    await relay.command(Command.STOP)
    assert store.bodies("orders") == [b"m1", b"m2", b"m3", b"m5", b"m6", b"m7", b"m8"]
    assert home.bodies("dead-letters") == [b"m4"]
    assert relay.counts.refused == 1
