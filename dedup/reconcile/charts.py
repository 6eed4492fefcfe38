"""Time lines as inline SVG: no script, no fixed width, and the same numbers in words and in a table.

Places along the width are percentages, so that text keeps its size on every screen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dedup.reconcile.markup import compact, duration, escaped, moment, number
from dedup.reconcile.rows import Hour
from dedup.reconcile.tabular import Column, table

HOUR_MS: Final = 3_600_000
#: Lengths of time that one column of the time line may stand for, in hours.
_STEPS: Final = (1, 2, 3, 6, 12, 24, 48, 168, 720, 2160, 8760)
#: Columns of a time line: as many as a phone can show.
MAX_COLUMNS: Final = 48
#: Times written below a time line; a phone leaves out every other one.
_MAX_TIMES: Final = 6
_MINUTE: Final = "%Y-%m-%d %H:%M"
#: Widest bar, in per cent of the chart: a run of a few minutes is no wall.
_WIDEST_BAR: Final = 4.0

#: Heights in CSS pixels: above the plot, the plot, and the times below it.
_TOP, _PLOT, _BELOW = 14, 168, 38


@dataclass(frozen=True, slots=True)
class Bucket:
    """A column of the time line."""

    start_ms: int
    sent: int
    received: int


def buckets(hours: Sequence[Hour]) -> tuple[int, list[Bucket]]:
    """Length of a column in ms, and at most `MAX_COLUMNS` columns without a hole between them."""
    if not hours:
        return HOUR_MS, []
    first, last = min(hour.hour_ms for hour in hours), max(hour.hour_ms for hour in hours)
    span = (last - first) // HOUR_MS + 1
    steps = next((step for step in _STEPS if span / step <= MAX_COLUMNS - 1), span // (MAX_COLUMNS - 1) + 1)
    step_ms = steps * HOUR_MS
    start = first - first % step_ms
    sent, received = ([0] * ((last - start) // step_ms + 1) for _ in range(2))
    for hour in hours:
        place = (hour.hour_ms - start) // step_ms
        sent[place] += hour.sent
        received[place] += hour.received
    found = [
        Bucket(start + place * step_ms, *both) for place, both in enumerate(zip(sent, received, strict=True))
    ]
    return step_ms, found


def time_line(title: str, hours: Sequence[Hour], name: str) -> str:
    """A figure of what was sent and received over time.

    Args:
        title: says what it is, in words.
        hours: of one bridge or of several.
        name: prefix of the figure's element ids.
    """
    step_ms, columns = buckets(hours)
    if not columns:
        return ""
    most = max(max(column.sent, column.received) for column in columns)
    top, marks = _scale(most)
    unit = "hour" if step_ms == HOUR_MS else duration(step_ms)
    told = (
        f"Messages in each {unit}, {len(columns)} columns from {moment(columns[0].start_ms, _MINUTE)} UTC; "
        f"sent {number(sum(column.sent for column in columns))}, "
        f"received {number(sum(column.received for column in columns))}, at most {number(most)} in a column."
    )
    body = [
        *_grid(marks, top),
        *(_bars(place, column, columns, step_ms, top) for place, column in enumerate(columns)),
    ]
    labels = _times(columns, step_ms)
    numbers = table(
        f"{title}: messages in each {unit}",
        (Column("From (UTC)"), Column("Sent", numeric=True), Column("Received", numeric=True)),
        [
            (moment(column.start_ms, _MINUTE), number(column.sent), number(column.received))
            for column in columns
        ],
    )
    return (
        f'<figure class="card chart"><figcaption><h3>{escaped(title)}</h3>'
        '<ul class="legend" aria-hidden="true"><li><i class="sent"></i>sent</li>'
        f'<li><i class="received"></i>received</li><li>per {unit}, UTC</li></ul></figcaption>'
        f'<div class="plot">{_axis(marks, top)}<svg class="bars" height="{_TOP + _PLOT + _BELOW}" role="img" '
        f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escaped(title)}</title>'
        f'<desc id="{name}-d">{told}</desc>{"".join(body)}{labels}</svg></div>'
        f"<details><summary>The numbers of this chart</summary>{numbers}</details></figure>"
    )


def _scale(most: int) -> tuple[float, list[float]]:
    """Upper end of an axis and its marks, in round numbers."""
    raw = max(most, 1) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = max(1.0, next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw))
    count = max(1, math.ceil(most / step))
    return step * count, [step * place for place in range(count + 1)]


def _height(value: float, top: float) -> float:
    return round(_PLOT * value / top, 1)


def _axis(marks: Sequence[float], top: float) -> str:
    texts = [compact(mark) for mark in marks]
    width = 8 * max(map(len, texts)) + 6
    lines = (
        f'<text x="{width - 6}" y="{_TOP + _PLOT - _height(mark, top) + 4}" text-anchor="end">{text}</text>'
        for mark, text in zip(marks, texts, strict=True)
    )
    size = f'width="{width}" height="{_TOP + _PLOT + _BELOW}"'
    return f'<svg class="axis" {size} aria-hidden="true">{"".join(lines)}</svg>'


def _grid(marks: Sequence[float], top: float) -> list[str]:
    places = [_TOP + _PLOT - _height(mark, top) for mark in marks]
    return [f'<line class="grid" x1="0" x2="100%" y1="{place}" y2="{place}"/>' for place in places]


def _bars(place: int, column: Bucket, columns: Sequence[Bucket], step_ms: int, top: float) -> str:
    slot = 100 / len(columns)
    width = min(0.38 * slot, _WIDEST_BAR)
    middle = slot * (place + 0.5)
    until = moment(column.start_ms + step_ms, "%H:%M")
    told = (
        f"{moment(column.start_ms, _MINUTE)} to {until}: sent {number(column.sent)}, "
        f"received {number(column.received)}"
    )
    bars = "".join(
        f'<rect class="{side}" x="{left:.3f}%" width="{width:.3f}%" y="{_TOP + _PLOT - _height(value, top)}" '
        f'height="{_height(value, top)}" rx="1.5"/>'
        for side, value, left in (
            ("sent", column.sent, middle - width),
            ("received", column.received, middle),
        )
        if value
    )
    area = f'<rect class="area" x="{slot * place:.3f}%" width="{slot:.3f}%" y="{_TOP}" height="{_PLOT}"/>'
    return f"<g><title>{told}</title>{area}{bars}</g>"


def _times(columns: Sequence[Bucket], step_ms: int) -> str:
    every = math.ceil(len(columns) / _MAX_TIMES)
    labels = []
    for number_, place in enumerate(range(0, len(columns), every)):
        middle = 100 / len(columns) * (place + 0.5)
        anchor = "start" if middle < 6 else "end" if middle > 94 else "middle"
        x = 0 if anchor == "start" else 100 if anchor == "end" else middle
        start = columns[place].start_ms
        hour, day = moment(start, "%H:%M"), moment(start, "%-d %b")
        lines = (hour, day) if step_ms < 24 * HOUR_MS else (day, moment(start, "%Y"))
        spans = "".join(
            f'<tspan x="{x:.3f}%" y="{_TOP + _PLOT + 17 + 15 * row}">{line}</tspan>'
            for row, line in enumerate(lines)
        )
        labels.append(
            f'<text class="{"minor" if number_ % 2 else "time"}" text-anchor="{anchor}">{spans}</text>'
        )
    return "".join(labels)
