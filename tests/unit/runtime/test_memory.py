from __future__ import annotations

import subprocess
import sys

import pytest

#: Ten buffers of 1 MiB at a time, as batches are, 50 times; prints the pages that the kernel had to clear.
BUFFERS = """
import resource, sys
from bridge.runtime import memory
if sys.argv[1] == "tuned":
    memory.tune()
def work():
    for _ in range(50):
        buffers = [b"x" * ((1 << 20) + number) for number in range(10)]
        del buffers
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", BUFFERS, how], check=True, capture_output=True, text=True)
    return int(ran.stdout)


@pytest.mark.processes
def test_freed_buffers_are_used_again_and_not_given_back_to_be_cleared() -> None:
    assert faults("tuned") * 50 < faults("as it is")
