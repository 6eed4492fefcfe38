"""Limits of a source's fetches: their sizes, and how long a broker may delay one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: How long a broker delays a fetch that finds nothing. New data ends the wait at once, but a partition that
#: is not part of the fetch waits for its end, so it is short.
FETCH_MAX_WAIT_MS: Final = 100
#: A fetch names each of its partitions, which costs time at both ends: one of more than 500 may be delayed by
#: this much more for each, up to so long.
WAIT_A_PARTITION_MS: Final = 0.2
MOST_MAX_WAIT_MS: Final = 1_000
#: A fetch of one partition brings at most the bytes of so many batches: one is stored, another is ready...
PARTITION_BATCHES: Final = 2
#: ...a fetch of all partitions so many from each broker, of which each partition has its part...
FETCH_BATCHES: Final = 4
#: ...but each batch and each part counts for at least this: a small fetch costs what a large one does.
MIN_FETCH_BYTES: Final = 64 * 1024


def fetch_options(batch_bytes: int, chosen: Mapping[str, Any], partitions: int = 1) -> dict[str, Any]:
    """The consumer's options for batches of `batch_bytes`, less those that the settings have `chosen`.

    They bound what a consumer holds of each broker: one fetch that was taken, and one that waits. A record
    larger than a fetch still comes, for a broker sends the first record batch of the first partition whole
    (KIP-74), and aiokafka shuffles the partitions. All the same, each of the `partitions` that are read
    together has room in every fetch: where some of them filled it, the others would come when the dice say
    so, and while a bridge catches up they fall behind by more than the IDs that its target remembers
    (docs/kafka-traps.md 21).
    """
    fetch_bytes = max(batch_bytes, MIN_FETCH_BYTES)
    whole = fetch_bytes * FETCH_BATCHES
    part = min(fetch_bytes * PARTITION_BATCHES, max(whole // max(partitions, 1), MIN_FETCH_BYTES))
    options = {
        "fetch_max_wait_ms": min(
            max(FETCH_MAX_WAIT_MS, int(partitions * WAIT_A_PARTITION_MS)), MOST_MAX_WAIT_MS
        ),
        "max_partition_fetch_bytes": part,
        "fetch_max_bytes": whole,
    }
    return {name: value for name, value in options.items() if name not in chosen}
