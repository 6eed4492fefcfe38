"""A batch as a frame and back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bridge.link import batch_frames
from bridge.link.codec import decode, encode
from bridge.link.frames import BatchFrame, BrokenFrame, ReceiptFrame
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.ports import Receipt
from dedup.verdict import Verdict
from tests.unit.link.helpers import STREAM, batch, coverage

ID = STREAM.identity


def there(sent: Batch) -> Batch:
    """The batch as it comes out at the other end."""
    frame = decode(encode(batch_frames.to_frame(sent, 0, 0)))
    assert isinstance(frame, BatchFrame)
    return batch_frames.to_batch(frame, sent.stream)


def rich() -> Batch:
    """Everything that a batch can hold: gaps, refusals, IDs of any bytes, origins elsewhere."""
    messages = [Message(None, b"k", (("h", None), ("h", b"\xff")), 5), Message(b"\x00\xff"), Message(b"")]
    block = pack(
        [encode_message(message) for message in messages],
        ids=((0, b"\xff\x00"), (2, b"id")),
        origins=(("journal:bb:x:0", 7, 8), (ID, 4, 4)),
        hops=((2, b"12345678"), (1, b"1234567812345678")),
    )
    return Batch(ID, 1, 9, ((1, 1), (3, 4)), block, 99, (2, 6), (1_000, 2_000))


@pytest.mark.parametrize("sent", [rich(), batch(0, 3), coverage(3, 9), coverage(3, 3)], ids=repr)
def test_a_batch_arrives_as_it_was_sent(sent: Batch) -> None:
    assert there(sent) == sent


def test_a_batch_of_a_sender_that_knows_no_hops_is_understood() -> None:
    """Fields are only appended: an older sender's BATCH ends with the body."""
    fields = msgspec.msgpack.decode(encode(batch_frames.to_frame(rich(), 0, 0)))
    frame = decode(msgspec.msgpack.encode(fields[:-3]))
    assert isinstance(frame, BatchFrame)
    arrived = batch_frames.to_batch(frame, ID)
    assert arrived.block is not None
    assert arrived.block.hops == ()
    assert arrived.block.messages() == rich().block.messages()  # type: ignore[union-attr]


def test_the_messages_arrive_byte_for_byte() -> None:
    sent = rich()
    arrived = there(sent)
    assert sent.block is not None
    assert arrived.block is not None
    assert arrived.block.messages() == sent.block.messages()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"from_": 10}, "BATCH.from: expected to be at most upto (9); found 10"),
        ({"runs": ((0, 0), (3, 4))}, "BATCH.runs: expected to be ascend within [1, 9); found 0 to 0"),
        ({"runs": ((3, 4), (1, 1))}, "BATCH.runs: expected to be ascend within [1, 9); found 1 to 1"),
        ({"runs": ((1, 1), (8, 9))}, "BATCH.runs: expected to be ascend within [1, 9); found 8 to 9"),
        ({"runs": ((4, 2),)}, "BATCH.runs: expected to be ascend within [1, 9); found 4 to 2"),
        ({"runs": ((1, 1), (3, 3))}, "BATCH.runs: expected to be 3 positions, the count; found 2"),
        ({"refused": (6, 2)}, "BATCH.refused: expected to be ascend within [1, 9); found 2"),
        ({"refused": (2, 2)}, "BATCH.refused: expected to be ascend within [1, 9); found 2"),
        ({"ids": ((0, b"a"), (3, b"b"))}, "BATCH.ids: expected to be ascend within [0, 3); found 3"),
        ({"events": (-2, 0)}, f"BATCH.events: expected to be -1 to {2**53}; found -2"),
        ({"largest": 1}, "BATCH.largest: expected to be at least the mean of 3 in 31 bytes; found 1"),
        ({"largest": 10_000}, "BATCH.largest: expected to be at most the body's"),
        ({"hops": ((2, b"12345678"),)}, "BATCH.hops: expected to be those of 3 messages, the count; found 2"),
        (
            {"hops": ((3, b""), (0, b"12345678"))},
            "BATCH.hops: expected to be runs of at least one message; found 0",
        ),
        ({"hops": ((3, b"1234567"),)}, "BATCH.hops: expected to be at most 64 of 8 bytes; found 7"),
        ({"hops": ((3, bytes(65 * 8)),)}, "BATCH.hops: expected to be at most 64 of 8 bytes; found 520"),
        ({"body": b""}, "BATCH.body: expected to be begin as an array32 of 3; found nothing"),
        ({"body": b"\xdd\0\0\0\4"}, "BATCH.body: expected to be begin as an array32 of 3; found dd00000004"),
        ({"count": 0, "runs": ()}, "BATCH.body: expected to be begin as an array32 of 0"),
        ({"origins": ((ID, 0, 0),)}, "BATCH.origins: expected to be 3 positions, the count; found 1"),
        ({"origins": ((ID, 2, 1),)}, "BATCH.origins: expected to be ascend within"),
        ({"origins": (("s" * 1025, 0, 2),)}, "BATCH.origins: expected to be streams of at most 1024"),
    ],
)
def test_fields_that_disagree_are_broken_and_say_what_was_found(fields: dict[str, Any], says: str) -> None:
    frame = msgspec.structs.replace(batch_frames.to_frame(rich(), 0, 0), **fields)
    with pytest.raises(BrokenFrame) as caught:
        batch_frames.to_batch(frame, ID)
    assert caught.value.detail.startswith(says)


def test_a_receipt_arrives_as_it_was_sent() -> None:
    receipt = Receipt(ID, Verdict.REFUSED, 5, 7, "MESSAGE_TOO_LARGE: 3", 2, 1_700_000_000_000)
    frame = decode(encode(batch_frames.receipt_frame(receipt, 3)))
    assert isinstance(frame, ReceiptFrame)
    assert frame.number == 3
    assert batch_frames.to_receipt(frame, ID) == receipt


def test_a_reason_of_any_length_fits_into_its_frame() -> None:
    receipt = Receipt(ID, Verdict.NOT_NOW, 5, reason="é" * 5_000)
    frame = decode(encode(batch_frames.receipt_frame(receipt, 0)))
    assert isinstance(frame, ReceiptFrame)
    assert len(frame.reason) == 1024


def test_the_first_message_above_a_size_is_found_by_its_position() -> None:
    encoded = [encode_message(Message(b"x" * size)) for size in (10, 500, 900)]
    sent = Batch(ID, 0, 9, ((2, 2), (5, 6)), pack(encoded))
    assert batch_frames.first_above(sent, 100) == (5, len(encoded[1]))
    assert batch_frames.first_above(sent, 600) == (6, len(encoded[2]))
