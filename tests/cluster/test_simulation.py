"""Random histories on real nodes: nothing is lost or doubled, and each rule is needed.

`python -m tests.cluster.simulation --first SEED --seeds 1` repeats the history of one seed.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.shape import FAR, Shape
from tests.cluster.simulation.history import Outcome, run
from tests.cluster.simulation.rules import NOT_NEEDED, RULES

#: Histories of `make test`, in parts that share the work, and those of `make test-cluster-long`.
PARTS: Final = 2
SEEDS_A_PART: Final = 2
LONG_SEEDS: Final = 300
#: Shapes of clusters whose copies pass other nodes, of which `make test` runs a history each, and the
#: histories that `make test-cluster-long` runs of each.
SHAPES: Final = 2
LONG_SEEDS_FAR: Final = 40
#: Histories in which a rule that is left out has to fail: these many, from the first of which it is known.
TRIES: Final = 40
FIRST: Final = {
    "answer-after-commit": 6,
    "coverage": 2,
    "destinations-fixed": 2,
    "gone-queue": 2,
    "move-atomic": 3,
    "next-with-messages": 13,
    "opening-in-version": 12,
    "skip-leased": 8,
    "stable-stream": 13,
    "sticky-producer": 2,
    "topology-version": 2,
}
#: A tmpfs where there is one: a commit there takes no disk.
MEMORY: Final = Path("/dev/shm")


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        yield Path(directory)


def _outcome(seed: int, without: str = "", shape: Shape | None = None) -> Outcome:
    with _directory() as directory:
        return run(seed, directory, [without] if without else [], shape)


@functools.cache
def _remembered(seed: int) -> Outcome:
    """The outcome of a history, which each process runs once."""
    return _outcome(seed)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_histories_lose_and_double_nothing(part: int) -> None:
    for seed in range(part * SEEDS_A_PART, (part + 1) * SEEDS_A_PART):
        outcome = _remembered(seed)
        assert not outcome.error, f"seed {seed}: {outcome.error}"
        assert outcome.stats["messages"]


def _check_far(seed: int, shape: Shape) -> Outcome:
    """Nothing is lost or doubled, and nothing has gone so far round that it became a dead letter."""
    outcome = _outcome(seed, shape=shape)
    assert not outcome.error, f"{shape}, seed {seed}: {outcome.error}"
    assert not outcome.stats["too many hops"], f"{shape}, seed {seed}: {outcome.stats}"
    return outcome


@pytest.mark.parametrize("shape", FAR[:SHAPES], ids=str)
def test_c17_c22_histories_of_chains_and_rings_lose_and_double_nothing(shape: Shape) -> None:
    """C17, C22: neighbours are killed, and cannot reach each other for a while."""
    outcome = _check_far(0, shape)
    assert outcome.stats["placed elsewhere"]
    assert outcome.stats["severed"]


@pytest.mark.parametrize("rule", sorted(RULES.keys() - NOT_NEEDED))
def test_without_the_rule_a_history_fails(rule: str) -> None:
    first = FIRST.get(rule, 0)
    for seed in range(first, first + TRIES):
        outcome = _outcome(seed, rule)
        if outcome.error:
            print(f"without {rule}, {RULES[rule][0]}: seed {seed}: {outcome.error}")
            return
    pytest.fail(f"without {rule} ({RULES[rule][0]}) none of the seeds {first} to {first + TRIES - 1} fails")


def test_a_seed_gives_the_same_history_each_time() -> None:
    assert _outcome(0) == _remembered(0)


@pytest.mark.cluster_long
@pytest.mark.parametrize("part", range(10))
def test_many_random_histories_lose_and_double_nothing(part: int) -> None:
    size = LONG_SEEDS // 10
    outcomes = [_outcome(1000 + seed) for seed in range(part * size, (part + 1) * size)]
    assert {one.seed: one.error for one in outcomes if one.error} == {}


@pytest.mark.cluster_long
@pytest.mark.parametrize("shape", FAR, ids=str)
def test_many_histories_of_chains_and_rings_lose_and_double_nothing(shape: Shape) -> None:
    for seed in range(LONG_SEEDS_FAR):
        _check_far(seed, shape)
