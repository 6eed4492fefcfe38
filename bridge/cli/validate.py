"""`core-bridge validate`: checks a settings file and reports every problem at once."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bridge.cli.options import settings_path
from bridge.client.exit_codes import PROGRAM, Exit

if TYPE_CHECKING:
    from bridge.settings.bridges import Bridge

_DAY_S: Final = 24 * 3600
_EPILOG = f"""\
Nothing is opened or changed; transformers are imported and made. Each problem is a line on stderr, then their
number:

  settings.toml: bridges[0].retry-intervall (to-hub): unknown key; found 2000; did you mean retry-interval?
  1 problem

A file without problems answers with a line for itself and one for each bridge:

  settings.toml: ok
  to-hub: journal:orders -> hub: exactly-once

A certificate that expires within 30 days is a line on stderr, too, and no problem; one that has expired is a
problem.

With --format json the answer is one object on stdout, of a file with problems, too: file, ok, problems (file,
key, rule, found, suggestion) and bridges (name, source, target, guarantee).

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
    """Check the file; returns 0 where it is valid, else 2."""
    from bridge.runtime.certificates import WARN_BEFORE_S  # late: pydantic is not for --help
    from bridge.runtime.logs import timestamp
    from bridge.settings import SettingsInvalid, load
    from bridge.settings.paths import render
    from bridge.settings.tls_checks import certificate_expiries

    path = settings_path(arguments)
    as_json = arguments.format == "json"
    try:
        now_s = time.time()
        settings = load(path, os.environ, transformers=True, now_s=now_s)
    except SettingsInvalid as invalid:
        if as_json:
            print(json.dumps(_answer(path, problems=[asdict(problem) for problem in invalid.problems])))
        else:
            print("\n".join(invalid.lines()), file=sys.stderr)
        return Exit.USAGE
    for key, expires_s in certificate_expiries(settings):
        if expires_s - now_s < WARN_BEFORE_S:
            when = f"{timestamp(expires_s)}, in {(expires_s - now_s) / _DAY_S:.0f} days"
            print(f"{path}: {render(key)}: expires at {when}; renew it", file=sys.stderr)
    if as_json:
        print(json.dumps(_answer(path, bridges=[_shown(bridge) for bridge in settings.bridges])))
        return Exit.OK
    print(f"{path}: ok")
    for bridge in settings.bridges:
        print(bridge)
    return Exit.OK


def _answer(
    path: Path, *, problems: Sequence[Mapping[str, Any]] = (), bridges: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    return {"file": str(path), "ok": not problems, "problems": [*problems], "bridges": [*bridges]}


def _shown(bridge: Bridge) -> dict[str, str]:
    return {
        "name": bridge.name,
        "source": bridge.source,
        "target": bridge.target,
        "guarantee": bridge.guarantee,
        **({"filter": bridge.filter} if bridge.filter else {}),
        **({"transformer": bridge.transformer} if bridge.transformer else {}),
    }
