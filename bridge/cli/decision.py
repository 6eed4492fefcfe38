"""The common part of commands that carry out the operator's decision: each says first what it will do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bridge.client.exit_codes import Exit
from bridge.client.progress import warn

#: The exit codes of every such command, for its --help.
EXIT_CODES = "exit codes: 0 done (or --dry-run), 1 failed or not agreed to, 2 wrong usage or settings"
#: The text of --help on the switches.
SAYS_FIRST = """\
Says first what it will do. On a terminal it then asks, unless --yes is given; in a script it goes on.
--dry-run only says it."""


def add_switches(parser: argparse.ArgumentParser) -> None:
    """``--yes`` and ``--dry-run``."""
    parser.add_argument(
        "--yes", action="store_true", help="do it without asking (default: ask on a terminal)"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


class Decision:
    """Whether to carry out the decision, and the exit code."""

    def __init__(self, arguments: argparse.Namespace, *, has_result: bool = False) -> None:
        """`has_result`: stdout is for the command's result; what it says first goes to stderr."""
        self._arguments = arguments
        self._has_result = has_result
        self._said: list[str] = []
        self._agreed = False

    def approve(self, lines: Sequence[str]) -> bool:
        """Print the plan, and ask on a terminal."""
        self._said = list(lines) or ["nothing to do"]
        if self._has_result:
            warn("\n".join(self._said))
        elif self._arguments.format == "text":
            print("\n".join(self._said), flush=True)
        self._agreed = not self._arguments.dry_run and (self._arguments.yes or self._ask())
        return self._agreed

    def _ask(self) -> bool:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return True
        if self._arguments.format == "json" and not self._has_result:
            warn("\n".join(self._said))
        print("Do it? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def end(self) -> int:
        """The exit code, after the last output."""
        if not self._has_result:
            if self._arguments.format == "json":
                print(json.dumps({"plan": self._said, "done": self._agreed}))
            elif self._agreed:
                print("done")
        if self._agreed or self._arguments.dry_run:
            return Exit.OK
        warn("nothing was changed")
        return Exit.FAILED


def carried_out(arguments: argparse.Namespace, work: Callable[[Decision], Any]) -> int:
    """Run `work`, which calls `Decision.approve` once; returns the exit code."""
    from bridge.settings import SettingsInvalid

    decision = Decision(arguments)
    try:
        work(decision)
    except SettingsInvalid as invalid:
        warn("\n".join(invalid.lines()))
        return Exit.USAGE
    return decision.end()
