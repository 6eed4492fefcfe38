"""`core-bridge COMMAND` as a process, run to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.harness.eventually import PATIENCE_S

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    """For the product's processes: found wherever they are started, and with no settings of the caller's."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("CORE_BRIDGE_")}
    return own | {"PYTHONPATH": str(ROOT)} | variables


def command(
    *arguments: str,
    data: bytes = b"",
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = PATIENCE_S,
) -> Ended:
    """Run ``core-bridge ARGUMENTS`` to its end."""
    ran = subprocess.run(
        [sys.executable, "-m", "bridge", *arguments],
        input=data,
        capture_output=True,
        cwd=cwd,
        env=environment(**(variables or {})),
        timeout=timeout_s,
        check=False,
    )
    assert b"Traceback" not in ran.stderr, ran.stderr.decode()
    return Ended(ran.returncode, ran.stdout.decode(), ran.stderr.decode())
