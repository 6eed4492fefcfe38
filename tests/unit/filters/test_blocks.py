"""Filters asked for blocks."""

from __future__ import annotations

from bridge.filters import parse
from bridge.filters.blocks import taken
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message


def test_the_messages_that_a_condition_takes_are_named_by_their_indices() -> None:
    messages = [Message(b"x", headers=(("colour", colour),)) for colour in (b"red", b"blue", b"red")]
    block = pack([encode_message(message) for message in messages])
    condition = parse("colour = 'red'")
    assert condition is not None
    assert taken(condition, block, "orders") == [0, 2]


def test_ids_and_the_address_are_those_of_the_messages() -> None:
    block = pack([encode_message(Message(b"x"))] * 3, ((1, b"order-1"),))
    by_id, by_address = parse("AMQDuplicateId = 'order-1'"), parse("AMQAddress = 'orders'")
    assert by_id is not None
    assert by_address is not None
    assert taken(by_id, block, "orders") == [1]
    assert taken(by_address, block, "orders") == [0, 1, 2]
    assert taken(by_address, block, "payments") == []
