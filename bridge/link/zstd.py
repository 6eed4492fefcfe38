"""Compressed frames: a frame's bytes as one zstd frame (RFC 8878) and back, bounded before it is unpacked.

A link's frame is a msgpack array, and no array begins as zstd's magic number does: so a compressed frame
needs no envelope of its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import cramjam

from bridge.link import limits
from bridge.link.frames import BrokenFrame

#: The name in HELLO and WELCOME.
ZSTD: Final = "zstd"
#: Of the levels from -7 to 5, the fastest of those that pack best (docs/decisions/0036).
LEVEL: Final = 1

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
#: Most bytes that a block unpacks to, and the type of block that the format does not use yet.
_BLOCK_MOST: Final = 128 * limits.KIB
_RLE: Final = 1
_RESERVED: Final = 3
#: Bytes of the content size, by the two highest bits of the frame header's first byte.
_SIZE_BYTES: Final = (0, 2, 4, 8)


class _Header(NamedTuple):
    """A zstd frame's header, and its own length."""

    content_size: int
    window: int
    has_checksum: bool
    length: int


def is_compressed(data: bytes) -> bool:
    """Whether a message is a zstd frame, and so no frame of the link itself."""
    return data.startswith(_MAGIC)


def compress(data: bytes) -> bytes:
    """The data as one zstd frame that says how long it is."""
    return bytes(cramjam.zstd.compress(data, level=LEVEL))


def decompress(data: bytes, most: int) -> bytearray:
    """The content of one zstd frame, of at most `most` bytes.

    The frame's headers are read first: what they do not bound is not unpacked. It takes the memory of the
    content and of the window, `limits.WINDOW_MOST` at most.

    Raises:
        BrokenFrame: names the rule that the data breaks, and the value.
    """
    header = _header(data)
    if header.content_size > most:
        raise _broken("content size", f"at most {most} bytes", header.content_size)
    if header.window > limits.WINDOW_MOST:
        raise _broken("window", f"at most {limits.WINDOW_MOST} bytes", header.window)
    blocks = _blocks(data, header)
    if header.content_size > blocks * _BLOCK_MOST:
        raise _broken("content size", f"at most what {blocks} blocks hold", header.content_size)
    content = bytearray(header.content_size)
    try:
        size = cramjam.zstd.decompress_into(data, content)
    except cramjam.DecompressionError as error:
        raise BrokenFrame(f"zstd: {len(data)} bytes cannot be unpacked: {error}") from error
    if size != len(content):
        raise _broken("content", f"{len(content)} bytes, its content size", size)
    return content


def _header(data: bytes) -> _Header:
    """The header of a frame whose magic number has been read (RFC 8878 section 3.1.1.1)."""
    begins = len(_MAGIC)
    flags = int.from_bytes(data[begins : begins + 1], "little")
    single_segment = bool(flags & 0x20)
    if flags & 0x03:
        raise _broken("dictionary", "none", f"an ID of {(0, 1, 2, 4)[flags & 0x03]} bytes")
    if flags & 0x08:
        raise _broken("reserved bit", 0, 1)
    size_at = begins + 1 + (not single_segment)
    size_bytes = _SIZE_BYTES[flags >> 6] or int(single_segment)
    length = size_at + size_bytes
    if not size_bytes:
        raise _broken("content size", "one that is declared", "none")
    if len(data) < length:
        raise _broken("header", f"{length} bytes", len(data))
    content_size = int.from_bytes(data[size_at:length], "little") + (256 if size_bytes == 2 else 0)
    window = content_size
    if not single_segment:
        base = 1 << 10 + (data[size_at - 1] >> 3)
        window = base + base // 8 * (data[size_at - 1] & 0x07)
    return _Header(content_size, window, bool(flags & 0x04), length)


def _blocks(data: bytes, header: _Header) -> int:
    """The number of the frame's blocks, which end where the data does: no second frame is behind them.

    Raises:
        BrokenFrame: they do not, or they are too many for their content.
    """
    most = limits.BLOCKS_LEAST + header.content_size // limits.BLOCK_MEAN_LEAST
    count, at, is_last = 0, header.length, False
    while not is_last:
        if count == most:
            raise _broken("blocks", f"at most {most} of {header.content_size} bytes", f"{count + 1} or more")
        if at + 3 > len(data):
            raise _broken("blocks", f"the last one within {len(data)} bytes", f"one at {at}")
        block = int.from_bytes(data[at : at + 3], "little")
        is_last, kind, size = bool(block & 1), block >> 1 & 0x03, block >> 3
        if kind == _RESERVED:
            raise _broken("block type", f"below {_RESERVED}", kind)
        if size > _BLOCK_MOST:
            raise _broken("block", f"at most {_BLOCK_MOST} bytes", size)
        at += 3 + (1 if kind == _RLE else size)
        count += 1
    ends = at + (4 if header.has_checksum else 0)
    if ends != len(data):
        raise _broken("frame", f"{len(data)} bytes, those of its message", ends)
    return count


def _broken(part: str, rule: str | int, found: str | int) -> BrokenFrame:
    key = f"zstd {part}"
    return BrokenFrame(f"{key}: expected {rule}; found {found}", key, rule, found)
