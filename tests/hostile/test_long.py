"""100,000 cases of hostile peers and clients on one node, in any order (`make test-hostile`)."""

from __future__ import annotations

import os
import random
from typing import Final

import pytest

from tests.hostile import http_cases, link_cases
from tests.hostile.rig import Victim, shuffled

#: `HOSTILE_CASES` takes another number.
CASES: Final = int(os.environ.get("HOSTILE_CASES", "100000"))
#: Honest company is looked at after each so many: it takes longer than a case.
COMPANY_EVERY: Final = 5


@pytest.mark.hostile
def test_the_node_outlives_a_hundred_thousand_cases(node: Victim, rng: random.Random) -> None:
    slow = [*link_cases.too_much(), *http_cases.too_much()]
    for case in slow:  # a second each: all of them once
        node.attack(case)
    names = {case.name for case in slow}
    quick = [case for case in link_cases.link_cases() if case.name not in names]
    both = [*quick, *http_cases.quick_cases()]
    for number, case in enumerate(shuffled(both, rng, CASES - len(slow))):
        node.attack(case, serves=number % COMPANY_EVERY == 0)
