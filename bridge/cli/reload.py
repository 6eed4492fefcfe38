"""`core-bridge reload`: lets a running node read its settings file again."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any, Final

from bridge.cli.endpoints import operations_connection
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import NodeClient, Problem

_EPILOG: Final = f"""\
Asks --operations: the node reads the file that it was started with, and answers when it runs by it. SIGHUP
does the same, and the log has the outcome. Bridges whose settings have not changed are not touched; those
whose settings have stop and start; those that are gone stop, and what waits for them stays.

A file that does not hold changes nothing: its problems are listed as `{PROGRAM} validate` lists them. Nor
does a file that changes what cannot change while the node runs, such as node.name: each such key is named.

example:
  {PROGRAM} reload

exit codes: 0 the node runs by the file, 1 it does not (a key that needs a restart, a node that is starting or
stopping, no answer), 2 the settings do not hold, or wrong usage
"""
_WORDS: Final = {
    "settings": "in place",
    "added": "added",
    "restarted": "restarted",
    "at-rest": "changed, and stopped as before",
    "removed": "removed",
}


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "reload",
        parents=[common],
        help="let a running node read its settings file again",
        description="Let a running node read its settings file again.",
        epilog=_EPILOG,
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        answer = asyncio.run(_call(arguments))
    except Problem as problem:
        if problem.code not in ("SETTINGS_INVALID", "SETTINGS_REFUSED"):
            raise
        print(problem.detail, file=sys.stderr)
        return Exit.USAGE if problem.code == "SETTINGS_INVALID" else Exit.FAILED
    if arguments.format == "json":
        print(json.dumps(answer))
        return Exit.OK
    lines = [f"{words}: {', '.join(answer[key])}" for key, words in _WORDS.items() if answer[key]]
    print("\n".join(["reloaded", *lines] if lines else ["reloaded: nothing has changed"]))
    return Exit.OK


async def _call(arguments: argparse.Namespace) -> dict[str, list[str]]:
    async with NodeClient(operations_connection(arguments)) as client:
        answer = await client.call("POST", "/v1/reload", headers={"Accept": "application/json"})
        body: dict[str, list[str]] = answer.body
        return body
