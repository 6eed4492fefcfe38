"""Hours of the week in a time zone, as settings write them: ``Mon-Fri 22:00-06:00 Europe/Berlin``. Pure.

A window belongs to the day on which it begins. It begins and ends at the first moment at which the zone's
clock shows that time or a later one. So a time that the change to summer time skips is the moment of the
change, and a time that comes twice is the first of the two. Every moment is inside or outside, and a window
that lies in a skipped hour does not open that day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

#: Days ahead in which openings and closings are looked for: each window comes once a week, but where the
#: change to summer time skips it.
HORIZON_DAYS: Final = 15
#: Most windows of one schedule.
WINDOWS_MOST: Final = 50

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_EXAMPLE: Final = '"Mon-Fri 22:00-06:00 Europe/Berlin"'
_WINDOW: Final = re.compile(
    r"(?:(?P<days>[A-Za-z][A-Za-z,-]*) )?(?P<begin>[0-9:]+)-(?P<end>[0-9:]+)(?: (?P<zone>\S+))?"
)
_TIME: Final = re.compile(r"([0-9]{1,2}):([0-9]{2})")
_DAY_MIN: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """One entry of a schedule."""

    #: Numbers of the days on which it begins; 0 is Monday.
    days: frozenset[int]
    #: Minutes from the beginning of the day. The end is above the beginning; above 24 h it is on the next
    #: day.
    begin_min: int
    end_min: int
    zone: ZoneInfo

    def intervals(self, now_ms: int, ahead_days: int = HORIZON_DAYS) -> Iterator[tuple[int, int]]:
        """Its openings and closings around `now_ms` and up to so many days later, ms since the epoch."""
        today = datetime.fromtimestamp(now_ms / 1000, self.zone).date()
        midnight = datetime.combine(today, time.min)
        for number in range(-2, ahead_days + 1):
            day = midnight + timedelta(days=number)
            if day.weekday() in self.days:
                begin = _reached_s(day + timedelta(minutes=self.begin_min), self.zone)
                end = _reached_s(day + timedelta(minutes=self.end_min), self.zone)
                if begin < end:
                    yield begin * 1000, end * 1000


@dataclass(frozen=True, slots=True)
class Schedule:
    """The windows of a bridge; it is open where one of them is."""

    windows: tuple[Window, ...]

    @staticmethod
    def of(texts: Iterable[str]) -> Schedule:
        """The schedule that settings write. Raises: ValueError: the rule that a text breaks."""
        return Schedule(tuple(map(window, texts)))

    def is_open(self, now_ms: int) -> bool:
        """Whether `now_ms`, ms since the epoch, lies in one of the windows."""
        return any(begin <= now_ms < end for one in self.windows for begin, end in one.intervals(now_ms, 0))

    def closing_ms(self, now_ms: int) -> int | None:
        """When it closes, where it is open at `now_ms`; None: it does not, or not within `HORIZON_DAYS` less
        a day.
        """
        end = now_ms
        for begin, until in sorted(found for one in self.windows for found in one.intervals(now_ms)):
            if begin > end:
                break
            end = max(end, until)
        never = now_ms + (HORIZON_DAYS - 1) * _DAY_MIN * 60_000
        return None if end >= never else end

    def opening(self, now_ms: int) -> tuple[int, Window]:
        """When it opens next, where it is closed at `now_ms`, and which window does."""
        ahead = (
            (begin, number)
            for number, one in enumerate(self.windows)
            for begin, _ in one.intervals(now_ms)
            if begin > now_ms
        )
        at_ms, number = min(ahead)
        return at_ms, self.windows[number]

    def waits_for(self, now_ms: int) -> str:
        """The next opening for people, where it is closed at `now_ms`:
        ``waits for 22:00 on Mon 2026-11-30, Europe/Berlin``.
        """
        at_ms, opens = self.opening(now_ms)
        local = datetime.fromtimestamp(at_ms / 1000, opens.zone)
        day = f"{_DAYS[local.weekday()]} {local:%Y-%m-%d}"
        return f"waits for {local:%H:%M} on {day}, {opens.zone.key} (schedule)"


def window(text: str) -> Window:
    """The window that settings write. Raises: ValueError: the rule that `text` breaks."""
    plain = re.sub(r" ?([,-]) ?", r"\1", " ".join(text.split()))
    match = _WINDOW.fullmatch(plain)
    if match is None:
        raise ValueError(f"must be days, hours and a time zone: {_EXAMPLE}")
    if match["zone"] is None:
        raise ValueError(f"must name a time zone behind the hours: {_EXAMPLE}, or UTC")
    begin, end = _minutes(match["begin"]), _minutes(match["end"])
    if begin == end:
        raise ValueError("must begin and end at different times; a whole day is 00:00-24:00")
    if begin == _DAY_MIN:
        raise ValueError("must begin before 24:00")
    days = frozenset(range(7)) if match["days"] is None else frozenset(_days(match["days"]))
    return Window(days, begin, end if end > begin else end + _DAY_MIN, _zone(match["zone"]))


def _minutes(text: str) -> int:
    match = _TIME.fullmatch(text)
    minutes = -1 if match is None else int(match[1]) * 60 + int(match[2])
    if match is None or int(match[2]) > 59 or minutes > _DAY_MIN:
        raise ValueError("must have hours from 00:00 to 24:00, such as 22:00-06:00")
    return minutes


def _days(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin = _day(first)
        end = _day(last) if last else begin
        yield from (number % 7 for number in range(begin, end + 1 if end >= begin else end + 8))


def _day(text: str) -> int:
    for number, name in enumerate(_DAYS):
        if text.capitalize() == name:
            return number
    raise ValueError(f"must name days as {' '.join(_DAYS)}, such as Mon-Fri or Sat,Sun")


def _zone(key: str) -> ZoneInfo:
    found = _known_zone(key)
    if found is not None:
        return found
    if _known_zone("UTC") is None:
        raise ValueError("needs a database of time zones, which this machine lacks: install tzdata")
    raise ValueError("must name a time zone of the IANA database, such as Europe/Berlin or UTC")


def _known_zone(key: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(key)
    except (KeyError, ValueError, OSError):  # unknown, not a name at all, or a folder of names
        return None


def _reached_s(local: datetime, zone: ZoneInfo) -> int:
    """The first moment at which the zone's clock shows `local` or a later time, seconds since the epoch."""
    first = int(local.replace(tzinfo=zone).timestamp())
    if _shown(first, zone) == local:
        return first
    # The clock skips that time: it is later at `first`, and earlier where the other offset puts it.
    before = int(local.replace(tzinfo=zone, fold=1).timestamp())
    while first - before > 1:
        between = (before + first) // 2
        if _shown(between, zone) >= local:
            first = between
        else:
            before = between
    return first


def _shown(moment_s: int, zone: ZoneInfo) -> datetime:
    """The time that the zone's clock shows."""
    return datetime.fromtimestamp(moment_s, UTC).astimezone(zone).replace(tzinfo=None)
