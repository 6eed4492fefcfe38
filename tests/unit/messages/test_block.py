"""Blocks against the plain list of messages that they stand for."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.messages import block
from bridge.messages.block import Block
from bridge.messages.message import Message

STREAM = "journal:4f1c:orders:0"

headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
messages = st.builds(
    Message,
    body=st.none() | st.binary(max_size=40),
    key=st.none() | st.binary(max_size=5),
    headers=headers,
    timestamp=st.integers(-1, 2**53),
)


@dataclass(frozen=True)
class Entry:
    """One message of the model: what it is, its producer's ID, where it was first stored."""

    message: Message
    duplicate_id: bytes | None
    origin: tuple[str, int] | None


def entries_of(some: Block) -> list[Entry]:
    """What a block says, message by message."""
    ids = dict(some.ids)
    origins = [
        (stream, position) for stream, first, last in some.origins for position in range(first, last + 1)
    ]
    return [
        Entry(message, ids.get(index), origins[index] if origins else None)
        for index, message in enumerate(some.messages())
    ]


def block_of(entries: list[Entry]) -> Block:
    origins = [(*entry.origin, entry.origin[1]) for entry in entries if entry.origin is not None]
    return block.pack(
        [block.encode_message(entry.message) for entry in entries],
        tuple(
            (index, entry.duplicate_id)
            for index, entry in enumerate(entries)
            if entry.duplicate_id is not None
        ),
        block.join_origins(origins),
    )


def fresh_block_of(entries: list[Entry]) -> Block:
    """The same, of messages that nobody has encoded yet."""
    packed = block_of(entries)
    return block.FreshBlock([entry.message for entry in entries], packed.ids, packed.origins)


@st.composite
def model_blocks(draw: st.DrawFn, *, stamped: bool | None = None) -> list[Entry]:
    chosen = draw(
        st.lists(st.tuples(messages, st.none() | st.binary(min_size=1, max_size=8)), min_size=1, max_size=8)
    )
    with_origins = draw(st.booleans()) if stamped is None else stamped
    position = draw(st.integers(0, 100))
    entries = []
    for message, duplicate_id in chosen:
        stream = draw(st.sampled_from([STREAM, "journal:77aa:orders:0"]))
        position += draw(st.integers(1, 3))
        entries.append(Entry(message, duplicate_id, (stream, position) if with_origins else None))
    return entries


def same_shape(one: Block, other: Block) -> bool:
    """Equal in everything that is derived from the messages."""
    return (one.count, one.body, one.largest, one.checksum) == (
        other.count,
        other.body,
        other.largest,
        other.checksum,
    )


@given(model_blocks())
def test_a_block_gives_back_what_was_packed(entries: list[Entry]) -> None:
    packed = block_of(entries)
    encoded = [block.encode_message(entry.message) for entry in entries]
    assert entries_of(packed) == entries
    assert packed.count == len(entries)
    assert len(packed.body) == 5 + sum(map(len, encoded))
    assert packed.size == len(packed.body) + sum(len(value) for _, value in packed.ids)
    assert packed.largest == max(map(len, encoded))
    assert packed.checksum == zlib.crc32(encoded[-1])
    assert msgspec.msgpack.decode(packed.body, type=list[Message]) == [entry.message for entry in entries]


@given(model_blocks(), st.data())
def test_a_part_is_the_block_that_its_messages_alone_would_make(
    entries: list[Entry], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(entries) - 1))
    stop = data.draw(st.integers(start + 1, len(entries)))
    part = block_of(entries).part(start, stop)
    assert entries_of(part) == entries[start:stop]
    assert same_shape(part, block_of(entries[start:stop]))


@given(model_blocks(), st.data())
def test_leaving_messages_out_keeps_the_ids_and_origins_of_the_others(
    entries: list[Entry], data: st.DataObject
) -> None:
    dropped = data.draw(st.sets(st.integers(0, len(entries) - 1)))
    kept = [entry for index, entry in enumerate(entries) if index not in dropped]
    rest = block_of(entries).without(dropped)
    if not kept:
        assert rest is None
        return
    assert rest is not None
    assert entries_of(rest) == kept
    assert rest == block_of(kept)


@given(st.booleans().flatmap(lambda stamped: st.lists(model_blocks(stamped=stamped), min_size=1, max_size=4)))
def test_merged_blocks_say_what_they_said_one_by_one(groups: list[list[Entry]]) -> None:
    merged = block.merge([block_of(group) for group in groups])
    together = [entry for group in groups for entry in group]
    assert entries_of(merged) == together
    assert merged == block_of(together)


@given(model_blocks(stamped=False), st.integers(0, 2**50 - 10))
def test_stamping_names_the_origin_once_and_for_all(entries: list[Entry], first: int) -> None:
    plain = block_of(entries)
    runs = ((first, first + len(entries) - 1),)
    stamped = plain.stamped(STREAM, runs)
    assert [entry.origin for entry in entries_of(stamped)] == [
        (STREAM, first + i) for i in range(len(entries))
    ]
    assert same_shape(stamped, plain)
    assert stamped.ids == plain.ids
    assert stamped.stamped("journal:other:orders:0", ((0, len(entries) - 1),)) is stamped


def test_a_whole_part_and_a_merge_of_one_are_the_block_itself() -> None:
    packed = block.pack([block.encode_message(Message(b"a")), block.encode_message(Message(None))])
    assert packed.part(0, 2) is packed
    assert block.merge([packed]) is packed


def test_a_body_that_was_damaged_is_an_error_and_not_another_message() -> None:
    packed = block.pack([block.encode_message(Message(b"hello"))])
    damaged = Block(packed.count, packed.body[:-3], packed.largest, packed.checksum)
    with pytest.raises(msgspec.DecodeError):
        damaged.messages()


def test_bodies_of_every_size_of_a_count_can_be_joined() -> None:
    # msgpack writes small arrays in one byte; blocks always use five, so that bodies join unopened.
    for count in (1, 15, 16, 65_535, 65_536):
        packed = block.pack([block.encode_message(Message(b""))] * count)
        assert packed.body[:5] == b"\xdd" + count.to_bytes(4, "big")
        assert block.merge([packed, packed]).count == 2 * count


def test_a_message_keeps_tombstones_order_and_repeated_headers() -> None:
    message = Message(None, b"k", (("a", b"1"), ("b", None), ("a", b"2")), 1_357_020_000_000)
    again = block.pack([block.encode_message(message)]).messages()[0]
    assert again == message
    assert (again.header("a"), again.header("b"), again.header("c")) == (b"2", None, None)
    assert again.body is None


# -- blocks that nobody has encoded yet ------------------------------------------------------------------

mixed = st.lists(
    st.builds(
        Entry,
        message=messages,
        duplicate_id=st.none() | st.binary(min_size=1, max_size=4),
        origin=st.tuples(st.just(STREAM), st.integers(0, 99)),
    ),
    min_size=1,
    max_size=12,
)


@given(mixed)
def test_a_fresh_block_is_what_the_encoded_one_is(entries: list[Entry]) -> None:
    fresh, packed = fresh_block_of(entries), block_of(entries)
    assert entries_of(fresh) == entries_of(packed) == entries
    assert fresh.encoded() == packed.encoded()
    assert (fresh.count, fresh.body, fresh.largest, fresh.checksum, fresh.ids, fresh.origins) == (
        packed.count,
        packed.body,
        packed.largest,
        packed.checksum,
        packed.ids,
        packed.origins,
    )
    assert fresh.size <= len(packed.body)


@given(mixed, st.data())
def test_a_fresh_block_is_cut_like_an_encoded_one(entries: list[Entry], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(entries) - 1))
    stop = data.draw(st.integers(start + 1, len(entries)))
    dropped = data.draw(st.sets(st.integers(0, len(entries) - 1)))
    fresh, packed = fresh_block_of(entries), block_of(entries)
    assert entries_of(fresh.part(start, stop)) == entries_of(packed.part(start, stop))
    left, expected = fresh.without(dropped), packed.without(dropped)
    assert (left and entries_of(left)) == (expected and entries_of(expected))
    assert fresh.part(start, stop).body == packed.part(start, stop).body


@given(mixed)
def test_a_fresh_block_is_stamped_once(entries: list[Entry]) -> None:
    bare = fresh_block_of([Entry(entry.message, None, None) for entry in entries])
    runs = ((5, 4 + len(entries)),)
    stamped = bare.stamped(STREAM, runs)
    assert stamped.origins == ((STREAM, 5, 4 + len(entries)),)
    assert stamped.stamped("another", runs) is stamped
    assert stamped.messages() == bare.messages()


# -- hops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [block.pack_messages, lambda messages: block.pack(list(map(block.encode_message, messages)))]
)
def test_hops_stay_with_their_messages_through_parts_choices_and_stamps(
    make: Callable[[list[Message]], Block],
) -> None:
    first, second = b"1" * 8, b"2" * 8
    made = make([Message(b"%d" % n) for n in range(5)]).hopped(((2, first), (3, second)))
    assert made.stamped("journal:i:a:0", [(0, 4)]).hops == ((2, first), (3, second))
    assert made.part(1, 4).hops == ((1, first), (2, second))
    kept = made.without([0, 1])
    assert kept is not None
    assert kept.hops == ((3, second),)
    assert made.stamped("journal:i:a:0", [(0, 4)]).hopped(()).origins == (("journal:i:a:0", 0, 4),)


def test_merged_blocks_keep_their_hops_apart() -> None:
    """Blocks of several bridges at one address travel together: batches stay large."""
    plain, passed = block.pack([block.encode_message(Message(b"a"))]), b"1" * 8
    over = plain.hopped(((1, passed),))
    assert block.merge([plain, over, over, plain]).hops == ((1, b""), (2, passed), (1, b""))
    assert block.merge([plain, plain]).hops == ()


def test_a_fresh_block_has_its_hops_encoded_or_not() -> None:
    made = block.pack_messages([Message(b"a")], hops=((1, b"1" * 8),))
    assert made.body
    assert block.merge([made, made]).hops == ((2, b"1" * 8),)
