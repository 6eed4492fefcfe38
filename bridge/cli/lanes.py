"""`core-bridge lanes BRIDGE --set N`: changes a bridge between Kafka clusters to another number of lanes."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from bridge.cli.decision import EXIT_CODES, SAYS_FIRST, Decision, add_switches, carried_out
from bridge.cli.options import at_least, settings_path
from bridge.client.exit_codes import PROGRAM

_EPILOG = f"""\
The number of lanes is recorded in the bridge's journal topic, so that workers with different settings never
relay the same partition. Stop every worker of the bridge, run this, set concurrency = N in every settings
file, and start them again. Nothing is lost or delivered twice. The duplicate IDs that each address remembers
are merged; each new lane keeps the newest id-cache-size of them.
{SAYS_FIRST}

example:
  {PROGRAM} lanes eu-to-us --set 8

{EXIT_CODES}
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "cut a bridge from Kafka to Kafka into another number of lanes"
    parser = subparsers.add_parser(
        "lanes",
        parents=[common],
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=_EPILOG,
    )
    parser.add_argument("bridge", metavar="BRIDGE", help="name of the bridge")
    parser.add_argument("--set", dest="lanes", metavar="N", required=True, type=at_least(1), help="how many")
    add_switches(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return carried_out(arguments, lambda decision: asyncio.run(_set(arguments, decision)))


async def _set(arguments: argparse.Namespace, decision: Decision) -> None:
    from bridge.end_kind import kind_of  # late, all of it: none is for --help
    from bridge.errors import Conflict
    from bridge.node.offline import find_bridge, read_settings

    settings = read_settings(settings_path(arguments))
    bridge = find_bridge(settings, arguments.bridge)
    target, lanes = bridge.static_connectors[0], arguments.lanes
    recorded = None
    if kind_of(settings, bridge.source_connector).has_lanes:
        recorded = kind_of(settings, target).recorded_lanes(settings, bridge)
    if recorded is None:
        raise Conflict(
            f"{bridge.name} is not from Kafka to Kafka: nothing records its lanes, so just set concurrency",
            key="bridge",
            found=bridge.name,
        )
    now = await recorded.now()
    found = "not recorded yet" if now is None else str(now)
    lines = [f"{bridge.name}: lanes {found} -> {lanes}, in {recorded.place} on {target}"]
    if bridge.concurrency != lanes:
        lines.append(
            f"then set concurrency = {lanes} in the settings of every worker (now {bridge.concurrency})"
        )
    if decision.approve(lines):
        await recorded.set(lanes)
