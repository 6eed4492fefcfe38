"""Delivery times, as data for `templates/delivery-time.html`: places on a logarithmic axis; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dedup.reconcile.rows import Latency
from dedup.reconcile.tabular import Column, Table
from dedup.reconcile.text import duration, number

#: Rows of the chart, the slowest first, and of the table below it.
MAX_ROWS: Final = 12
MAX_NUMBERS: Final = 100
#: Characters of a journal's incarnation that tell two of them apart.
_INCARNATION: Final = 8
_PERCENTILES: Final = ("p50", "p90", "p99", "p99.9", "max")
#: Marks of the logarithmic time axis, ms.
_MARKS: Final = (
    *(1, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000),
    *(86_400_000, 864_000_000, 31_536_000_000),
)


@dataclass(frozen=True, slots=True)
class Span:
    """A row of the chart; places are in per cent of its width."""

    row: Latency
    bridge: str
    #: Its address, with what tells it from others of the same bridge and address.
    stream: str
    #: All percentiles in words.
    told: str
    median: float
    p99: float
    longest: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A round time on the axis, at `x` per cent."""

    text: str
    x: float
    #: SVG's ``text-anchor``.
    anchor: str


@dataclass(frozen=True, slots=True)
class DeliveryTimes:
    """A figure of how long messages took."""

    spans: Sequence[Span]
    marks: Sequence[Mark]
    numbers: Table


def delivery_times(rows: Sequence[Latency]) -> DeliveryTimes | None:
    """The figure; None where no time is known."""
    shown = [row for row in rows if row.count][:MAX_ROWS]
    if not shown:
        return None
    low, high = _bounds(shown)
    marks = [_mark(mark, low, high) for mark in _MARKS if low <= mark <= high]
    return DeliveryTimes([_span(row, low, high, _apart(row, shown)) for row in shown], marks, _numbers(rows))


def _numbers(rows: Sequence[Latency]) -> Table:
    columns = (
        Column("Bridge", header=True),
        Column("Address"),
        Column("Stream", code=True),
        Column("Messages", numeric=True),
        *(Column(name, numeric=True) for name in _PERCENTILES),
    )
    cells = [
        (row.bridge or "", row.address, row.stream, number(row.count), *map(duration, _percentiles(row)))
        for row in rows[:MAX_NUMBERS]
    ]
    return Table("Time from the source's event to the target's commit", columns, cells)


def _apart(row: Latency, shown: Sequence[Latency]) -> str:
    """A suffix that distinguishes streams where bridge and address are shown twice."""
    alike = [other for other in shown if (other.bridge, other.address) == (row.bridge, row.address)]
    if len(alike) == 1:
        return ""
    kind, _, rest = row.stream.partition(":")
    if kind == "kafka":
        return f" partition {rest.rpartition(':')[2]}"
    return f" {rest[:_INCARNATION]}…"


def _percentiles(row: Latency) -> tuple[float, ...]:
    return (row.p50_ms, row.p90_ms, row.p99_ms, row.p999_ms, row.max_ms)


def _bounds(rows: Sequence[Latency]) -> tuple[int, int]:
    """Marks around all values: at least two, so that there is an axis."""
    least, most = min(row.p50_ms for row in rows), max(row.max_ms for row in rows)
    low = max((mark for mark in _MARKS[:-1] if mark <= least), default=_MARKS[0])
    return low, next((mark for mark in _MARKS if mark >= most and mark > low), _MARKS[-1])


def _along(value: float, low: float, high: float) -> float:
    """Where a time stands between the axis's ends, in per cent; clocks that disagree may make it negative."""
    value = min(max(value, low), high)
    return round(1 + 98 * math.log(value / low) / math.log(high / low), 3)


def _span(row: Latency, low: float, high: float, apart: str) -> Span:
    median, _, p99, _, longest = (_along(value, low, high) for value in _percentiles(row))
    told = ", ".join(
        f"{name} {duration(value)}" for name, value in zip(_PERCENTILES, _percentiles(row), strict=True)
    )
    return Span(row, row.bridge or "", row.address + apart, told, median, p99, longest)


def _mark(mark: int, low: float, high: float) -> Mark:
    x = _along(mark, low, high)
    return Mark(duration(mark), x, "start" if x < 5 else "end" if x > 95 else "middle")
