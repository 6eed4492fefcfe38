"""The command: what it refuses before Spark starts, what a run says and leaves, and spark-submit."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pyspark
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from bridge.cli import main
from bridge.cli import reconcile as command
from dedup.reconcile import __main__ as alone
from dedup.reconcile import main as reconcile_main
from dedup.reconcile import report
from dedup.reconcile.errors import BadInput
from dedup.reconcile.session import SHORT_BYTES
from dedup.reconcile.storage import place
from dedup.reconcile.summary import NOT_IN_LOGS, Summary, Verdict
from tests.reconcile.conftest import line, write_log
from tests.reconcile.facts import MADE, clean
from tests.reconcile.packages import ROOT, pack_dedup

#: For a Spark of its own, which starts and works on a loaded machine.
PATIENCE_S = 300


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Both sides of one bridge; positions 42 to 44 did not arrive, an ID came again 2 messages later.

    A producer has given a part of the messages times in microseconds.
    """
    ids = [[100, "order-1"], [101, "order-2"]]
    micros = [1_700_000_000_000_000, 1_700_000_000_000_000]
    centuries = [10**14, 10**14]
    sent = [line("sent", 0, 100, events=centuries), line("sent", 100, 200, events=micros)]
    write_log(tmp_path / "logs" / "eu", sent, node="eu")
    received = [line("received", 0, 100, runs=[[0, 41], [45, 99]]), line("received", 100, 200, events=micros)]
    client = line("received", 100, 102, bridge=None, stream="journal:us:orders:0", ids=ids)
    again = line("received", 102, 102, bridge=None, stream="journal:us:orders:0", ids=[[None, "order-1"]])
    again |= {"verdict": "duplicate", "duplicates": 1}
    write_log(tmp_path / "logs" / "us", [*received, client, again], node="us")
    return tmp_path / "logs"


def run(*arguments: object) -> int:
    return main(["reconcile", *map(str, arguments)])


# ---------------------------------------------------------------- before Spark


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--output", "{tmp}/new"], "--logs DIR: must be given"),
        (["--logs", "{tmp}"], "--output DIR: must be given"),
        (["--logs", "{tmp}", "{tmp}/gone", "--output", "{tmp}/new"], "{tmp}/gone: no such file or directory"),
        (
            ["--logs", "{tmp}", "--output", "{tmp}/mine"],
            "must be new, empty or an earlier report; found thesis.tex",
        ),
        (["--verify", "{tmp}/mine"], "{tmp}/mine: must be a report of reconcile; found no SHA256SUMS in it"),
        (
            ["--logs", "{tmp}", "--output", "{tmp}/new", "--late-after", "5x"],
            "must be a time: milliseconds such",
        ),
        (["--logs", "{tmp}", "--output", "{tmp}/new", "--late-after", "-2"], "or -1 for never"),
        (["--logs", "{tmp}", "--output", "{tmp}/new", "--late-after", "36501d"], "at most 100 years"),
    ],
)
def test_what_cannot_work_is_said_in_a_line_and_nothing_is_touched(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    assert run(*(argument.format(tmp=tmp_path) for argument in arguments)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert told.format(tmp=tmp_path) in said.err.splitlines()[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]


def test_without_java_it_says_what_to_install(logs: Path, tmp_path: Path) -> None:
    # In a process of its own: in this one a session may have been started already.
    ended = subprocess.run(
        [sys.executable, "-m", "bridge", "reconcile", "--logs", logs, "--output", tmp_path / "report"],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert "no Java found" in ended.stderr
    assert "apt install" in ended.stderr


@pytest.mark.parametrize(("package", "name"), [("pyspark", "PySpark"), ("jinja2", "Jinja2")])
def test_without_the_extra_it_says_what_to_install(
    package: str,
    name: str,
    logs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(reconcile_main, "find_spec", lambda asked: None if asked == package else object())
    assert run("--logs", logs, "--output", tmp_path / "report") == 2
    assert capsys.readouterr().err == (
        f"core-bridge reconcile: {name} is not installed; reconcile needs it: "
        "pip install 'core_bridge-VERSION-py3-none-any.whl[reconcile]', or '.[reconcile]' in a checkout\n"
    )


@contextmanager
def no_spark(_: str | None, log_bytes: int | None) -> Iterator[str]:
    yield f"spark for {'little' if log_bytes is not None and log_bytes < SHORT_BYTES else 'much'}"


def test_what_fails_in_spark_is_one_line_and_1(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> NoReturn:
        raise PySparkRuntimeError("Job aborted\n\tat org.apache.spark.Somewhere")

    monkeypatch.setattr(reconcile_main, "_spark", no_spark)
    monkeypatch.setattr(reconcile_main, "_reconcile", fail)
    assert run("--logs", logs, "--output", tmp_path / "report") == 1
    assert capsys.readouterr().err == "core-bridge reconcile: Job aborted\n"
    monkeypatch.setenv("CORE_BRIDGE_TRACEBACK", "1")
    with pytest.raises(PySparkRuntimeError):
        run("--logs", logs, "--output", tmp_path / "report")


@pytest.mark.parametrize(
    ("options", "spark_for"),
    [
        (["--logs", "{logs}"], "little"),
        (["--logs", "{logs}/eu", "{large}"], "much"),
        (["--logs", "{logs}/*"], "much"),  # nobody looks for what a pattern matches twice
        (["--logs", "{logs}", "--state", "{logs}/state"], "much"),  # holds lines too
    ],
)
def test_java_is_started_for_what_there_is_to_do(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], spark_for: str
) -> None:
    large = tmp_path / "large"
    large.mkdir()
    with (large / "eu-20261121T185800-000001.jsonl").open("wb") as sparse:
        sparse.truncate(SHORT_BYTES)
    monkeypatch.setattr(reconcile_main, "_spark", no_spark)
    asked: list[str] = []

    def stop_here(spark: str, _: object) -> NoReturn:
        asked.append(spark)
        raise BadInput("enough")

    monkeypatch.setattr(reconcile_main, "_reconcile", stop_here)
    given = [option.format(logs=logs, large=large) for option in options]
    assert run(*given, "--output", tmp_path / "report") == 2
    assert asked == [f"spark for {spark_for}"]


@pytest.mark.parametrize("text", ["0", "2000", "1ms", "60s", "5m", "2h", "7d", "-1"])
def test_spark_submit_reads_a_time_as_the_settings_do(text: str) -> None:
    assert alone.duration_ms(text) == command.duration_ms(text)


@pytest.mark.parametrize("text", ["", "s", "1.5s", "60 s", "-2", "-1s", "36501d", "1w", "٣"])
def test_spark_submit_refuses_the_times_that_the_settings_refuse(text: str) -> None:
    for parse in (alone.duration_ms, command.duration_ms):
        with pytest.raises(argparse.ArgumentTypeError, match="must be"):
            parse(text)


@pytest.mark.parametrize("state", [None, "state"])
def test_follow_keeps_its_place_under_the_state_or_else_the_output(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    asked: list[tuple[Any, ...]] = []
    module = ModuleType("dedup.reconcile.follow")
    vars(module)["follow"] = lambda *given, **named: asked.append((given, named))
    monkeypatch.setitem(sys.modules, "dedup.reconcile.follow", module)
    monkeypatch.setattr(reconcile_main, "_spark", no_spark)
    where = [] if state is None else ["--state", tmp_path / state]
    assert run("--logs", logs, "--output", tmp_path / "watch", "--late-after", "5m", "--follow", *where) == 0
    expected = tmp_path / (state or "watch") / "follow"
    assert asked == [
        (
            ("spark for much", [str(logs)]),
            {"late_after_ms": 300_000, "checkpoint": str(expected), "out": sys.stdout},
        )
    ]


def test_a_ctrl_c_is_its_exit_code_with_and_without_core_bridge(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(reconcile_main, "_spark", no_spark)
    monkeypatch.setattr(reconcile_main, "_follow", interrupted)
    options = ["--logs", str(logs), "--output", str(tmp_path / "watch"), "--follow"]
    assert run(*options) == alone.run(options) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("waiting", "verdict", "options", "code"),
    [
        (7, "clean", ["--fail-on-waiting"], 5),
        (7, "clean", [], 0),
        (0, "clean", ["--fail-on-waiting"], 0),
        (7, "unknown", ["--fail-on-waiting"], 4),
        (7, "lost", ["--fail-on-waiting"], 3),
    ],
)
def test_what_waits_fails_where_that_is_asked_for(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int, verdict: str, options:
    list[str],
    code: int,
) -> None:  # fmt: skip
    outcome = Summary(Verdict(verdict), {"findings": []}, (), waiting)
    monkeypatch.setattr(reconcile_main, "_spark", no_spark)
    monkeypatch.setattr(reconcile_main, "_reconcile", lambda *_: outcome)
    assert run("--logs", logs, "--output", tmp_path / "report", *options) == code


def test_an_alert_log_has_no_exit_code_for_what_waits(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--logs", logs, "--output", tmp_path / "watch", "--follow", "--fail-on-waiting") == 2
    assert "--fail-on-waiting: must not be given with --follow" in capsys.readouterr().err


# ---------------------------------------------------------------- with Spark


def test_a_loss_is_reported_verified_and_overwritten(
    spark: SparkSession, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "re[p]ort 100%25"
    where = "--logs", logs / "eu", "--logs", logs / "us", "--output", output
    assert run(*where, "--late-after", "-1") == 3
    verdict, bridge, *rest = capsys.readouterr().out.splitlines()
    assert verdict == "lost: 3 messages are lost"
    assert bridge == "bridge orders-to-us sent 200 received 197 lost 3 doubled 0"
    assert rest == [
        "clients received 2 rejected 1",
        "of 2 messages that clients sent to orders at orders no log says that a bridge has sent any",
        NOT_IN_LOGS,
        f"report: {output}/report.html",
        f"to send again what is lost: core-bridge replay --plan {output}/replay-plan.json --dry-run",
    ]
    summary = json.loads((output / "summary.json").read_text())
    assert summary["findings"][0] == {
        "kind": "lost", "stream": "journal:a:orders:0", "positions": [[42, 44]], "ids": []
    }  # fmt: skip
    assert summary["id-cache-size-needed"] == 2
    files = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in logs.rglob("*.jsonl")}
    assert {Path(found["path"]): found["sha256"] for found in summary["inputs"]} == files
    plan = json.loads((output / "replay-plan.json").read_text())
    assert plan["entries"] == [
        {
            "bridge": "orders-to-us",
            "stream": "journal:a:orders:0",
            "address": "orders",
            "target": "orders",
            "store": "us/1",
            "positions": [[42, 44]],
        }
    ]
    page = (output / "report.html").read_text()
    assert "3 messages are lost." in page
    assert "42–44" in page
    assert "No message counts as late." in page

    assert run("--verify", output) == 0
    assert capsys.readouterr().out == f"{output}: ok\n"
    (logs / "us" / "us-20261121T185800-000001.jsonl").write_text("")
    assert run("--verify", output) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"{output}: 1 problem"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.spark_long
def test_a_report_can_lie_on_any_file_system_that_hadoop_knows(
    spark: SparkSession, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A mount table stands in for a cluster's file system: nothing of it is a local path.
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set("fs.viewfs.mounttable.reports.link./out", tmp_path.as_uri())
    output = "viewfs://reports/out/today"
    assert run("--logs", logs, "--output", output, "--format", "json") == 3
    assert json.loads(capsys.readouterr().out)["verdict"] == "lost"
    assert run("--verify", output, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "report": output, "problems": []}
    (tmp_path / "today" / "report.html").unlink()
    assert run("--verify", output) == 1
    assert capsys.readouterr().out == f"report.html: missing\n{output}: 1 problem\n"
    storage, directory = place(output, spark)
    staged = report.beside(directory, "partial")
    report.write_files(storage, staged, clean(), [], MADE)
    report.publish(storage, staged, directory)
    assert json.loads((tmp_path / "today" / "summary.json").read_text())["verdict"] == "clean"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "today"]
    (tmp_path / "today" / "thesis.tex").touch()
    assert run("--logs", logs, "--output", output) == 2
    assert "must hold an earlier report only; found thesis.tex" in capsys.readouterr().err


def test_a_line_of_another_version_is_named_and_leaves_no_report(
    spark: SparkSession, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_log(logs / "us", [line("received", 200, 201), line("received", 201, 202, v=2)], number=2)
    assert run("--logs", logs, "--output", tmp_path / "report") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"core-bridge reconcile: {path}: line 2: ")
    assert not (tmp_path / "report").exists()


@pytest.mark.spark_long
def test_spark_submit_runs_it_from_the_packages_alone(logs: Path, tmp_path: Path) -> None:
    packages = tmp_path / "dedup.zip"
    pack_dedup(packages)
    job = tmp_path / "reconcile.py"
    job.write_bytes((ROOT / "dedup" / "reconcile" / "__main__.py").read_bytes())
    submit: list[str | Path] = [
        Path(pyspark.__file__).parent / "bin" / "spark-submit",
        "--master",
        "local[1]",
    ]
    settings = ("ui.enabled=false", "sql.shuffle.partitions=1", "log.level=ERROR")
    submit += [part for setting in settings for part in ("--conf", f"spark.{setting}")]
    ended = subprocess.run(
        [
            *submit,
            "--py-files",
            packages,
            job,
            "--logs",
            logs,
            "--output",
            tmp_path / "report",
            "--format",
            "json",
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 3, ended.stderr
    assert json.loads(ended.stdout) == json.loads((tmp_path / "report" / "summary.json").read_text())
