"""The alerts that were raised and not resolved, and the lines written about them: kept across a crash.

What is to be said is saved first, then written, then marked as written. So after a crash nothing is missing;
what had been saved and not marked is written again, with the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TextIO

from pyspark.sql import SparkSession

from dedup.reconcile import alerts
from dedup.reconcile.alerts import Trouble
from dedup.reconcile.errors import BadInput
from dedup.reconcile.versions import Versions

#: Version of a note.
VERSION: Final = 1
#: A file beside a version's note: its lines were written.
_SAID: Final = "said"


class AlertLog:
    """The alerts of one checkpoint."""

    def __init__(self, spark: SparkSession, directory: str, logs: Sequence[str], out: TextIO) -> None:
        """Load the content of `directory`; nothing is written.

        Raises:
            BadInput: it was written by another version, or for other logs.
        """
        self._versions = Versions(spark, directory)
        self._logs = list(logs)
        self._out = out
        self._number = self._versions.newest()
        self._note = self._versions.note(self._number) if self._number else _empty(self._logs)
        if self._note.get("v") != VERSION:
            raise BadInput(f"{directory}: must have version {VERSION}; found {self._note.get('v')}")
        if self._note["logs"] != self._logs:
            raise BadInput(
                f"{directory}: this checkpoint follows {', '.join(self._note['logs'])};"
                f" found {', '.join(self._logs)}"
            )
        self._raised = tuple(Trouble(*each) for each in self._note["raised"])

    def say_again(self) -> None:
        """Write the lines that were saved, and perhaps not written, when the last process ended."""
        if self._number and self._versions.read(f"{self._number:06}/{_SAID}") is None:
            self._write()

    def say(self, now: Sequence[Trouble], *, batch: int, now_ms: int) -> None:
        """Write a line for each trouble in `now` that is new, and for each that is over.

        Args:
            now: all present troubles, as `alerts.joined` leaves them.
            batch: number of Spark's batch, for comparison with the checkpoint.
            now_ms: ms since the epoch.
        """
        changed = alerts.changes(self._raised, now)
        told = [*((each, False) for each in changed.raised), *((each, True) for each in changed.resolved)]
        if not told:
            return
        first = self._note["next"]
        lines = [
            alerts.line(trouble, number=first + place, is_resolved=is_resolved, seen_ms=now_ms)
            for place, (trouble, is_resolved) in enumerate(told)
        ]
        self._note = {
            "v": VERSION, "logs": self._logs, "batch": batch, "next": first + len(lines), "lines": lines,
            "raised": [list(each) for each in now],
        }  # fmt: skip
        self._raised = tuple(now)
        self._number += 1
        self._versions.begin(self._number)
        self._versions.commit(self._number, self._note)
        self._write()

    def _write(self) -> None:
        for line in self._note["lines"]:
            self._out.write(f"{line}\n")
        self._out.flush()
        self._versions.write(f"{self._number:06}/{_SAID}", "")


def _empty(logs: list[str]) -> dict[str, Any]:
    return {"v": VERSION, "logs": logs, "batch": None, "next": 1, "lines": [], "raised": []}
