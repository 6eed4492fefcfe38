"""`core-bridge run`: runs everything that the settings file names, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bridge.cli.options import settings_path
from bridge.client.exit_codes import PROGRAM, Exit

_EPILOG = f"""\
SIGTERM and SIGINT drain: new work is refused, what was answered "stored" is durable, and what the
target has not confirmed within shutdown-timeout stays queued. A second signal stops at once.

example:
  {PROGRAM} run --settings settings.toml

exit codes: 0 drained, 1 could not start or died, 2 the settings do not hold, 5 the journal is damaged, or
lacks what it had: a person has to act
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "run",
        parents=[common],
        help="run the node that a settings file describes, until SIGTERM",
        description="Run the node that a settings file describes: its acceptor, its journal and its bridges.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from bridge.errors import JournalDamaged
    from bridge.node.wiring import run_node  # late: the node and its libraries are not for --help
    from bridge.settings import SettingsInvalid

    try:
        return run_node(settings_path(arguments))
    except JournalDamaged as damaged:
        print(f"{PROGRAM}: {damaged.code}: {damaged.detail}", file=sys.stderr)
        return Exit.DAMAGED
    except SettingsInvalid as invalid:
        print("\n".join(invalid.lines()), file=sys.stderr)
        return Exit.USAGE
