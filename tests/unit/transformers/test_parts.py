"""What becomes of a batch's messages: changed, dropped, refused, cut anew."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from bridge.messages import hops
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack, pack_messages
from bridge.messages.message import Message as StoredMessage
from bridge.transformers import Message, NotNow, callers
from bridge.transformers.callers import Callers
from bridge.transformers.loading import Call
from bridge.transformers.parts import Part, TransformerOptions
from tests.harness.eventually import PATIENCE_S

HOP = hops.hop("first", "store")
OPTIONS = TransformerOptions("shop:seen", attempts=3)


def batch(*bodies: bytes, first: int = 10, lazy: bool = False) -> Batch:
    """One message at every tenth position; the first has a producer's ID."""
    runs = tuple((first + 10 * at, first + 10 * at) for at in range(len(bodies)))
    messages = [StoredMessage(body) for body in bodies]
    ids = ((0, b"mine"),)
    passed = ((len(bodies), HOP),)
    block = (
        pack_messages(messages, ids, passed)
        if lazy
        else pack([*map(encode_message, messages)], ids, (), passed)
    )
    stamped = block.stamped("s", runs)
    return Batch("s", first, runs[-1][0] + 1, runs, stamped, 77, filtered=2)


def made(call: Call, read: Batch, options: TransformerOptions = OPTIONS, given_up: bool = False) -> Part:
    return Callers("callers", lambda: call, options).part(read, "orders", lambda: given_up)


def bodies(one: Batch) -> list[bytes | None]:
    return [] if one.block is None else [message.whole for message in one.block.messages()]


def by_body(**actions: Callable[[Message], Message | None]) -> Call:
    def call(message: Message) -> Message | None:
        action = actions.get((message.body or b"").decode())
        return message if action is None else action(message)

    return call


def upper(message: Message) -> Message:
    message.body = (message.body or b"").upper()
    return message


def drop(_message: Message) -> None:
    return None


def fail(_message: Message) -> Message:
    raise ValueError("bad amount")


def test_a_changed_message_keeps_its_place_id_origin_and_hops() -> None:
    """B6, B14"""
    for lazy in (False, True):
        read = batch(b"a", b"b", b"c", lazy=lazy)
        part = made(by_body(b=upper), read)
        (one,) = part.made
        assert (bodies(one), part.rest, part.not_now) == ([b"a", b"B", b"c"], None, "")
        assert replace(one, block=None) == replace(read, block=None), "the checksum is the source's, too"
        assert read.block is not None
        assert one.block is not None
        assert (one.block.ids, one.block.origins, one.block.hops) == (
            read.block.ids, read.block.origins, read.block.hops,
        )  # fmt: skip
        assert type(one.block) is type(read.block)


def test_a_batch_of_which_nothing_changes_goes_on_as_it_is() -> None:
    read = batch(b"a", b"b")
    (one,) = made(by_body(), read).made
    assert one.block is read.block


def test_a_dropped_message_is_covered_and_counted() -> None:
    """B16"""
    (one,) = made(by_body(a=drop, c=drop), batch(b"a", b"b", b"c")).made
    assert (bodies(one), one.runs, one.dropped, one.filtered) == ([b"b"], ((20, 20),), 2, 2)
    assert (one.from_, one.upto, one.refused, one.refusals) == (10, 31, (), ())
    assert one.block is not None
    assert (one.block.ids, one.block.origins) == ((), (("s", 20, 20),))
    (none,) = made(by_body(a=drop), batch(b"a")).made
    assert (none.block, none.runs, none.dropped, (none.from_, none.upto)) == (None, (), 1, (10, 11))


def test_a_message_that_raises_at_each_try_is_refused_as_it_was_read() -> None:
    """B15"""
    tries: list[bytes | None] = []

    def raising(message: Message) -> Message:
        tries.append(message.body)
        message.body = b"half done"
        raise ValueError("bad\namount")

    (one,) = made(by_body(b=raising, c=upper), batch(b"a", b"b", b"c")).made
    assert tries == [b"b"] * 3
    assert bodies(one) == [b"a", b"b", b"C"]
    assert one.refusals == ((20, "TRANSFORMER_FAILED: shop:seen: ValueError: bad amount; tries: 3"),)


def test_an_error_without_a_text_refuses_its_message_as_any_other() -> None:
    class Untellable(Exception):
        def __str__(self) -> str:
            raise ValueError("not even that")

        __repr__ = __str__

    class Odd:
        __repr__ = Untellable.__str__

    def raises(_message: Message) -> Message:
        raise Untellable

    def sets_odd_header(message: Message) -> Message:
        message.headers = [Odd()]  # type: ignore[list-item]
        return message

    (one,) = made(by_body(a=raises, c=sets_odd_header), batch(b"a", b"b", b"c")).made
    assert bodies(one) == [b"a", b"b", b"c"]
    assert one.refusals == (
        (
            10,
            "TRANSFORMER_FAILED: shop:seen: Untellable: its text cannot be shown (ValueError); tries: 3",
        ),
        (30, "TRANSFORMER_FAILED: shop:seen: ValueError: not even that; tries: 3"),
    )


def test_a_wait_without_a_text_holds_the_stream_as_any_other() -> None:
    class Untellable(NotNow):
        def __str__(self) -> str:
            raise ValueError("not even that")

    def down(_message: Message) -> Message:
        raise Untellable

    part = made(by_body(b=down), batch(b"a", b"b"))
    assert part.not_now.endswith("position 20: Untellable: its text cannot be shown (ValueError)")


def test_one_that_raises_less_often_goes_on() -> None:
    raised: list[None] = []

    def twice(message: Message) -> Message:
        if len(raised) < 2:
            raised.append(None)
            raise SystemExit(3)
        return upper(message)

    (one,) = made(by_body(a=twice), batch(b"a")).made
    assert (bodies(one), one.refusals) == ([b"A"], ())


def test_what_is_no_message_counts_as_raising() -> None:
    call: Call = by_body(a=lambda _message: "text")  # type: ignore[arg-type, return-value]
    (one,) = made(call, batch(b"a", b"b")).made
    assert one.refusals[0][1].endswith(
        "TypeError: a transformer returns a Message or None; found str; tries: 3"
    )


def test_an_earlier_refusal_stays_and_its_message_is_not_shown() -> None:
    called: list[bytes | None] = []

    def noting(message: Message) -> Message:
        called.append(message.body)
        return message

    looped = replace(batch(b"a", b"b"), refusals=((10, "LOOP: x"),))
    (one,) = made(noting, looped).made
    assert (called, one.refusals) == ([b"b"], ((10, "LOOP: x"),))


def test_one_that_cannot_work_now_leaves_the_message_and_what_follows() -> None:
    def down(_message: Message) -> Message:
        raise NotNow("rates are down")

    part = made(by_body(a=upper, b=down), batch(b"a", b"b", b"c"))
    (one,) = part.made
    assert (bodies(one), (one.from_, one.upto), one.checksum) == ([b"A"], (10, 20), 0)
    assert part.rest is not None
    assert (bodies(part.rest), (part.rest.from_, part.rest.upto)) == ([b"b", b"c"], (20, 31))
    assert part.not_now == ("TRANSFORMER_NOT_NOW: shop:seen at orders position 20: NotNow: rates are down")
    first = made(by_body(a=down), batch(b"a", b"b"))
    assert (first.made, first.rest == batch(b"a", b"b")) == ([], True)


def test_grown_messages_are_cut_into_batches_anew() -> None:
    def grow(message: Message) -> Message:
        message.body = (message.body or b"") * 400
        return message

    options = replace(OPTIONS, batch_bytes=1000, large_bytes=5000)
    read = batch(*(b"%d" % number for number in range(10)))
    found: list[Batch] = []
    rest = read
    them = Callers("callers", lambda: grow, options)
    while True:
        part = them.part(rest, "orders", lambda: False)
        found += part.made
        if part.rest is None:
            break
        rest = part.rest
    assert [len(bodies(one)) for one in found] == [2, 2, 2, 2, 2]
    assert [body for one in found for body in bodies(one)] == [b"%d" % n * 400 for n in range(10)]
    ends = [(one.from_, one.upto) for one in found]
    assert (ends[0][0], ends[-1][1]) == (read.from_, read.upto)
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(ends))
    assert (found[-1].checksum, found[-1].filtered) == (77, 2)


def test_a_message_that_has_become_large_travels_alone() -> None:
    def large(message: Message) -> Message:
        message.body = bytes(5000)
        return message

    part = made(by_body(b=large), batch(b"a", b"b", b"c"), replace(OPTIONS, large_bytes=5000))
    assert [len(bodies(one)) for one in part.made] == [1, 1, 1]


def test_a_slow_one_gives_back_what_it_has_and_one_that_is_given_up_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(callers, "PART_S", 0.0)
    go_on = threading.Event()

    def slow(message: Message) -> Message:
        go_on.wait(PATIENCE_S)
        return upper(message)

    read = batch(b"a", b"b", b"c")
    part = made(by_body(a=upper, b=slow), read)
    assert ([bodies(one) for one in part.made], part.rest is not None) == ([[b"A"]], True)
    go_on.set()
    given_up = made(by_body(a=upper), read, given_up=True)
    assert (given_up.made, given_up.rest) == ([], read)


def test_the_id_is_the_producers_or_the_stamp_or_the_one_that_it_came_with() -> None:
    seen: list[bytes | None] = []

    def noting(message: Message) -> Message:
        seen.append(message.duplicate_id)
        return message

    read = batch(b"a", b"b")
    carried = StoredMessage(b"c", headers=(("_AMQ_DUPL_ID", b"stamped before"),))
    block = pack_messages([StoredMessage(b"a"), StoredMessage(b"b"), carried], ((0, b"mine"),))
    runs = ((10, 12),)
    read = Batch("s", 10, 13, runs, block.stamped("s", runs))
    made(noting, read)
    assert (seen[0], seen[2]) == (b"mine", b"stamped before")
    assert seen[1] is not None
    assert len(seen[1]) == 36
