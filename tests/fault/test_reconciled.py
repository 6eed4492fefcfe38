"""What killed nodes have logged gives not one false finding. For people: `make test-spark-long`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from bridge.runtime.fault_injection import NAMES
from tests.fault.test_crash import SINGLES, TRANSACTIONS, run_round
from tests.fault.traffic import TRANSACTION
from tests.harness.reports import Report

ROUNDS: Final = 100
#: Those of bridges between nodes, and none: chance alone.
_POINTS: Final = [*(name for name in NAMES if not name.startswith(("kafka", "cluster"))), ""]


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


@pytest.mark.spark_long
async def test_a_hundred_rounds_of_kills_and_not_one_false_finding(tmp_path: Path) -> None:
    logs: list[Path] = []
    kills = 0
    for number in range(ROUNDS):
        edge, hub = _POINTS[number % len(_POINTS)], _POINTS[(number * 7 + 3) % len(_POINTS)]
        times = 1 + number % 5
        directory = await asyncio.to_thread(made, tmp_path / str(number))
        it = await run_round(
            directory,
            3000 + number,
            crash_edge=f"{edge}:{times}" if edge else "",
            crash_hub=f"{hub}:{times}" if hub else "",
        )
        kills += it.edge.kills + it.hub.kills
        logs += [node.data / "delivery-log" for node in (it.edge, it.hub)]
    assert kills >= ROUNDS
    report = Report.of(tmp_path / "report", logs)
    report.assert_clean("to-hub", ROUNDS * (2 * SINGLES + TRANSACTIONS * TRANSACTION))
