"""Time lines, as data for `templates/time-line.html`: where each bar, mark and label stands; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dedup.reconcile.rows import Hour
from dedup.reconcile.tabular import Column, Table
from dedup.reconcile.text import compact, duration, moment, number

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


@dataclass(frozen=True, slots=True)
class Mark:
    """A round number on the upright axis, `y` CSS pixels below the top."""

    text: str
    y: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A side's messages in a column: `x` and `width` in per cent, `y` and `height` in CSS pixels."""

    #: ``sent`` or ``received``.
    side: str
    x: str
    width: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a column, in per cent, and the bars that are not 0."""

    told: str
    x: str
    width: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Label:
    """A time below the bars, at `x` per cent."""

    x: str
    #: SVG's ``text-anchor``.
    anchor: str
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class TimeLine:
    """A figure of what was sent and received over time."""

    title: str
    #: The meaning of one column.
    unit: str
    #: The figure in words.
    told: str
    marks: Sequence[Mark]
    columns: Sequence[Slot]
    labels: Sequence[Label]
    numbers: Table
    axis_width: int
    #: In CSS pixels: of all, of what is above the plot, and of the plot.
    height: int = _TOP + _PLOT + _BELOW
    top: int = _TOP
    plot: int = _PLOT


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


def time_line(title: str, hours: Sequence[Hour]) -> TimeLine:
    """The figure of at least one hour, of one bridge or of several; `title` says which."""
    step_ms, columns = buckets(hours)
    most = max(max(column.sent, column.received) for column in columns)
    top, steps = _scale(most)
    unit = "hour" if step_ms == HOUR_MS else duration(step_ms)
    told = (
        f"Messages in each {unit}, {len(columns)} columns from {moment(columns[0].start_ms, _MINUTE)} UTC; "
        f"sent {number(sum(column.sent for column in columns))}, "
        f"received {number(sum(column.received for column in columns))}, at most {number(most)} in a column."
    )
    numbers = Table(
        f"{title}: messages in each {unit}",
        (Column("From (UTC)"), Column("Sent", numeric=True), Column("Received", numeric=True)),
        [
            (moment(column.start_ms, _MINUTE), number(column.sent), number(column.received))
            for column in columns
        ],
        cards=False,
    )
    marks = [Mark(compact(step), _TOP + _PLOT - _height(step, top)) for step in steps]
    return TimeLine(
        title=title,
        unit=unit,
        told=told,
        marks=marks,
        columns=[_slot(place, column, len(columns), step_ms, top) for place, column in enumerate(columns)],
        labels=_labels(columns, step_ms),
        numbers=numbers,
        axis_width=8 * max(len(mark.text) for mark in marks) + 6,
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


def _slot(place: int, column: Bucket, columns: int, step_ms: int, top: float) -> Slot:
    slot = 100 / columns
    width = min(0.38 * slot, _WIDEST_BAR)
    middle = slot * (place + 0.5)
    until = moment(column.start_ms + step_ms, "%H:%M")
    told = (
        f"{moment(column.start_ms, _MINUTE)} to {until}: sent {number(column.sent)}, "
        f"received {number(column.received)}"
    )
    sides = (("sent", column.sent, middle - width), ("received", column.received, middle))
    bars = [
        Bar(side, f"{left:.3f}", f"{width:.3f}", _TOP + _PLOT - _height(value, top), _height(value, top))
        for side, value, left in sides
        if value
    ]
    return Slot(told, f"{slot * place:.3f}", f"{slot:.3f}", bars)


def _labels(columns: Sequence[Bucket], step_ms: int) -> list[Label]:
    labels = []
    for place in range(0, len(columns), math.ceil(len(columns) / _MAX_TIMES)):
        middle = 100 / len(columns) * (place + 0.5)
        anchor = "start" if middle < 6 else "end" if middle > 94 else "middle"
        x = 0 if anchor == "start" else 100 if anchor == "end" else middle
        start = columns[place].start_ms
        hour, day = moment(start, "%H:%M"), moment(start, "%-d %b")
        lines = (hour, day) if step_ms < 24 * HOUR_MS else (day, moment(start, "%Y"))
        labels.append(Label(f"{x:.3f}", anchor, lines))
    return labels
