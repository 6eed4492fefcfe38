"""`core-bridge journal new-incarnation`: lets a restored or copied journal continue as another one."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from bridge.cli.decision import EXIT_CODES, SAYS_FIRST, Decision, add_switches, carried_out
from bridge.cli.options import at_least, settings_path
from bridge.client.exit_codes import PROGRAM

_EPILOG = f"""\
For a node whose bridges say DIVERGED: its journal was restored from a backup, or is a copy, and the target
has what another copy sent. The journal that the target knows must never run again. The node must be stopped,
and every target of its bridges must answer. Streams get new identities. Each goes on where this journal and
what the target has part: what was delivered is not sent again, what came since is. Where that cannot be
known, the command says so; --restored-at then tells the position at which this journal was restored.
{SAYS_FIRST}

examples:
  {PROGRAM} journal new-incarnation --dry-run
  {PROGRAM} journal new-incarnation --restored-at 4200

{EXIT_CODES}
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "let a restored or copied journal go on as another one"
    parser = subparsers.add_parser(
        "journal", help=summary, description=f"{summary.capitalize()}.", epilog=_EPILOG
    )
    verbs = parser.add_subparsers(title="what to do", metavar="VERB", required=True)
    verb = verbs.add_parser("new-incarnation", parents=[common], help=summary, epilog=_EPILOG)
    verb.add_argument(
        "--restored-at",
        metavar="POSITION",
        type=at_least(0),
        help="where it was restored (default: found out)",
    )
    add_switches(verb)
    verb.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return carried_out(arguments, lambda decision: asyncio.run(_branch(arguments, decision)))


async def _branch(arguments: argparse.Namespace, decision: Decision) -> None:
    from bridge.node import offline  # late: the node and its libraries are not for --help

    await offline.new_incarnation(settings_path(arguments), arguments.restored_at, decision.approve)
