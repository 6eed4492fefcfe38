"""The simulated logs and the model that judges them agree: what was done to a log is what is read from it."""

from __future__ import annotations

import tempfile
from dataclasses import fields, replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.reconcile import id_traffic, log_files, simulation, specs
from tests.reconcile.faults import Entry, FlowSpec
from tests.reconcile.id_traffic import IdSpec
from tests.reconcile.log_files import Layout
from tests.reconcile.model import Flow, FlowTruth, Truth, truth

LATE_AFTER_MS = 60_000


def read_back(entries: list[Entry], layout: Layout) -> tuple[Truth, dict[Path, int]]:
    with tempfile.TemporaryDirectory() as directory:
        written = log_files.write(entries, Path(directory), layout)
        return truth(written.directories, late_after_ms=LATE_AFTER_MS), written.unreadable


def assert_same(found: FlowTruth, made: FlowTruth, flow: Flow) -> None:
    for field in fields(FlowTruth):
        if field.name == "overdue":
            continue  # depends on the other flows
        assert getattr(found, field.name) == getattr(made, field.name), f"{flow}: {field.name}"


@given(st.lists(specs.flows, min_size=1, max_size=4), specs.layouts)
def test_what_was_done_to_a_flow_is_what_the_model_reads(runs: list[FlowSpec], layout: Layout) -> None:
    entries = []
    made: dict[Flow, FlowTruth] = {}
    for number, run in enumerate(runs):
        lines, made[specs.flow(number)] = simulation.simulate(replace(run, flow=specs.flow(number)))
        entries += lines
    found, unreadable = read_back(entries, layout)
    for flow, expected in made.items():
        # Where no line is left, nothing can be said.
        assert_same(found.flows.get(flow, FlowTruth()), expected, flow)
    assert {path: file.unreadable for path, file in found.files.items() if file.unreadable} == unreadable


@given(st.lists(specs.id_runs, max_size=3), specs.layouts)
def test_what_became_of_ids_is_what_the_model_reads(runs: list[IdSpec], layout: Layout) -> None:
    entries = []
    flows: dict[Flow, FlowTruth] = {}
    ids = {}
    for number, run in enumerate(runs):
        where = f"store-{number % 2}", f"address-{number // 2}"
        lines, made, ids[where] = id_traffic.simulate(replace(run, store=where[0], address=where[1]))
        entries += lines
        flows |= made
    found, _ = read_back(entries, layout)
    assert found.flows.keys() == flows.keys()
    for flow, expected in flows.items():
        assert_same(found.flows[flow], expected, flow)
    assert found.ids == {where: made for where, made in ids.items() if made.accepted}
