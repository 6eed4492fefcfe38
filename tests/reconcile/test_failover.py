"""A bridge that failed over: the logs of its node and of the stores that it went to, together.

Each case is a bridge with stores of its own; all of them are one report. Positions below 30 went to the first
store, the later ones to the second, unless the case says otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from dedup.reconcile.job import reconcile
from tests.reconcile.conftest import line, write_log

LATE_AFTER_MS: Final = 60_000
NONE: Final[list[Any]] = []
STREAM: Final = "journal:a:orders:0"
KAFKA: Final = "kafka:c:a:0"


def sent(store: str, from_: int, upto: int, **more: Any) -> Any:
    return line("sent", from_, upto, store=store, **more)


def received(store: str, from_: int, upto: int, **more: Any) -> Any:
    return line("received", from_, upto, store=store, node=f"hub-{store}", node_id=f"hub-{store}", **more)


def empty(store: str, from_: int, upto: int) -> Any:
    """The line by which a bridge tells a store that it comes back to: other stores have these."""
    return received(store, from_, upto, runs=NONE)


def missing(store: str, from_: int, upto: int) -> Any:
    """The line by which a bridge says that a store had confirmed these, and lost them."""
    return sent(store, from_, upto, runs=NONE, verdict="missing", committed=0, events=[0, 0])


#: A line of the report: kind, store, first, last.
Finding = tuple[str, str, int, int]
#: Both sides of a bridge that went from one store to the other with nothing in doubt.
WENT: Final = (sent("a", 0, 30), received("a", 0, 30), sent("b", 30, 50), received("b", 30, 50))

#: By what is to be shown: the lines and the findings.
CASES: Final[Mapping[str, tuple[Sequence[Any], list[Finding]]]] = {
    "nothing was in doubt, and each message is at one of the stores": (WENT, []),
    "a bridge that has come back has passed over what the other store has": (
        (*WENT, empty("a", 30, 50), sent("a", 50, 60), received("a", 50, 60)),
        [],
    ),
    "it has gone to and fro": (
        (
            *WENT,
            *(empty("a", 30, 50), sent("a", 50, 60), received("a", 50, 60)),
            *(empty("b", 50, 60), sent("b", 60, 70), received("b", 60, 70)),
            *(empty("a", 60, 70), sent("a", 70, 75), received("a", 70, 75)),
        ),
        [],
    ),
    "what was in doubt is at both stores: never clean, and nothing is lost": (
        (sent("a", 0, 30), received("a", 0, 34), sent("b", 30, 50), received("b", 30, 50)),
        [("unknown", "a", 30, 33), ("unknown", "b", 30, 33)],
    ),
    "and so it is after it has come back": (
        (
            *(sent("a", 0, 30), received("a", 0, 34), sent("b", 30, 50), received("b", 30, 50)),
            *(empty("a", 34, 50), sent("a", 50, 60), received("a", 50, 60)),
        ),
        [("unknown", "a", 30, 33), ("unknown", "b", 30, 33)],
    ),
    "what was in doubt had not arrived": (
        (sent("a", 0, 30), received("a", 0, 30), sent("b", 30, 50), received("b", 30, 50)),
        [],
    ),
    "a first store that confirmed and lost a message has lost it": (
        (sent("a", 0, 30), received("a", 0, 30, runs=[[0, 9], [12, 29]]), *WENT[2:]),
        [("lost", "a", 10, 11)],
    ),
    "a second store, too": (
        (*WENT[:3], received("b", 30, 50, runs=[[30, 44], [46, 49]])),
        [("lost", "b", 45, 45)],
    ),
    "what one store has lost and another one has is not lost": (
        (
            *(sent("a", 0, 30), received("a", 0, 30, runs=[[0, 9], [12, 29]])),
            *(sent("b", 10, 50), received("b", 10, 50)),
        ),
        [("unknown", "a", 10, 29), ("unknown", "b", 12, 29)],
    ),
    "what was skipped between the stores is in no line, and not clean": (
        (*WENT[:2], sent("b", 34, 50), received("b", 34, 50)),
        [("unknown", "a", 30, 33), ("unknown", "b", 30, 33)],
    ),
    "without the logs of the first store its messages are unknown": (
        (WENT[0], *WENT[2:]),
        [("unknown", "a", 0, 29)],
    ),
    "without the logs of the second store its messages are unknown, and so are copies in doubt": (
        (sent("a", 0, 30), received("a", 0, 34), sent("b", 30, 50)),
        [("unknown", "a", 30, 33), ("unknown", "b", 30, 49)],
    ),
    "without the sender's lines of the second store that one's are unknown": (
        (*WENT[:2], received("b", 30, 50)),
        [("unknown", "b", 30, 49)],
    ),
    "what the second store has not written down yet is open": (
        (*WENT[:3], received("b", 30, 40)),
        [("open", "b", 40, 49)],
    ),
    "what a store lost that was put back after the bridge had gone on is unknown": (
        (sent("a", 0, 30), received("a", 0, 20), sent("b", 30, 50), received("b", 30, 50)),
        [("unknown", "a", 20, 29)],
    ),
    "and so it is when the bridge is back and goes on": (
        (
            *(sent("a", 0, 30), received("a", 0, 20), sent("b", 30, 50), received("b", 30, 50)),
            sent("a", 50, 60),
        ),
        [("open", "a", 50, 59), ("unknown", "a", 20, 29)],
    ),
    "what a bridge has found missing is unknown until it is there again": (
        (
            *(sent("a", 0, 50), received("a", 0, 30)),
            *(missing("a", 30, 50), sent("a", 30, 40), received("a", 30, 40)),
        ),
        [("unknown", "a", 40, 49)],
    ),
    "what is missing and has not come again although the store has passed it is lost": (
        (
            *(sent("a", 0, 30), received("a", 0, 20), sent("b", 30, 50), received("b", 30, 50)),
            *(missing("a", 20, 30), empty("a", 20, 50), sent("a", 50, 60), received("a", 50, 60)),
        ),
        [("lost", "a", 20, 29)],
    ),
    "what a plan brought to its store is there": (
        (
            *(sent("a", 0, 30), received("a", 0, 30, runs=[[0, 9], [12, 29]]), *WENT[2:]),
            received("a", 10, 12, stream=f"{STREAM}:replay:0123456789abcdef", replays=STREAM),
        ),
        [],
    ),
    "nodes that read one Kafka topic into their journals have a copy each, on purpose": (
        (
            *(sent("a", 0, 30, node="a", node_id="a", stream=KAFKA), received("a", 0, 30, stream=KAFKA)),
            *(sent("b", 0, 40, node="b", node_id="b", stream=KAFKA), received("b", 0, 40, stream=KAFKA)),
        ),
        [],
    ),
}  # fmt: skip
#: The same of a bridge from Kafka, but for what clients sent: no line says what a topic has.
FROM_KAFKA: Final = {
    f"from Kafka: {case}": (
        [
            one | {key: one[key].replace(STREAM, KAFKA) for key in one.keys() & {"stream", "replays"}}
            for one in lines
        ],
        findings,
    )
    for case, (lines, findings) in CASES.items()
    if lines[0]["stream"] == STREAM
}
ALL_CASES: Final = {**CASES, **FROM_KAFKA}


@pytest.fixture(scope="module")
def said(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, list[Finding]], dict[str, int]]:
    """The findings of each case, and how many of its messages wait."""
    directory = tmp_path_factory.mktemp("failed-over")
    for number, (lines, _) in enumerate(ALL_CASES.values()):
        upto = max(one["upto"] for one in lines)
        clients = line("received", 0, upto, bridge=None, node_id="eu", node="eu", store="eu")
        logs = defaultdict[str, list[Any]](list)
        from_journal = lines[0]["stream"] == STREAM
        for one in (*lines, clients) if from_journal else lines:
            # A bridge, a stream and stores of the case's own.
            own = one | {"store": f"{one['store']}:{number}"}
            own["bridge"] = None if one is clients else f"bridge-{number}"
            for key in own.keys() & {"stream", "replays"}:
                own[key] = own[key].replace(":a:", f":{number:x}:")
            logs[own["node"]].append(own)
        for node, log in logs.items():
            write_log(directory / node, log, node=f"{node}-{number}")
    tables = reconcile(spark, [str(directory)], late_after_ms=LATE_AFTER_MS)
    try:
        findings = tables.findings.where("kind != 'rejected'").collect()
        waiting = {row.bridge: row.waiting for row in tables.flows.where("waiting > 0").collect()}
    finally:
        tables.release()
    return {
        case: sorted(
            (row.kind, row.store.partition(":")[0], row.first, row.last)
            for row in findings
            if row.bridge == f"bridge-{number}"
        )
        for number, case in enumerate(ALL_CASES)
    }, waiting


@pytest.mark.parametrize("case", ALL_CASES)
def test_stores_of_a_bridge_that_failed_over_are_judged_together(case: str, said: Any) -> None:
    """R22"""
    assert said[0][case] == ALL_CASES[case][1]


def test_what_went_to_another_store_does_not_wait(said: Any) -> None:
    names = list(CASES)
    no_lines = names.index("without the sender's lines of the second store that one's are unknown")
    assert said[1] == {f"bridge-{no_lines}": 20}
