"""Whatever comes as a compressed frame is unpacked within its bound, or refused with a reason."""

from __future__ import annotations

import contextlib
import tracemalloc

import cramjam
from hypothesis import given
from hypothesis import strategies as st

from bridge.link import limits
from bridge.link.frames import BrokenFrame
from bridge.link.zstd import compress, decompress

MAGIC = b"\x28\xb5\x2f\xfd"
MOST = 64 * 1024
TEXTS = st.one_of(
    st.binary(max_size=2_000),
    st.builds(lambda word, times: word * times, st.binary(min_size=1, max_size=9), st.integers(0, 4_000)),
)
#: Sizes of blocks, up to the largest that a header can name.
SIZES = st.sampled_from((0, 1, 5, 1024, 2**17, 2**17 + 1, 2**21 - 1))


def unpack(data: bytes) -> None:
    """Unpack hostile bytes; the memory that Python takes for it is bounded by `MOST`."""
    tracemalloc.start()
    try:
        with contextlib.suppress(BrokenFrame):
            assert len(decompress(data, MOST)) <= MOST
        assert tracemalloc.get_traced_memory()[1] < 2 * MOST + len(data)
    finally:
        tracemalloc.stop()


@given(TEXTS, st.integers(-7, 5))
def test_every_text_comes_back_at_every_level(text: bytes, level: int) -> None:
    assert decompress(compress(text), len(text)) == text
    assert decompress(bytes(cramjam.zstd.compress(text, level=level)), len(text)) == text


@given(st.binary(max_size=200))
def test_random_bytes_behind_the_magic_number_are_refused_or_bounded(noise: bytes) -> None:
    unpack(MAGIC + noise)


@given(
    st.sampled_from((0x20, 0x24, 0x60, 0xA0, 0x00, 0x40, 0x80, 0xC0)),
    st.binary(min_size=1, max_size=9),
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from((0, 1, 5, 1024, 2**17, 2**17 + 1, 2**21 - 1))),
        max_size=40,
    ),
    st.binary(max_size=40),
)
def test_headers_of_any_content_are_refused_or_bounded(
    flags: int, sizes: bytes, blocks: list[tuple[int, int]], content: bytes
) -> None:
    body = b"".join((size << 3 | kind << 1).to_bytes(3, "little") + content for kind, size in blocks)
    last = (len(content) << 3 | 1).to_bytes(3, "little") + content
    unpack(MAGIC + bytes([flags]) + sizes + body + last)


@given(TEXTS, st.data())
def test_a_frame_that_was_changed_is_refused_or_bounded(text: bytes, data: st.DataObject) -> None:
    packed = bytearray(compress(text))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(4, len(packed) - 1))] = data.draw(st.integers(0, 255))
    unpack(bytes(packed))
    unpack(bytes(packed[: data.draw(st.integers(4, len(packed)))]))
    unpack(bytes(packed) + compress(text))


def test_blocks_without_content_are_not_walked_for_long() -> None:
    """A large frame of empty blocks is refused after as many as its content may have."""
    empty = (0).to_bytes(3, "little")
    unpack(MAGIC + b"\xa0" + MOST.to_bytes(4, "little") + empty * (limits.LEAST_FRAME // 3))
