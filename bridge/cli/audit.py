"""`core-bridge audit`: compares the records of a Kafka source with those of its target; uses no log."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from bridge.cli.options import settings_path
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.progress import warn

if TYPE_CHECKING:
    from bridge.audit.planning import Planner
    from bridge.settings.model import Settings

#: Exit codes by verdict, as `reconcile` has them.
CODES: Final = {"clean": 0, "lost": 3, "unknown": 4}

_EPILOG = f"""\
Reads both ends once, read_committed, headers and positions only, one Spark task for each million offsets, and
finds every source record at the target by its duplicate ID. Nothing is changed and no group is joined. The
settings file must be readable at the same path wherever Spark's tasks run. Needs Java 17 or newer and the
extra reconcile.

examples:
  {PROGRAM} audit orders-to-us --output audit-1
  {PROGRAM} audit --source eu orders --target us eu.orders --output audit-2
  {PROGRAM} audit orders-to-us --output audit-4 --with-deleted
  {PROGRAM} audit orders-to-us --output audit-3 --master spark://spark:7077 --format json

exit codes: 0 all accounted for, 3 lost or doubled, 4 nothing lost but parts unknown, 1 failed,
2 wrong usage, settings, a name or an output that will not do, no Java or no extra, 130 Ctrl-C
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    summary = "compare a Kafka source with its target, record by record"
    parser = subparsers.add_parser(
        "audit", parents=[common], help=summary, description=f"{summary.capitalize()}.", epilog=_EPILOG
    )
    parser.add_argument(
        "bridge", metavar="BRIDGE", nargs="?", help="the bridge whose ends are compared; or name two ends:"
    )
    parser.add_argument(
        "--source", nargs=2, metavar=("CONNECTOR", "TOPIC"), help="the source (default: the bridge's)"
    )
    parser.add_argument(
        "--target",
        nargs=2,
        metavar=("CONNECTOR", "NAME"),
        help="the target's topic or address (default: the bridge's)",
    )
    parser.add_argument(
        "--output",
        required=True,
        metavar="DIR",
        help="where summary.json, findings.parquet and, of a bridge, replay-plan.json go: new, empty, or an "
        "earlier audit, which is replaced",
    )
    parser.add_argument(
        "--with-deleted",
        action="store_true",
        help="the replay plan of a bridge also names what the target no longer has, not only what is lost",
    )
    parser.add_argument("--master", help="Spark's master (default: what spark-submit says, else local[*])")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from bridge.errors import Malformed, NotFound
    from bridge.settings import SettingsInvalid

    reason = _not_to_begin(arguments)
    if reason:
        return _unusable(reason)
    from dedup.reconcile.audit.command import run
    from dedup.reconcile.audit.errors import ReadFailed
    from dedup.reconcile.audit.kafka_source import clients_silenced
    from dedup.reconcile.audit.output import REPLAY_PLAN, check_place
    from dedup.reconcile.errors import BadInput

    try:
        check_place(arguments.output)
        planner = _planner(arguments)
        with clients_silenced():
            plan = asyncio.run(planner.plan())
            summary = run(
                plan,
                lambda read: asyncio.run(planner.renewed(read)),
                master=arguments.master,
                output=arguments.output,
                with_deleted=arguments.with_deleted,
            )
    except SettingsInvalid as invalid:
        warn("\n".join(invalid.lines()))
        return Exit.USAGE
    except (Malformed, NotFound) as error:
        return _unusable(f"{error.code}: {error}")
    except BadInput as error:
        return _unusable(str(error))
    except ReadFailed as error:
        warn(f"{PROGRAM}: {error}")
        return Exit.FAILED
    print(json.dumps(summary.as_json()) if arguments.format == "json" else summary.as_text())
    if arguments.bridge and (summary.total("lost") or arguments.with_deleted):
        plan_file = f"{arguments.output.rstrip('/')}/{REPLAY_PLAN}"
        warn(f"to send again what it names: {PROGRAM} replay --plan {plan_file} --dry-run")
    return CODES[summary.verdict]


def _not_to_begin(arguments: argparse.Namespace) -> str | None:
    """The error found before any cluster is asked; None: there is none."""
    named = arguments.source is not None and arguments.target is not None
    if bool(arguments.bridge) == named or (arguments.source is None) != (arguments.target is None):
        return "name a BRIDGE, or both --source and --target"
    if arguments.with_deleted and named:
        return "--with-deleted needs a BRIDGE: between two named ends nothing is replayed"
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        from dedup.reconcile.main import INSTALL

        return f"PySpark is not installed; audit needs it: {INSTALL}"
    from dedup.reconcile.session import java_missing

    return None if "PYSPARK_GATEWAY_PORT" in os.environ else java_missing()


def _planner(arguments: argparse.Namespace) -> Planner:
    """Raises: SettingsInvalid; Malformed, NotFound: there is nothing of the kind to compare."""
    from bridge.audit.planning import Planner, of_bridge, of_names
    from bridge.node.offline import find_bridge, read_settings

    path = settings_path(arguments)
    settings: Settings = read_settings(path)
    if arguments.bridge:
        pair = of_bridge(settings, find_bridge(settings, arguments.bridge))
    else:
        pair = of_names(settings, tuple(arguments.source), tuple(arguments.target))
    return Planner(settings, path, pair)


def _unusable(text: str) -> int:
    warn(f"{PROGRAM}: {text}")
    return Exit.USAGE
