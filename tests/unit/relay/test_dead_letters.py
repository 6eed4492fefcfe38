from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from bridge.errors import TargetUnavailable
from bridge.link import limits
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.dead_letters import (
    REMEMBERED_RUNS,
    RUNS_MOST,
    DeadLetterFailed,
    DeadLetters,
    letter,
    original,
)
from bridge.relay.ports import Receipt
from dedup.ids import Stamp
from dedup.verdict import Verdict
from tests.fakes.ends import FakeStore, FakeTarget
from tests.fakes.virtual_time import in_virtual_time

STREAM = "journal:i:orders:0"


def batch(first: int, end: int, *, from_: int | None = None) -> Batch:
    """Messages m<first>.. of the stream, stamped; the second has a producer's ID."""
    block = pack([encode_message(Message(b"m%d" % n)) for n in range(first, end)], ((1, b"mine"),))
    runs = ((first, end - 1),)
    return Batch(STREAM, first if from_ is None else from_, end, runs, block.stamped(STREAM, runs), 7)


def refused(position: int | None, reason: str = "MESSAGE_TOO_LARGE: it is") -> Receipt:
    return Receipt(STREAM, Verdict.REFUSED, 0, position, reason)


class LettersHome:
    def __init__(self) -> None:
        self.store = FakeStore("home")

    def letters(self) -> DeadLetters:
        """Those of a process that has just started."""
        return DeadLetters("orders-to-hub", "dead", lambda name: FakeTarget(self.store, name))

    @property
    def bodies(self) -> list[bytes | None]:
        return self.store.bodies("dead")


def test_a_letter_says_why_and_from_where_behind_what_the_message_had() -> None:
    message = Message(b"body", b"key", (("mine", b"1"),), 42)
    dead = letter(message, "orders-to-hub", "orders", STREAM, 17, "MESSAGE_TOO_LARGE: it is")
    assert (dead.body, dead.key, dead.timestamp) == (b"body", b"key", 42)
    assert dead.headers == (
        ("mine", b"1"),
        ("core-bridge-reason", b"MESSAGE_TOO_LARGE: it is"),
        ("core-bridge-bridge", b"orders-to-hub"),
        ("core-bridge-address", b"orders"),
        ("core-bridge-stream", STREAM.encode()),
        ("core-bridge-position", b"17"),
    )


@in_virtual_time
async def test_a_letter_keeps_the_id_that_the_message_has() -> None:
    letters_home = LettersHome()
    await letters_home.letters().store_letter(batch(0, 3), refused(2), "orders")
    await letters_home.letters().store_letter(batch(0, 3), refused(1), "orders")
    first, second = letters_home.store.batches
    assert letters_home.store.addresses["dead"][0].duplicate_id == Stamp(STREAM).text(2)
    assert first.block is not None
    assert first.block.ids == ()
    assert second.block is not None
    assert second.block.ids == ((0, b"mine"),)


@in_virtual_time
async def test_a_positions_dead_letter_is_stored_once_also_by_another_process() -> None:
    letters_home = LettersHome()
    letters = letters_home.letters()
    for _ in range(3):
        await letters.store_letter(batch(0, 9), refused(4), "orders")
        await letters_home.letters().store_letter(batch(3, 6), refused(4), "orders")
    assert letters_home.bodies == [b"m4"]


@in_virtual_time
async def test_a_position_before_one_with_a_dead_letter_has_none_yet() -> None:
    """A target that went back, or another one, may refuse what the first one took."""
    letters_home = LettersHome()
    for position in (7, 3, 5, 4, 7, 3):
        await letters_home.letters().store_letter(batch(0, 9), refused(position), "orders")
    assert letters_home.bodies == [b"m7", b"m3", b"m5", b"m4"]


@in_virtual_time
async def test_of_what_the_target_has_covered_only_the_last_runs_are_remembered() -> None:
    letters_home = LettersHome()
    positions = range(0, 2 * REMEMBERED_RUNS + 20, 2)
    for position in positions:
        await letters_home.letters().store_letter(batch(position, position + 1), refused(position), "orders")
    ((_, remembered),) = letters_home.store.positions.items()
    runs = remembered.run.split(",")
    assert len(runs) == REMEMBERED_RUNS + 1
    assert (runs[0], runs[-1]) == ("18-18", "530-530")
    assert len(letters_home.bodies) == len(positions)


@in_virtual_time
async def test_many_refusals_of_one_batch_are_remembered_as_runs() -> None:
    letters_home = LettersHome()
    for position in (0, 1, 2, 3, 8):
        await letters_home.letters().store_letter(batch(0, 9), refused(position), "orders")
    ((_, remembered),) = letters_home.store.positions.items()
    assert remembered.run == "0-3,8-8"


@in_virtual_time
async def test_streams_and_bridges_have_letters_of_their_own() -> None:
    letters_home = LettersHome()
    other = DeadLetters("another", "dead", lambda name: FakeTarget(letters_home.store, name))
    await letters_home.letters().store_letter(batch(0, 9), refused(4), "orders")
    await other.store_letter(batch(0, 9), refused(4), "orders")
    assert letters_home.bodies == [b"m4", b"m4"]


@in_virtual_time
async def test_a_full_address_fails_for_now_and_the_next_try_stores() -> None:
    letters_home = LettersHome()
    letters_home.store.not_now(1)
    with pytest.raises(DeadLetterFailed, match="ADDRESS_FULL") as raised:
        await letters_home.letters().store_letter(batch(0, 3), refused(1), "orders")
    assert not raised.value.for_good
    await letters_home.letters().store_letter(batch(0, 3), refused(1), "orders")
    assert letters_home.bodies == [b"m1"]


@in_virtual_time
async def test_a_letter_that_is_refused_itself_fails_for_good() -> None:
    letters_home = LettersHome()
    letters_home.store.refuse(0)
    with pytest.raises(DeadLetterFailed, match="MESSAGE_TOO_LARGE") as raised:
        await letters_home.letters().store_letter(batch(0, 3), refused(1), "orders")
    assert raised.value.for_good


@in_virtual_time
async def test_a_lost_answer_is_an_unavailable_target_and_the_next_try_finds_the_letter() -> None:
    letters_home = LettersHome()
    letters_home.store.cut_after(1)
    with pytest.raises(TargetUnavailable):
        await letters_home.letters().store_letter(batch(0, 3), refused(1), "orders")
    await letters_home.letters().store_letter(batch(0, 3), refused(1), "orders")
    assert letters_home.bodies == [b"m1"]


@pytest.mark.parametrize("position", [None, 3, 99])
@in_virtual_time
async def test_a_refusal_of_what_was_not_sent_stores_nothing(position: int | None) -> None:
    letters_home = LettersHome()
    with pytest.raises(DeadLetterFailed, match="not in its batch") as raised:
        await letters_home.letters().store_letter(batch(0, 3), refused(position), "orders")
    assert raised.value.for_good
    assert letters_home.bodies == []


@in_virtual_time
async def test_the_dead_letter_address_itself_has_no_dead_letters() -> None:
    """Where it is bridged, a refused letter would otherwise come back for ever."""
    letters_home = LettersHome()
    with pytest.raises(DeadLetterFailed, match="would return") as raised:
        await letters_home.letters().store_letter(batch(0, 3), refused(1), "dead")
    assert raised.value.for_good


@in_virtual_time
async def test_two_who_store_the_same_dead_letter_at_once_store_one() -> None:
    letters_home = LettersHome()
    outcomes = await asyncio.gather(
        *(letters_home.letters().store_letter(batch(0, 3), refused(1), "orders") for _ in range(5)),
        return_exceptions=True,
    )
    assert letters_home.bodies == [b"m1"]
    assert any(outcome is None for outcome in outcomes)


@in_virtual_time
async def test_one_bridge_that_stores_two_dead_letters_at_once_stores_both() -> None:
    """What the sending side refuses is stored while a receipt's refusal is: neither may hide the other."""
    letters_home = LettersHome()
    letters = letters_home.letters()
    await asyncio.gather(*(letters.store_letter(batch(0, 9), refused(n), "orders") for n in range(9)))
    assert sorted(letters_home.bodies, key=str) == [b"m%d" % n for n in range(9)]


@in_virtual_time
async def test_a_message_that_does_not_fit_leaves_its_coordinates() -> None:
    letters_home = LettersHome()
    letters_home.store.largest = 150
    block = pack([encode_message(Message(b"x" * 200, b"key", (("mine", b"1"),), 42))], ((0, b"mine"),))
    large = Batch(STREAM, 7, 8, ((7, 7),), block)
    for _ in range(2):
        await letters_home.letters().store_letter(large, refused(7), "orders")
    (arrived,) = letters_home.store.addresses["dead"]
    assert json.loads(arrived.message.whole or b"") == {
        "bridge": "orders-to-hub",
        "stream": STREAM,
        "position": 7,
        "reason": "MESSAGE_TOO_LARGE: it is",
        "size": 200,
    }
    assert dict(arrived.message.headers) == {
        "core-bridge-reduced": b"1",
        "core-bridge-reason": b"MESSAGE_TOO_LARGE: it is",
        "core-bridge-bridge": b"orders-to-hub",
        "core-bridge-address": b"orders",
        "core-bridge-stream": STREAM.encode(),
        "core-bridge-position": b"7",
    }
    last = letters_home.store.batches[-1].block
    assert last is not None
    assert last.ids == ((0, b"mine"),)


@in_virtual_time
async def test_the_way_to_where_letters_are_kept_is_let_go_after_each() -> None:
    letters_home = LettersHome()
    await letters_home.letters().store_letter(batch(0, 3), refused(1), "orders")
    assert letters_home.store.links == set()


def test_of_a_letter_only_what_was_added_last_is_taken_away() -> None:
    """A letter that was bridged on and died again has the headers twice; the loop guard's stay."""
    message = Message(b"b", None, (("core-bridge-hops", b"12345678"), ("core-bridge-reason", b"its own")), 1)
    once = letter(message, "x", "orders", STREAM, 3, "WHY: so")
    twice = letter(once, "y", "dead", STREAM, 4, "WHY: again")
    assert original(twice) == once
    assert original(once) == message


@in_virtual_time
async def test_however_many_letters_a_batch_has_what_is_remembered_fits_into_an_open() -> None:
    """Of those that the target has not covered there are fewer: `bridge.relay.dead_letters_ahead` sees to
    that.
    """
    letters_home = LettersHome()
    far = 2**50 - 3_000
    many = batch(far, far + 2_000)
    for position in range(far, far + 2 * RUNS_MOST + 40, 2):
        await letters_home.letters().store_letter(many, refused(position), "orders")
    ((_, remembered),) = letters_home.store.positions.items()
    assert len(remembered.run.split(",")) == RUNS_MOST
    assert len(remembered.run) <= limits.RUN_MOST
    assert len(letters_home.bodies) == RUNS_MOST + 20
    await letters_home.letters().store_letter(many, refused(far + 2 * RUNS_MOST), "orders")
    assert len(letters_home.bodies) == RUNS_MOST + 20, "it is known"


@in_virtual_time
async def test_a_list_that_an_older_node_cut_short_is_read_as_far_as_it_goes() -> None:
    letters_home = LettersHome()
    await letters_home.letters().store_letter(batch(0, 9), refused(4), "orders")
    ((_, remembered),) = letters_home.store.positions.items()
    remembered.run = "4-4,100-1…"
    await letters_home.letters().store_letter(batch(0, 9), refused(4), "orders")
    await letters_home.letters().store_letter(batch(0, 9), refused(6), "orders")
    assert letters_home.bodies == [b"m4", b"m6"]


class _Strict(FakeTarget):
    """Takes no producers' IDs."""

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        (one,) = batches
        if one.block is not None and one.block.ids:
            return [Receipt(one.stream, Verdict.REFUSED, 0, one.from_, "INVALID_DUPLICATE_ID: too long")]
        return await super().deliver(batches)


@in_virtual_time
async def test_a_letter_whose_id_is_refused_goes_without_it() -> None:
    """A bridge from Kafka stores them at its target, which may take shorter IDs."""
    store = FakeStore("home")
    letters = DeadLetters("k", "dead", lambda name: _Strict(store, name))
    await letters.store_letter(batch(0, 3), refused(1), "orders")
    (stored,) = store.batches
    assert stored.block is not None
    assert stored.block.ids == ()
    assert store.bodies("dead") == [b"m1"]
