"""What becomes of a message's headers, ID and timestamp on its way to Kafka."""

from __future__ import annotations

from bridge.kafka.records.encoding import headers_of, hop_headers, timed
from bridge.messages import hops
from bridge.messages.block import FreshBlock
from bridge.messages.message import Message
from dedup.ids import ID_HEADER

STREAM = "journal:i:orders:0"
MESSAGES = [Message(b"a"), Message(b"b"), Message(b"c")]


def test_headers_stay_in_order_with_repeats_and_nulls_and_what_is_added_behind_them() -> None:
    headers = (("b", b"1"), ("a", None), ("b", b""))
    hop = (hops.HEADER, hops.hop("bridge", "store"))
    (found,) = headers_of([Message(b"", headers=headers)], [b"id"], [hop])
    assert found == [*headers, hop, (ID_HEADER, b"id")]


def test_a_message_that_carries_an_id_gets_no_other() -> None:
    for own in (b"mine", b"", None):
        headers = ((ID_HEADER, own), ("b", b"1"))
        assert headers_of([Message(b"", headers=headers)], [b"id"], [None]) == [list(headers)]


def test_nothing_is_added_where_there_is_no_id() -> None:
    assert headers_of(MESSAGES, [None, None, None], [None, None, None]) == [[], [], []]


def test_hops_are_those_of_the_block_message_by_message() -> None:
    first, second = hops.hop("first", "s"), hops.hop("second", "s")
    block = FreshBlock(MESSAGES).hopped(((1, first), (1, b""), (1, first + second)))
    assert hop_headers(block) == [(hops.HEADER, first), None, (hops.HEADER, first + second)]
    assert hop_headers(FreshBlock(MESSAGES)) == [None, None, None]


def test_only_messages_without_a_timestamp_get_that_of_their_storing() -> None:
    messages = [Message(b"a", b"k", (("h", b"1"),)), Message(b"b", timestamp=0), Message(b"c", timestamp=9)]
    assert timed(messages, 5) == [Message(b"a", b"k", (("h", b"1"),), 5), *messages[1:]]
