"""`core-bridge filter`: says which of the messages on stdin a condition takes, or how it is understood."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import IO, Any, Final

from bridge.cli.filter_lines import LINE_BYTES_MOST, read_line
from bridge.client.exit_codes import PROGRAM, Exit
from bridge.errors import BridgeError, Malformed
from bridge.filters import Filter, parse

_EPILOG: Final = f"""\
A line of stdin is a message, as a JSON object:
  properties  by name, the values: texts, numbers, true, false, null
  types       by name, a property's type where JSON does not say it: byte, short, int, long, float, double,
              char, bytes (as hexadecimal digits), header (a text that counts as a number beside one)
  system      priority, durable, timestamp, expiration, size, userID, groupID, address; body and type may be
              there, and are not read
All of them may be left out. Each line is answered at once with `true` or `false`; empty lines are skipped. A
condition that begins with a minus sign stands behind `--`.

examples:
  {PROGRAM} filter --explain "NOT region = 'eu' OR amount BETWEEN 1 AND 10"
  echo '{{"properties": {{"region": "eu", "amount": 12}}}}' | {PROGRAM} filter "region = 'eu' AND amount > 10"

exit codes: 0 every line answered, 2 wrong usage, a condition that is refused or a bad line, 130 Ctrl-C
"""


def add_parser(subparsers: Any, common: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "filter",
        parents=[common],
        help="say which messages a filter's condition takes, or explain it",
        description="Say of each message on stdin whether a filter's condition takes it (docs/filters.md).",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "condition", metavar="CONDITION", help="the condition; an empty one takes every message"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="write the condition in full brackets, with the types of its literals, and read nothing "
        "(default: answer messages)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    try:
        condition = parse(arguments.condition)
        if arguments.explain:
            print("no filter: every message is taken" if condition is None else condition.explain())
        else:
            _answer(condition, sys.stdin.buffer)
    except BridgeError as error:
        print(f"{PROGRAM}: {error.code}: {error}", file=sys.stderr)
        return Exit.USAGE
    return Exit.OK


def _answer(condition: Filter | None, lines: IO[bytes]) -> None:
    try:
        for number, line in _numbered(lines):
            try:
                properties, system = read_line(line)
            except Malformed as error:
                raise Malformed(f"line {number}: {error}") from None
            taken = condition is None or condition.matches_line(properties, system)
            print("true" if taken else "false", flush=True)
    finally:
        if condition is not None and condition.raised:
            print(
                f"{PROGRAM}: {condition.raised} of the messages that were not taken could not be evaluated: "
                "a calculation had no number, bytes were to be compared, or the texts are too long",
                file=sys.stderr,
            )


def _numbered(lines: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines that are not empty, with their numbers from 1.

    Raises:
        Malformed: a line is longer than the limit.
    """
    number = 0
    while line := lines.readline(LINE_BYTES_MOST + 1):
        number += 1
        if len(line) > LINE_BYTES_MOST:
            raise Malformed(f"line {number}: must have at most {LINE_BYTES_MOST} bytes; found more")
        if line.strip():
            yield number, line
