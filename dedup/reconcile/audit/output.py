"""The directory of an audit: it holds nothing but an earlier audit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dedup.reconcile.errors import BadInput
from dedup.reconcile.storage import Local, Storage, local

#: Written last: where it is, the audit was finished.
SUMMARY: Final = "summary.json"
#: What `core-bridge replay` sends again; of the audit of a bridge.
REPLAY_PLAN: Final = "replay-plan.json"
#: Every finding, as a directory of Parquet files.
FINDINGS: Final = "findings.parquet"
#: Environment variables that show that a path without a scheme may be on another file system.
_ELSEWHERE: Final = ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")


def check_place(output: str) -> None:
    """As `check_output`, at once and without Spark, where the path is on this machine for sure."""
    directory = local(output)
    if directory is not None and not any(name in os.environ for name in _ELSEWHERE):
        check_output(Local(), str(directory.resolve()))


def check_output(storage: Storage, directory: str) -> None:
    """Check that writing an audit there destroys nothing but an earlier audit.

    An audit that was not finished has no `SUMMARY`, and is one all the same.

    Raises:
        BadInput: it holds other files, or is a file.
    """
    if isinstance(storage, Local) and Path(directory).exists() and not Path(directory).is_dir():
        raise BadInput(f"--output {directory}: must be a directory; found a file")
    there = storage.files(directory)
    rest = [name for name in there if not name.startswith(f"{FINDINGS}/")]
    others = [name for name in rest if name not in (SUMMARY, REPLAY_PLAN)]
    if not others and len(there) > len(rest):
        return
    if rest:
        # A directory with only a summary was not made by an audit.
        found = min(others, default=rest[0])
        raise BadInput(f"--output {directory}: must be new, empty or an earlier audit; found {found}")
