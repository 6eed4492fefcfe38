"""Random damage to a journal: each error has a name, and no message is lost or changed in silence."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.harness.rounds import rounds
from tests.integration.journal.random_damage import Tally, make_original, one_round

SEED = 20_260_301


async def damage(directory: Path, seed: int, number: int) -> Tally:
    print(f"seed {seed}")
    rng = random.Random(seed)
    original = await make_original(directory, rng)
    tally = Tally()
    for place in range(number):
        await one_round(original, directory / f"round-{place}", random.Random(rng.random()), tally)
    print(tally)
    return tally


async def test_random_damage_is_named_and_loses_nothing_in_silence(tmp_path: Path) -> None:
    tally = await damage(tmp_path, SEED, rounds(40))
    assert (tally.found and tally.refused) or rounds(40) < 40


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
async def test_much_random_damage_is_named_and_loses_nothing_in_silence(tmp_path: Path, seed: int) -> None:
    await damage(tmp_path, seed + 1, rounds(60))
