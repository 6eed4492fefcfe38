"""The names of a delivery log's files, and the numbers that are missing between them; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

#: Endings of the log's files: complete, and still being written.
CLOSED: Final = ".jsonl"
OPEN: Final = ".jsonl.open"
#: Those of complete files that were compressed since; Spark reads them by their endings.
COMPRESSED: Final = (".jsonl.gz", ".jsonl.zst")
#: All that are read.
ENDINGS: Final = (CLOSED, OPEN, *COMPRESSED)
#: ``<node>-<yyyymmddThhmmss UTC>-<6 digits>`` and an ending (contract, Delivery log).
_NAME: Final = re.compile(
    r"(?P<node>.+)-\d{8}T\d{6}-(?P<number>\d{6,18})\.jsonl(\.open|\.gz|\.zst)?", re.DOTALL
)
#: A name that looks like one of a log's files, whatever it ends in; but not what Hadoop keeps beside files.
_LIKE_A_LOG: Final = re.compile(r"(?!\..*\.crc$).*\.jsonl(?![0-9A-Za-z])", re.DOTALL)


def place_in_log(path: str) -> tuple[str, int] | None:
    """The node that wrote the file, and its number in that node's log; None: its name does not say."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    return (match["node"], int(match["number"])) if match else None


def is_like_a_log(name: str) -> bool:
    """Whether a file's name looks like one of a log's, also where its ending is not read."""
    return _LIKE_A_LOG.match(name) is not None


def stem(path: str) -> str:
    """The path without the ending, which differs while a file is written, when it is complete, and when it
    was compressed.
    """
    return next((path.removesuffix(ending) for ending in ENDINGS[::-1] if path.endswith(ending)), path)


@dataclass(frozen=True, slots=True)
class Hole:
    """Files of a node that are missing between others: their numbers, both inclusive."""

    node: str
    first: int
    last: int


def holes(paths: Iterable[str]) -> list[Hole]:
    """The files that are missing between those at these paths, by node and number."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for path in paths:
        place = place_in_log(path)
        if place is not None:
            numbers[place[0]].add(place[1])
    found = []
    for node in sorted(numbers):
        known = sorted(numbers[node])
        found += [
            Hole(node, before + 1, after - 1) for before, after in pairwise(known) if after - before > 1
        ]
    return found
