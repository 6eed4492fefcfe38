"""A node without filters loads no parser."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.processes
def test_lark_is_loaded_with_the_first_condition() -> None:
    program = (
        "import sys, bridge.filters as filters\n"
        "before = {'lark', 'xml.parsers.expat'} & sys.modules.keys()\n"
        "filters.parse('x = 1')\n"
        "print(sorted(before), 'lark' in sys.modules, 'xml.parsers.expat' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["[]", "True", "False"]
