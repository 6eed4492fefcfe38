"""`core-bridge COMMAND` as a process, run to its end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.harness.eventually import PATIENCE_S
from tests.harness.forked import FORKS, ROOT, ForkedProcess, Streams

#: The product's command line in an interpreter of its own.
PROGRAM: Final = (sys.executable, "-m", "bridge")
#: A process of the product.
Process = subprocess.Popen[bytes] | ForkedProcess


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
    given = environment(**(variables or {}))
    code, out, err = to_its_end(arguments, given, data=data, cwd=cwd, timeout_s=timeout_s)
    return Ended(code, out.decode(), err.decode())


def to_its_end(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    *,
    data: bytes = b"",
    cwd: Path | None = None,
    timeout_s: float = PATIENCE_S,
) -> tuple[int, bytes, bytes]:
    """Run ``core-bridge ARGUMENTS`` to its end; returns its exit code, stdout and stderr."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(data)
        given.seek(0)
        streams = Streams(given.fileno(), out.fileno(), err.fileno())
        process = started(arguments, streams, cwd=cwd, variables=variables)
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        said, complained = (file.read() for file in (out, err) if not file.seek(0))
    assert b"Traceback" not in complained, complained.decode()
    return code, said, complained


def started(
    arguments: Sequence[str],
    streams: Streams,
    *,
    cwd: Path | None,
    variables: Mapping[str, str],
    umask: int = -1,
    program: Sequence[str] | None = None,
) -> Process:
    """A process that runs ``core-bridge ARGUMENTS`` in a session of its own.

    It is forked, unless it finds further packages or a `program` is given, which is started.
    """
    if program is None and variables["PYTHONPATH"] == str(ROOT):
        return FORKS.start(arguments, streams, cwd=cwd, environment=variables, umask=umask)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        [*(program or PROGRAM), *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=variables,
        start_new_session=True,
        umask=umask,
    )
