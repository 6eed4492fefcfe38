"""`core-bridge ready`: asks a running node whether it is ready, or whether it answers: for health checks.

The node is the one of the settings file. Proxies of the environment are not used.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from typing import Any

from bridge.cli.endpoints import liveness_connection, operations_connection
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import Connection, NodeClient, Problem

_EPILOG = f"""\
Asks --operations, by default the URL of [operations] in the settings file; proxies of the environment are not
used. Prints "ready", or "not ready:" and the reasons. With --alive, prints "alive" as soon as the process
answers, ready or not: for a liveness probe, which restarts what it finds dead. Where the file opens no
[operations], --alive asks the acceptor.

examples:
  {PROGRAM} ready
  {PROGRAM} ready --alive --settings /etc/core-bridge/settings.toml

exit codes: 0 ready (with --alive: it answers), 1 not ready or no answer, 2 wrong usage or settings
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "ready",
        parents=[common],
        help="ask a running node whether it is ready: for health checks",
        description="Ask a running node whether it is ready.",
        epilog=_EPILOG,
    )
    parser.add_argument("--alive", action="store_true", help="ask only whether the process answers")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.alive:
        asyncio.run(_ask_life(*liveness_connection(arguments)))
        print(json.dumps({"alive": True}) if arguments.format == "json" else "alive")
        return Exit.OK
    answer = asyncio.run(_readiness(operations_connection(arguments)))
    if arguments.format == "json":
        print(json.dumps(answer))
    else:
        print("ready" if answer["ready"] else "not ready: " + "; ".join(answer["reasons"]))
    return Exit.OK if answer["ready"] else Exit.FAILED


async def _ask_life(connection: Connection, path: str) -> None:
    """Return once the node has answered, whatever its answer. Raises: Unreachable."""
    async with NodeClient(connection) as client:
        with contextlib.suppress(Problem):  # of an acceptor that wants credentials: it answers
            await client.call("GET", path)


async def _readiness(connection: Connection) -> Any:
    """The body of /ready: of 200, or of 503. Raises: Problem, Unreachable."""
    async with NodeClient(connection) as client:
        try:
            return (await client.call("GET", "/ready", headers={"Accept": "application/json"})).body
        except Problem as problem:
            if isinstance(problem.body, dict) and "ready" in problem.body:
                return problem.body
            raise
