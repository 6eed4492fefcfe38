"""Schedules over changes of the clocks: every moment is inside or outside, whoever asks and whenever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from bridge.runtime.schedule import Schedule

#: Changes at 01:00, 02:00, 03:00 and midnight, by an hour and by half of one, both hemispheres, and none.
ZONES: Final = (
    "Europe/Berlin", "Europe/London", "America/New_York", "America/Havana", "Asia/Beirut", "Africa/Cairo",
    "Australia/Lord_Howe", "America/Santiago", "Pacific/Chatham", "Asia/Kathmandu", "Atlantic/Azores", "UTC",
)  # fmt: skip
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MINUTE_MS: Final = 60_000
FIRST_MS: Final = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp()) * 1000


@st.composite
def windows(draw: st.DrawFn) -> str:
    begin = draw(st.integers(0, 24 * 60 - 1))
    end = draw(st.integers(0, 24 * 60).filter(lambda minute: minute != begin))
    days = draw(st.lists(st.sampled_from(DAYS), max_size=3).map(",".join))
    hours = f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}"
    return f"{days} {hours} {draw(st.sampled_from(ZONES))}".strip()


schedules = st.lists(windows(), min_size=1, max_size=3).map(Schedule.of)
moments = st.integers(0, 2 * 366 * 24 * 60 * 60).map(lambda second: FIRST_MS + second * 1000)


def changes(zone: ZoneInfo, year: int) -> list[int]:
    """The moments at which the zone's clock jumps, ms."""
    moment, found = datetime(year, 1, 1, tzinfo=UTC), []
    for _ in range(366 * 48):
        following = moment + timedelta(minutes=30)
        if moment.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            found.append(int(following.timestamp()) * 1000)
        moment = following
    return found


CHANGES: Final = [change for zone in ZONES for change in changes(ZoneInfo(zone), 2026)]
near_changes = st.tuples(st.sampled_from(CHANGES), st.integers(-1500, 1500)).map(
    lambda found: found[0] + found[1] * MINUTE_MS
)


@given(schedules, st.one_of(moments, near_changes))
def test_the_next_change_is_ahead_and_nothing_changes_before_it(found: Schedule, now_ms: int) -> None:
    inside = found.is_open(now_ms)
    if inside:
        at_ms = found.closing_ms(now_ms)
        if at_ms is None:
            at_ms = now_ms + 14 * 24 * 60 * MINUTE_MS
        else:
            assert not found.is_open(at_ms)
    else:
        at_ms, opens = found.opening(now_ms)
        assert found.is_open(at_ms)
        assert opens in found.windows
    assert at_ms > now_ms
    assert found.is_open(at_ms - 1) is inside
    for share in range(1, 4):
        assert found.is_open(now_ms + (at_ms - now_ms) * share // 4) is inside


@given(schedules, near_changes)
def test_a_walk_over_a_change_alternates_and_agrees_with_each_question(found: Schedule, now_ms: int) -> None:
    """As a bridge walks: from opening to closing to opening."""
    end_ms = now_ms + 3 * 24 * 60 * MINUTE_MS
    edges: list[int] = []
    moment = now_ms
    while moment < end_ms and len(edges) < 100:
        at_ms = found.closing_ms(moment) if found.is_open(moment) else found.opening(moment)[0]
        if at_ms is None:
            break
        edges.append(at_ms)
        moment = at_ms
    assert edges == sorted(set(edges))
    first = found.is_open(now_ms)
    for minute in range(0, 3 * 24 * 60, 293):
        asked = now_ms + minute * MINUTE_MS
        passed = sum(edge <= asked for edge in edges)
        assert found.is_open(asked) is (first if passed % 2 == 0 else not first)


@given(windows(), near_changes)
def test_far_from_a_change_the_clock_on_the_wall_decides(written: str, now_ms: int) -> None:
    *days, hours, key = written.split(" ")
    zone = ZoneInfo(key)
    local = datetime.fromtimestamp(now_ms / 1000, zone)
    around = {(local + timedelta(hours=hour)).utcoffset() for hour in range(-49, 50)}
    if len(around) > 1:
        return
    named = days[0].split(",") if days else DAYS
    begin, end = ((int(one[:2]) * 60 + int(one[3:])) for one in hours.split("-"))
    minute = local.hour * 60 + local.minute
    today, yesterday = DAYS[local.weekday()] in named, DAYS[local.weekday() - 1] in named
    expected = (
        today and begin <= minute < end
        if begin < end
        else (today and minute >= begin) or (yesterday and minute < end)
    )
    assert Schedule.of([written]).is_open(now_ms) is expected
