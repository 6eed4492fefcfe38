"""`core-bridge drain --to NODE`: a node hands everything over to another one, and leaves the cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from bridge.cli.decision import Decision, add_switches
from bridge.cli.endpoints import operations_connection
from bridge.cli.options import at_least
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import NodeClient
from bridge.client.progress import warn

#: Interval of the looks at how far it is, in seconds.
LOOK_S: Final = 0.5

_EPILOG = f"""\
Asks --operations of the node that leaves. It takes no more from clients, sends what waits for others, and
then hands its messages, queues, duplicate IDs and the positions of its senders over to NODE, which answers
for it from then on. Nothing is dropped: what cannot be handed over stays, and the command says what it waits
for. A drain that was begun goes on after a restart of either node; the command may be ended and given again.
--cancel takes it back as long as no message was moved. A node that is drained does not come back: start it
again with an empty data directory.

--force also where NODE lacks bridges of this node: what waits for them becomes dead letters there.

examples:
  {PROGRAM} drain --to node-2
  {PROGRAM} drain --to node-2 --lease-timeout 10000 --timeout 600
  {PROGRAM} drain --cancel

exit codes: 0 drained (or cancelled, or --dry-run), 1 not drained in --timeout, refused or no answer,
2 wrong usage
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "hand everything of a node over to another one of its cluster"
    parser = subparsers.add_parser(
        "drain", parents=[common], help=summary, description=f"{summary.capitalize()}.", epilog=_EPILOG
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--to", metavar="NODE", help="name or UUID of the node that takes over")
    what.add_argument("--cancel", action="store_true", help="take back a drain that has moved nothing yet")
    parser.add_argument(
        "--lease-timeout", metavar="MS", type=at_least(0), default=60_000,
        help="how long readers may keep what they have leased (default: 60000)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", metavar="S", type=at_least(1), default=None,
        help="give up waiting after so many seconds; the drain itself goes on (default: never)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="also where the node lacks bridges of this one")
    add_switches(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return asyncio.run(_act(arguments))


async def _act(arguments: argparse.Namespace) -> int:
    async with NodeClient(operations_connection(arguments)) as client:
        if arguments.cancel:
            answer = (await client.call("POST", "/v1/cluster/drain/cancel", packed={})).body
            return _show(arguments, answer)
        now = (await client.call("GET", "/v1/cluster/drain")).body
        decision = Decision(arguments, has_result=True)
        plan = f"hands everything over to {arguments.to}, and does not come back with this journal"
        if now["phase"] is None and not decision.approve([plan]):
            return decision.end()
        asked = {"to": arguments.to, "force": arguments.force, "lease-timeout": arguments.lease_timeout}
        answer = (await client.call("POST", "/v1/cluster/drain", packed=asked)).body
        try:
            async with asyncio.timeout(arguments.timeout):
                answer = await _finished(client, answer)
        except TimeoutError:
            warn(f"{PROGRAM}: not drained in {arguments.timeout} s; it goes on: {_words(answer)}")
            return Exit.FAILED
    return _show(arguments, answer)


async def _finished(client: NodeClient, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state when it is over; each phase, and what it waits for, is said once."""
    said = ""
    while answer["phase"] not in ("DONE", None):
        if (words := _words(answer)) != said:
            said = words
            warn(words)
        await asyncio.sleep(LOOK_S)
        answer = (await client.call("GET", "/v1/cluster/drain")).body
    return answer


def _words(answer: Mapping[str, Any]) -> str:
    waits = f", waits for {answer['waits']}" if answer.get("waits") else ""
    return f"{answer['phase']}: {answer.get('moved', 0)} messages moved to {answer.get('heir')}{waits}"


def _show(arguments: argparse.Namespace, answer: Mapping[str, Any]) -> int:
    if arguments.format == "json":
        print(json.dumps(answer))
    elif answer["phase"] is None:
        print("no drain is under way")
    else:
        print(f"drained: {answer['moved']} messages moved to {answer['heir']}")
    return Exit.OK
