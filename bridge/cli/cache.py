"""`core-bridge cache show|clear|resize ADDRESS`: the duplicate-ID cache of an address."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from bridge.cli.decision import Decision, add_switches
from bridge.cli.endpoints import operations_connection
from bridge.cli.options import at_least
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import NodeClient, address_path

_EPILOG = f"""\
Asks --operations. A cleared or evicted ID is forgotten: a message that carries it is stored again. So `clear`
and `resize` say first, on stderr, how many they forget. On a terminal they then ask, unless --yes is given;
in a script they go on. --dry-run only says it.

examples:
  {PROGRAM} cache show orders
  {PROGRAM} cache resize orders 50000
  {PROGRAM} cache clear orders

exit codes: 0 done (or --dry-run), 1 no such address, no answer or not agreed to, 2 wrong usage
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "show, clear or resize the duplicate-ID cache of an address"
    parser = subparsers.add_parser(
        "cache", help=summary, description=f"{summary.capitalize()}.", epilog=_EPILOG
    )
    verbs = parser.add_subparsers(title="what to do", metavar="VERB", required=True)
    show = verbs.add_parser("show", parents=[common], help="entries and capacity", epilog=_EPILOG)
    show.set_defaults(run=_run, size=None, verb="show")
    clear = verbs.add_parser("clear", parents=[common], help="forget every ID", epilog=_EPILOG)
    clear.set_defaults(run=_run, size=None, verb="clear")
    resize = verbs.add_parser(
        "resize", parents=[common], help="keep the newest SIZE IDs from now on; 0: none", epilog=_EPILOG
    )
    resize.set_defaults(run=_run, verb="resize")
    for verb in (show, clear, resize):
        verb.add_argument("address", metavar="ADDRESS")
    resize.add_argument("size", metavar="SIZE", type=at_least(0), help="capacity in IDs")
    add_switches(clear)
    add_switches(resize)


def _run(arguments: argparse.Namespace) -> int:
    return asyncio.run(_act(arguments))


async def _act(arguments: argparse.Namespace) -> int:
    async with NodeClient(operations_connection(arguments)) as client:
        answer = await _call(client, arguments.address, "GET")
        if arguments.verb != "show":
            decision = Decision(arguments, has_result=True)
            if not decision.approve([_plan(arguments.address, answer, arguments.size)]):
                return decision.end()
            method = "DELETE" if arguments.size is None else "PUT"
            answer = await _call(client, arguments.address, method, arguments.size)
    if arguments.format == "json":
        print(json.dumps(answer))
    else:
        print(" ".join(f"{name} {str(value).lower()}" for name, value in answer.items()))
    return Exit.OK


def _plan(address: str, cache: dict[str, Any], size: int | None) -> str:
    """A text on what would be forgotten of the present cache; `size` None: all of it."""
    entries = cache["entries"]
    forgotten = entries if size is None else max(entries - size, 0)
    change = "" if size is None else f"capacity {cache['capacity']} -> {size}; "
    again = "; messages that carry them are stored again" if forgotten else ""
    return f"{address}: {change}forgets the oldest {forgotten} of {entries} duplicate IDs{again}"


async def _call(client: NodeClient, address: str, method: str, size: int | None = None) -> Any:
    answer = await client.call(
        method,
        address_path(address, "id-cache"),
        body=None if size is None else json.dumps({"size": size}).encode(),
        headers={"Accept": "application/json", "Content-Type": "application/json"},
    )
    return answer.body
