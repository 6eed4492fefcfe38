"""The rows of the input, each with its ID. Pure but for `read_input`."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.client.input_lines import Line, LineSplitter
from bridge.errors import BridgeError

#: The data set in the package: in a checkout a link to the file in examples/.
DEPARTURES: Final = Path(__file__).with_name("departures-2013.jsonl")
#: Fields whose values together name a departure.
NATURAL_KEY: Final = ("time_hour", "carrier", "flight")
#: Limit of the input, which the demo holds in memory to compare with.
MAX_INPUT_BYTES: Final = 256 * 1024 * 1024
#: Longest natural key that is used as an ID, in characters.
MAX_KEY_LENGTH: Final = 200


class BadInput(BridgeError):
    """The input cannot be relayed."""

    code = "BAD_INPUT"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the input."""

    #: Index among the rows, from 0; sent as the message's key.
    index: int
    body: bytes
    #: Natural key, or line number and hash.
    id: str

    @property
    def key(self) -> bytes:
        """The message key with the row's index."""
        return b"%d" % self.index


def read_input(name: str) -> list[Row]:
    """The rows of a file, `-` for stdin, or "" for the departures.

    Raises:
        BadInput: no rows, or too many bytes.
        OSError: the file cannot be read.
    """
    if name == "-":
        data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    else:
        with (Path(name) if name else DEPARTURES).open("rb") as file:
            data = file.read(MAX_INPUT_BYTES + 1)
    if len(data) > MAX_INPUT_BYTES:
        raise BadInput(f"the demo keeps its input in memory: at most {MAX_INPUT_BYTES} bytes")
    splitter = LineSplitter()
    rows = to_rows(splitter.feed(data) + splitter.end())
    if not rows:
        raise BadInput("the input has no rows: nothing to relay")
    return rows


def to_rows(lines: Sequence[Line]) -> list[Row]:
    """Convert lines to rows. A natural key that was used before is replaced by line number and hash."""
    rows: list[Row] = []
    seen: set[str] = set()
    for index, line in enumerate(lines):
        key = natural_key(line.body)
        if key is None or key in seen:
            key = f"line-{line.number}-{hashlib.blake2b(line.body, digest_size=8).hexdigest()}"
        seen.add(key)
        rows.append(Row(index, line.body, key))
    return rows


def natural_key(body: bytes) -> str | None:
    """``time_hour/carrier/flight`` of a JSON line; None where it has none that a header can carry."""
    if not body.startswith(b"{"):
        return None
    try:
        fields = json.loads(body)
        parts = [fields[name] for name in NATURAL_KEY]
    except (ValueError, KeyError, RecursionError):
        return None
    if not all(isinstance(part, str | int) for part in parts):
        return None
    key = "/".join(map(str, parts))
    plain = key.isascii() and key.isprintable() and not set(key) & set(' "\\')
    return key if plain and len(key) <= MAX_KEY_LENGTH else None
