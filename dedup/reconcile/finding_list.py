"""The findings on the page: each kind with its meaning and remedy, then exact positions and IDs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from dedup.reconcile.rows import KINDS, Facts, Finding
from dedup.reconcile.summary import gravest_first
from dedup.reconcile.tabular import Cell, Column, Line, Table
from dedup.reconcile.text import duration, number, positions

#: Findings of one kind that the page shows; `summary.json` has more, the Parquet table all.
MAX_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Kind:
    """The presentation of a kind of findings."""

    title: str
    #: ``bad``, ``warn`` or ``note``.
    tone: str
    #: Its meaning and remedy, in HTML; ``{late}`` is --late-after.
    means: str


SHOWN: Final = {
    "lost": Kind(
        "Lost",
        "bad",
        "The sender’s log has them, the receiver’s log covers their positions and does not have them. "
        "<code>core-bridge replay --plan replay-plan.json</code> sends them again.",
    ),
    "doubled": Kind("Doubled", "bad", "Two different lines of the receiver have the same position."),
    "repeated-id": Kind(
        "Doubled by ID",
        "bad",
        "An address accepted the same producer’s ID at two places: see the size needed, below.",
    ),
    "unsent": Kind(
        "Unsent",
        "warn",
        "The receiver has them, and the sender’s log covers their positions without having sent them.",
    ),
    "unknown": Kind(
        "Unknown",
        "warn",
        "The log of one side does not cover these positions: lines are missing or cannot be read. That says "
        "nothing about the messages. Add the missing files and reconcile again. Or two stores of a bridge "
        "that failed over have them, which is one too many if both are still there.",
    ),
    "out-of-order": Kind("Out of order", "note", "Received after a later position of the same stream."),
    "refused": Kind(
        "Refused", "note", "The target refused them for good; they are dead letters of the bridge."
    ),
    "late": Kind("Late", "note", "By the clocks, not delivered within {late}. No verdict rests on this."),
    "open": Kind(
        "Open", "note", "Sent, and the receiver’s log does not go so far: on their way, or not written yet."
    ),
    "rejected": Kind(
        "Rejected", "note", "Duplicates: they came again and were not stored again, as it should be."
    ),
}


@dataclass(frozen=True, slots=True)
class Found:
    """All findings of one kind."""

    kind: Kind
    #: The meaning of the kind, with the time of this report.
    means: Markup
    messages: int
    findings: int
    #: Number of findings in the table.
    shown: int
    table: Table


def found_kinds(facts: Facts, late_after_ms: int) -> list[Found]:
    """The kinds that were found, the gravest first."""
    by_kind: dict[str, list[Finding]] = {}
    for finding in gravest_first(facts.findings):
        by_kind.setdefault(finding.kind, []).append(finding)
    totals = {total.kind: total for total in facts.totals}
    found = []
    for name in KINDS:
        if name in totals:
            kind, shown = SHOWN[name], by_kind.get(name, [])[:MAX_SHOWN]
            means = Markup(kind.means).format(late=_allowed(late_after_ms))  # noqa: S704
            total = totals[name]
            found.append(Found(kind, means, total.messages, total.findings, len(shown), _table(kind, shown)))
    return found


def _allowed(late_after_ms: int) -> str:
    """--late-after; below 0 only an earlier run of the same state can have found something late."""
    return duration(late_after_ms) if late_after_ms >= 0 else "the time that an earlier run allowed"


def _table(kind: Kind, found: Sequence[Finding]) -> Table:
    by_id, told = any(row.id is not None for row in found), any(row.detail for row in found)
    columns = [
        Column("Positions", header=True, code=True),
        Column("Messages", numeric=True),
        Column("Bridge", short=True),
        Column("Address", short=True),
        Column("Stream", code=True),
        *([Column("ID", code=True)] if by_id else []),
        *([Column("Detail")] if told else []),
    ]
    rows = [_row(row, by_id=by_id, told=told) for row in found]
    return Table(f"{kind.title}: positions and IDs", columns, rows)


def _row(found: Finding, *, by_id: bool, told: bool) -> list[Cell]:
    return [
        positions(found.first, found.last) or (Line("", "not known"),),
        number(found.count),
        found.bridge or "clients",
        found.address,
        found.stream or "",
        *([found.id or ""] if by_id else []),
        *([found.detail or ""] if told else []),
    ]
