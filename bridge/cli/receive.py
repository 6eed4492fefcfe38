"""`core-bridge receive`: prints messages and acknowledges them once they have left for stdout."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import Any

from bridge.cli.client import NodeClient, node_connection
from bridge.cli.options import PROGRAM, Exit, at_least, seconds
from bridge.cli.progress import warn
from bridge.cli.readers import Browser, Deadline, Printer, QueueReader

_EPILOG = f"""\
With --queue each message is leased, printed, flushed and then acknowledged; the queue is made, from the
earliest message on, if it is missing. Without --queue the address is browsed, which changes nothing.
Text: the body and a newline. JSON: a line with position, body (or body-base64), key, headers,
duplicate-id and timestamp.

examples:
  {PROGRAM} receive --address orders --queue billing --count 10
  {PROGRAM} receive --address orders --queue billing --timeout 2     all there is, then stop
  {PROGRAM} receive --address orders --format json                   look without taking

exit codes: 0 done, 1 fewer messages than --count or a failure, 2 wrong usage, 130 Ctrl-C
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "receive",
        parents=[common],
        help="read messages of an address, with or without a queue",
        description="Print the messages of an address of a running node, in order.",
        epilog=_EPILOG,
    )
    parser.add_argument("--address", required=True, help="where from (required)")
    parser.add_argument(
        "--queue", default="", metavar="Q", help="queue to read and acknowledge (default: browse)"
    )
    parser.add_argument(
        "--count", type=at_least(1), metavar="N", help="stop after N messages (default: no end)"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="S",
        help="stop after S seconds without a message (default: never with --queue, 0 without)",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    return asyncio.run(_receive(arguments))


async def _receive(arguments: argparse.Namespace) -> int:
    printer = Printer(sys.stdout.buffer, arguments.format, arguments.count)
    timeout_s = arguments.timeout if arguments.timeout is not None or arguments.queue else 0.0
    deadline = Deadline(timeout_s)
    async with NodeClient(node_connection(arguments)) as client:
        reader = (
            QueueReader(client, arguments.address, arguments.queue, printer, deadline)
            if arguments.queue
            else Browser(client, arguments.address, printer, deadline)
        )
        await reader.read()
    if arguments.count is not None and printer.printed < arguments.count:
        warn(f"{PROGRAM}: {printer.printed} of {arguments.count} messages came in time")
        return Exit.FAILED
    return Exit.OK
