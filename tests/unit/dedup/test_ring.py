"""The keys of large caches, and the memory that they are made for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.ring import compact_keys, restored_ids

ROOT = Path(__file__).parents[3]
MILLION = 1_000_000


@given(st.lists(st.binary(max_size=20) | st.binary(min_size=16, max_size=16)))
def test_every_id_has_a_key_of_its_own_and_comes_back_from_it(ids: list[bytes]) -> None:
    keys = compact_keys(ids)
    assert list(restored_ids(keys)) == ids
    assert len(set(keys)) == len(set(ids))
    assert compact_keys(ids) == keys


def test_sixteen_bytes_become_an_integer_of_48_bytes() -> None:
    (key,) = compact_keys([b"\xff" * 16])
    assert isinstance(key, int)
    assert sys.getsizeof(key) <= 48


def test_ids_aimed_at_one_slot_do_not_meet() -> None:
    """2**61 - 1 is what integers are hashed by: its multiples would all lie in one place."""
    aimed = [(number * (2**61 - 1)).to_bytes(16, "little") for number in range(1, 1_001)]
    assert len({hash(int.from_bytes(value, "little")) for value in aimed}) == 1
    assert len({hash(key) for key in compact_keys(aimed)}) > 990


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to measure memory")
@pytest.mark.parametrize(("id_bytes", "most"), [(16, 100), (36, 125)])
def test_a_million_ids_take_no_more_memory_than_the_issue_allows(id_bytes: int, most: int) -> None:
    """Resident memory of a process of its own, after loading and after a quarter was overwritten."""
    script = f"""
import os, random
from dedup.cache import IdCache
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
chance = random.Random(20130101)
cache = IdCache({MILLION})
before = resident()
cache.load(chance.randbytes({id_bytes}) for _ in range({MILLION}))
loaded = resident() - before
for _ in range(500):
    cache.check_and_add([chance.randbytes({id_bytes}) for _ in range(500)])
print(loaded / {MILLION}, (resident() - before) / {MILLION})
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded, used = map(float, done.stdout.split())
    assert 40 < loaded <= most
    assert 40 < used <= most
