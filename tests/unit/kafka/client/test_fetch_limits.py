"""What a consumer fetches at a time: bounded in all, and with room for every partition."""

from __future__ import annotations

import pytest

from bridge.kafka.client.fetch_limits import FETCH_MAX_WAIT_MS, MOST_MAX_WAIT_MS, fetch_options

MIB = 2**20


@pytest.mark.parametrize(
    ("partitions", "part"),
    [(0, 2 * MIB), (1, 2 * MIB), (2, 2 * MIB), (4, MIB), (5, 4 * MIB // 5), (1_000, MIB // 16)],
)
def test_each_partition_has_room_in_every_fetch(partitions: int, part: int) -> None:
    options = fetch_options(MIB, {}, partitions)
    assert (options["max_partition_fetch_bytes"], options["fetch_max_bytes"]) == (part, 4 * MIB)


@pytest.mark.parametrize(
    ("partitions", "wait_ms"),
    [(1, FETCH_MAX_WAIT_MS), (500, FETCH_MAX_WAIT_MS), (1_000, 200), (10_000, MOST_MAX_WAIT_MS)],
)
def test_a_fetch_that_names_many_partitions_may_wait_longer(partitions: int, wait_ms: int) -> None:
    assert fetch_options(MIB, {}, partitions)["fetch_max_wait_ms"] == wait_ms


def test_small_batches_are_fetched_in_larger_parts() -> None:
    options = fetch_options(1_000, {}, 8)
    assert (options["max_partition_fetch_bytes"], options["fetch_max_bytes"]) == (64 * 1024, 256 * 1024)


def test_what_the_settings_say_is_left_alone() -> None:
    assert fetch_options(MIB, {"max_partition_fetch_bytes": 5, "fetch_max_wait_ms": 7}) == {
        "fetch_max_bytes": 4 * MIB
    }
