"""`core-bridge receive`: prints messages, and acknowledges them once they have been written to stdout."""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
from typing import Any

from bridge.cli.endpoints import node_connection
from bridge.cli.options import at_least, seconds
from bridge.cli.readers import Browser, Deadline, Printer, QueueReader
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.node_client import Answer, Connection, NodeClient, Problem
from bridge.client.progress import Progress, warn
from bridge.client.retry import RETRY_FOR_S, is_worth_another_try
from bridge.errors import BridgeError

_EPILOG = f"""\
With --queue each message is leased, printed, flushed and then acknowledged. With --create a missing queue is
made, from the earliest message on. Without --queue the address is browsed, which changes nothing.
Text: the body and a newline. JSON: a line with position, body (or body-base64), key, headers,
duplicate-id and timestamp. Without an answer it says so on stderr and asks again. It fails if there is
none at the end of --timeout, or if none came in the first {RETRY_FOR_S:g} s.

examples:
  {PROGRAM} receive --address orders --queue billing --create --count 10
  {PROGRAM} receive --address orders --queue billing --timeout 2     all there is, then stop
  {PROGRAM} receive --address orders --format json                   look without taking

exit codes: 0 done, 1 fewer messages than --count, no answer or a failure, 2 wrong usage, 130 Ctrl-C
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
        "--create", action="store_true", help="make the queue if it is missing (default: fail)"
    )
    parser.add_argument(
        "--filter",
        default="",
        metavar="CONDITION",
        help="as --create, with this filter, from now on; a queue that is there keeps its own",
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


class _WatchedClient(NodeClient):
    """Reports once when the node does not answer, and knows whether the last call was answered."""

    def __init__(self, connection: Connection, deadline: Deadline) -> None:
        super().__init__(connection)
        self._deadline = deadline
        #: The error of the last call if it was not answered; None: it was.
        self.unanswered: BridgeError | None = None

    async def call(self, method: str, path: str, **how: Any) -> Answer:
        """As `NodeClient.call`."""
        try:
            answer = await super().call(method, path, **how)
        except BridgeError as error:
            before, self.unanswered = self.unanswered, error if is_worth_another_try(error) else None
            if self.unanswered is not None and before is None and not self._deadline.over:
                warn(f"{PROGRAM}: {error.code}: {error}; trying again")
            raise
        self.unanswered = None
        return answer


def _run(arguments: argparse.Namespace) -> int:
    return asyncio.run(_receive(arguments))


async def _receive(arguments: argparse.Namespace) -> int:
    making = "--filter" if arguments.filter else "--create" if arguments.create else ""
    if making and not arguments.queue:
        warn(f"{PROGRAM} receive: {making} needs --queue")
        return Exit.USAGE
    printer = Printer(sys.stdout.buffer, arguments.format, arguments.count)
    timeout_s = arguments.timeout if arguments.timeout is not None or arguments.queue else 0.0
    deadline = Deadline(timeout_s)
    async with _WatchedClient(node_connection(arguments), deadline) as client:
        silent = Progress(io.StringIO())  # the client reports it already
        reader = (
            QueueReader(
                *(client, arguments.address, arguments.queue, printer, deadline, silent),
                filter=arguments.filter,
                create=bool(making),
            )
            if arguments.queue
            else Browser(client, arguments.address, printer, deadline)
        )
        try:
            await reader.read()
        except Problem as problem:
            if problem.code == "QUEUE_NOT_FOUND" and not making:
                problem.detail += "; --create makes it"
            raise
    if client.unanswered is not None:  # it is unknown whether there were more messages to read
        raise client.unanswered
    if arguments.count is not None and printer.printed < arguments.count:
        warn(f"{PROGRAM}: {printer.printed} of {arguments.count} messages came in time")
        return Exit.FAILED
    return Exit.OK
