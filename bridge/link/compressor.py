"""The sending end's choice: which frames leave compressed. Pure; the times are the caller's."""

from __future__ import annotations

from typing import Final, Literal

from bridge.link import limits, zstd
from bridge.link.frames import BatchFrame, BodyFrame, BrokenFrame
from bridge.relay.counts import Traffic

Compression = Literal["auto", "off", "zstd"]

#: The frames that may be compressed.
PAYLOADS: Final = (BatchFrame, BodyFrame)

#: Stands for the pieces of large bodies among the numbers of batches.
_BODY: Final = -1

#: Smaller frames leave as they are, bytes.
SMALL_BYTES: Final = 512
#: A frame that keeps more than nine tenths of its bytes leaves as it is.
_KEPT_MOST: Final = 0.9
#: After so many of them in a row compression is not tried for the next ones, which are so many.
VAIN_MOST: Final = 4
UNTRIED: Final = 64

#: A line that carries so many bytes a second is not worth compression: 64 Mbit/s.
FAST_BYTES_S: Final = 8 * limits.MIB
#: Time over which a rate is measured, ms.
MEASURED_MS: Final = 100
#: A line that was seen to be slow is not measured without compression for so long, ms.
SLOW_FOR_MS: Final = 30_000


class Compressor:
    """Compresses the frames of one link where both ends can and it pays."""

    def __init__(self, compression: Compression, traffic: Traffic | None = None) -> None:
        """`traffic` counts what leaves."""
        self._compression = compression
        self._traffic = traffic or Traffic()
        self._line = LineSpeed()
        #: Whether the other end takes compressed frames.
        self._taken = False
        #: Frames in a row that did not shrink, and frames for which compression is not tried.
        self._vain = 0
        self._untried = 0

    @property
    def offered(self) -> tuple[str, ...]:
        """The compressions for HELLO."""
        return () if self._compression == "off" else (zstd.ZSTD,)

    def agree(self, compression: str) -> None:
        """Take the answer in WELCOME. Raises: BrokenFrame: HELLO did not offer it."""
        if compression and compression not in self.offered:
            rule = f"one of HELLO's ({', '.join(self.offered) or 'none'})"
            raise BrokenFrame(f"WELCOME.compression: expected {rule}; found {compression}")
        self._taken = bool(compression)

    def packed(self, frame: BatchFrame | BodyFrame, data: bytes, now_ms: int) -> bytes:
        """The message that carries a frame, which is encoded as `data`."""
        self._line.sent(frame.number if isinstance(frame, BatchFrame) else _BODY, len(data), now_ms)
        message = self._compressed(data) if self._tries(frame, data) else data
        self._traffic.count(len(data), len(message))
        return message

    def answered(self, number: int, now_ms: int) -> None:
        """Take note of the receipt of the batch of this number."""
        self._line.answered(number, now_ms)

    def stored(self, size: int, now_ms: int) -> None:
        """Take note that the other end has stored so many bytes, of a large body where one is on its way."""
        self._line.answered(_BODY, now_ms, size)

    def _tries(self, frame: BatchFrame | BodyFrame, data: bytes) -> bool:
        if not self._taken or len(data) < SMALL_BYTES:
            return False
        if self._compression == "auto" and not self._line.is_slow:
            return False
        if isinstance(frame, BatchFrame) and len(data) - len(frame.body) > limits.FRAME_SLACK:
            return False  # the receiver allows no more beside credit (`Receiver._content_most`)
        if self._untried:
            self._untried -= 1
            return False
        return True

    def _compressed(self, data: bytes) -> bytes:
        """The frame compressed, or as it is where that does not pay."""
        message = zstd.compress(data)
        if len(message) <= _KEPT_MOST * len(data):
            self._vain = 0
            return message
        self._vain += 1
        if self._vain >= VAIN_MOST:
            self._untried = UNTRIED
        return data


class LineSpeed:
    """Whether the line is slow enough for compression to pay: it is taken to be until it shows more.

    The rate counts frames as they are before compression, over the time in which some are not answered. Above
    `FAST_BYTES_S` either the line is fast, or compression makes it so: it is measured without, and is slow
    again where it then carries less all the time, for `SLOW_FOR_MS` at least.
    """

    def __init__(self) -> None:
        self.is_slow = True
        self._slow_until_ms = 0
        #: Bytes of the batches that are not answered, by number, and since when some of them are not.
        self._unanswered: dict[int, int] = {}
        self._since_ms = 0
        #: What was answered in the present measurement, and in how long.
        self._bytes = 0
        self._busy_ms = 0

    def sent(self, number: int, size: int, now_ms: int) -> None:
        """A frame of batch `number` leaves."""
        if not self._unanswered:
            self._since_ms = now_ms
            if not self.is_slow:  # a line on which nothing waits shows no limit
                self._begin()
        self._unanswered[number] = self._unanswered.get(number, 0) + size

    def answered(self, number: int, now_ms: int, most: int | None = None) -> None:
        """The receipt of batch `number` has come; `most`: only so many of its bytes are taken."""
        size = self._unanswered.pop(number, None)
        if size is None:
            return
        if most is not None and most < size:
            self._unanswered[number] = size - most
            size = most
        self._bytes += size
        self._busy_ms += now_ms - self._since_ms
        self._since_ms = now_ms
        if self._busy_ms < MEASURED_MS:
            return
        carries_more = self._bytes * 1000 > FAST_BYTES_S * self._busy_ms
        if self.is_slow:
            self.is_slow = not (carries_more and now_ms >= self._slow_until_ms)
        elif not carries_more:
            self.is_slow = True
            self._slow_until_ms = now_ms + SLOW_FOR_MS
        self._begin()

    def _begin(self) -> None:
        self._bytes = self._busy_ms = 0
