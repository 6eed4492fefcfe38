"""`core-bridge validate`: checks a settings file and tells every problem at once."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from bridge.cli.options import PROGRAM, Exit, settings_path

_EPILOG = f"""\
Nothing is opened or changed. Each problem is a line on stderr, then their number:

  settings.toml: bridges[0].retry-intervall (to-hub): unknown key; found 2000; did you mean retry-interval?
  1 problem

A file without problems answers with a line for itself and one for each bridge:

  settings.toml: ok
  to-hub: journal:orders -> hub: exactly-once

example:
  {PROGRAM} validate --settings settings.toml

exit codes: 0 ok, 2 problems
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "validate",
        parents=[common],
        help="check a settings file and list every problem at once",
        description="Check a settings file and list every problem at once.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=main)


def main(arguments: argparse.Namespace) -> int:
    """Check the file; 0 where it holds, 2 where it does not."""
    from bridge.settings import SettingsInvalid, load  # late: pydantic is not for --help

    path = settings_path(arguments)
    try:
        settings = load(path, os.environ)
    except SettingsInvalid as invalid:
        print("\n".join(invalid.lines()), file=sys.stderr)
        return Exit.USAGE
    print(f"{path}: ok")
    for bridge in settings.bridges:
        print(bridge)
    return Exit.OK
