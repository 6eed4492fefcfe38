"""Routes: the queues that a block's messages are addressed to, packed and read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.journal.values.routes import EVERY, QueueSet, addressed, pack_routes, unpack_sets

COUNT = 40
taken_by_queue = st.dictionaries(st.text(max_size=3), st.sets(st.integers(0, COUNT - 1)), max_size=5)


@given(taken_by_queue)
def test_each_queue_gets_what_it_took_and_every_other_queue_everything(taken: dict[str, set[int]]) -> None:
    routes, by_nobody = pack_routes(COUNT, {queue: sorted(some) for queue, some in taken.items()}, taken)
    for queue, indices in taken.items():
        ranges = addressed(routes, queue, COUNT)
        assert [index for low, high in ranges for index in range(low, high)] == sorted(indices)
        ends = [end for _, end in ranges]
        starts = [start for start, _ in ranges[1:]]
        assert all(end < start for end, start in zip(ends, starts, strict=False)), "ranges do not touch"
    assert addressed(routes, "another", COUNT) == [(0, COUNT)]
    if taken:
        assert by_nobody == COUNT - len(set().union(*taken.values()))


names = st.lists(st.sampled_from("abcd"), unique=True, max_size=3).map(tuple)
queue_sets = st.builds(QueueSet, st.sampled_from(["except", "only"]), names)


@given(
    st.lists(queue_sets, min_size=COUNT, max_size=COUNT),
    st.dictionaries(st.sampled_from("abc"), st.sets(st.integers(0, COUNT - 1)), max_size=2),
)
def test_a_queue_gets_what_names_it_and_its_filter_takes(
    sets: list[QueueSet], taken: dict[str, set[int]]
) -> None:
    there = ["a", "b", "c"]
    routes, by_nobody = pack_routes(COUNT, {name: sorted(some) for name, some in taken.items()}, there, sets)
    got = {}
    for queue in (*there, "later"):
        ranges = addressed(routes, queue, COUNT)
        got[queue] = {index for low, high in ranges for index in range(low, high)}
        named = {index for index, one in enumerate(sets) if (queue in one.names) == (one.kind == "only")}
        assert got[queue] == named & taken.get(queue, named)
    assert by_nobody == COUNT - len(got["a"] | got["b"] | got["c"])
    unpacked = unpack_sets(routes, COUNT)
    assert all(unpacked[index].has(queue) == (index in got[queue]) for queue in got for index in range(COUNT))


def test_a_block_that_every_queue_takes_has_no_routes() -> None:
    assert pack_routes(3, {"a": [0, 1, 2], "b": [0, 1, 2]}, "ab") == (None, 0)
    assert pack_routes(3, {}, ["a"], [EVERY] * 3) == (None, 0)
    assert addressed(None, "a", 3) == [(0, 3)]


def test_names_are_stored_once_and_alternating_messages_take_some_bytes_each() -> None:
    routes, _ = pack_routes(1000, {"x" * 200: range(0, 1000, 2)}, ["x" * 200])
    assert routes is not None
    assert len(routes) < 200 + 4 * 1000
