"""How much a source's consumer fetches at a time, and for how long a broker may keep it waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: How long a broker keeps a fetch that finds nothing. New data ends it at once; a partition that is not part
#: of it waits for its end, so it is short.
FETCH_MAX_WAIT_MS: Final = 100
#: A fetch of one partition brings at most this many batches' bytes: while one is stored another is there...
PARTITION_BATCHES: Final = 2
#: ...one of all partitions this many from each broker, and each has its part of them...
FETCH_BATCHES: Final = 4
#: ...but a batch counts for this at least, and so does a part: a small fetch costs what a large one does.
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
        "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
        "max_partition_fetch_bytes": part,
        "fetch_max_bytes": whole,
    }
    return {name: value for name, value in options.items() if name not in chosen}
