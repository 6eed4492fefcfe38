"""`core-bridge positions BRIDGE --from START`: sets where a stopped bridge continues at its target."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from bridge.cli.decision import EXIT_CODES, SAYS_FIRST, Decision, add_switches, carried_out
from bridge.cli.options import settings_path
from bridge.client.exit_codes import PROGRAM

_EPILOG = f"""\
For a bridge that refuses to run because its target is another store than before, or has forgotten it. The
node must be stopped. A stream that the target covers is never moved back. For the others:

  --from group     what was confirmed before counts as delivered; goes on behind it
  --from earliest  everything that the source still has is delivered, also what was confirmed before
  --from latest    nothing of what the source has now is delivered
  --from target    the target's word alone: what it does not know was never delivered, as with earliest

Of several static-connectors it asks each for its store, and means the one to the store where the bridge was
last; --connector names another one, where the bridge then goes on.

The source remembers the target from then on. Run again, it completes what was cut short.
{SAYS_FIRST}

examples:
  {PROGRAM} positions orders-to-hub --from group --dry-run
  {PROGRAM} positions orders-to-hub --from group
  {PROGRAM} positions orders-to-hub --from group --connector hub-b

{EXIT_CODES}
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "decide where a stopped bridge goes on at its target"
    parser = subparsers.add_parser(
        "positions",
        parents=[common],
        help=summary,
        description=f"{summary.capitalize()}.",
        epilog=_EPILOG,
    )
    parser.add_argument("bridge", metavar="BRIDGE", help="name of the bridge")
    parser.add_argument(
        "--from",
        dest="start",
        required=True,
        choices=("target", "group", "earliest", "latest"),
        help="see below",
    )
    parser.add_argument(
        "--connector",
        metavar="NAME",
        help="which of the bridge's static-connectors leads to the target (default: the one to the store "
        "where the bridge was last)",
    )
    add_switches(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return carried_out(arguments, lambda decision: asyncio.run(_decide(arguments, decision)))


async def _decide(arguments: argparse.Namespace, decision: Decision) -> None:
    from bridge.node.offline import decide_positions  # late: the node and its libraries are not for --help

    await decide_positions(
        settings_path(arguments),
        arguments.bridge,
        arguments.start,
        decision.approve,
        arguments.connector,
    )
