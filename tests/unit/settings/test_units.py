from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.settings import units


@given(st.integers(0, units.LONGEST_TIME_MS))
def test_a_whole_number_is_milliseconds(value: int) -> None:
    assert units.time_ms(value) == value


@given(st.integers(0, 36_500), st.sampled_from(sorted(units.TIME_UNITS_MS)))
def test_a_time_in_text_is_its_number_times_its_unit(value: int, unit: str) -> None:
    assert units.time_ms(f"{value}{unit}") == value * units.TIME_UNITS_MS[unit]


@given(st.integers(1, 2**20), st.sampled_from(sorted(units.SIZE_UNITS_BYTES)))
def test_a_size_in_text_is_its_number_times_its_unit(value: int, unit: str) -> None:
    assert units.size_bytes(f"{value}{unit}") == value * units.SIZE_UNITS_BYTES[unit]


def test_units_are_what_they_are_called() -> None:
    times = [units.time_ms(text) for text in ("1ms", "1s", "1m", "1h", "1d")]
    assert times == [1, 1000, 60 * 1000, 60 * 60 * 1000, 24 * 60 * 60 * 1000]
    sizes = [units.size_bytes(text) for text in ("1B", "1KiB", "1MiB", "1GiB", "1kB", "1MB", "1GB")]
    assert sizes == [1, 1024, 1024**2, 1024**3, 1000, 1000**2, 1000**3]


#: Whatever TOML can hold; text stays away from digits, so that none of it is a time or a size.
OTHER_VALUES: st.SearchStrategy[Any] = st.one_of(
    st.text(st.characters(exclude_categories=["Nd"])),
    st.booleans(),
    st.none(),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.integers()),
)


@given(st.one_of(OTHER_VALUES, st.floats()))
def test_nothing_else_is_a_time_a_size_or_a_whole_number(value: object) -> None:
    with pytest.raises(ValueError, match="must be a time"):
        units.time_ms(value)
    with pytest.raises(ValueError, match="must be a size"):
        units.size_bytes(value)
    with pytest.raises(ValueError, match="must be a whole number"):
        units.whole_number(value, least=0)


@pytest.mark.parametrize(
    "text", ["2", "2 s", " 2s", "2s\n", "-2s", "+2s", "2.5s", "2S", "2sec", "1h30m", "٢s", "s", ""]
)
def test_text_that_is_nearly_a_time_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="must be a time"):
        units.time_ms(text)


@pytest.mark.parametrize("text", ["10", "10 MiB", "10mib", "10M", "1.5MiB", "-1MiB", "10KB", "MiB", ""])
def test_text_that_is_nearly_a_size_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="must be a size"):
        units.size_bytes(text)


def test_minus_one_is_never_only_where_never_can_be() -> None:
    assert units.time_ms(-1, never=True) == units.NEVER
    with pytest.raises(ValueError, match=r"^must be at least 0 ms$"):
        units.time_ms(-1)
    with pytest.raises(ValueError, match=r"^must be at least 1 ms, or -1 for never$"):
        units.time_ms(-2, least=1, never=True)


def test_limits_count_themselves_in() -> None:
    assert units.time_ms("36500d") == units.LONGEST_TIME_MS
    assert units.size_bytes(units.LARGEST_SIZE_BYTES) == units.LARGEST_SIZE_BYTES
    assert units.whole_number(units.LARGEST_NUMBER, least=0) == units.LARGEST_NUMBER
    with pytest.raises(ValueError, match="at most 100 years"):
        units.time_ms(units.LONGEST_TIME_MS + 1)
    with pytest.raises(ValueError, match="must be 1 to"):
        units.size_bytes(units.LARGEST_SIZE_BYTES + 1)
    with pytest.raises(ValueError, match="at most 2147483647"):
        units.whole_number(units.LARGEST_NUMBER + 1, least=0)


@given(st.integers(1, units.LARGEST_NUMBER))
def test_a_whole_number_passes_for_a_number(value: int) -> None:
    found = units.number(value, least=1.0)
    assert (found, type(found)) == (float(value), float)


@given(st.one_of(OTHER_VALUES, st.sampled_from([float("inf"), float("-inf"), float("nan"), 0.99])))
def test_a_number_is_finite_and_not_below_the_least(value: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        units.number(value, least=1.0)
