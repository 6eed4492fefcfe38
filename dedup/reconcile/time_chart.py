"""The chart of delivery times as inline SVG: a row a flow, from the median to the longest, logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dedup.reconcile.markup import duration, escaped, number
from dedup.reconcile.rows import Latency
from dedup.reconcile.tabular import Column, table

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


def delivery_times(rows: Sequence[Latency]) -> str:
    """A figure of how long messages took; empty where no time is known."""
    shown = [row for row in rows if row.count][:MAX_ROWS]
    if not shown:
        return ""
    low, high = _bounds(shown)
    marks = [mark for mark in _MARKS if low <= mark <= high]
    return (
        '<figure class="card chart"><figcaption><h3>From the source’s event to the target’s commit</h3>'
        '<ul class="legend" aria-hidden="true"><li><i class="dot"></i>median</li>'
        '<li><i class="thick"></i>to p99</li><li><i class="thin"></i>to the longest</li>'
        "<li>logarithmic</li></ul></figcaption>"
        f'<div class="spans">{"".join(_span(row, low, high, marks, _apart(row, shown)) for row in shown)}'
        f"{_marks(marks, low, high)}</div>"
        f"<details><summary>The numbers of this chart</summary>{_numbers(rows)}</details></figure>"
    )


def _numbers(rows: Sequence[Latency]) -> str:
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
    return table("Time from the source's event to the target's commit", columns, cells, kind="cards")


def _apart(row: Latency, shown: Sequence[Latency]) -> str:
    """What tells streams apart where bridge and address are shown twice."""
    alike = [other for other in shown if (other.bridge, other.address) == (row.bridge, row.address)]
    if len(alike) == 1:
        return ""
    kind, _, rest = row.stream.partition(":")
    if kind == "kafka":
        return f" partition {escaped(rest.rpartition(':')[2])}"
    return f" {escaped(rest[:_INCARNATION])}…"


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


def _span(row: Latency, low: float, high: float, marks: Sequence[int], apart: str) -> str:
    middle, _, most, _, longest = (_along(value, low, high) for value in _percentiles(row))
    told = ", ".join(
        f"{name} {duration(value)}" for name, value in zip(_PERCENTILES, _percentiles(row), strict=True)
    )
    grid = "".join(
        f'<line class="grid" x1="{x}%" x2="{x}%" y1="0" y2="28"/>'
        for x in (_along(mark, low, high) for mark in marks)
    )
    return (
        f'<div class="span"><p><b>{escaped(row.bridge or "")}</b> '
        f"<span>{escaped(row.address)}{apart}</span></p>"
        f'<svg height="28" role="img"><title>{told}</title>{grid}'
        f'<line class="thin" x1="{middle}%" x2="{longest}%" y1="14" y2="14"/>'
        f'<line class="thick" x1="{middle}%" x2="{most}%" y1="14" y2="14"/>'
        f'<line class="thin" x1="{longest}%" x2="{longest}%" y1="8" y2="20"/>'
        f'<circle class="dot" cx="{middle}%" cy="14" r="5.5"/></svg>'
        f'<p class="figures">{duration(row.p50_ms)} <span>median</span> '
        f"{duration(row.p99_ms)} <span>p99</span></p></div>"
    )


def _marks(marks: Sequence[int], low: float, high: float) -> str:
    texts = []
    for mark in marks:
        x = _along(mark, low, high)
        anchor = "start" if x < 5 else "end" if x > 95 else "middle"
        texts.append(f'<text x="{x}%" y="14" text-anchor="{anchor}">{duration(mark)}</text>')
    axis = f'<svg height="20">{"".join(texts)}</svg>'
    return f'<div class="span marks" aria-hidden="true"><p></p>{axis}<p></p></div>'
