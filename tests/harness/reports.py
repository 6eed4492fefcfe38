"""`core-bridge reconcile` of what nodes have logged."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pytest

from bridge.cli import main
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
        ended = command(*_command(directory, logs), *options, timeout_s=RECONCILE_S)
        return cls(ended, directory, json.loads((directory / "summary.json").read_text()))

    @classmethod
    def of_this_process(cls, directory: Path, logs: Iterable[Path], said: pytest.CaptureFixture[str]) -> Self:
        """The same with the Spark session that runs here: a process of its own starts one for 20 s of CPU."""
        before, _ = said.readouterr()
        code = main(_command(directory, logs))
        out, err = said.readouterr()
        print(before, end="")  # shown where the test fails
        return cls(Ended(code, out, err), directory, json.loads((directory / "summary.json").read_text()))

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


def _command(directory: Path, logs: Iterable[Path]) -> list[str]:
    return ["reconcile", "--logs", *map(str, logs), "--output", str(directory)]
