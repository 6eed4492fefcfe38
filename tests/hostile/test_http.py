"""Hostile HTTP clients: after each the node serves others, and is no larger than before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.hostile import http_cases
from tests.hostile.link_cases import Case
from tests.hostile.rig import Victim, shuffled


@pytest.mark.parametrize(
    "cases",
    [
        http_cases.out_of_turn,
        http_cases.lengths,
        http_cases.too_much,
        http_cases.half_open,
        http_cases.names,
    ],
)
def test_the_node_outlives_every(node: Victim, cases: Callable[[], Iterator[Case]]) -> None:
    for case in cases():
        node.attack(case)


@pytest.mark.parametrize("cases", [http_cases.odd_fields, http_cases.odd_headers])
def test_the_node_outlives_odd_values_anywhere(
    node: Victim, cases: Callable[[], Iterator[Case]], rng: random.Random
) -> None:
    for case in shuffled(cases(), rng, 100):
        node.attack(case)
