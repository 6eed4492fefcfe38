"""`core-bridge demo`: a real relay through a cut and two kills, and the proof."""

from __future__ import annotations

import argparse
import asyncio
import signal
from typing import Any

from bridge.cli.options import PROGRAM, Exit
from bridge.cli.progress import Progress, warn

_EPILOG = f"""\
Starts two nodes, edge and hub, as two processes with a bridge between them, and sends the rows to the
edge: even rows one POST each under their natural key (time_hour/carrier/flight, else line number and
hash), odd rows in transactions of 100 with one ID. Meanwhile the link is cut, the edge killed with SIGKILL
and started again, then the hub. A tenth of the rows is sent again with the same IDs. At last everything is
read at the hub and compared with the file, row by row and in order: each client's rows against the file,
and all of them against the positions that the edge answered with.

example:
  {PROGRAM} demo
  seq 100000 | {PROGRAM} demo --input - --format json

The last line of stdout is the proof:
  sent 20000 repeated 2000 duplicates 2000 arrived 20000 lost 0 doubled 0 out-of-order 0 kills 2 cuts 1 ...

exit codes: 0 every row arrived once and in order, 1 not so, 2 wrong usage, 130 Ctrl-C
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "demo",
        parents=[common],
        help="relay 20,000 real rows through a cut and two kills, and prove it",
        description="Relay a real data set through a cut link and two killed nodes, and prove what arrived.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--input",
        default="",
        metavar="FILE",
        help="any text file, a row a line; - is stdin (default: 20,000 departures from New York, 2013)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep settings, journals and logs (default: remove)"
    )
    parser.add_argument("--kafka", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cluster", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    for later in ("kafka", "cluster"):
        if getattr(arguments, later):
            warn(f"{PROGRAM}: demo --{later} is not built yet")
            return Exit.USAGE
    return asyncio.run(_play(arguments))


async def _play(arguments: argparse.Namespace) -> int:
    from bridge.demo.nodes import DemoFailed
    from bridge.demo.rows import read_input
    from bridge.demo.story import Story

    task = asyncio.current_task()
    assert task is not None
    # SIGTERM must not leave two nodes behind: it ends the demo as Ctrl-C does.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    story = Story(read_input(arguments.input), Progress(), keep=arguments.keep)
    try:
        proof = await story.play()
    except asyncio.CancelledError:
        if task.cancelling():
            raise KeyboardInterrupt from None
        raise
    except DemoFailed as failed:
        if failed.log:
            warn(failed.log)
        raise
    finally:
        if story.kept:
            warn(f"{PROGRAM}: settings, journals and logs are in {story.directory}")
    print(proof.line(arguments.format))
    return Exit.OK if proof.holds else Exit.FAILED
