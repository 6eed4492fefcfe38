"""Which frames leave compressed: by size, by what it saves, and by what the line carries."""

from __future__ import annotations

import os

import pytest

from bridge.link import batch_frames, limits
from bridge.link.codec import encode
from bridge.link.compressor import (
    FAST_BYTES_S,
    MEASURED_MS,
    SLOW_FOR_MS,
    SMALL_BYTES,
    UNTRIED,
    VAIN_MOST,
    Compressor,
    LineSpeed,
)
from bridge.link.frames import BatchFrame, BodyFrame, BrokenFrame
from bridge.link.zstd import ZSTD, decompress, is_compressed
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.counts import Traffic
from tests.unit.link.helpers import batch

KIB = 1024
#: A chunk that does not shrink.
NOISE = os.urandom(8 * KIB)


def agreed(compression: str = "zstd", traffic: Traffic | None = None) -> Compressor:
    """A compressor whose other end takes zstd."""
    compressor = Compressor(compression, traffic)  # type: ignore[arg-type]
    compressor.agree(ZSTD)
    return compressor


def packed(compressor: Compressor, body: bytes, number: int = 0, now_ms: int = 0) -> bytes:
    """The message that carries a chunk."""
    frame = BodyFrame(number, 0, 5, 10**9, body)
    data = encode(frame)
    message = compressor.packed(frame, data, now_ms)
    assert is_compressed(message) or message == data
    assert (bytes(decompress(message, len(data))) if is_compressed(message) else message) == data
    return message


def compresses(compressor: Compressor, body: bytes = b"x" * 8 * KIB) -> bool:
    """Whether a chunk leaves compressed."""
    return is_compressed(packed(compressor, body))


def test_a_frame_leaves_compressed_where_both_ends_can() -> None:
    for compression in ("zstd", "auto"):
        compressor = Compressor(compression)
        assert compressor.offered == (ZSTD,)
        assert not compresses(compressor), "nothing was agreed on yet"
        compressor.agree("")
        assert not compresses(compressor)
        compressor.agree(ZSTD)
        assert compresses(compressor)


def test_nothing_is_offered_or_agreed_on_where_compression_is_off() -> None:
    compressor = Compressor("off")
    assert compressor.offered == ()
    compressor.agree("")
    assert not compresses(compressor)
    with pytest.raises(BrokenFrame) as caught:
        compressor.agree(ZSTD)
    assert caught.value.detail == "WELCOME.compression: expected one of HELLO's (none); found zstd"


def test_an_answer_that_hello_does_not_offer_is_refused() -> None:
    with pytest.raises(BrokenFrame) as caught:
        Compressor("auto").agree("lz4")
    assert caught.value.detail == "WELCOME.compression: expected one of HELLO's (zstd); found lz4"


def test_a_small_frame_is_not_compressed() -> None:
    frame = BodyFrame(0, 0, 5, 10**9, b"")
    beside = len(encode(frame)) + 1  # the length of a chunk of 256 bytes or more has one byte more
    compressor = agreed()
    assert not compresses(compressor, b"x" * (SMALL_BYTES - 1 - beside))
    assert compresses(compressor, b"x" * (SMALL_BYTES - beside))


def test_a_frame_with_long_lists_beside_its_body_is_not_compressed() -> None:
    """The receiver allows the content no more than credit and `FRAME_SLACK`."""
    many = batch(0, 4)
    frame = batch_frames.to_frame(many, 0, 0)
    long = BatchFrame(*(getattr(frame, field) for field in frame.__struct_fields__))
    data = encode(long) + bytes(limits.FRAME_SLACK)
    assert agreed().packed(long, data, 0) == data


def test_what_does_not_shrink_leaves_as_it_is_and_is_not_tried_again_for_a_while() -> None:
    compressor = agreed()
    for _ in range(VAIN_MOST):
        assert not compresses(compressor, NOISE)
    assert not any(compresses(compressor) for _ in range(UNTRIED))
    assert compresses(compressor), "one is tried again"
    assert compresses(compressor), "and it shrank"


def test_one_more_that_does_not_shrink_ends_the_next_trial() -> None:
    compressor = agreed()
    for _ in range(VAIN_MOST):
        packed(compressor, NOISE)
    for _ in range(UNTRIED):
        packed(compressor, NOISE)
    assert not compresses(compressor, NOISE)
    assert not any(compresses(compressor) for _ in range(UNTRIED))
    assert compresses(compressor)


def test_one_frame_that_shrinks_makes_up_for_those_that_did_not() -> None:
    compressor = agreed()
    for _ in range(VAIN_MOST - 1):
        packed(compressor, NOISE)
    assert compresses(compressor)
    for _ in range(VAIN_MOST - 1):
        packed(compressor, NOISE)
    assert compresses(compressor)


def test_a_whole_batch_is_compressed_with_its_ids_and_origins() -> None:
    rows = [encode_message(Message(b'{"station": "north", "row": %d}' % row)) for row in range(100)]
    ids = tuple((row, b"%032d" % row) for row in range(100))
    block = pack(rows, ids)
    frame = batch_frames.to_frame(batch(0, 100), 0, 0)
    whole = BatchFrame(
        **{f: getattr(frame, f) for f in frame.__struct_fields__} | {"body": block.body, "ids": ids}
    )
    data = encode(whole)
    message = agreed().packed(whole, data, 0)
    assert len(message) < len(data) / 4
    assert decompress(message, len(data)) == data


def test_bytes_are_counted_before_and_after() -> None:
    traffic = Traffic()
    compressor = agreed(traffic=traffic)
    messages = [packed(compressor, body) for body in (b"x" * 8 * KIB, NOISE, b"small")]
    frames = [len(encode(BodyFrame(0, 0, 5, 10**9, body))) for body in (b"x" * 8 * KIB, NOISE, b"small")]
    assert (traffic.frame_bytes, traffic.wire_bytes) == (sum(frames), sum(map(len, messages)))
    assert traffic.wire_bytes < traffic.frame_bytes


# ---------------------------------------------------------------------- the line


class Line:
    """A line with a clock, on which batches are answered one after the other."""

    def __init__(self) -> None:
        self.speed = LineSpeed()
        self.now_ms = 0
        self._numbers = 0

    def is_slow(self) -> bool:
        return self.speed.is_slow

    def carry(self, bytes_s: int, batches: int, *, pipelined: bool = True) -> None:
        """So many batches pass, each of which takes a tenth of a measurement; one follows the other, or
        each waits for the receipt of the one before.
        """
        size, step_ms = bytes_s * MEASURED_MS // 10_000, MEASURED_MS // 10
        for _ in range(batches):
            self.speed.sent(self._numbers, size, self.now_ms)
            if pipelined:
                self.speed.sent(self._numbers + 1, 0, self.now_ms)
            self.now_ms += step_ms
            self.speed.answered(self._numbers, self.now_ms)
            self._numbers += 1


def test_a_line_is_slow_until_it_shows_more() -> None:
    line = Line()
    assert line.is_slow()
    line.carry(2 * FAST_BYTES_S, 9)
    assert line.is_slow(), "it was not measured for long enough"
    line.carry(2 * FAST_BYTES_S, 1)
    assert not line.is_slow()


def test_a_slow_line_stays_slow() -> None:
    line = Line()
    line.carry(FAST_BYTES_S // 2, 1_000)
    assert line.is_slow()


def test_a_line_that_only_compression_makes_fast_is_slow_again_after_one_measurement() -> None:
    line = Line()
    line.carry(4 * FAST_BYTES_S, 10)
    assert not line.is_slow()
    line.carry(FAST_BYTES_S // 4, 10)
    assert line.is_slow()
    line.carry(4 * FAST_BYTES_S, SLOW_FOR_MS // (MEASURED_MS // 10) - 1)
    assert line.is_slow(), "it is not measured again so soon"
    line.carry(4 * FAST_BYTES_S, 10)
    assert not line.is_slow()


def test_a_fast_line_stays_fast_while_little_is_sent() -> None:
    """Batches that come one at a time show what the sender has, not what the line carries."""
    line = Line()
    line.carry(4 * FAST_BYTES_S, 10)
    line.carry(1_000, 100, pipelined=False)
    assert not line.is_slow()


def test_batches_that_come_one_at_a_time_can_show_a_fast_line() -> None:
    line = Line()
    line.carry(4 * FAST_BYTES_S, 10, pipelined=False)
    assert not line.is_slow()


def test_time_without_a_batch_under_way_does_not_count() -> None:
    line = Line()
    for _ in range(10):
        line.carry(2 * FAST_BYTES_S, 1, pipelined=False)
        line.now_ms += 60_000
    assert not line.is_slow()


def test_auto_compresses_only_while_the_line_is_slow() -> None:
    compressor = agreed("auto")
    frame = BodyFrame(0, 0, 5, 10**9, b"x" * 8 * KIB)
    assert is_compressed(compressor.packed(frame, bytes(2 * FAST_BYTES_S * MEASURED_MS // 1000), 0))
    compressor.stored(2 * FAST_BYTES_S * MEASURED_MS // 1000, MEASURED_MS)
    assert not compresses(compressor)
    always = agreed("zstd")
    always.packed(frame, bytes(2 * FAST_BYTES_S * MEASURED_MS // 1000), 0)
    always.stored(2 * FAST_BYTES_S * MEASURED_MS // 1000, MEASURED_MS)
    assert compresses(always)


def test_a_receipt_of_a_batch_that_was_not_counted_changes_nothing() -> None:
    speed = LineSpeed()
    speed.answered(7, 10 * MEASURED_MS)
    assert speed.is_slow
