"""The ID cache: memory an ID, time an ID, time to load; each beside a bare `set` in the same run.

    python -m benchmarks.id_cache            all of it, some 30 s
    python -m benchmarks.id_cache --quick    a quarter of the rounds

Every case runs in a process of its own, so that resident memory is its own. Steady state: the cache
is full, every batch of 500 is unknown, so 500 IDs are checked, accepted, and overwrite 500 others.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from time import perf_counter

from dedup.cache import IdCache

BATCH = 500
#: Batches a round; IDs are made between rounds, outside the measured time.
ROUND = 100
#: The journal hands IDs out in blocks of this many.
LOAD_BLOCK = 500
SEED = 20130101

#: (capacity, bytes an ID) -> most bytes of memory an ID, most µs a check-and-insert.
BUDGETS: dict[tuple[int, int], tuple[int | None, float]] = {
    (20_000, 16): (None, 0.3),
    (20_000, 36): (None, 0.3),
    (1_000_000, 16): (100, 0.5),
    (1_000_000, 36): (125, 0.5),
}
LOAD_SECONDS_A_MILLION = 1.0


def batches(chance: random.Random, count: int, id_bytes: int) -> Iterator[list[bytes]]:
    for _ in range(count):
        joined = chance.randbytes(id_bytes * BATCH)
        yield [joined[start : start + id_bytes] for start in range(0, len(joined), id_bytes)]


def resident() -> int:
    """Bytes of memory of this process; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def measure(capacity: int, id_bytes: int, rounds: int) -> dict[str, float]:
    chance = random.Random(SEED)
    cache = IdCache(capacity)
    gc.collect()
    before = resident()
    cache.load(chain.from_iterable(batches(chance, capacity // BATCH, id_bytes)))
    loaded = resident() - before
    for batch in batches(chance, capacity // BATCH, id_bytes):
        cache.check_and_add(batch)
    used = resident() - before
    checked, grouped = [], []
    for _ in range(rounds):
        checked.append(steady(cache, list(batches(chance, ROUND, id_bytes))))
        grouped.append(in_groups(cache, list(batches(chance, ROUND, id_bytes))))
    blocks = list(batches(chance, capacity // BATCH, id_bytes))
    load = load_seconds(capacity, blocks)
    del cache
    # The yardstick: a set of as many IDs that takes as many more, checks nothing, forgets nothing.
    plain = set(chain.from_iterable(blocks))
    del blocks
    bare = [updates(plain, list(batches(chance, ROUND, id_bytes))) for _ in range(rounds)]
    return {
        "bytes_loaded": loaded / capacity,
        "bytes_used": used / capacity,
        "check_us": statistics.median(checked) * 1e6,
        "check_mean_us": statistics.fmean(checked) * 1e6,
        "overlay_us": statistics.median(grouped) * 1e6,
        "set_us": statistics.median(bare) * 1e6,
        "load_s_per_million": load / capacity * 1e6,
    }


def load_seconds(capacity: int, blocks: list[list[bytes]]) -> float:
    cache = IdCache(capacity)
    started = perf_counter()
    cache.load(chain.from_iterable(blocks))
    taken = perf_counter() - started
    assert len(cache) == capacity
    return taken


def steady(cache: IdCache, brought: list[list[bytes]]) -> float:
    started = perf_counter()
    for batch in brought:
        if cache.check_and_add(batch):
            raise AssertionError("an unknown ID was known")
    return (perf_counter() - started) / (len(brought) * BATCH)


def in_groups(cache: IdCache, brought: list[list[bytes]]) -> float:
    """As the journal's writer does: check, add, and commit a group of four units."""
    started = perf_counter()
    for first in range(0, len(brought), 4):
        overlay = cache.overlay()
        for unit in brought[first : first + 4]:
            if overlay.known(unit):
                raise AssertionError("an unknown ID was known")
            overlay.add(unit)
        overlay.commit()
    return (perf_counter() - started) / (len(brought) * BATCH)


def updates(plain: set[bytes], brought: list[list[bytes]]) -> float:
    started = perf_counter()
    for batch in brought:
        plain.update(batch)
    return (perf_counter() - started) / (len(brought) * BATCH)


def in_own_process(capacity: int, id_bytes: int, rounds: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.id_cache", "--case", str(capacity), str(id_bytes)]
    done = subprocess.run(
        [*command, "--rounds", str(rounds)],
        cwd=Path(__file__).parents[1],
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def report(rounds: int) -> bool:
    """Print the table; whether every budget was kept."""
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"batches of {BATCH}, median of {rounds} rounds of {ROUND * BATCH:,} IDs"
    )
    print(
        f"{'capacity':>9} {'ID':>4} {'loaded':>8} {'in use':>8} {'check+add':>10} {'mean':>8} "
        f"{'overlay':>9} {'bare set':>9} {'ratio':>6} {'load 1M':>8}  budget"
    )
    kept = True
    for (capacity, id_bytes), (most_bytes, most_us) in BUDGETS.items():
        found = in_own_process(capacity, id_bytes, rounds)
        broken = [
            name
            for name, value, most in (
                ("memory", max(found["bytes_loaded"], found["bytes_used"]), most_bytes),
                ("time", found["check_us"], most_us),
                ("load", found["load_s_per_million"], LOAD_SECONDS_A_MILLION),
            )
            if most is not None and value > most
        ]
        kept = kept and not broken
        print(
            f"{capacity:>9,} {id_bytes:>3}B {found['bytes_loaded']:>6.1f} B {found['bytes_used']:>6.1f} B "
            f"{found['check_us']:>7.3f} µs {found['check_mean_us']:>5.3f} µs {found['overlay_us']:>6.3f} µs "
            f"{found['set_us']:>6.3f} µs {found['check_us'] / found['set_us']:>6.2f} "
            f"{found['load_s_per_million']:>6.2f} s  {'BROKEN: ' + ', '.join(broken) if broken else 'kept'}",
            flush=True,
        )
    print(
        "loaded, in use: resident memory an ID, after loading and after all were overwritten once.\n"
        "overlay: known, add and commit, four units a group. ratio: check+add to a bare set.update."
    )
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a quarter of the rounds")
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--case", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rounds = arguments.rounds or (5 if arguments.quick else 20)
    if arguments.case:
        print(json.dumps(measure(arguments.case[0], arguments.case[1], rounds)))
        return 0
    return 0 if report(rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
