"""Sets how the node's processes use memory: when the C library gives it back, and how often Python looks for
reference cycles.

Sources: mallopt(3); the figures are of `make bench ARGS=nodes`, 1 KiB messages, glibc 2.36.
"""

from __future__ import annotations

import ctypes
import gc
from typing import Final

#: Containers made and not freed until the youngest are examined; Python's own number is 700. A batch makes
#: thousands of tuples that all live until it is delivered: examining them took a tenth of a relay's time.
#: Cycles are few and small here, so the garbage that waits for the next examination is small, too.
YOUNG: Final = 50_000
#: Examinations of the youngest until the middle ones are examined, and of those until all are: Python's own.
LOOKS: Final = 10

#: glibc's parameters by number (malloc.h) and their values. Batches are buffers of about 1 MiB that live for
#: milliseconds. By default each goes back to the kernel, which clears its pages for the next one: that took
#: half of a sender's time and a third of a receiver's. So a buffer below 4 MiB stays with the process, up to
#: 16 MiB of free memory at the end of the heap; a larger one still goes back as soon as it is freed. With few
#: heaps, threads find each other's free buffers: the peak is lower than by default.
ALLOCATOR: Final = {
    "M_MMAP_THRESHOLD": (-3, 4 * 1024 * 1024),
    "M_TRIM_THRESHOLD": (-1, 16 * 1024 * 1024),
    "M_ARENA_MAX": (-8, 2),
}


def tune() -> None:
    """Keep freed buffers for the next ones; look for cycles seldom, and never among the objects that exist by
    now: modules, classes and settings stay.

    Called once, before threads are started. Another C library than glibc keeps its own ways.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in ALLOCATOR.values():
            mallopt(parameter, value)
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, LOOKS, LOOKS)
