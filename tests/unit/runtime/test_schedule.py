from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from bridge.runtime import schedule
from bridge.runtime.schedule import Schedule, window

BERLIN = "Europe/Berlin"


def ms(text: str, zone: str = BERLIN, fold: int = 0) -> int:
    """A moment, by what the zone's clock shows."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()) * 1000


def is_open(written: str | list[str], text: str, zone: str = BERLIN, fold: int = 0) -> bool:
    found = Schedule.of([written] if isinstance(written, str) else written)
    return found.is_open(ms(text, zone, fold))


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("2026-11-30 21:59:59", False),  # Monday
        ("2026-11-30 22:00:00", True),
        ("2026-12-01 05:59:59", True),
        ("2026-12-01 06:00:00", False),
        ("2026-12-05 05:59", True),  # Saturday: Friday's window
        ("2026-12-05 22:00", False),
        ("2026-12-07 03:00", False),  # Monday: Sunday has none
    ],
)
def test_hours_over_midnight_belong_to_the_day_on_which_they_begin(text: str, inside: bool) -> None:
    assert is_open("Mon-Fri 22:00-06:00 Europe/Berlin", text) is inside


def test_days_are_ranges_lists_and_all_where_none_is_named() -> None:
    assert window("Fri-Mon 00:00-24:00 UTC").days == {4, 5, 6, 0}
    assert window("mon,WED,Sat-Sun 1:00-2:00 UTC").days == {0, 2, 5, 6}
    assert window("01:00-02:00 UTC").days == {*range(7)}
    assert window("Sun-Mon 01:00-02:00 UTC").days == {6, 0}
    assert window("Mon-Mon 01:00-02:00 UTC").days == {0}
    assert window("  Mon - Fri,  Sun  22:00 - 06:00   America/Port-au-Prince ").days == {0, 1, 2, 3, 4, 6}


def test_zones_differ() -> None:
    both = ["Mon 09:00-10:00 Europe/Berlin", "Mon 09:00-10:00 America/New_York"]
    assert is_open(both, "2026-11-30 09:30")
    assert not is_open(both, "2026-11-30 10:30")
    assert is_open(both, "2026-11-30 15:30"), "half past nine in New York"


# Europe/Berlin: on 2026-03-29 the clock goes from 02:00 to 03:00, on 2026-10-25 from 03:00 back to 02:00.


def test_a_window_that_begins_in_the_skipped_hour_begins_with_the_change() -> None:
    found = Schedule.of(["02:30-04:00 Europe/Berlin"])
    before = ms("2026-03-29 01:59")
    assert found.opening(before)[0] == ms("2026-03-29 03:00")
    assert found.closing_ms(ms("2026-03-29 03:00")) == ms("2026-03-29 04:00")


def test_a_window_that_ends_in_the_skipped_hour_ends_with_the_change() -> None:
    found = Schedule.of(["22:00-02:30 Europe/Berlin"])
    assert found.closing_ms(ms("2026-03-28 23:00")) == ms("2026-03-29 03:00")


def test_a_window_within_the_skipped_hour_does_not_open_that_day() -> None:
    found = Schedule.of(["Sun 02:15-02:45 Europe/Berlin"])
    assert found.opening(ms("2026-03-28 12:00"))[0] == ms("2026-04-05 02:15")


def test_in_the_hour_that_comes_twice_the_first_time_counts() -> None:
    found = Schedule.of(["Sun 02:15-02:45 Europe/Berlin"])
    assert found.opening(ms("2026-10-25 00:00"))[0] == ms("2026-10-25 02:15", fold=0)
    assert found.closing_ms(ms("2026-10-25 02:20")) == ms("2026-10-25 02:45", fold=0)
    assert not found.is_open(ms("2026-10-25 02:20", fold=1))


@pytest.mark.parametrize(("day", "hours"), [("2026-03-28", 7), ("2026-10-24", 9), ("2026-06-01", 8)])
def test_a_night_is_as_long_as_the_clocks_make_it(day: str, hours: int) -> None:
    found = Schedule.of(["22:00-06:00 Europe/Berlin"])
    begins = ms(f"{day} 22:00")
    closing = found.closing_ms(begins)
    assert closing is not None
    assert closing - begins == hours * 3_600_000


def test_windows_that_touch_or_overlap_are_one() -> None:
    found = Schedule.of(["Mon 08:00-12:00 UTC", "Mon 12:00-13:00 UTC", "Mon 12:30-18:00 UTC"])
    assert found.closing_ms(ms("2026-11-30 09:00", "UTC")) == ms("2026-11-30 18:00", "UTC")
    assert found.opening(ms("2026-11-30 18:00", "UTC"))[0] == ms("2026-12-07 08:00", "UTC")


def test_what_is_always_open_never_closes() -> None:
    found = Schedule.of(["00:00-12:00 Europe/Berlin", "12:00-24:00 Europe/Berlin"])
    assert found.closing_ms(ms("2026-03-27 13:00")) is None


def test_a_wait_names_time_date_and_zone() -> None:
    found = Schedule.of(["Mon-Fri 22:00-06:00 Europe/Berlin", "Sat 09:00-10:00 America/New_York"])
    assert found.waits_for(ms("2026-11-30 12:00")) == (
        "waits for 22:00 on Mon 2026-11-30, Europe/Berlin (schedule)"
    )
    assert found.waits_for(ms("2026-12-05 12:00")) == (
        "waits for 09:00 on Sat 2026-12-05, America/New_York (schedule)"
    )
    skipped = Schedule.of(["Sun 02:30-04:00 Europe/Berlin"])
    assert skipped.waits_for(ms("2026-03-28 12:00")) == (
        "waits for 03:00 on Sun 2026-03-29, Europe/Berlin (schedule)"
    )


FORM = 'must be days, hours and a time zone: "Mon-Fri 22:00-06:00 Europe/Berlin"'
NO_ZONE = 'must name a time zone behind the hours: "Mon-Fri 22:00-06:00 Europe/Berlin", or UTC'
HOURS = "must have hours from 00:00 to 24:00, such as 22:00-06:00"
DAYS = "must name days as Mon Tue Wed Thu Fri Sat Sun, such as Mon-Fri or Sat,Sun"
ZONE = "must name a time zone of the IANA database, such as Europe/Berlin or UTC"


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        ("", FORM),
        ("always", FORM),
        ("Mon..Fri 22:00", FORM),
        ("0 22 * * 1-5", FORM),
        ("Mon-Fri 22:00-06:00", NO_ZONE),
        ("22-06 UTC", HOURS),
        ("22:00-06:60 UTC", HOURS),
        ("22:00-24:01 UTC", HOURS),
        ("22:00:00-23:00:00 UTC", HOURS),
        ("24:00-06:00 UTC", "must begin before 24:00"),
        ("06:00-06:00 UTC", "must begin and end at different times; a whole day is 00:00-24:00"),
        ("Mo-Fr 22:00-06:00 UTC", DAYS),
        ("Mon-Fri-Sun 22:00-06:00 UTC", DAYS),
        ("Mon, 22:00-06:00 UTC", FORM),
        ("Mon-Fri 22:00-06:00 Berlin", ZONE),
        ("Mon-Fri 22:00-06:00 Europe", ZONE),
        ("Mon-Fri 22:00-06:00 ../UTC", ZONE),
        ("Mon-Fri 22:00-06:00 /etc/localtime", ZONE),
        ("Mon-Fri 22:00-06:00 +01:00", ZONE),
    ],
)
def test_a_wrong_window_is_answered_with_its_rule(written: str, rule: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(rule)}$"):
        window(written)


def test_a_machine_without_time_zones_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "_known_zone", lambda _key: None)
    with pytest.raises(ValueError, match="which this machine lacks: install tzdata"):
        window("22:00-06:00 Europe/Berlin")
