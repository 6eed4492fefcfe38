"""Stamped and producers' IDs against what they are made of."""

from __future__ import annotations

import uuid
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.ids import MARK, MAX_POSITION, InvalidId, Stamp, parse, producer_id, uuid8

positions = st.integers(0, MAX_POSITION)
identities = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(identities, positions)
def test_a_stamped_id_tells_its_stream_and_position(identity: str, position: int) -> None:
    stamp = Stamp(identity)
    text = stamp.text(position)
    assert parse(text) == (stamp.prefix, position)
    assert f"{stamp.prefix:015x}" == blake2b(identity.encode(), digest_size=32).hexdigest()[:15]
    assert str(uuid.UUID(text)) == text
    assert len(text) == 36


@given(identities, identities, positions, positions)
def test_ids_are_equal_only_where_stream_and_position_are(
    one: str, other: str, here: int, there: int
) -> None:
    equal = (one, here) == (other, there)
    assert (Stamp(one).text(here) == Stamp(other).text(there)) == equal


@given(
    st.sampled_from([0, 2**8, 2**48, MAX_POSITION - 700]) | st.integers(0, MAX_POSITION - 1_000),
    st.integers(-300, 300),
    st.integers(0, 600),
)
def test_ids_in_bulk_are_those_made_one_by_one(base: int, shift: int, more: int) -> None:
    first = max(0, min(base + shift, MAX_POSITION))
    last = min(first + more, MAX_POSITION)
    stamp = Stamp("journal:4f1c:orders:0")
    assert stamp.texts(first, last) == [stamp.text(position) for position in range(first, last + 1)]


@given(identities, positions, st.integers(0, 35), st.sampled_from("0123456789abcdefABCDEF-_ +٣\n"))
def test_a_changed_character_makes_another_id_or_none(
    identity: str, position: int, place: int, character: str
) -> None:
    text = Stamp(identity).text(position)
    changed = text[:place] + character + text[place + 1 :]
    parsed = parse(changed)
    if parsed is None:
        assert changed != text
    else:
        # Only what we would have written ourselves is read at all.
        prefix, found = parsed
        assert uuid8(prefix >> 12, prefix & 0xFFF, MARK << 50 | found) == changed


@given(st.binary(max_size=12), st.integers(1, 10))
def test_bytes_are_canonical_as_they_are(value: bytes, limit: int) -> None:
    if 1 <= len(value) <= limit:
        assert producer_id(value, limit) == value
    else:
        with pytest.raises(InvalidId) as raised:
            producer_id(value, limit)
        assert (raised.value.limit, raised.value.found) == (limit, len(value))


@given(st.text(min_size=1, max_size=12), st.text(min_size=1, max_size=12))
def test_text_and_bytes_meet_only_where_they_are_the_same(one: str, other: str) -> None:
    """D3."""
    assert producer_id(one, 1024) == producer_id(one.encode(), 1024)
    assert (producer_id(one, 1024) == producer_id(other, 1024)) == (one == other)
