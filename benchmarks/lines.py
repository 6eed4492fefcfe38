"""Slow, far and breaking lines: the rows of `tests/lines`, the departures, alarms behind a backlog."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

from tests.harness.certificates import make_certificates
from tests.lines import table
from tests.lines.rows import Measured, run_together
from tests.lines.special import alarm, departures


def run(directory: Path, pattern: str, at_once: int) -> None:
    """Print the rows whose name contains the expression, as they end."""
    directory = directory.resolve()
    chosen = [row for row in table.rows() if re.search(pattern, row.name)]
    (directory / "certificates").mkdir(parents=True)
    assert list(make_certificates(directory / "certificates", "node"))
    out = sys.stdout
    with Path(os.devnull).open("w") as logs, contextlib.redirect_stdout(logs):
        for row, found in run_together(chosen, directory / "rows", directory / "certificates", at_once):
            text = found.text if isinstance(found, Measured) else f"{row.name}: {found!r}"
            print(text, file=out, flush=True)
        for name, what in (("departures", departures), ("alarm", alarm)):
            if re.search(pattern, name):
                print(what(directory / name).text, file=out, flush=True)
