"""The demo's last step: Spark compares the delivery logs of its nodes."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bridge.client.exit_codes import Exit


def logs_in(directory: Path) -> list[Path]:
    """The delivery logs of the nodes whose data directories are in `directory`."""
    return sorted(directory.glob("*/delivery-log"))


def copy_logs(directory: Path, to: Path) -> None:
    """Copy the delivery log of each node to a directory of the node's name in `to`. Raises: OSError."""
    for log in logs_in(directory):
        shutil.copytree(log, to / log.parent.name.removesuffix("-data"))


async def reconcile(logs: Sequence[Path], output: Path, say: Callable[[str], None]) -> bool:
    """Run `core-bridge reconcile`, in a process of its own that frees its memory at the end.

    Args:
        logs: directories of delivery logs.
        output: directory of the report.
        say: gets each line that the command prints.

    Returns:
        False where the logs do not account for every message. Where Spark or Java is missing, the command
        says what to install, and that does not count against the demo.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bridge", "reconcile", "--output", str(output), "--logs", *map(str, logs)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:  # cancelled: Ctrl-C, or SIGTERM
            process.kill()
            await process.wait()
    for line in printed.decode(errors="replace").splitlines():
        say(line)
    return process.returncode in (Exit.OK, Exit.USAGE)
