"""Blocks against the plain list of messages that they stand for."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge import block
from bridge.block import Block
from bridge.message import Message

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
