"""The frame codec: frames to bytes and back; checks each field of a received frame against its limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from bridge.link import limits
from bridge.link.frames import (
    AnyFrame,
    BatchFrame,
    BodyFrame,
    BrokenFrame,
    Close,
    Credit,
    Frame,
    Hello,
    Notice,
    OpenStream,
    Ping,
    Pong,
    ReceiptFrame,
    StopBody,
    StreamOpened,
    Welcome,
    name_of,
)
from bridge.messages.message import CHUNK_BYTES


class Limit(NamedTuple):
    """The range of a number, or of the length of a text, byte string or list."""

    least: int
    most: int


_NAME: Final = Limit(0, limits.NAME_MOST)
_RUN: Final = Limit(0, limits.RUN_MOST)
_POSITION: Final = Limit(0, limits.POSITION_MOST)
_NUMBER: Final = Limit(0, limits.NUMBER_MOST)
_CHECKSUM: Final = Limit(0, limits.CHECKSUM_MOST)
_INDEX: Final = Limit(0, limits.STREAMS_MOST - 1)
_INTERVAL: Final = Limit(-1, limits.NUMBER_MOST)
_TEXT: Final = Limit(0, limits.TEXT_MOST)
_ADDRESS: Final = Limit(1, limits.ADDRESS_MOST)

#: By frame and field. The lengths of lists are limited by their types (`bridge.link.frames`), and checked
#: against each other and against the body in `bridge.link.batch_frames`.
LIMITS: Final[Mapping[type[Frame], Mapping[str, Limit]]] = {
    Hello: {
        "version": _NUMBER,
        "node_id": Limit(1, limits.NAME_MOST),
        "node_name": _NAME,
        "store": _NAME,
        "bridge": Limit(1, limits.NAME_MOST),
        "producer_window": Limit(1, limits.NUMBER_MOST),
        "check_period_ms": _INTERVAL,
        "connection_ttl_ms": _INTERVAL,
        "previous": _NAME,
        "window": _NUMBER,
    },
    Welcome: {
        "version": _NUMBER,
        "node_id": Limit(1, limits.NAME_MOST),
        "node_name": _NAME,
        "store": Limit(1, limits.NAME_MOST),
        "credit": _NUMBER,
        "max_message_size": _NUMBER,
        "max_frame_size": _NUMBER,
        "max_body_size": _NUMBER,
        "compression": _NAME,
    },
    OpenStream: {
        "index": _INDEX,
        "identity": Limit(1, limits.STREAM_MOST),
        "address": _ADDRESS,
        "target_address": _ADDRESS,
        "run": _RUN,
    },
    StreamOpened: {
        "index": _INDEX,
        "next": _POSITION,
        "run": _RUN,
        "checksum": _CHECKSUM,
        "epoch": _NUMBER,
    },
    BatchFrame: {
        "number": _NUMBER,
        "index": _INDEX,
        "from_": _POSITION,
        "upto": _POSITION,
        "checksum": _CHECKSUM,
        "count": Limit(0, limits.MESSAGES_MOST),
        "largest": _NUMBER,
        "block_checksum": _CHECKSUM,
    },
    BodyFrame: {
        "index": _INDEX,
        "position": _POSITION,
        "size": Limit(1, limits.NUMBER_MOST),
        "start": _NUMBER,
        "piece": Limit(0, CHUNK_BYTES),
    },
    StopBody: {"index": _INDEX, "position": _POSITION, "reason": _TEXT},
    ReceiptFrame: {
        "number": _NUMBER,
        "next": _POSITION,
        "position": _POSITION,
        "reason": _TEXT,
        "duplicates": _NUMBER,
        "committed": _NUMBER,
    },
    Credit: {"bytes": Limit(1, limits.NUMBER_MOST)},
    Ping: {"number": _NUMBER, "sent": _NUMBER},
    Pong: {"number": _NUMBER, "sent": _NUMBER, "received": _NUMBER},
    Notice: {"body": Limit(0, limits.NOTICE_MOST)},
    Close: {"code": Limit(1, limits.CODE_MOST), "detail": _TEXT},
}

# One copy of the body at each side: 1 MiB is encoded in some 25 µs, and decoded in the same time.
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyFrame] = msgspec.msgpack.Decoder(AnyFrame)


def encode(frame: AnyFrame) -> bytes:
    """The frame as one binary WebSocket message."""
    return _encoder.encode(frame)


def decode(data: bytes | bytearray) -> AnyFrame:
    """The frame in a binary WebSocket message, each of its fields within its limit.

    Raises:
        BrokenFrame: it is no frame, or a field is beyond its limit.
    """
    try:
        frame = _decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BrokenFrame(f"no frame of {limits.SUBPROTOCOL} in {len(data)} bytes: {error}") from error
    check(frame)
    return frame


def check(frame: Frame) -> None:
    """Check the frame's fields against `LIMITS`.

    Raises:
        BrokenFrame: names the field, its limits, and the value found.
    """
    for field, (least, most) in LIMITS[type(frame)].items():
        value = getattr(frame, field)
        if value is None:
            continue
        found = value if isinstance(value, int) else len(value)
        if not least <= found <= most:
            what = "" if isinstance(value, int) else "length "
            key = f"{name_of(frame)}.{field.rstrip('_')}"
            raise BrokenFrame(f"{key}: {what}{least} to {most}; found {found}", key, most, found)
