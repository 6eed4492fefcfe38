"""`core-bridge reconcile` of what nodes have logged, as a process; starting Spark takes it some 10 s."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from tests.harness.commands import Ended, command

#: Longest that a reconciliation may take, in seconds.
RECONCILE_S: Final = 600.0


@dataclass(frozen=True)
class Report:
    """A report of nodes that have stopped."""

    ended: Ended
    directory: Path
    summary: dict[str, Any]

    @classmethod
    def of(cls, directory: Path, logs: Iterable[Path], *options: str) -> Self:
        """Reconcile these delivery logs into `directory`."""
        arguments = ("--logs", *map(str, logs), "--output", str(directory), *options)
        ended = command("reconcile", *arguments, timeout_s=RECONCILE_S)
        summary = json.loads((directory / "summary.json").read_text())
        return cls(ended, directory, summary)

    @property
    def plan(self) -> Path:
        """What `core-bridge replay --plan` takes."""
        return self.directory / "replay-plan.json"

    def total(self, key: str, bridge: str) -> int:
        """A count of the summary, over all flows of a bridge."""
        return sum(flow[key] for flow in self.summary["bridges"] if flow["bridge"] == bridge)

    def assert_clean(self, bridge: str, messages: int, *, rejected: int = 0) -> None:
        """All of these messages were received once; not one finding, not even a doubtful one.

        Args:
            rejected: how many more came with IDs that others had before: rightly received and not stored.
        """
        assert (self.ended.code, self.summary["verdict"]) == (0, "clean"), self.ended
        wrong = [found for found in self.summary["findings"] if found["kind"] != "rejected"]
        assert wrong == [], wrong[:3]
        told = {key: self.total(key, bridge) for key in ("sent", "received", "rejected")}
        reached = messages + rejected
        assert told == {"sent": reached, "received": reached, "rejected": rejected}
