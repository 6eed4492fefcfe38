"""Sets how often Python looks for reference cycles in the node's processes."""

from __future__ import annotations

import gc
from typing import Final

#: Containers made and not freed until the youngest are examined; Python's own number is 700. A batch makes
#: thousands of tuples that all live until it is delivered: examining them took a tenth of a relay's time.
#: Cycles are few and small here, so the garbage that waits for the next examination is small, too.
YOUNG: Final = 50_000
#: Examinations of the youngest until the middle ones are examined, and of those until all are: Python's own.
LOOKS: Final = 10


def tune() -> None:
    """Examine seldom, and never the objects that a process has made by now: modules, classes and settings
    stay.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, LOOKS, LOOKS)
