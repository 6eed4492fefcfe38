"""Hostile peers on the node link: after each the node serves others, and is no larger than before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.hostile import link_cases
from tests.hostile.link_cases import Case
from tests.hostile.rig import Victim, shuffled


@pytest.mark.parametrize(
    "cases",
    [
        link_cases.out_of_turn,
        link_cases.lies,
        link_cases.too_much,
        link_cases.half_open,
        link_cases.compressed,
        link_cases.names,
    ],
)
def test_the_node_outlives_every(node: Victim, cases: Callable[[], Iterator[Case]]) -> None:
    for case in cases():
        node.attack(case)


def test_the_node_outlives_odd_values_in_any_field(node: Victim, rng: random.Random) -> None:
    for case in shuffled(link_cases.odd_fields(), rng, 120):
        node.attack(case)
