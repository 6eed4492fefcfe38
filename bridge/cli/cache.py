"""`core-bridge cache show|clear|resize ADDRESS`: the duplicate-ID cache of an address."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from bridge.cli.client import NodeClient, address_path
from bridge.cli.endpoints import operations_connection
from bridge.cli.options import PROGRAM, Exit, at_least

_EPILOG = f"""\
Asks --operations. A cleared or evicted ID is forgotten: a message that carries it is stored again.

examples:
  {PROGRAM} cache show orders
  {PROGRAM} cache resize orders 50000
  {PROGRAM} cache clear orders

exit codes: 0 done, 1 no such address or no answer, 2 wrong usage
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "show, clear or resize the duplicate-ID cache of an address"
    parser = subparsers.add_parser(
        "cache", help=summary, description=f"{summary.capitalize()}.", epilog=_EPILOG
    )
    verbs = parser.add_subparsers(title="what to do", metavar="VERB", required=True)
    show = verbs.add_parser("show", parents=[common], help="entries and capacity", epilog=_EPILOG)
    show.set_defaults(run=_run, method="GET", size=None)
    clear = verbs.add_parser("clear", parents=[common], help="forget every ID", epilog=_EPILOG)
    clear.set_defaults(run=_run, method="DELETE", size=None)
    resize = verbs.add_parser(
        "resize", parents=[common], help="keep the newest SIZE IDs from now on; 0: none", epilog=_EPILOG
    )
    resize.set_defaults(run=_run, method="PUT")
    for verb in (show, clear, resize):
        verb.add_argument("address", metavar="ADDRESS")
    resize.add_argument("size", metavar="SIZE", type=at_least(0), help="capacity in IDs")


def _run(arguments: argparse.Namespace) -> int:
    answer = asyncio.run(_call(arguments))
    if arguments.format == "json":
        print(json.dumps(answer))
    else:
        print(" ".join(f"{name} {str(value).lower()}" for name, value in answer.items()))
    return Exit.OK


async def _call(arguments: argparse.Namespace) -> Any:
    async with NodeClient(operations_connection(arguments)) as client:
        answer = await client.call(
            arguments.method,
            address_path(arguments.address, "id-cache"),
            body=None if arguments.size is None else json.dumps({"size": arguments.size}).encode(),
            headers={"Accept": "application/json", "Content-Type": "application/json"},
        )
    return answer.body
