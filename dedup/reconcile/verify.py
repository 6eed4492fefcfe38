"""Checks whether a report, and the logs it was made from, are unchanged: by the hashes it keeps.

The report's own files are in `SUMS`, in the form that ``sha256sum --check`` reads; the logs in
`summary.json`. This notices damage and mistakes. Who can change a report can change its hashes too: keep the
hash of `SUMS` somewhere else where that matters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from dedup.reconcile.errors import BadInput
from dedup.reconcile.storage import Storage, place
from dedup.reconcile.text import visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The report's hashes; written last, so where it is the report is complete.
SUMS: Final = "SHA256SUMS"
SUMMARY: Final = "summary.json"
_OPEN: Final = ".open"


def sums(hashes: Mapping[str, str]) -> bytes:
    """The content of `SUMS`: hashes by path, as ``sha256sum`` writes them."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(hashes.items())).encode()


def named(storage: Storage, report: str) -> dict[str, str]:
    """The hashes of a report's files by path.

    Raises:
        BadInput: there is no `SUMS`, or it cannot be read.
    """
    path = f"{report}/{SUMS}"
    if not storage.exists(path):
        raise BadInput(f"{report}: must be a report of reconcile; found no {SUMS} in it")
    hashes = {}
    for line_number, line in enumerate(storage.read(path).decode("utf-8", "replace").splitlines(), 1):
        digest, separator, name = line.partition("  ")
        if not separator or len(digest) != 64 or PurePosixPath(name).is_absolute() or ".." in name.split("/"):
            raise BadInput(f"{path}:{line_number}: must be a hash and a path; found {visible(line)[:200]}")
        hashes[name] = digest
    return hashes


def verify(report: str, spark: SparkSession | None = None) -> list[str]:
    """The differences, a line each; empty where everything is unchanged.

    Args:
        report: the directory that `reconcile` wrote.
        spark: for reports or logs that are not on this machine.

    Raises:
        BadInput: it is no report.
        NeedsSpark: a file is not on this machine, and there is no session.
    """
    storage, directory = place(report, spark)
    return [*_files(storage, directory), *_inputs(storage, directory, spark)]


def _files(storage: Storage, report: str) -> Iterator[str]:
    hashes, there = named(storage, report), set(storage.files(report))
    for name, digest in hashes.items():
        if name not in there:
            yield f"{name}: missing"
        elif storage.sha256(f"{report}/{name}") != digest:
            yield f"{name}: changed since the report was written"
    for name in sorted(there - hashes.keys() - {SUMS}):
        yield f"{visible(name)}: not of this report"


def _inputs(storage: Storage, report: str, spark: SparkSession | None) -> Iterator[str]:
    try:
        inputs = [(str(found["path"]), str(found["sha256"])) for found in _summary(storage, report)["inputs"]]
    except (OSError, ValueError, KeyError, TypeError):
        yield f"{SUMMARY}: cannot be read, so the logs were not looked at"
        return
    for path, digest in inputs:
        where, found = _found(path, spark)
        if not where.exists(found):
            closed = found.removesuffix(_OPEN)
            completed = closed != found and where.exists(closed)
            if completed and where.sha256(closed) == digest:
                continue  # nothing came behind what was read
            now = "was still being written, and has been completed since" if completed else "missing"
            yield f"{visible(path)}: {now}"
        elif where.sha256(found) != digest:
            grown = " (it was still being written)" if path.endswith(_OPEN) else ""
            yield f"{visible(path)}: changed since the report was written{grown}"


def _found(path: str, spark: SparkSession | None) -> tuple[Storage, str]:
    """The path of an input: Spark writes a blank in a name as it is or as %20."""
    storage, found = place(path, spark)
    plain = unquote(path)
    return (storage, found) if plain == path or storage.exists(found) else place(plain, spark)


def _summary(storage: Storage, report: str) -> Any:
    return json.loads(storage.read(f"{report}/{SUMMARY}"))
