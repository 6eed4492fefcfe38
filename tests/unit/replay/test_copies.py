"""What counting copies says of messages that a plan names."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.replay.copies import ONCE, Due, Judged, Key, Standing, Tally, fingerprint, standing


@pytest.mark.parametrize(
    ("held", "due", "said"),
    [
        (0, ONCE, Standing.MISSING),
        (1, ONCE, Standing.THERE),
        (2, ONCE, Standing.THERE),
        (2, Due(10, 10), Standing.MISSING),
        (10, Due(10, 10), Standing.THERE),
        # The source no longer has all of them, or some are not known to be covered: copies may be of those.
        (0, Due(0, None), Standing.MISSING),
        (1, Due(1, None), Standing.UNKNOWN),
        (1, Due(2, None), Standing.MISSING),
        (2, Due(2, 3), Standing.UNKNOWN),
        (3, Due(2, 3), Standing.THERE),
    ],
)
def test_a_message_is_there_once_all_that_equal_it_are(held: int, due: Due, said: Standing) -> None:
    assert standing(held, due) is said


def test_ten_equal_messages_of_which_two_are_there_are_sent_eight_times() -> None:
    tally = Tally()
    held: Counter[Key] = Counter({"k": 2})
    batches = [[(at, "k") for at in range(first, first + 5)] for first in (0, 5)]
    first = tally.judge(batches[0], held.__getitem__, lambda _: Due(10, 10))
    assert first == Judged()
    tally.stored(key for _, key in batches[0])
    assert tally.judge(batches[1], held.__getitem__, lambda _: Due(10, 10)) == Judged(frozenset({8, 9}))


def test_a_checked_id_is_sent_once_and_what_has_none_always() -> None:
    tally = Tally()
    judged = tally.judge([(3, b"id"), (4, b"id"), (5, None)], lambda _: 0, lambda _: ONCE)
    assert judged == Judged(frozenset({4}))
    # What was judged but not stored is judged anew.
    assert tally.judge([(3, b"id")], lambda _: 0, lambda _: ONCE) == Judged()


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.booleans())
def test_what_is_sent_makes_no_more_than_are_due_and_what_is_there_is_never_claimed_too_early(
    wanted: int, more: int, held: int, is_whole: bool
) -> None:
    due = Due(wanted + more, wanted + more if is_whole else None)
    judged = Tally().judge([(at, "k") for at in range(wanted)], lambda _: held, lambda _: due)
    sent = wanted - len(judged.known) - len(judged.unknown)
    assert sent == min(wanted, max(due.least - held, 0))
    assert (len(judged.known), len(judged.unknown)) == (
        (wanted - sent, 0) if is_whole else (0, wanted - sent)
    )


def test_a_fingerprint_tells_id_key_and_body_apart() -> None:
    found = {
        fingerprint(*parts)
        for parts in ((b"a", b"b", b"c"), (b"ab", b"", b"c"), (b"ab", None, b"c"), (b"a", b"b", None))
    }
    assert len(found) == 4
