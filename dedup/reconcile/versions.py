"""Numbered versions of a directory: written aside, then renamed into place.

``DIR/000007`` is a version. A writer fills ``DIR/000008.writing`` and renames it: the new version exists from
the rename on (atomic on local disks and on HDFS, not on object stores). If a writer dies before it, the old
version remains the newest; the next writer removes the incomplete files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from dedup.reconcile.errors import BadInput
from dedup.reconcile.storage import Local, place

#: The note of a version: a JSON object, written last before the rename.
NOTE: Final = "note.json"
#: Number of versions that are kept: the newest, and the one before it, which a process may still be reading.
VERSIONS_KEPT: Final = 2
_WRITING: Final = ".writing"
_VERSION: Final = re.compile(r"(\d{6,})/")


class Versions:
    """The versions in one directory. One writer at a time."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        """Nothing is read or written. `directory` is a path or a URL that Hadoop knows."""
        self._storage, self._directory = place(directory, spark)
        #: As a message names it.
        self.name = directory

    def newest(self) -> int:
        """The number of the newest version; 0 where there is none."""
        return max(self._numbers(), default=0)

    def place(self, number: int) -> str:
        """Where version `number` is, as Spark takes it."""
        return self._for_spark(self._path(number))

    def begin(self, number: int) -> str:
        """The place to write version `number`, as Spark takes it; incomplete files of others are removed."""
        begun = {name.split("/")[0] for name in self._storage.files(self._directory)}
        for name in sorted(begun):
            if name.endswith(_WRITING):
                self._storage.delete(f"{self._directory}/{name}")
        return self._for_spark(self._path(number) + _WRITING)

    def discard(self, number: int, name: str) -> None:
        """Remove a file or directory that was written in `begin(number)` and is no part of the version."""
        self._storage.delete(f"{self._path(number)}{_WRITING}/{name}")

    def commit(self, number: int, note: dict[str, Any]) -> None:
        """Make the files written in `begin(number)` the newest version, all of them or nothing.

        Raises:
            BadInput: another run has written this version meanwhile.
            OSError: the disk does not take it; the version before is still the newest.
        """
        path = self._path(number)
        if number in self._numbers():
            raise BadInput(
                f"{self.name}: one run at a time may use a state; found version {number} of another run"
            )
        text = json.dumps(note, separators=(",", ":"), sort_keys=True)
        self.write(f"{number:06}{_WRITING}/{NOTE}", text)
        self._storage.sync(path + _WRITING)
        self._storage.rename(path + _WRITING, path)
        for old in sorted(self._numbers())[:-VERSIONS_KEPT]:
            self._storage.delete(self._path(old))

    def note(self, number: int) -> dict[str, Any]:
        """The note that `commit` was given.

        Raises:
            BadInput: it does not exist, or is no JSON object: no `commit` wrote it.
        """
        text = self.read(f"{number:06}/{NOTE}")
        try:
            note = json.loads(text or "")
        except json.JSONDecodeError:
            note = None
        if not isinstance(note, dict):
            found = "no such file" if text is None else repr(text[:40])
            raise BadInput(f"{self.name}/{number:06}/{NOTE}: must hold a JSON object; found {found}")
        return note

    def write(self, name: str, text: str) -> None:
        """Write a small file, named relative to the directory, over what is there."""
        path = f"{self._directory}/{name}"
        if isinstance(self._storage, Local):
            Path(path).parent.mkdir(parents=True, exist_ok=True)  # Hadoop's do it by themselves
        self._storage.write(path, text.encode())

    def read(self, name: str) -> str | None:
        """A small file's text; None where there is no such file."""
        path = f"{self._directory}/{name}"
        return self._storage.read(path).decode() if self._storage.exists(path) else None

    def _numbers(self) -> set[int]:
        names = self._storage.files(self._directory)
        return {int(match[1]) for name in names if (match := _VERSION.match(name)) is not None}

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:06}"

    def _for_spark(self, path: str) -> str:
        return f"file:{path}" if isinstance(self._storage, Local) else path
