"""Hostile peers on the node link: after each the node serves others, and is no larger than before."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.hostile import link_cases
from tests.hostile.link_cases import Case
from tests.hostile.rig import Victim, shuffled

#: Cases of the long run; to be shared by all kinds of them.
LONG: int = 100_000


@pytest.mark.parametrize(
    "cases",
    [
        link_cases.out_of_turn,
        link_cases.lies,
        link_cases.too_much,
        link_cases.half_open,
        link_cases.names,
    ],
)
def test_the_node_outlives_every(node: Victim, cases: Callable[[], Iterator[Case]]) -> None:
    for case in cases():
        node.attack(case)


def test_the_node_outlives_odd_values_in_any_field(node: Victim, rng: random.Random) -> None:
    for case in shuffled(link_cases.odd_fields(), rng, 120):
        node.attack(case)


@pytest.mark.hostile
def test_the_node_outlives_a_hundred_thousand_cases(node: Victim, rng: random.Random) -> None:
    # `too_much` takes a second each: all of them once, then now and again.
    for case in link_cases.link_cases():
        node.attack(case)
    quick = [case for case in link_cases.link_cases() if case.name not in _SLOW]
    for case in shuffled(quick, rng, LONG):
        node.attack(case)


_SLOW = frozenset(case.name for case in link_cases.too_much())
