"""`core-bridge cluster forget NODE`: a node that is lost for good is forgotten by another one."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from typing import Any

from bridge.cli.decision import Decision, add_switches
from bridge.cli.endpoints import operations_connection
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import NodeClient

_EPILOG = f"""\
Asks --operations of a node that remains; give it at each of them. For a node whose disk is lost: one that can
be started is drained instead. What waits for it here goes to another node that has the queue, or becomes a
dead letter. What was sent and not confirmed may have been read there: it becomes dead letters, unless
--in-doubt requeue places it anew, too, which may double it. The command says first how much that is.
Should the node come back, it is refused.

examples:
  {PROGRAM} cluster forget node-3 --dry-run
  {PROGRAM} cluster forget node-3
  {PROGRAM} cluster forget node-3 --in-doubt requeue

exit codes: 0 done (or --dry-run), 1 it is up, not known, no answer or not agreed to, 2 wrong usage
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "forget a node of the cluster that is lost for good"
    parser = subparsers.add_parser(
        "cluster", help=summary, description=f"{summary.capitalize()}.", epilog=_EPILOG
    )
    verbs = parser.add_subparsers(title="what to do", metavar="VERB", required=True)
    forget = verbs.add_parser("forget", parents=[common], help=summary, epilog=_EPILOG)
    forget.add_argument("node", metavar="NODE", help="its name or UUID")
    forget.add_argument(
        "--in-doubt", choices=("dead-letter", "requeue"), default="dead-letter",
        help="what becomes of messages that it may have got (default: dead-letter)",
    )  # fmt: skip
    add_switches(forget)
    forget.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return asyncio.run(_act(arguments))


async def _act(arguments: argparse.Namespace) -> int:
    asked = {"node": arguments.node, "in-doubt": arguments.in_doubt}
    async with NodeClient(operations_connection(arguments)) as client:
        plan = (await client.call("POST", "/v1/cluster/forget", packed={**asked, "dry-run": True})).body
        decision = Decision(arguments, has_result=True)
        if not decision.approve(_lines(plan)):
            return decision.end()
        answer = (await client.call("POST", "/v1/cluster/forget", packed=asked)).body
    if arguments.format == "json":
        print(json.dumps(answer))
    else:
        print(f"forgotten: {answer['name']}; {answer['waiting']} messages are placed anew or dead letters")
    return Exit.OK


def _lines(plan: Mapping[str, Any]) -> list[str]:
    """The lines that describe the plan to the operator."""
    doubt = {"dead-letter": "become dead letters", "requeue": "are placed anew, and may be doubled"}
    return [
        f"forgets {plan['name']} ({plan['node']}): {plan['waiting']} messages wait for it here",
        f"{plan['perhaps-delivered']} of them it may have got: they {doubt[plan['in-doubt']]}",
        *(
            f"  {one['address']}: {one['waiting']} from {one['next']} to {one['end'] - 1};"
            f" those below {one['unsent-from']} may have been sent"
            for one in plan["addresses"]
        ),
    ]
