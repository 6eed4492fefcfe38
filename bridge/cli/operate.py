"""`core-bridge start|stop|pause|resume|failback BRIDGE`: operates a bridge of a running node."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any, Final
from urllib.parse import quote

from bridge.cli.endpoints import operations_connection
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import NodeClient

_VERBS: Final = {
    "start": "start a bridge of a running node",
    "stop": "stop a bridge; what is queued stays queued",
    "pause": "pause a bridge; its link stays open",
    "resume": "let a paused bridge go on",
    "failback": "take a bridge back to the first of its connectors",
}


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the commands."""
    for verb, summary in _VERBS.items():
        parser = subparsers.add_parser(
            verb,
            parents=[common],
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=(
                "Asks --operations. Stopping and pausing wait for what has been sent to be confirmed.\n\n"
                f"example:\n  {PROGRAM} {verb} orders-to-hub\n\n"
                "exit codes: 0 done, 1 no such bridge, or its state forbids it, 2 wrong usage"
            ),
        )
        parser.add_argument("bridge", metavar="BRIDGE", help="name of the bridge")
        parser.set_defaults(run=_run, verb=verb)


def _run(arguments: argparse.Namespace) -> int:
    answer = asyncio.run(_call(arguments)) or {}
    if arguments.format == "json":
        print(json.dumps(answer))
    else:
        print(f"{arguments.bridge}: {answer.get('state', arguments.verb)}")
    return Exit.OK


async def _call(arguments: argparse.Namespace) -> Any:
    path = f"/v1/bridges/{quote(arguments.bridge, safe='')}/{arguments.verb}"
    async with NodeClient(operations_connection(arguments)) as client:
        return (await client.call("POST", path, headers={"Accept": "application/json"})).body
