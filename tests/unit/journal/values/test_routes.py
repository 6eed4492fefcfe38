"""Routes: the queues that a block's messages are addressed to, packed and read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.journal.values.routes import addressed, pack_routes

COUNT = 40
taken_by_queue = st.dictionaries(st.text(max_size=3), st.sets(st.integers(0, COUNT - 1)), max_size=5)


@given(taken_by_queue)
def test_each_queue_gets_what_it_took_and_every_other_queue_everything(taken: dict[str, set[int]]) -> None:
    routes, by_nobody = pack_routes(COUNT, {queue: sorted(indices) for queue, indices in taken.items()})
    for queue, indices in taken.items():
        ranges = addressed(routes, queue, COUNT)
        assert [index for low, high in ranges for index in range(low, high)] == sorted(indices)
        ends = [end for _, end in ranges]
        starts = [start for start, _ in ranges[1:]]
        assert all(end < start for end, start in zip(ends, starts, strict=False)), "ranges do not touch"
    assert addressed(routes, "another", COUNT) == [(0, COUNT)]
    if taken:
        assert by_nobody == COUNT - len(set().union(*taken.values()))


def test_a_block_that_every_queue_takes_has_no_routes() -> None:
    assert pack_routes(3, {"a": [0, 1, 2], "b": [0, 1, 2]}) == (None, 0)
    assert addressed(None, "a", 3) == [(0, 3)]


def test_names_are_stored_once_and_alternating_messages_take_some_bytes_each() -> None:
    routes, _ = pack_routes(1000, {"x" * 200: range(0, 1000, 2)})
    assert routes is not None
    assert len(routes) < 200 + 4 * 1000
