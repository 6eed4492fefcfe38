"""Compressed frames: what is unpacked, and what is refused before it is."""

from __future__ import annotations

import cramjam
import pytest

from bridge.link import limits
from bridge.link.frames import BrokenFrame
from bridge.link.zstd import compress, decompress, is_compressed

KIB = 1024
MOST = 1024 * KIB
TEXT = b"".join(b"row %d of the table\n" % number for number in range(20_000))
MAGIC = b"\x28\xb5\x2f\xfd"
RAW, RLE, COMPRESSED, RESERVED = range(4)


def block(size: int, kind: int = RAW, content: bytes = b"", *, last: bool = True) -> bytes:
    """A block of a zstd frame whose header says so (RFC 8878 section 3.1.1.2)."""
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + content


def single(size: int, *blocks: bytes, flags: int = 0) -> bytes:
    """A frame of one segment: its window is its content, whose size has four bytes."""
    return MAGIC + bytes([0xA0 | flags]) + size.to_bytes(4, "little") + b"".join(blocks)


def windowed(size: int, log: int, *blocks: bytes) -> bytes:
    """A frame with a window of 2^`log` bytes."""
    return MAGIC + bytes([0x80, log - 10 << 3]) + size.to_bytes(4, "little") + b"".join(blocks)


def refusal(data: bytes, most: int = MOST) -> str:
    """The reason why this is not unpacked."""
    with pytest.raises(BrokenFrame) as caught:
        decompress(data, most)
    return caught.value.detail


FIVE = block(5, content=b"hello")
HELLO = single(5, FIVE)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 300, 70_000, 400_000])
def test_what_was_compressed_comes_back_and_says_its_size(size: int) -> None:
    packed = compress(TEXT[:size])
    assert is_compressed(packed)
    assert decompress(packed, size) == TEXT[:size]
    if size:
        assert (
            refusal(packed, size - 1) == f"zstd content size: expected at most {size - 1} bytes; found {size}"
        )


def test_frames_of_other_encoders_are_unpacked() -> None:
    assert decompress(HELLO, MOST) == b"hello"
    assert decompress(windowed(5, 20, FIVE), MOST) == b"hello"
    assert decompress(single(6, block(3, content=b"abc", last=False), block(3, RLE, b"d")), MOST) == b"abcddd"
    for level in (-7, 3, 9, 19):
        assert decompress(bytes(cramjam.zstd.compress(TEXT, level=level)), MOST) == TEXT


def test_no_frame_of_the_link_looks_compressed() -> None:
    assert not any(is_compressed(bytes([first]) + MAGIC[1:]) for first in range(256) if first != MAGIC[0])
    assert not is_compressed(b"")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (MAGIC, "content size: expected one that is declared; found none"),
        (
            MAGIC + b"\x00\x00" + FIVE,
            "content size: expected one that is declared; found none",
        ),
        (HELLO[:7], "header: expected 9 bytes; found 7"),
        (single(5, FIVE, flags=1), "dictionary: expected none; found an ID of 1 bytes"),
        (single(5, FIVE, flags=8), "reserved bit: expected 0; found 1"),
        (single(MOST + 1), f"content size: expected at most {MOST} bytes; found {MOST + 1}"),
        (
            MAGIC + b"\xe0" + (2**63).to_bytes(8, "little"),
            f"content size: expected at most {MOST} bytes; found {2**63}",
        ),
        (windowed(5, 24, FIVE), f"window: expected at most {8 * MOST} bytes; found {16 * MOST}"),
        (windowed(5, 41), f"window: expected at most {8 * MOST} bytes; found {2**41}"),
        (single(5, block(5, RESERVED)), "block type: expected below 3; found 3"),
        (single(5, block(128 * KIB + 1, COMPRESSED)), "block: expected at most 131072 bytes; found 131073"),
        (single(5), "blocks: expected the last one within 9 bytes; found one at 9"),
        (
            single(5, block(5, content=b"hello", last=False)),
            "blocks: expected the last one within 17 bytes; found one at 17",
        ),
        (single(5, *[block(0, last=False)] * 16), "blocks: expected at most 16 of 5 bytes; found 17 or more"),
        (HELLO[:-1], "frame: expected 16 bytes, those of its message; found 17"),
        (HELLO + b"x", "frame: expected 18 bytes, those of its message; found 17"),
        (HELLO + HELLO, "frame: expected 34 bytes, those of its message; found 17"),
        (
            HELLO + b"\x50\x2a\x4d\x18\x00\x00\x00\x00",
            "frame: expected 25 bytes, those of its message; found 17",
        ),
        (
            single(MOST, block(1, RLE, b"x")),
            "content size: expected at most what 1 blocks hold; found 1048576",
        ),
    ],
)
def test_what_its_headers_do_not_bound_is_refused_before_it_is_unpacked(data: bytes, reason: str) -> None:
    assert refusal(data) == f"zstd {reason}"


@pytest.mark.parametrize(
    "data",
    [
        single(6, FIVE),
        single(4, FIVE),
        single(5, block(5, COMPRESSED, b"\xff" * 5)),
        single(100_000, block(100_001, RLE, b"x")),
        single(5, FIVE, b"abcd", flags=4),
    ],
)
def test_a_content_that_is_not_as_its_header_says_is_refused(data: bytes) -> None:
    assert refusal(data).startswith(f"zstd: {len(data)} bytes cannot be unpacked: ")


def test_a_window_above_the_largest_is_refused_in_one_segment_too() -> None:
    packed = compress(bytes(limits.WINDOW_MOST + 1))
    content = decompress(packed, limits.WINDOW_MOST + 1)
    assert len(content) == limits.WINDOW_MOST + 1
    most = limits.WINDOW_MOST
    assert (
        refusal(single(most + 1), 2 * most) == f"zstd window: expected at most {most} bytes; found {most + 1}"
    )
