"""The table of lines: `make test-lines-long`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lines import table
from tests.lines.conftest import PROPERTY
from tests.lines.rows import Row, run
from tests.lines.special import ALARM_MOST_S, alarm, departures

pytestmark = pytest.mark.lines_long

Record = Callable[[str, object], None]


@pytest.mark.parametrize("row", [*table.rows()], ids=lambda row: row.name)
def test_a_backlog_crosses_to_a_node(
    row: Row, tmp_path: Path, certificates: Path, record_property: Record
) -> None:
    found = run(row, tmp_path, certificates)
    record_property(PROPERTY, found.text)
    found.assert_holds()


def test_the_departures_cross_64_kbit(tmp_path: Path, record_property: Record) -> None:
    found = departures(tmp_path / "departures")
    record_property(PROPERTY, found.text)
    assert found.arrived == found.messages


def test_an_alarm_does_not_wait_behind_a_backlog(tmp_path: Path, record_property: Record) -> None:
    found = alarm(tmp_path / "alarm")
    record_property(PROPERTY, found.text)
    assert max(found.seconds) <= ALARM_MOST_S
