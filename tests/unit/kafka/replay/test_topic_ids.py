"""The IDs that a topic holds, in little memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import TargetRefused
from bridge.kafka.replay.topic_ids import PresentIds
from dedup.ids import Stamp

STAMPS = [Stamp(f"kafka:c:t:{number}") for number in range(3)]
values = st.one_of(
    st.builds(lambda stamp, at: stamp.text(at).encode(), st.sampled_from(STAMPS), st.integers(0, 40)),
    st.binary(min_size=1, max_size=3),
)


@given(st.lists(values, max_size=80), st.lists(values, max_size=20))
def test_exactly_what_was_added_is_in_it(added: list[bytes], asked: list[bytes]) -> None:
    """Also between one addition and the next."""
    present = PresentIds()
    for index, value in enumerate(added):
        present.add(value)
        if index % 7 == 0:
            assert value in present
    for value in [*added, *asked]:
        assert (value in present) == (value in added)


def test_stamped_ids_of_one_partition_are_one_entry() -> None:
    present = PresentIds(limit=4)
    for text in STAMPS[0].texts(0, 9_999):
        present.add(text.encode())
    assert STAMPS[0].text(9_999).encode() in present
    assert STAMPS[0].text(10_000).encode() not in present


def test_stamped_ids_that_come_out_of_order_are_joined_before_there_are_too_many() -> None:
    present = PresentIds(limit=100)
    texts = [text.encode() for text in STAMPS[0].texts(0, 999)]
    for text in (*texts[500:], *texts[:500]):
        present.add(text)
    assert all(text in present for text in texts)


def test_more_than_the_limit_is_refused_with_the_limit() -> None:
    present = PresentIds(limit=100)
    for number in range(100):
        present.add(b"id-%d" % number)
    with pytest.raises(TargetRefused, match="more than 100 duplicate IDs") as refused:
        present.add(b"id-100")
    assert (refused.value.limit, refused.value.found) == (100, 101)
