"""What Spark finds in simulated logs is the truth, exactly: hundreds of runs in one reconciliation."""

from __future__ import annotations

import base64
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from dedup.reconcile.job import reconcile
from tests.harness.rounds import rounds
from tests.reconcile import id_traffic, log_files, simulation, specs, wild
from tests.reconcile.faults import Entry, FlowSpec
from tests.reconcile.log_files import Layout
from tests.reconcile.model import Flow, FlowTruth, Truth, truth

LATE_AFTER_MS = 60_000
#: How many runs of each kind are drawn.
RUNS = 75
#: And flows with thousands of messages.
LARGE = rounds(8)
#: How often more flows are drawn where a fault is missing.
DRAWS = 5
#: Findings that are positions of a flow, and where the truth has them.
KINDS = {
    "lost": "lost", "doubled": "doubled", "unsent": "unsent", "out-of-order": "out_of_order", "open": "open",
    "refused": "refused", "unknown": "unknown",
}  # fmt: skip


@dataclass(slots=True)
class Found:
    """What the tables say, in the words of the model."""

    flows: dict[Flow, Row]
    #: By kind and flow; and how many rows brought them.
    positions: dict[tuple[str, Flow], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    ranges: Counter[tuple[str, Flow]] = field(default_factory=Counter)
    #: Places at which IDs were accepted again, by store and address.
    repeated: dict[tuple[str, str], Counter[bytes]] = field(default_factory=lambda: defaultdict(Counter))
    id_caches: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    inputs: dict[Path, tuple[str, int, int]] = field(default_factory=dict)


def reconciled(spark: SparkSession, directories: Sequence[Path]) -> Found:
    tables = reconcile(spark, [str(directory) for directory in directories], late_after_ms=LATE_AFTER_MS)
    try:
        flows = tables.flows.collect()
        found = Found({Flow(row.bridge, row.stream, row.store): row for row in flows})
        assert len(found.flows) == len(flows), "a flow has one row"
        for row in tables.findings.collect():
            flow = Flow(row.bridge, row.stream, row.store)
            if row.kind == "repeated-id":
                found.repeated[row.store, row.address][_bytes(row.id)] += row["count"]
            elif row.kind != "rejected":
                assert row["count"] == row.last - row.first + 1, row
                found.positions[row.kind, flow].update(range(row.first, row.last + 1))
                found.ranges[row.kind, flow] += 1
        for row in tables.id_caches.collect():
            found.id_caches[row.store, row.address] = row.accepted, row.repeated, row.needed
        for row in tables.inputs.collect():
            found.inputs[Path(row.path)] = row.sha256, row.lines, row.unreadable
    finally:
        tables.release()
    return found


def _bytes(shown: str) -> bytes:
    if shown.startswith('{"base64":'):
        return base64.b64decode(json.loads(shown)["base64"])
    return shown.encode()


def differences(found: Found, expected: Truth) -> Iterator[str]:
    """Where the two do not agree, flow by flow."""
    for flow in found.flows.keys() ^ expected.flows.keys():
        yield f"{flow}: {'found' if flow in found.flows else 'not found'}"
    again: Counter[Flow] = Counter()
    for ids in expected.ids.values():
        again.update(ids.again)
    for flow, made in expected.flows.items():
        if flow in found.flows:
            yield from _differences_of_flow(flow, made, found, again[flow])
    inputs = {path: (file.sha256, file.lines, file.unreadable) for path, file in expected.files.items()}
    yield from _differences_of_keys("inputs", found.inputs, inputs)
    caches = {
        where: (len(ids.accepted), len(ids.repeated), ids.needed) for where, ids in expected.ids.items()
    }
    yield from _differences_of_keys("id_caches", found.id_caches, caches)
    repeated = {
        where: Counter({value: len(places) - 1 for value, places in ids.doubled.items()})
        for where, ids in expected.ids.items()
        if ids.doubled
    }
    yield from _differences_of_keys("repeated-id", found.repeated, repeated)


def _differences_of_flow(flow: Flow, made: FlowTruth, found: Found, again: int) -> Iterator[str]:
    late = made.late | made.overdue
    counts: dict[str, int | None] = {column: len(getattr(made, column)) for column in KINDS.values()}
    counts |= {
        "sent": len(made.sent), "received": len(made.received), "rejected": made.rejected, "late": len(late),
        "sent_upto": made.sent_upto, "received_upto": made.received_upto,
        "doubled": len(made.doubled) + again,
    }  # fmt: skip
    for column, value in counts.items():
        if found.flows[flow][column] != value:
            yield f"{flow}: {column}: found {found.flows[flow][column]}, expected {value}"
    sets = {kind: getattr(made, name) for kind, name in KINDS.items()} | {"late": late}
    for kind, positions in sets.items():
        if found.positions[kind, flow] != Counter(positions):
            yield f"{flow}: {kind}: found {sorted(found.positions[kind, flow])}, expected {sorted(positions)}"
        elif found.ranges[kind, flow] != sum(position - 1 not in positions for position in positions):
            yield f"{flow}: {kind}: {found.ranges[kind, flow]} ranges are not as long as can be"


def _differences_of_keys(
    what: str, found: Mapping[Any, object], expected: Mapping[Any, object]
) -> Iterator[str]:
    for key in found.keys() | expected.keys():
        if found.get(key) != expected.get(key):
            yield f"{what} {key}: found {found.get(key)}, expected {expected.get(key)}"


@dataclass(frozen=True, slots=True)
class Judged:
    """All simulated runs, reconciled once: that takes seconds, however many there are."""

    wrong: list[str]
    expected: Truth
    #: What is known of the large flows by how they were made.
    large: dict[Flow, FlowTruth]


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    seed = os.environ["TEST_SEED"]
    large, made = large_runs(random.Random(f"{seed}:large"))
    layout = Layout(lines_per_file=400, open_and_torn=True, copied=3, snapshots=4, moved=2)
    written = log_files.write(small_runs() + large, tmp_path_factory.mktemp("runs"), layout)
    expected = truth(written.directories, late_after_ms=LATE_AFTER_MS)
    wrong = sorted(differences(reconciled(spark, written.directories), expected))
    return Judged(wrong, expected, made)


def small_runs() -> list[Entry]:
    """Bridges with every fault, lines by chance, and IDs that come again: each in flows of its own."""
    entries: list[Entry] = []
    for number, run in enumerate(_with_open_messages()):
        place = number if number < RUNS else 2 * RUNS + LARGE + number
        entries += simulation.simulate(replace(run, flow=specs.flow(place), lane=number % 3))[0]
    for number, lines in enumerate(specs.drawn(wild.lines, RUNS)):
        entries += wild.entries(specs.flow(RUNS + number), lines)
    for number, traffic in enumerate(specs.drawn(specs.id_runs, RUNS // 2)):
        store, address = f"store-{number % 2}", f"address-{number // 2}"
        entries += id_traffic.simulate(replace(traffic, store=store, address=address))[0]
    return entries


def _with_open_messages() -> list[FlowSpec]:
    """`RUNS` flows by chance, and more where none of these has an open message: the rarest fault."""
    runs = specs.drawn(specs.flows, RUNS)
    for _ in range(DRAWS):
        if any(simulation.simulate(run)[1].open for run in runs):
            break
        runs += specs.drawn(specs.flows, RUNS)
    return runs


def large_runs(rng: random.Random) -> tuple[list[Entry], dict[Flow, FlowTruth]]:
    """Some 20,000 messages in each of `LARGE` flows, and what is true of them."""
    entries: list[Entry] = []
    made: dict[Flow, FlowTruth] = {}
    for number in range(LARGE):
        run = specs.large_flow(rng, 2 * RUNS + number, slots=400, width=100, faults=0.1)
        lines, made[run.flow] = simulation.simulate(run)
        entries += lines
    return entries, made


def test_every_run_is_judged_as_the_definitions_say(judged: Judged) -> None:
    assert not judged.wrong, "\n".join([f"{len(judged.wrong)} differences", *judged.wrong[:20]])


def test_the_runs_had_every_fault(judged: Judged) -> None:
    """Else there would be something that the test before this one cannot tell."""
    flows, ids = judged.expected.flows.values(), judged.expected.ids.values()
    for name in (*KINDS.values(), "late", "overdue", "rejected"):
        assert any(getattr(flow, name) for flow in flows), f"no run has {name}"
    assert any(address.doubled for address in ids)
    assert any(address.needed > 1 for address in ids)
    assert any(file.unreadable for file in judged.expected.files.values())


def test_what_was_done_to_a_large_run_is_what_was_found(judged: Judged) -> None:
    assert sum(len(made.received) for made in judged.large.values()) > 12_500 * LARGE
    for flow, made in judged.large.items():
        found = judged.expected.flows[flow]
        assert [getattr(found, name) for name in KINDS.values()] == [
            getattr(made, name) for name in KINDS.values()
        ], flow
