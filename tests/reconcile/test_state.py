"""A run with a state reads new files only, and finds what one run over all files ever seen finds."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dedup.reconcile import state as states
from dedup.reconcile.absorb import Limits
from dedup.reconcile.errors import BadInput
from dedup.reconcile.job import reconcile
from dedup.reconcile.state import State
from dedup.reconcile.storage import Local
from dedup.reconcile.tables import Tables
from dedup.reconcile.versions import Versions
from tests.conftest import run_seed
from tests.reconcile import id_traffic, log_files, simulation, specs
from tests.reconcile.conftest import line, write_log
from tests.reconcile.id_traffic import IdSpec, Send
from tests.reconcile.log_files import Layout

LATE_AFTER_MS = 60_000
#: Of the simulated logs' lines many are put together; then most, and most IDs are forgotten.
FEW_LINES = Limits(lines=8)
FEWER_LINES = Limits(lines=3, ids=6)

Content = dict[str, list[str]]


def content(tables: Tables) -> Content:
    """All rows of all tables, sorted; then they are given back."""
    names = [field.name for field in fields(Tables) if field.name not in ("kept", "left_out")]
    try:
        return {
            name: sorted(json.dumps(row.asDict()) for row in getattr(tables, name).collect())
            for name in names
        }
    finally:
        tables.release()


def step(spark: SparkSession, logs: Iterable[Path], state: Path, limits: Limits | None = None) -> State:
    before = states.load(spark, str(state))
    return states.advance(before, [str(each) for each in logs], late_after_ms=LATE_AFTER_MS, limits=limits)


def made_logs(rng: random.Random, directory: Path) -> list[Path]:
    """Logs with every fault, of two flows and of two addresses with IDs: the files, in an order by chance."""
    entries = []
    for number in range(2):
        flow = specs.large_flow(rng, number, slots=30, width=6, faults=0.5)
        entries += simulation.simulate(flow)[0]
        sends = tuple(
            Send(rng.randrange(len(id_traffic.IDS)), rng.choice([0, 0, 1]), rng.random() < 0.3)
            for _ in range(14)
        )
        spec = IdSpec(f"store-{number}", "address", sends, cache=3, is_kafka=number == 1)
        entries += id_traffic.simulate(spec)[0]
    log_files.write(entries, directory, Layout(lines_per_file=14, open_and_torn=True, copied=3, moved=2))
    files = sorted(directory.rglob("*.jsonl*"))
    rng.shuffle(files)
    return files


@dataclass(frozen=True, slots=True)
class Runs:
    """The same logs, reconciled in two runs with a state, and at once.

    Only the second run puts lines together: what comes after that may be in doubt, which is another test.
    """

    place: Path
    logs: Path
    state: State
    at_once: Content


@pytest.fixture(scope="module")
def runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    directory = tmp_path_factory.mktemp("runs")
    rng = random.Random(f"{run_seed()}:state")
    files = made_logs(rng, directory / "made")
    cut = rng.randrange(len(files) // 3, len(files))
    place = directory / "state"
    step(spark, files[:cut], place)
    state = step(spark, files[cut:], place, FEW_LINES)
    found = reconcile(spark, [str(directory / "made")], late_after_ms=LATE_AFTER_MS)
    return Runs(place, directory / "made", state, content(found))


def test_the_last_of_several_runs_finds_what_one_run_does(runs: Runs) -> None:
    found = content(runs.state.tables(late_after_ms=LATE_AFTER_MS))
    for name, rows in runs.at_once.items():
        assert found[name] == rows, name


def test_old_lines_are_put_together(runs: Runs) -> None:
    assert runs.state.lines is not None
    per_side = runs.state.lines.where("NOT is_merged").groupBy("flow", "side").count().collect()
    assert max(row["count"] for row in per_side) <= 2 * FEW_LINES.lines
    assert runs.state.lines.where("is_merged AND from < upto").count() > 0


def findings(found: Content, *kinds: str) -> list[dict[str, Any]]:
    rows = [json.loads(text) for text in found["findings"]]
    return [row for row in rows if row["kind"] in kinds]


def test_what_comes_again_after_it_was_forgotten_is_unknown_and_ids_found_twice_stay_found(
    spark: SparkSession, runs: Runs, tmp_path: Path
) -> None:
    assert runs.state.lines is not None
    old = runs.state.lines.where("is_merged AND side = 'received' AND from < upto AND bridge LIKE 'bridge%'")
    flow = old.orderBy("flow", "from").first()
    assert flow is not None
    again = line(
        "received", flow["from"], flow["upto"], bridge=flow["bridge"], stream=flow["stream"],
        store=flow["store"], address=flow["address"], runs=flow["runs"],
    )  # fmt: skip
    write_log(tmp_path, [again], node="from-a-backup")
    found = content(step(spark, [tmp_path], runs.place, FEWER_LINES).tables(late_after_ms=LATE_AFTER_MS))

    others = ("lost", "doubled", "unsent", "repeated-id", "out-of-order", "open", "late", "refused")
    assert findings(found, *others) == findings(runs.at_once, *others)
    for name in ("id_caches", "hours", "latency"):
        assert found[name] == runs.at_once[name], name
    new = [row for row in findings(found, "unknown") if row not in findings(runs.at_once, "unknown")]
    assert [(row["bridge"], row["first"], row["last"]) for row in new] == [
        (flow["bridge"], flow["from"], flow["upto"] - 1)
    ]
    assert "without --state" in new[0]["detail"]


def test_a_file_counts_once_while_it_grows_is_completed_copied_and_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, state = tmp_path / "logs", tmp_path / "state"
    lines = [line("received", number, number + 1) for number in range(3)]
    growing = write_log(logs, lines[:2], suffix=".jsonl.open")
    with growing.open("a") as file:
        file.write("\n" + json.dumps(lines[2])[:50])
    first = step(spark, [logs], state)
    assert positions(first) == [0, 1]
    assert step(spark, [logs], state).number == first.number  # nothing is new
    with growing.open("a") as file:
        file.write(json.dumps(lines[2])[50:] + "\n")
    assert positions(step(spark, [logs], state)) == [0, 1, 2]
    complete = growing.rename(growing.with_suffix(""))
    copy = logs / "copy" / complete.name
    copy.parent.mkdir()
    copy.write_bytes(complete.read_bytes())
    last = step(spark, [logs], state)
    assert positions(last) == [0, 1, 2]
    assert known(last) == sorted([str(complete), str(copy)])
    complete.unlink()
    assert step(spark, [logs], state).number == last.number


def positions(state: State) -> list[int]:
    assert state.lines is not None
    return sorted(row["from"] for row in state.lines.collect())


def known(state: State) -> list[str]:
    return sorted(row.path for row in state.files.collect())


class Killed(Exception):
    """The process ends here."""


def test_a_kill_before_the_rename_leaves_the_old_version(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = Versions(spark, str(tmp_path))
    versions.begin(1)
    versions.commit(1, {"v": 1})

    def die(*_: str) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Local, "rename", die)
        versions.begin(2)
        versions.write("000002.writing/rows", "half of them")
        with pytest.raises(Killed):
            versions.commit(2, {"v": 1})
    assert versions.newest() == 1
    assert versions.note(1) == {"v": 1}
    # The next writer begins from nothing.
    versions.begin(2)
    versions.commit(2, {"v": 1})
    assert sorted(path.name for path in (tmp_path / "000002").iterdir()) == ["note.json"]
    versions.begin(3)
    versions.commit(3, {"v": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000002", "000003"]


def test_two_runs_at_a_time_cannot_both_save(spark: SparkSession, tmp_path: Path) -> None:
    versions = Versions(spark, str(tmp_path))
    versions.begin(1)
    versions.commit(1, {"v": 1})
    versions.begin(1)
    with pytest.raises(BadInput, match="one run at a time may use a state; found version 1 of another run"):
        versions.commit(1, {"v": 1})


@pytest.mark.parametrize(
    ("note", "rule"),
    [
        ('{"v":1}', r"reads states of version 2; found 1"),
        ("[]", r"note\.json: must hold a JSON object; found '\[\]'"),
    ],
)
def test_a_state_of_another_version_is_refused(
    spark: SparkSession, tmp_path: Path, note: str, rule: str
) -> None:
    (tmp_path / "000001").mkdir()
    (tmp_path / "000001" / "note.json").write_text(note)
    with pytest.raises(BadInput, match=rule):
        states.load(spark, str(tmp_path))


def test_a_state_names_what_it_cannot_find(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no delivery log"):
        step(spark, [tmp_path], tmp_path / "state")


def test_a_file_that_was_compressed_since_it_was_read_adds_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also where its lines were put together meanwhile: they are no doubles."""
    logs, state = tmp_path / "logs", tmp_path / "state"
    lines = [line("received", at * 10, at * 10 + 10) for at in range(12)]
    write_log(logs, [line("sent", 0, 120)], node="eu")
    path = write_log(logs, lines)
    step(spark, [logs], state, FEWER_LINES)
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    found: Content = {}
    for _ in range(2):  # both are there, and then the compressed one alone
        found = content(step(spark, [logs], state, FEWER_LINES).tables(late_after_ms=LATE_AFTER_MS))
        assert found["findings"] == []
        assert [json.loads(row)["received"] for row in found["flows"]] == [120]
        path.unlink(missing_ok=True)
    assert sorted(Path(json.loads(row)["path"]).name for row in found["inputs"])[-1] == packed.name
