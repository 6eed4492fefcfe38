"""How often Python looks for reference cycles in a process of ours."""

from __future__ import annotations

import gc
from typing import Final

#: Containers made and not freed until the youngest are looked at; Python's own number is 700. A batch makes
#: thousands of tuples that all live until it is delivered: looking at them took a tenth of a relay's time.
#: Cycles are few and small here, so what waits for the next look is, too.
YOUNG: Final = 50_000
#: Looks at the youngest until the middle ones are looked at, and of those until all are: Python's own.
LOOKS: Final = 10


def tune() -> None:
    """Look seldom, and never at what a process has made by now: modules, classes and settings stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, LOOKS, LOOKS)
