"""The filter of a bridge: what its stage leaves out, and what becomes of the positions."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from bridge.messages import hops
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack, pack_messages
from bridge.messages.message import Message
from bridge.relay import pump
from bridge.relay.filtering import (
    DOUBTED_AFTER,
    NAME_CHARS_SHOWN,
    NAMES_SHOWN,
    FilterRecord,
    FilterStage,
    filter_doubt,
)
from bridge.relay.lifecycle import Command
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.relay.stages import LoopGuard, Stage, filter_stage, staged
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget
from tests.fakes.one_lane import OneLane
from tests.fakes.virtual_time import VirtualClock, in_virtual_time

OWN = hops.hop("first", "store")
GUARD = LoopGuard("first", 8, lambda: "store")
GOATS = "animal = 'goat'"


def stage(condition: str, record: FilterRecord | None = None) -> FilterStage:
    found = filter_stage(condition, record)
    assert found is not None
    return found


def animal(name: str, body: bytes = b"") -> Message:
    return Message(body or name.encode(), headers=(("animal", name.encode()),))


def batch(*animals: str, first: int = 10) -> Batch:
    """One message at every tenth position; the source's checksum is of the last."""
    runs = tuple((first + 10 * at, first + 10 * at) for at in range(len(animals)))
    encoded = [encode_message(animal(one)) for one in animals]
    return Batch("s", first, runs[-1][0] + 1, runs, pack(encoded), zlib.crc32(encoded[-1]))


def bodies(one: Batch) -> list[bytes | None]:
    return [] if one.block is None else [message.whole for message in one.block.messages()]


def test_what_the_condition_rejects_is_covered_and_carried_by_nothing() -> None:
    """B4"""
    read = batch("goat", "monkey", "goat", "monkey")
    made = stage(GOATS)(read, "orders")
    assert (bodies(made), made.runs) == ([b"goat", b"goat"], ((10, 10), (30, 30)))
    assert (made.from_, made.upto, made.checksum) == (read.from_, read.upto, read.checksum)
    assert (made.filtered, made.not_evaluated, made.refused) == (2, 0, ())


def test_a_batch_that_is_taken_whole_stays_the_one_that_was_read() -> None:
    read = batch("goat", "goat")
    assert stage(GOATS)(read, "orders") is read


def test_of_a_batch_that_is_rejected_whole_the_coverage_is_left() -> None:
    made = stage(GOATS)(batch("monkey", "ape"), "orders")
    assert (made.block, made.runs, made.filtered, (made.from_, made.upto)) == (None, (), 2, (10, 21))


def test_origins_ids_and_hops_stay_with_their_messages() -> None:
    block = pack_messages(
        [animal("monkey"), animal("goat"), animal("goat")],
        ids=((0, b"a"), (2, b"c")),
        hops=((1, b""), (2, OWN)),
    )
    made = stage(GOATS)(Batch("s", 5, 8, ((5, 7),), block.stamped("s", ((5, 7),))), "orders")
    assert made.block is not None
    assert (made.block.ids, made.block.origins, made.block.hops) == (
        ((1, b"c"),),
        (("s", 6, 7),),
        ((2, OWN),),
    )


def test_the_address_is_the_one_that_the_message_came_from() -> None:
    condition = stage("AMQAddress = 'orders' AND AMQDuplicateId = 'a'")
    read = Batch("s", 0, 2, ((0, 1),), pack_messages([animal("goat")] * 2, ids=((1, b"a"),)))
    assert condition(read, "orders").runs == ((1, 1),)
    assert condition(read, "invoices").runs == ()


def test_what_the_filter_leaves_out_is_refused_by_nobody() -> None:
    """It stands before the loop guard, and behind what the source finds wrong."""
    read = batch("monkey", "goat", "monkey", "goat")
    assert read.block is not None
    looped = replace(
        read,
        block=read.block.hopped(((2, OWN), (2, b""))),
        refusals=((30, "INVALID_DUPLICATE_ID: x"), (40, "INVALID_DUPLICATE_ID: x")),
    )
    made = staged(looped, (stage(GOATS), GUARD), "orders")
    assert [(place, reason.partition(":")[0]) for place, reason in made.refusals] == [
        (20, "LOOP"),
        (40, "INVALID_DUPLICATE_ID"),
    ]
    assert made.block is not None
    assert [value for _, value in made.block.hops] == [OWN + OWN, OWN]


def test_a_condition_that_cannot_be_evaluated_takes_no_message_and_is_counted() -> None:
    condition = stage("animal - 1 = 4")
    made = condition(batch("goat", "goat"), "orders")
    assert (made.runs, made.filtered, made.not_evaluated) == ((), 2, 2)
    again = condition(batch("goat"), "orders")
    assert (again.filtered, again.not_evaluated) == (1, 1)


def test_the_count_stays_with_the_end_of_a_batch_that_is_divided() -> None:
    made = stage(GOATS)(batch("goat", "monkey", "goat"), "orders")
    assert (made.until(20).filtered, made.after(20).filtered) == (0, 1)


# ---------------------------------------------------------------- in a relay


class Way:
    """A bridge with stages between fakes."""

    def __init__(
        self, *stages: Stage, most: int = 3, window: int = 1 << 20, copy_of: Way | None = None
    ) -> None:
        self.journal: FakeJournal = FakeJournal() if copy_of is None else copy_of.journal.copy()
        self.store: FakeStore = FakeStore() if copy_of is None else copy_of.store
        self.journal.make("orders")
        self.relay = OneLane(
            RelayOptions("out", confirmation_window_size=window),
            LaneEnds(FakeSource(self.journal, "out", most=most), FakeTarget(self.store, "out")),
            clock=VirtualClock(),
            stages=stages,
        )

    def put(self, *animals: str) -> None:
        self.journal.put("orders", *map(animal, animals))

    @property
    def backlog(self) -> int:
        return len(self.journal.backlog("out", "orders"))

    @property
    def counted(self) -> tuple[int, int, int]:
        counts = self.relay.counts
        return counts.sent, counts.acknowledged, counts.filtered


async def a_moment() -> None:
    await asyncio.sleep(0.001)


@in_virtual_time
async def test_ten_goats_behind_ten_monkeys_arrive_in_order_and_nothing_is_left() -> None:
    """B4"""
    way = Way(stage(GOATS), GUARD)
    way.put(*["monkey"] * 10, *["goat"] * 10)
    await way.relay.command(Command.START)
    await a_moment()
    assert way.store.bodies("orders") == [b"goat"] * 10
    assert way.store.places("orders") == list(range(10, 20))
    assert (way.counted, way.backlog) == ((10, 10, 10), 0)
    await way.relay.command(Command.STOP)


@in_virtual_time
async def test_rejected_messages_are_covered_in_time_and_at_the_stop() -> None:
    """Design rule 1: lag, settlement and trimming follow."""
    way = Way(stage(GOATS), GUARD)
    way.put(*["monkey"] * 4)
    await way.relay.command(Command.START)
    await asyncio.sleep(pump.COVERAGE_INTERVAL_MS / 1000 - 0.1)
    assert (way.counted, way.backlog) == ((0, 0, 0), 4)
    await asyncio.sleep(0.2)
    assert (way.counted, way.backlog) == ((0, 0, 4), 0)
    way.put(*["monkey"] * 2)
    await a_moment()
    await way.relay.command(Command.STOP)
    assert (way.counted, way.backlog) == ((0, 0, 6), 0)
    assert way.store.bodies("orders") == []


@in_virtual_time
async def test_rejected_messages_are_covered_in_time_though_each_connection_ends_sooner() -> None:
    way = Way(stage(GOATS), GUARD)
    way.put(*["monkey"] * 4)
    await way.relay.command(Command.START)
    for _ in range(3):
        await asyncio.sleep(0.3 * pump.COVERAGE_INTERVAL_MS / 1000)
        way.store.cut()
    assert way.backlog == 4
    await asyncio.sleep(0.3 * pump.COVERAGE_INTERVAL_MS / 1000)
    assert (way.counted, way.backlog) == ((0, 0, 4), 0)
    await way.relay.command(Command.STOP)


@in_virtual_time
async def test_two_copies_of_a_node_cover_what_both_have_rejected_instead_of_fencing_each_other() -> None:
    """A fenced link learns it with what it sends: each sent its coverage ten seconds after it had opened, and
    the other had opened since.
    """
    way = Way(stage(GOATS), GUARD)
    way.put(*["monkey"] * 4)
    other = Way(stage(GOATS), GUARD, copy_of=way)
    for each in (way, other):
        await each.relay.command(Command.START)
        await asyncio.sleep(0.5 * pump.COVERAGE_INTERVAL_MS / 1000)
    await asyncio.sleep(3 * pump.COVERAGE_INTERVAL_MS / 1000)
    assert (way.backlog, other.backlog) == (0, 0)
    for each in (way, other):
        await each.relay.command(Command.STOP)


@in_virtual_time
async def test_much_that_is_rejected_is_covered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill its address: a limit of a few MiB would be a limit for each ten seconds."""
    monkeypatch.setattr(pump, "COVERAGE_BYTES", 500)
    way = Way(stage(GOATS), GUARD, most=1)
    await way.relay.command(Command.START)
    for _ in range(100):
        way.put("monkey")
        await a_moment()
    assert 0 <= way.backlog < 50
    assert 2 <= len(way.store.batches) < 25
    assert way.counted[2] + way.backlog == 100
    await way.relay.command(Command.STOP)


@in_virtual_time
async def test_a_rejected_message_counts_once_however_often_it_is_read() -> None:
    """Receipts are lost twice: once of a batch that the target took, once of one that it did not."""
    way = Way(stage(GOATS), GUARD, most=4)
    way.put("goat", "monkey")
    await way.relay.command(Command.START)
    await a_moment()
    assert way.counted == (1, 1, 1)
    way.store.delay_receipts(0.1)
    way.put("monkey", "goat", "monkey")
    await a_moment()
    way.store.cut()
    way.store.delay_receipts(0)
    way.put("monkey", "goat")
    await asyncio.sleep(5)
    assert way.store.bodies("orders") == [b"goat"] * 3
    assert way.relay.counts.reconnects >= 1
    assert (way.counted[1:], way.backlog) == ((3, 4), 0)
    await way.relay.command(Command.STOP)


@in_virtual_time
async def test_what_could_not_be_evaluated_is_logged_once_and_counted() -> None:
    """Artemis's AMQ224006 comes with each message."""
    way = Way(stage("animal - 1 = 4"), GUARD, most=2)
    way.put(*["goat"] * 6)
    with capture_logs() as logs:
        await way.relay.command(Command.START)
        await a_moment()
        await way.relay.command(Command.STOP)
    (event,) = [one for one in logs if one["event"] == "filter-not-evaluated"]
    assert (event["bridge"], event["address"], event["positions"], event["count"]) == (
        "out", "orders", [0, 2], 2,
    )  # fmt: skip
    assert (way.relay.counts.filtered, way.relay.counts.not_evaluated) == (6, 6)


def ask(filters: Sequence[FilterStage], *animals: str) -> None:
    for number, name in enumerate(animals):
        filters[number % len(filters)](batch(name), "orders")


def test_a_name_that_no_message_has_is_told_once_the_first_messages_are_there() -> None:
    record = FilterRecord()
    lanes = [stage("animal = 'goat' OR amout > 5", record)]
    ask(lanes, *["goat"] * (DOUBTED_AFTER - 1))
    assert (record.first_doubt(), record.missing) == ("", {"amout"})
    ask(lanes, "goat")
    assert record.first_doubt() == f"the filter names what none of {DOUBTED_AFTER} messages has: amout"
    assert record.first_doubt() == "", "told once"
    assert filter_doubt(record.examined, record.taken, record.shown_missing()) != ""
    # The doubt ends where a message has the name.
    lanes[0](
        Batch("s", 5, 6, ((5, 5),), pack([encode_message(Message(b"", headers=(("amout", b"1"),)))])), "a"
    )
    assert filter_doubt(record.examined, record.taken, record.shown_missing()) == ""


def test_a_filter_that_takes_nothing_is_told_for_all_lanes_together() -> None:
    record = FilterRecord()
    lanes = [stage(GOATS, record), stage(GOATS, record)]
    ask(lanes, *["monkey"] * DOUBTED_AFTER)
    assert record.first_doubt() == f"the filter took none of {DOUBTED_AFTER} messages"
    both = FilterRecord()
    lanes = [stage("amout > 5 AND animal = 'goat'", both), stage("amout > 5 AND animal = 'goat'", both)]
    ask(lanes, *["monkey", "goat"] * DOUBTED_AFTER)
    assert both.missing == {"amout"}
    assert both.first_doubt() == (
        f"the filter took none of {2 * DOUBTED_AFTER} messages and names what none of {2 * DOUBTED_AFTER} "
        "messages has: amout"
    )


def test_a_filter_in_use_is_not_doubted() -> None:
    record = FilterRecord()
    used = stage("ANIMAL = 'goat' AND AMQSize > 0 AND AMQAddress = 'orders' AND AMQPriority = 4", record)
    ask([used], "goat", *["monkey"] * DOUBTED_AFTER)
    assert (record.examined, record.taken, record.missing) == (DOUBTED_AFTER + 1, 1, set())
    assert record.first_doubt() == ""


def test_long_and_many_names_are_cut_off_where_they_are_shown() -> None:
    record = FilterRecord()
    stage(" AND ".join(f"{'x' * 200}{number} = 1" for number in range(100)), record)
    assert record.shown_missing() == {"x" * NAME_CHARS_SHOWN}
    stage(" AND ".join(f"x{number} = 1" for number in range(100)), few := FilterRecord())
    assert len(few.shown_missing()) == NAMES_SHOWN


@in_virtual_time
async def test_a_filter_that_takes_nothing_is_logged_once() -> None:
    way = Way(stage(GOATS), GUARD, most=100)
    way.put(*["monkey"] * (2 * DOUBTED_AFTER))
    with capture_logs() as logs:
        await way.relay.command(Command.START)
        await a_moment()
        await way.relay.command(Command.STOP)
    (event,) = [one for one in logs if one["event"] == "filter-doubtful"]
    assert (event["bridge"], event["examined"], event["taken"], event["missing"]) == (
        "out",
        DOUBTED_AFTER,
        0,
        [],
    )
    assert event["reason"] == f"the filter took none of {DOUBTED_AFTER} messages"


@in_virtual_time
async def test_another_condition_acts_from_the_next_message_on() -> None:
    """Design, change of mind: what was passed over stays passed over."""
    way = Way(stage(GOATS), GUARD)
    way.put("goat", "monkey")
    await way.relay.command(Command.START)
    await a_moment()
    await way.relay.command(Command.STOP)
    relay = OneLane(
        RelayOptions("out"),
        LaneEnds(FakeSource(way.journal, "out"), FakeTarget(way.store, "out")),
        clock=VirtualClock(),
        stages=(stage("animal = 'monkey'"), GUARD),
    )
    way.put("goat", "monkey")
    await relay.command(Command.START)
    await a_moment()
    await relay.command(Command.STOP)
    assert way.store.places("orders") == [0, 3]
