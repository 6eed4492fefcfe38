"""The rows of a report's tables, as the driver holds them: plain values, no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Self, TypeVar

#: Kinds of findings, the gravest first: where a report must be cut, it is cut at the end.
KINDS: Final = (
    "lost",
    "doubled",
    "repeated-id",
    "unsent",
    "unknown",
    "out-of-order",
    "refused",
    "late",
    "open",
    "rejected",
)


class _FromTable:
    """A row made from a mapping that has its columns, and perhaps others."""

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The names of the columns, as the tables write them."""
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """The row of these values."""
        return cls(**{name: row[name] for name in cls.columns()})


@dataclass(frozen=True, slots=True)
class Flow(_FromTable):
    """The messages that one bridge brought of one stream to one store. All counts are messages."""

    #: None for messages that clients sent: there is nothing to compare them with.
    bridge: str | None
    stream: str
    store: str
    address: str
    target: str
    sent: int
    received: int
    lost: int
    doubled: int
    unsent: int
    out_of_order: int
    late: int
    open: int
    refused: int
    rejected: int
    unknown: int
    #: One beyond the last position that a side's log covers; None where the side has no line.
    sent_upto: int | None
    received_upto: int | None
    #: First and last event, ms since the epoch; None where no message was seen.
    first_ms: int | None
    last_ms: int | None
    #: When the target committed what the newest sent line tells of, ms since the epoch; None: no such line.
    sent_ms: int | None
    #: Messages that clients sent to the stream and that lie beyond all sent lines; and when the first of them
    #: was stored, ms since the epoch.
    waiting: int
    waiting_since_ms: int | None


@dataclass(frozen=True, slots=True)
class Finding(_FromTable):
    """A range of positions, or an ID, with what is wrong with it."""

    #: One of `KINDS`.
    kind: str
    bridge: str | None
    stream: str | None
    store: str
    address: str
    #: First and last position, both inclusive; None for an ID whose place is not known.
    first: int | None
    last: int | None
    #: Messages.
    count: int
    id: str | None
    detail: str | None


@dataclass(frozen=True, slots=True)
class Total(_FromTable):
    """The totals of one kind of findings."""

    kind: str
    #: Rows of the table.
    findings: int
    #: Messages in them.
    messages: int


@dataclass(frozen=True, slots=True)
class Input(_FromTable):
    """A file that was read."""

    path: str
    sha256: str
    lines: int
    #: Lines that could not be read; they show as gaps.
    unreadable: int


@dataclass(frozen=True, slots=True)
class Hour(_FromTable):
    """Messages of one bridge in the hour that begins at `hour_ms` since the epoch."""

    bridge: str | None
    hour_ms: int
    sent: int
    received: int


@dataclass(frozen=True, slots=True)
class Latency(_FromTable):
    """The time of messages from the source's event to the target's commit, in ms; approximate."""

    bridge: str | None
    stream: str
    address: str
    count: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class IdCache(_FromTable):
    """Producers' IDs at one address of one store."""

    store: str
    address: str
    accepted: int
    #: Number of those that came again, accepted or rejected.
    repeated: int
    #: `id-cache-size` that would have known all of them; 0 where none came again.
    needed: int


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a summary and a page are written from; bounded, while the Parquet tables are complete."""

    flows: Sequence[Flow]
    #: The gravest first, at most `report.MAX_FINDINGS`.
    findings: Sequence[Finding]
    #: Of all findings, also of those that are cut off.
    totals: Sequence[Total]
    inputs: Sequence[Input]
    hours: Sequence[Hour]
    #: The slowest first, at most `report.MAX_LATENCIES`.
    latency: Sequence[Latency]
    id_caches: Sequence[IdCache]
    #: Files that look like a log's, and were not read.
    left_out: Sequence[str] = ()


_Row = TypeVar("_Row", bound=_FromTable)


def rows_of(kind: type[_Row], rows: Sequence[Mapping[str, Any]]) -> list[_Row]:
    """Each mapping as a row of that kind."""
    return [kind.of(row) for row in rows]
