"""The alerts for an operator: which trouble is new since the last look, and which is over. No Spark.

An alert is raised for positions, not for lines or batches: however the two logs cut them, each position is
raised once and resolved once.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

#: Version of an alert line.
VERSION: Final = 1
#: The watched troubles: those open for longer than allowed; and those of the verdict, by position and by ID.
LATE: Final = "late"
VERDICTS: Final = ("lost", "doubled", "repeated-id")


class Trouble(NamedTuple):
    """A range of positions with something wrong, or an ID."""

    #: `LATE`, or one of `VERDICTS`.
    kind: str
    bridge: str | None
    stream: str
    store: str
    address: str
    #: Of what is repeated, else None.
    id: str | None
    #: Inclusive; 0 and 0 where there is an ID: one alert an ID.
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The troubles raised and resolved, each ascending by kind, flow and position."""

    raised: tuple[Trouble, ...]
    resolved: tuple[Trouble, ...]


def changes(before: Iterable[Trouble], now: Iterable[Trouble]) -> Changes:
    """The differences in both directions; ranges may overlap and touch."""
    old, new = _by_subject(before), _by_subject(now)
    return Changes(tuple(_without(new, old)), tuple(_without(old, new)))


def joined(troubles: Iterable[Trouble]) -> tuple[Trouble, ...]:
    """The same positions in as few troubles as possible, ascending by kind, flow and position."""
    return tuple(_without(_by_subject(troubles), {}))


def line(trouble: Trouble, *, number: int, is_resolved: bool, seen_ms: int) -> str:
    """One alert as a JSON line, without its newline.

    Args:
        trouble: what it is about.
        number: of the alert; ascends by one, so that a reader sees what is missing and what came again.
        is_resolved: whether it is over.
        seen_ms: when this was found out, ms since the epoch.
    """
    fields = {
        "v": VERSION,
        "number": number,
        "alert": trouble.kind,
        "state": "resolved" if is_resolved else "raised",
        "bridge": trouble.bridge,
        "stream": trouble.stream,
        "address": trouble.address,
        "store": trouble.store,
        "positions": None if trouble.id is not None else [trouble.first, trouble.last],
        "id": trouble.id,
        "seen": seen_ms,
    }
    return json.dumps(fields, separators=(",", ":"))


#: Everything of a trouble but its positions.
_Subject = tuple[str, str | None, str, str, str, str | None]
#: First and last position, both inclusive.
_Range = tuple[int, int]


def _by_subject(troubles: Iterable[Trouble]) -> Mapping[_Subject, list[_Range]]:
    found: defaultdict[_Subject, list[_Range]] = defaultdict(list)
    for trouble in troubles:
        found[trouble[:6]].append((trouble.first, trouble.last))
    return {subject: _join(ranges) for subject, ranges in found.items()}


def _join(ranges: list[_Range]) -> list[_Range]:
    """Disjoint, not touching, ascending."""
    done: list[_Range] = []
    for first, last in sorted(ranges):
        if done and first <= done[-1][1] + 1:
            done[-1] = (done[-1][0], max(done[-1][1], last))
        else:
            done.append((first, last))
    return done


def _without(
    these: Mapping[_Subject, list[_Range]], those: Mapping[_Subject, list[_Range]]
) -> Iterator[Trouble]:
    for subject in sorted(these, key=lambda parts: tuple(part or "" for part in parts)):
        for first, last in _subtract(these[subject], those.get(subject, [])):
            yield Trouble(*subject, first, last)


def _subtract(these: list[_Range], those: list[_Range]) -> Iterator[_Range]:
    """The ranges of `these` that are not in `those`, both as `_join` leaves them; in one walk over both."""
    at = 0
    for first, last in these:
        start = first
        while at < len(those) and those[at][1] < start:
            at += 1
        place = at
        while place < len(those) and those[place][0] <= last:
            if those[place][0] > start:
                yield start, those[place][0] - 1
            start = those[place][1] + 1
            place += 1
        if start <= last:
            yield start, last
