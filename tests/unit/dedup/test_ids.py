"""Duplicate IDs: the layout of stamped ones, the canonical form of producers'."""

from __future__ import annotations

import uuid

import pytest

from dedup.ids import MARK, MAX_POSITION, InvalidId, Stamp, parse, producer_id, uuid8

STREAM = "journal:0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b:orders:0"
#: As `printf STREAM | b2sum -l 256` prints it: 1b5ab908 a0ac 394 8ac3...
FIRST_ID = "1b5ab908-a0ac-8394-b02c-000000000000"


@pytest.mark.parametrize(
    ("custom_a", "custom_b", "custom_c", "expected"),
    [
        (0x2489E9AD2EE2, 0xE00, 0x0EC932D5F69181C0, "2489e9ad-2ee2-8e00-8ec9-32d5f69181c0"),
        (0x5C146B143C52, 0xAFD, 0x138A375D0DF1FBF6, "5c146b14-3c52-8afd-938a-375d0df1fbf6"),
    ],
    ids=["RFC 9562 B.1", "RFC 9562 B.2"],
)
def test_the_fields_lie_where_the_rfc_puts_them(
    custom_a: int, custom_b: int, custom_c: int, expected: str
) -> None:
    assert uuid8(custom_a, custom_b, custom_c) == expected
    assert parse(expected) is None  # a UUIDv8, but not one of ours


def test_a_stamped_id_is_the_same_in_every_process_and_release() -> None:
    stamp = Stamp(STREAM)
    assert stamp.text(0) == FIRST_ID
    assert stamp.text(255) == "1b5ab908-a0ac-8394-b02c-0000000000ff"
    assert stamp.text(MAX_POSITION) == "1b5ab908-a0ac-8394-b02f-ffffffffffff"


def test_version_and_variant_are_those_of_a_uuid8() -> None:
    for position in (0, 1, 2**48 - 1, 2**48, MAX_POSITION):
        value = uuid.UUID(Stamp(STREAM).text(position))
        assert value.int >> 76 & 0xF == 8
        assert value.int >> 62 & 0b11 == 0b10
        assert value.int >> 50 & 0xFFF == MARK


@pytest.mark.parametrize("position", [-1, MAX_POSITION + 1])
def test_a_position_without_room_in_an_id_is_refused(position: int) -> None:
    with pytest.raises(ValueError, match=f"0..{MAX_POSITION}; found {position}"):
        Stamp(STREAM).text(position)


@pytest.mark.parametrize(
    ("first", "last"),
    [(-1, 3), (3, 2), (MAX_POSITION, MAX_POSITION + 1)],
    ids=["negative", "empty", "beyond"],
)
def test_a_range_that_does_not_ascend_within_the_limits_is_refused(first: int, last: int) -> None:
    with pytest.raises(ValueError, match=f"found {first}..{last}"):
        Stamp(STREAM).texts(first, last)


@pytest.mark.parametrize(
    "text",
    [
        "",
        FIRST_ID.upper(),
        FIRST_ID.replace("-", ""),
        FIRST_ID + "\n",
        f"{{{FIRST_ID}}}",
        f"urn:uuid:{FIRST_ID}",
        FIRST_ID.replace("-8394-", "-7394-"),  # another version
        FIRST_ID.replace("-b02c-", "-f02c-"),  # another variant
        FIRST_ID.replace("-b02c-", "-b01c-"),  # another mark
        FIRST_ID.replace("0000", "0_00"),
        FIRST_ID.replace("0000", "\N{ARABIC-INDIC DIGIT ZERO}000"),
        "2013-01-01T05:00:00Z/UA/1545",
    ],
)
def test_whatever_we_did_not_write_is_not_ours(text: str) -> None:
    assert parse(text) is None


def test_text_and_the_bytes_that_spell_it_are_one_id() -> None:
    """D3."""
    assert producer_id("abc", 1024) == producer_id(b"abc", 1024) == b"abc"
    assert producer_id("é", 1024) == "é".encode()
    assert producer_id("a", 1024) != producer_id(b"a\x00", 1024)  # no UTF-16 as upstream


@pytest.mark.parametrize("value", [b"\x00", b"\xff", b"a\x00b", bytes(range(232, 256)), b" a ", bytes(16)])
def test_any_bytes_are_an_id_and_none_is_changed(value: bytes) -> None:
    """D3."""
    assert producer_id(value, 1024) == value


@pytest.mark.parametrize("value", ["", b""])
def test_an_empty_id_is_invalid(value: str | bytes) -> None:
    """D3."""
    with pytest.raises(InvalidId, match="1 to 1024 bytes; found 0") as raised:
        producer_id(value, 1024)
    assert (raised.value.limit, raised.value.found) == (1024, 0)


@pytest.mark.parametrize("value", [7, 7.5, True, None, ["a"]])
def test_an_id_of_another_kind_is_invalid(value: object) -> None:
    """D3."""
    with pytest.raises(InvalidId, match=f"found {type(value).__name__}"):
        producer_id(value, 1024)


def test_the_limit_counts_bytes_not_characters() -> None:
    assert producer_id("é" * 4, 8) == "éééé".encode()
    with pytest.raises(InvalidId) as raised:
        producer_id("é" * 4, 7)
    assert (raised.value.limit, raised.value.found) == (7, 8)


def test_text_that_utf_8_cannot_spell_is_invalid() -> None:
    with pytest.raises(InvalidId, match=r"surrogates; found '.udcff'"):
        producer_id("a\udcff", 1024)
