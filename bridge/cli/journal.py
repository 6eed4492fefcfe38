"""`core-bridge journal`: decisions about a journal that was restored, copied or damaged."""

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


_SKIP_EPILOG = f"""\
For a node that says JOURNAL_DAMAGED. It must be stopped. Copy its data directory away first. Every message
that can be read goes into a new file. Readers go on behind those that cannot be read, bridges cover them as a
gap, and core-bridge reconcile reports them as lost. What is lost is named, with its positions. The damaged
file stays beside the new one, which needs as much disk space again as the journal takes.
{SAYS_FIRST}

examples:
  {PROGRAM} journal skip-damaged --dry-run
  {PROGRAM} journal skip-damaged

{EXIT_CODES}
"""
_ACCEPT_EPILOG = f"""\
For a node that does not start because its journal is missing, empty, or has lost its newest commits: the file
journal.identity beside it says how far it had come. Put the files back if you can. This command says what is
missing, and the next start goes on with what there is. Duplicate IDs that are missing count as new. Positions
are given again: bridges whose target has more stop as DIVERGED, until {PROGRAM} journal new-incarnation.
{SAYS_FIRST}

examples:
  {PROGRAM} journal accept-loss --dry-run
  {PROGRAM} journal accept-loss

{EXIT_CODES}
"""


_VERBS_EPILOG = f"""\
{PROGRAM} journal VERB --help explains each.

example:
  {PROGRAM} journal skip-damaged --dry-run

{EXIT_CODES}
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "journal",
        help="decide about a journal that was restored, copied or damaged",
        description="Decide about a journal that was restored, copied or damaged, or that lacks what it had.",
        epilog=_VERBS_EPILOG,
    )
    verbs = parser.add_subparsers(title="what to do", metavar="VERB", required=True)
    summary = "write what can be read of a damaged journal into a new one, and say what is lost"
    verb = verbs.add_parser("skip-damaged", parents=[common], help=summary, epilog=_SKIP_EPILOG)
    add_switches(verb)
    verb.set_defaults(run=_skip)
    summary = "let a journal that lacks its newest commits go on as it is"
    verb = verbs.add_parser("accept-loss", parents=[common], help=summary, epilog=_ACCEPT_EPILOG)
    add_switches(verb)
    verb.set_defaults(run=_accept)
    summary = "let a restored or copied journal go on as another one"
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


def _skip(arguments: argparse.Namespace) -> int:
    from bridge.node import offline

    return carried_out(
        arguments, lambda decision: offline.skip_damaged(settings_path(arguments), decision.approve)
    )


def _accept(arguments: argparse.Namespace) -> int:
    from bridge.node import offline

    return carried_out(
        arguments, lambda decision: offline.accept_loss(settings_path(arguments), decision.approve)
    )
