"""Stores that were put back from a backup: logs of the lost disk and of the restored one together.

Each case is a bridge with a store of its own; all of them are one report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from dedup.reconcile.job import reconcile
from tests.reconcile.conftest import line, write_log

LATE_AFTER_MS: Final = 60_000
NOW_MS: Final = 1_700_000_000_100
KAFKA: Final = "kafka:c:t:0"


def received(from_: int, upto: int, session: str, number: int, after: str | None = None, **more: Any) -> Any:
    """A line of a session; `after`: session and number, as ``a5``. Later sessions commit later."""
    more.setdefault("committed", NOW_MS + number + 1_000 * (ord(session) - ord("a")))
    place = {"after": [after[0], int(after[1:])]} if after else {}
    return line("received", from_, upto, session=session, number=number, **place, **more)


def sent(upto: int, **more: Any) -> Any:
    return line("sent", 0, upto, **more)


#: By what is to be shown: the disks' lines, the counts that are not 0, and the findings.
CASES: Final[Mapping[str, tuple[Sequence[Sequence[Any]], dict[str, int], list[tuple[str, int, int]]]]] = {
    "what came again to the restored store is there once": (
        (
            [sent(120)],
            [received(at * 10, at * 10 + 10, "a", at + 1) for at in range(10)],
            [received(at * 10, at * 10 + 10, "b", at + 1, "a5") for at in range(5, 12)],
        ),
        {"received": 120},
        [],
    ),
    "what was doubled before the backup is doubled in each life": (
        (
            [sent(20)],
            [received(0, 10, "a", 1), received(5, 10, "a", 2), received(10, 20, "a", 3)],
            [received(10, 20, "b", 3, "a2")],
        ),
        {"received": 20, "doubled": 5},
        [("doubled", 5, 9)],
    ),
    "what is lost or doubled in one life only is unknown": (
        (
            [sent(30)],
            [
                received(0, 10, "a", 1),
                received(10, 20, "a", 2, runs=[[10, 17]]),
                received(12, 14, "a", 3),
            ],
            [received(10, 30, "b", 2, "a1")],
        ),
        {"received": 30, "unknown": 4},
        [("unknown", 12, 13), ("unknown", 18, 19)],
    ),
    "what was lost before the backup is lost": (
        (
            [sent(30)],
            [received(0, 10, "a", 1, runs=[[0, 7]]), received(10, 20, "a", 2)],
            [received(10, 30, "b", 2, "a1")],
        ),
        {"received": 28, "lost": 2},
        [("lost", 8, 9)],
    ),
    "what only an earlier life had is unknown: nobody may have it to send again": (
        (
            [sent(20)],
            [received(0, 10, "a", 1), received(10, 20, "a", 2)],
            [received(10, 15, "b", 2, "a1")],
        ),
        {"received": 15, "unknown": 5},
        [("unknown", 15, 19)],
    ),
    "copies on either side of a session without a log are unknown": (
        ([sent(20)], [received(0, 10, "a", 1), received(5, 20, "c", 9, "b8")]),
        {"received": 20, "unknown": 5},
        [("unknown", 5, 9)],
    ),
    "a session that only sent joins those around it": (
        (
            [sent(20)],
            [
                received(0, 10, "a", 1),
                line("sent", 0, 10, bridge=None, store="else", session="b", number=5, after=["a", 1]),
                received(5, 20, "c", 9, "b5"),
            ],
        ),
        {"received": 20, "doubled": 5},
        [("doubled", 5, 9)],
    ),
    "an ID is accepted once in each life": (
        (
            [sent(20, stream=KAFKA)],
            [
                received(0, 10, "a", 1, stream=KAFKA, ids=[[1, "x"], [2, "y"]]),
                received(10, 20, "a", 2, stream=KAFKA, ids=[[11, "z"], [12, "y"]]),
            ],
            [received(10, 20, "b", 2, "a1", stream=KAFKA, ids=[[11, "z"]])],
        ),
        {"received": 20, "unknown": 1},
        [("unknown", 12, 12)],
    ),
    "an ID that was accepted twice before the backup is doubled": (
        (
            [sent(20, stream=KAFKA)],
            [
                received(0, 10, "a", 1, stream=KAFKA, ids=[[1, "x"], [2, "x"]]),
                received(10, 20, "a", 2, stream=KAFKA),
            ],
            [received(10, 20, "b", 2, "a1", stream=KAFKA)],
        ),
        {"received": 20, "doubled": 1},
        [("repeated-id", 2, 2)],
    ),
    "messages that were left out as known are not doubled": (
        (
            [sent(20)],
            [
                line("received", 0, 10),
                line("received", 0, 10, known=[[0, 7]], duplicates=8, committed=NOW_MS + 1),
                line("received", 10, 20),
                line("received", 10, 20, duplicates=8, committed=NOW_MS + 1),
            ],
        ),
        {"received": 20, "doubled": 2, "unknown": 10},
        [("doubled", 8, 9), ("unknown", 10, 19)],
    ),
    "IDs that were not looked up may come again": (
        (
            [sent(10, stream=KAFKA)],
            [received(0, 10, "a", 1, stream=KAFKA, ids=[[1, "x"], [2, "x"]], unchecked=True)],
        ),
        {"received": 10},
        [],
    ),
}


def _of_case(number: int, found: Any) -> Any:
    """The line for a bridge, a store and sessions of the case's own."""
    made = {**found, "bridge": f"bridge-{number}", "store": f"{found['store']}-{number}"}
    if "session" in made:
        made["session"] = f"{made['session']}-{number}"
    if "after" in made:
        made["after"] = [f"{made['after'][0]}-{number}", made["after"][1]]
    return made


@pytest.fixture(scope="module")
def said(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[dict[str, int], list[tuple[str, int, int]]]]:
    """Counts and findings of each case."""
    directory = tmp_path_factory.mktemp("restored")
    for number, (disks, _, _) in enumerate(CASES.values()):
        for disk, lines in enumerate(disks):
            place = directory / f"disk-{disk}"
            write_log(place, [_of_case(number, each) for each in lines], node=f"node-{number}-{disk}")
    tables = reconcile(spark, [str(directory)], late_after_ms=LATE_AFTER_MS)
    try:
        flows = {row.bridge: row for row in tables.flows.collect() if not row.store.startswith("else")}
        findings = tables.findings.where("kind != 'rejected' and store not like 'else%'").collect()
    finally:
        tables.release()
    names = ("received", "lost", "doubled", "unsent", "unknown", "open")
    return {
        case: (
            {name: count for name in names if (count := getattr(flows[f"bridge-{number}"], name))},
            sorted((row.kind, row.first, row.last) for row in findings if row.bridge == f"bridge-{number}"),
        )
        for number, case in enumerate(CASES)
    }


@pytest.mark.parametrize("case", CASES)
def test_lives_of_a_store_are_told_apart(case: str, said: Mapping[str, Any]) -> None:
    _, counts, findings = CASES[case]
    assert said[case] == (counts, findings)
