"""Slow, far and breaking lines in a minute: the long table with shorter times and less to send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.lines.conftest import PROPERTY
from tests.lines.rows import KBIT, Measured, Row, Traffic, run_together

#: A link that is dead after two seconds: a batch takes longer on a slow line, as it takes longer than the
#: default on a line of 16 kbit/s.
_QUICK_TTL: Final = {"check_period": "1000", "connection_ttl": "2000"}
_DEAD_S: Final = 3.0

ROWS: Final = (
    Row(
        "a batch takes longer than connection-ttl",
        Traffic("100 kB", 4, 100_000),
        {"rate": 256 * KBIT},
        bridge=_QUICK_TTL,
    ),
    Row("small messages", Traffic("500 B", 320, 500), {"rate": 128 * KBIT}, bridge=_QUICK_TTL),
    Row("small messages, TLS", Traffic("500 B", 320, 500), {"rate": 128 * KBIT}, tls=True, bridge=_QUICK_TTL),
    Row("one body of 1.5 MB", Traffic("1.5 MB", 1, 1_500_000), {"rate": 1000 * KBIT}, bridge=_QUICK_TTL),
    Row("far", Traffic("10 kB", 100, 10_000), {"rate": 1000 * KBIT, "delay_ms": 300}),
    Row("lossy", Traffic("10 kB", 100, 10_000), {"rate": 1000 * KBIT, "delay_ms": 25, "loss": 0.05}),
    Row("cut", Traffic("10 kB", 60, 10_000), {"rate": 1000 * KBIT, "cut_s": 3, "cut_every_s": 6}),
    Row("reset", Traffic("100 kB", 16, 100_000), {"rate": 1000 * KBIT, "delay_ms": 10, "reset_every_s": 5}),
    Row(
        "one body over resets",
        Traffic("3 MB", 1, 3_000_000),
        {"rate": 3200 * KBIT, "delay_ms": 10, "reset_every_s": 3},
    ),
    Row(
        "a black hole",
        Traffic("10 kB", 100, 10_000),
        {"rate": 1000 * KBIT, "delay_ms": 25},
        bridge=_QUICK_TTL,
        swallow_after=300_000,
        dead_s=_DEAD_S,
    ),
)


@pytest.fixture(scope="module")
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificates: Path
) -> Mapping[str, Measured | BaseException]:
    """What came of the rows that are asked for. They run side by side."""
    here = [item for item in request.session.items if item.path == request.path]
    given = [item.callspec.params["row"] for item in here if isinstance(item, pytest.Function)]
    asked = [row for row in given if isinstance(row, Row)]
    found = run_together(asked, tmp_path_factory.mktemp("lines"), certificates)
    return {row.name: measured for row, measured in found}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_backlog_crosses(
    row: Row, measured: Mapping[str, Measured | BaseException], record_property: Callable[[str, object], None]
) -> None:
    found = measured[row.name]
    if isinstance(found, BaseException):
        raise found
    record_property(PROPERTY, found.text)
    found.assert_holds()
