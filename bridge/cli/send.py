"""`core-bridge send`: sends a message for each line, in transactions that a retry cannot double.

Every transaction of a run has an ID of its own, ``<random UUID of the run>/<number>``: when an answer is
lost, the same transaction is sent again, and the node answers `duplicate` if the first one had been stored.
With ``--duplicate-id-from`` the lines' own IDs do this, also from one run to the next.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import json
import os
import re
import stat
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.cli.endpoints import node_connection
from bridge.cli.line_ids import duplicate_id, header_value
from bridge.cli.options import at_least
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.client.input_lines import Line, LineSplitter, batches
from bridge.client.node_client import NodeClient, Problem, address_path
from bridge.client.progress import Progress, warn
from bridge.client.retry import RETRY_FOR_S, persistently
from bridge.errors import BridgeError

DEFAULT_BATCH: Final = 500
#: Most messages that a node takes in one transaction.
MAX_BATCH: Final = 10_000
#: A transaction ends early when its bodies reach this many bytes.
MAX_BATCH_BYTES: Final = 1024 * 1024

#: The key of a refused transaction where it is about one of its messages.
_MESSAGE: Final = re.compile(r"messages\[(\d+)\]")

_EPILOG = f"""\
A line is a message: its newline is dropped, every other byte is kept. Empty lines are skipped. Memory stays
bounded, and a partial transaction goes as soon as the input falls silent, so `tail -f FILE | {PROGRAM} send`
works. A transaction without an answer is sent again with the same IDs, which cannot double a message; after
{RETRY_FOR_S:g} s without one `send` gives up with 1. A line on stderr says when it begins to try again.

examples:
  {PROGRAM} send --address orders orders.jsonl
  {PROGRAM} send --address orders --duplicate-id-from id examples/departures-2013.jsonl
  echo hello | {PROGRAM} send --address orders

The last line of stdout is, for example: stored 19000 duplicates 1000

exit codes: 0 every line answered, 1 not every line answered, 2 wrong usage, 130 Ctrl-C
"""


@dataclass(slots=True)
class Totals:
    """The node's answers so far."""

    #: Lines stored now (or by an attempt of this run whose answer was lost).
    stored: int = 0
    #: Lines that the node had already.
    duplicates: int = 0
    #: Those of them whose batch had been sent before in this run without an answer.
    uncertain: int = 0

    def line(self, form: str) -> str:
        """The last line of stdout."""
        if form == "json":
            return json.dumps({"stored": self.stored, "duplicates": self.duplicates})
        return f"stored {self.stored} duplicates {self.duplicates}"


@dataclass(slots=True)
class Sender:
    """Sends batches of lines to one address, one after the other, so that their order is the file's."""

    client: NodeClient
    address: str
    #: JSON field that holds a line's ID; empty: none.
    id_field: str = ""
    #: Whether to send plain POSTs instead of transactions.
    plain: bool = False
    progress: Progress = field(default_factory=Progress)
    totals: Totals = field(default_factory=Totals)
    #: How long a batch is sent again before it is given up, in seconds.
    retry_for_s: float = RETRY_FOR_S
    #: Distinguishes the IDs of this run's transactions from those of other runs.
    run: str = field(default_factory=lambda: str(uuid.uuid4()))
    _number: int = 0

    async def send(self, lines: list[Line]) -> None:
        """Send one batch, repeatedly until it is answered.

        Raises:
            BadLine: a line has no ID; nothing of the batch was sent.
            Problem, Unreachable: the node refused, or gave no answer in time.
        """
        self._number += 1
        transaction = f"{self.run}/{self._number}"
        ids = [duplicate_id(line, self.id_field) if self.id_field else None for line in lines]
        if self.plain:
            for line, line_id in zip(lines, ids, strict=True):
                await self._post(line, line_id or f"{transaction}/{line.number}", own=line_id is not None)
        else:
            await self._commit(lines, ids, transaction)
        self.progress.update(self.totals.line("text"))

    async def _post(self, line: Line, line_id: str, *, own: bool) -> None:
        headers = {"Duplicate-Id": header_value(line_id), "Content-Type": "application/octet-stream"}

        async def post() -> Any:
            path = address_path(self.address, "messages")
            return (await self.client.call("POST", path, body=line.body, headers=headers)).body

        answer, retried = await self._until_answered(post, [line])
        # An ID that this run generated can only have been stored by this run: its answer was lost.
        self._count(1, int(answer["verdict"] == "duplicate" and own), retried=retried)

    async def _commit(self, lines: list[Line], ids: list[str | None], transaction: str) -> None:
        messages = [
            {"address": self.address, "body": line.body} | ({"duplicate-id": line_id} if line_id else {})
            for line, line_id in zip(lines, ids, strict=True)
        ]
        unit: dict[str, Any] = {"messages": messages}
        if self.id_field:
            unit["on-duplicate"] = "skip"
        else:
            unit["duplicate-id"] = transaction

        async def commit() -> Any:
            return (await self.client.call("POST", "/v1/transactions", packed=unit)).body

        answer, retried = await self._until_answered(commit, lines)
        self._count(len(lines), len(answer.get("duplicates", ())), retried=retried)

    async def _until_answered(
        self, call: Callable[[], Awaitable[Any]], lines: list[Line]
    ) -> tuple[Any, bool]:
        """The answer, and whether it took more than one attempt."""
        retried = False

        def on_retry(error: BridgeError) -> None:
            nonlocal retried
            if not retried:
                which = f"lines {lines[0].number}-{lines[-1].number}"
                warn(f"{PROGRAM}: {which}: {error.code}: {error}; trying again", self.progress)
            retried = True

        try:
            answer = await persistently(call, on_retry=on_retry, give_up_after_s=self.retry_for_s)
        except Problem as problem:
            problem.detail = f"{_place(problem, lines)}: {problem.detail}"
            raise
        return answer, retried

    def _count(self, lines: int, duplicates: int, *, retried: bool) -> None:
        self.totals.stored += lines - duplicates
        self.totals.duplicates += duplicates
        self.totals.uncertain += duplicates if retried else 0


def _place(problem: Problem, lines: list[Line]) -> str:
    """The line that a refused transaction is about, or all of them."""
    named = _MESSAGE.match(problem.key or "")
    if named is not None and int(named[1]) < len(lines):
        return f"line {lines[int(named[1])].number}"
    first, last = lines[0].number, lines[-1].number
    return f"line {first}" if first == last else f"lines {first}-{last}"


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "send",
        parents=[common],
        help="send the lines of a file or of stdin to an address",
        description="Send the lines of a file, or of stdin, to an address of a running node, in order.",
        epilog=_EPILOG,
    )
    parser.add_argument("file", nargs="?", default="-", metavar="FILE", help="input; - is stdin (default: -)")
    parser.add_argument("--address", required=True, help="where to (required)")
    parser.add_argument(
        "--batch",
        type=at_least(1, MAX_BATCH),
        default=DEFAULT_BATCH,
        metavar="N",
        help=f"messages in a transaction, 1 to {MAX_BATCH}; 1 sends plain POSTs (default: {DEFAULT_BATCH})",
    )
    parser.add_argument(
        "--duplicate-id-from",
        default="",
        metavar="FIELD",
        help="lines are JSON objects, and this field is the duplicate ID (default: no IDs)",
    )
    parser.add_argument("--keep-empty", action="store_true", help="send empty lines too (default: skip them)")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(_opened(arguments.file))
        except OSError as error:
            warn(f"{PROGRAM}: {arguments.file}: {str(error.strerror).lower()}")
            return Exit.USAGE
        return asyncio.run(_send(arguments, descriptor))


async def _send(arguments: argparse.Namespace, descriptor: int) -> int:
    async with NodeClient(node_connection(arguments)) as client:
        sender = Sender(client, arguments.address, arguments.duplicate_id_from, arguments.batch == 1)
        lines = batches(
            descriptor,
            LineSplitter(keep_empty=arguments.keep_empty),
            most=arguments.batch,
            most_bytes=MAX_BATCH_BYTES,
        )
        await _send_all(sender, lines, arguments.format)
    return Exit.OK


async def _send_all(sender: Sender, lines: AsyncIterator[list[Line]], form: str) -> None:
    try:
        async for batch in lines:
            await sender.send(batch)
    finally:  # also after Ctrl-C and when the node is gone: counts the answered lines
        sender.progress.clear()
        print(sender.totals.line(form), flush=True)
        if sender.totals.uncertain:
            warn(
                f"{PROGRAM}: {sender.totals.uncertain} of the duplicates were sent twice in this run because "
                "an answer was lost; what their first try stored is among them"
            )


@contextlib.contextmanager
def _opened(name: str) -> Iterator[int]:
    """A descriptor to read from; stdin is left open. Raises: OSError: there is no file to read."""
    if name == "-":
        yield sys.stdin.fileno()
        return
    descriptor = os.open(name, os.O_RDONLY)
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        yield descriptor
    finally:
        os.close(descriptor)
