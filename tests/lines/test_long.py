"""The table of lines: `make test-lines-long`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lines import table
from tests.lines.conftest import PROPERTY
from tests.lines.rows import Row, run

pytestmark = pytest.mark.lines_long


@pytest.mark.parametrize("row", [*table.rows()], ids=lambda row: row.name)
def test_a_line_is_used(
    row: Row, tmp_path: Path, certificates: Path, record_property: Callable[[str, object], None]
) -> None:
    found = run(row, tmp_path, certificates)
    record_property(PROPERTY, found.text)
    found.assert_holds()
