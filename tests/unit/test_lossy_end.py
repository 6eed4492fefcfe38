"""The end that loses messages on purpose, for tests of what finds and mends a loss."""

from __future__ import annotations

import pytest

from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.messages.stream_names import plan_stream
from tests.fakes.lossy_end import VARIABLE, lose, read


def batch(stream: str = "journal:i:orders:0") -> Batch:
    messages = [encode_message(Message(b"m%d" % place)) for place in range(10, 16)]
    return Batch(stream, 8, 20, ((10, 15),), pack(messages, ((1, b"id-11"), (2, b"id-12"))))


def test_nothing_is_lost_where_nobody_asks_for_it() -> None:
    given = batch()
    assert lose(read(""), "orders", given) is given


def test_the_positions_that_are_named_are_left_out_with_their_ids() -> None:
    lost = read("orders:9-11,14;other:3")
    kept = lose(lost, "orders", batch())
    assert (kept.from_, kept.upto, kept.runs) == (8, 20, ((12, 13), (15, 15))), "all of it is covered"
    assert kept.block is not None
    assert [message.body for message in kept.block.messages()] == [b"m12", b"m13", b"m15"]
    assert kept.block.ids == ((0, b"id-12"),)
    for address in ("other", "another"):
        assert lose(lost, address, batch()).count == 6


def test_a_batch_may_be_lost_whole() -> None:
    kept = lose(read("orders:0-99"), "orders", batch())
    assert (kept.runs, kept.block, kept.upto) == ((), None, 20)


def test_what_a_plan_sends_again_is_not_lost() -> None:
    stream = plan_stream("journal:i:orders:0", "0123456789abcdef", force=False)
    assert lose(read("orders:0-99"), "orders", batch(stream)).runs == run_arithmetic.join([(10, 15)])


@pytest.mark.parametrize("value", ["orders", "orders:", "orders:x", "orders:1-", "orders:1;x", "orders:-1"])
def test_what_cannot_be_read_ends_the_process_and_says_so(value: str) -> None:
    with pytest.raises(ValueError, match=VARIABLE):
        read(value)
