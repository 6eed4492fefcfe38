"""`core-bridge reconcile`: Spark compares the delivery logs of both sides and writes a report."""

from __future__ import annotations

import argparse
import re
from typing import Any

from bridge.client.exit_codes import PROGRAM
from dedup.reconcile.main import EXIT_CODES, INSTALL, add_options, main

_EPILOG = f"""\
Give it the delivery logs of every node: those of a bridge's sender and those of its receiver. The directory
that --output names then holds report.html (one page, no network), summary.json, replay-plan.json (what is
lost, for `{PROGRAM} replay --plan`), Parquet tables with every finding, and SHA256SUMS. It is complete or
not there; an earlier report is replaced, and anything else is left alone. The verdict is the first line of
stdout. It needs Java 17, PySpark and Jinja2: {INSTALL}.
--verify needs neither for local files.

examples:
  {PROGRAM} reconcile --logs shop/delivery-log hub/delivery-log --output report
  {PROGRAM} reconcile --logs hdfs:///logs/core-bridge --output hdfs:///reports/today --master yarn
  {PROGRAM} reconcile --verify report
  {PROGRAM} reconcile --logs /var/log/delivery --output watch --follow --late-after 5m

{EXIT_CODES}
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "reconcile",
        parents=[common],
        help="compare the delivery logs of both sides with Spark and write a report",
        description="Compare the delivery logs of both sides: name every message lost, doubled or late.",
        epilog=_EPILOG,
    )
    add_options(parser, duration_ms)
    parser.set_defaults(run=main)


def duration_ms(text: str) -> int:
    """An argparse type: a time as the settings write it, or -1 for never."""
    from bridge.settings.units import time_ms  # late: the settings are not for --help

    try:
        return time_ms(int(text) if re.fullmatch("-?[0-9]{1,18}", text) else text, never=True)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; found {text}") from None
