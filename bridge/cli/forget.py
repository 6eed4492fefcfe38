"""`core-bridge forget --bridge NAME | --queue ADDRESS NAME | --owner BRIDGE`: drops state."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, Literal

from bridge.cli.decision import EXIT_CODES, SAYS_FIRST, Decision, add_switches, carried_out
from bridge.cli.options import settings_path
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.progress import warn

_EPILOG = f"""\
--bridge drops the queues of a bridge that is in the settings no more, with the messages that only they hold,
and what was confirmed to it. With --address, what it left at one address: also of a bridge that is in the
settings, where its queue-name leaves the address out now. What it has taken out of queues that readers share,
and the target has not confirmed, may be delivered: it becomes dead letters, which a replay puts into their
queue; with --in-doubt requeue it goes back there at once, and may be doubled. --queue drops a readers' queue.
The node must be stopped. What a bridge of that name has delivered to this node stays known. --owner
keeps that, too, and hands it on: the streams that a bridge of another node has delivered here belong to the
user and the node that wrote them first; after this they belong to the first that opens them.
{SAYS_FIRST}

examples:
  {PROGRAM} forget --bridge orders-to-hub
  {PROGRAM} forget --bridge orders-to-hub --address orders.old
  {PROGRAM} forget --bridge jobs-to-hub --in-doubt requeue
  {PROGRAM} forget --queue orders billing
  {PROGRAM} forget --owner orders-to-hub

{EXIT_CODES}
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "drop the queues of a bridge that is gone, or a readers' queue"
    parser = subparsers.add_parser(
        "forget", parents=[common], help=summary, description=f"{summary.capitalize()}.", epilog=_EPILOG
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--bridge", metavar="NAME", help="a bridge that is in the settings no more")
    parser.add_argument("--address", metavar="A", help="with --bridge: only what it left at this address")
    parser.add_argument(
        "--in-doubt", choices=("dead-letter", "requeue"), default="dead-letter",
        help="with --bridge: what becomes of messages of shared queues that may be delivered"
        " (default: dead-letter)",
    )  # fmt: skip
    what.add_argument("--queue", nargs=2, metavar=("ADDRESS", "NAME"), help="a readers' queue")
    what.add_argument("--owner", metavar="BRIDGE", help="whose the positions of a bridge to this node are")
    add_switches(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.address is not None and arguments.bridge is None:
        warn(f"forget: --address goes with --bridge; found --address {arguments.address} with --queue")
        return Exit.USAGE
    return carried_out(arguments, lambda decision: asyncio.run(_forget(arguments, decision)))


async def _forget(arguments: argparse.Namespace, decision: Decision) -> None:
    from bridge.node import offline  # late: the node and its libraries are not for --help

    path = settings_path(arguments)
    if arguments.bridge is not None:
        in_doubt: Literal["dead-letter", "requeue"] = arguments.in_doubt
        await offline.forget_bridge(path, arguments.bridge, arguments.address, in_doubt, decision.approve)
    elif arguments.owner is not None:
        await offline.forget_owner(path, arguments.owner, decision.approve)
    else:
        address, queue = arguments.queue
        await offline.forget_queue(path, address, queue, decision.approve)
