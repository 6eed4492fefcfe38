"""The demo with real nodes: its proof, its exit codes, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.forked import unmeasured

PATIENCE_S = 60.0
#: With a report: Spark's start and its compilers included.
WITH_SPARK_S = 300.0
PROOF = re.compile(
    r"sent (\d+) repeated (\d+) duplicates (\d+) arrived (\d+) lost 0 doubled 0 out-of-order 0 "
    r"kills 2 cuts 1 seconds \d+\.\d messages/s \d+"
)

CLUSTER_PROOF = re.compile(
    r"sent (\d+) repeated (\d+) duplicates (\d+) arrived (\d+) lost 0 doubled 0 out-of-order 0 "
    r"kills 1 cuts 0 joined 1 drained 1 processed (\d+) seconds \d+\.\d messages/s \d+"
)
#: Three nodes start, one of them twice.
CLUSTER_S = 180.0


def start(
    directory: Path, *arguments: str, is_measured: bool = False, **variables: str
) -> subprocess.Popen[bytes]:
    """Start a demo; coverage would take half of what it and its nodes compute, each time."""
    environment = os.environ | {"TMPDIR": str(directory)} | variables
    return subprocess.Popen(
        [sys.executable, "-m", "bridge", "demo", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment if is_measured else unmeasured(environment),
    )


def finish(
    process: subprocess.Popen[bytes], data: bytes = b"", within_s: float = PATIENCE_S
) -> tuple[int, str, str]:
    with process:
        try:
            out, err = process.communicate(data, within_s)
        except BaseException:
            process.kill()
            raise
    return process.returncode, out.decode(), err.decode()


def left_behind(directory: Path) -> list[str]:
    """Command lines of processes that know of the directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in words:
            found.append(words)
    return found


def some_lines(number: int) -> bytes:
    """Lines of different lengths, some equal, some empty, some no text."""
    return b"".join(
        b"%s\n" % (b"\xff\x00" * (index % 40) if index % 7 else b"same") for index in range(number)
    )


def repeated_of(rows: int) -> int:
    """Every tenth of the even rows, and every tenth transaction of 100 odd ones."""
    even, odd = rows - rows // 2, rows // 2
    return -(-even // 10) + sum(min(100, odd - start) for start in range(0, odd, 1000))


def test_any_text_arrives_once_and_in_order_through_a_cut_and_two_kills(tmp_path: Path) -> None:
    data = some_lines(3000)
    rows = sum(bool(line) for line in data.split(b"\n"))
    code, out, err = finish(start(tmp_path, "--input", "-", is_measured=True), data)
    assert (code, err) == (0, "")
    proof = PROOF.fullmatch(out.rstrip("\n"))
    assert proof, out
    sent, repeated, duplicates, arrived = map(int, proof.groups())
    assert sent == arrived == rows
    assert repeated == duplicates
    assert repeated == repeated_of(rows)
    assert left_behind(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_one_row_goes_through_the_same_and_without_java_the_report_says_what_to_install(
    tmp_path: Path,
) -> None:
    report, java_home = tmp_path / "report", tmp_path / "no-java"
    demo = start(tmp_path, "--input", "-", "--report", str(report), JAVA_HOME=str(java_home))
    code, out, err = finish(demo, b"row\n")
    assert code == 0
    proof = PROOF.fullmatch(out.rstrip("\n"))
    assert proof, out
    sent, repeated, duplicates, arrived = map(int, proof.groups())
    assert sent == arrived == 1
    assert duplicates == repeated > 0
    rejected, no_java = err.splitlines()
    assert rejected.startswith("duplicates rejected ")
    assert no_java.startswith(f"core-bridge reconcile: no Java found in JAVA_HOME={java_home}: install ")
    assert not report.exists()


def test_the_delivery_logs_count_the_duplicates_that_the_demo_counts(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    demo = start(tmp_path, "--input", "-", "--logs", str(logs), "--format", "json")
    code, out, err = finish(demo, some_lines(3000))
    assert code == 0, err
    told = re.fullmatch(
        r"duplicates rejected (\d+): (\d+) sent again on purpose, (\d+) because an answer was lost\n", err
    )
    assert told, err
    total, on_purpose, lost = map(int, told.groups())
    assert total == on_purpose + lost
    proof = json.loads(out)
    assert proof["duplicates"] == proof["repeated"] == on_purpose
    assert (proof["kills"], proof["cuts"]) == (2, 1)
    assert proof["lost"] == proof["doubled"] == proof["out-of-order"] == 0
    lines = [
        json.loads(line) for path in logs.glob("edge/*.jsonl") for line in path.read_bytes().splitlines()
    ]
    known = [line for line in lines if line.get("verdict") == "duplicate" and line["bridge"] is None]
    assert sum(line["duplicates"] for line in known) == total
    assert {path.name for path in logs.iterdir()} == {"edge", "hub"}


def test_logs_go_to_an_empty_directory_only(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for place in (tmp_path, tmp_path / "mine"):
        code, out, err = finish(start(tmp_path, "--logs", str(place), is_measured=True))
        assert (code, out, err) == (
            2,
            "",
            f"core-bridge: {place}: must be an empty directory, or not there\n",
        )
    assert (tmp_path / "mine").read_text() == "mine"


def test_the_proof_is_shown_before_the_report_is_begun(tmp_path: Path) -> None:
    """The report would take minutes: the demo is ended as soon as its first line is there."""
    data = tmp_path / "rows"
    data.write_bytes(b"row\n" * 5)
    blocker = tmp_path / "java" / "bin" / "java"
    blocker.parent.mkdir(parents=True)
    blocker.write_text("#!/bin/sh\nexec sleep 600\n")
    blocker.chmod(0o755)
    options = ("--input", str(data), "--report", str(tmp_path / "report"))
    with start(tmp_path, *options, is_measured=True, JAVA_HOME=str(blocker.parents[1])) as demo:
        assert demo.stdout is not None
        line = demo.stdout.readline().decode()
        assert PROOF.fullmatch(line.rstrip("\n")), line
        assert demo.poll() is None
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(PATIENCE_S) == 130


def test_a_cluster_processes_each_job_once_and_each_piece_of_news_once_for_each_queue(tmp_path: Path) -> None:
    data = some_lines(3000)
    rows = sum(bool(line) for line in data.split(b"\n"))
    news = sum(index // 2 % 2 for index in range(rows))
    logs = tmp_path / "logs"
    demo = start(tmp_path, "--cluster", "--input", "-", "--logs", str(logs), is_measured=True)
    code, out, err = finish(demo, data, CLUSTER_S)
    assert code == 0, err
    proof = CLUSTER_PROOF.fullmatch(out.rstrip("\n"))
    assert proof, out
    sent, repeated, duplicates, arrived, processed = map(int, proof.groups())
    assert sent == arrived == rows
    assert repeated == duplicates > 0
    assert processed == rows + news
    assert {path.name for path in logs.iterdir()} == {"node-1", "node-2", "node-3"}
    assert left_behind(tmp_path) == []
    assert list(tmp_path.iterdir()) == [logs]


@pytest.mark.cluster_long
def test_one_row_goes_over_a_cluster(tmp_path: Path) -> None:
    demo = start(tmp_path, "--cluster", "--input", "-", "--format", "json")
    code, out, err = finish(demo, b"row\n", CLUSTER_S)
    assert (code, err) == (0, "")
    proof = json.loads(out.splitlines()[-1])
    assert (proof["sent"], proof["arrived"], proof["kills"]) == (1, 1, 1)
    assert proof["joined"] == proof["drained"] == 1
    assert proof["processed"] == 1
    assert proof["lost"] == proof["doubled"] == proof["out-of-order"] == 0


@pytest.mark.spark_long
def test_the_delivery_logs_account_for_every_row_of_a_cluster(tmp_path: Path) -> None:
    report = tmp_path / "report"
    demo = start(tmp_path, "--cluster", "--input", "-", "--report", str(report))
    code, out, err = finish(demo, some_lines(3000), CLUSTER_S + WITH_SPARK_S)
    assert code == 0, err
    assert CLUSTER_PROOF.fullmatch(out.rstrip("\n")), out
    assert "clean: " in err
    relayed = [
        flow
        for flow in json.loads((report / "summary.json").read_text())["bridges"]
        if (flow["bridge"] or "").startswith("$cluster.")
    ]
    assert relayed
    assert all(flow["sent"] == flow["received"] and not flow["lost"] for flow in relayed)


@pytest.mark.spark_long
def test_the_delivery_logs_account_for_every_row_of_the_demo(tmp_path: Path) -> None:
    report = tmp_path / "report"
    demo = start(tmp_path, "--input", "-", "--report", str(report))
    code, out, err = finish(demo, some_lines(3000), WITH_SPARK_S)
    assert code == 0, err
    proof = PROOF.fullmatch(out.rstrip("\n"))
    assert proof, out
    assert "clean: " in err
    summary = json.loads((report / "summary.json").read_text())
    told = re.search(r"^duplicates rejected (\d+): ", err, re.MULTILINE)
    assert told, err
    assert sum(flow["rejected"] for flow in summary["bridges"] if flow["bridge"] is None) == int(told[1])
    (relayed,) = [flow for flow in summary["bridges"] if flow["bridge"] is not None]
    assert relayed["sent"] == relayed["received"] == int(proof[1])


def test_keep_says_where_settings_journals_and_logs_are(tmp_path: Path) -> None:
    code, _, err = finish(start(tmp_path, "--input", "-", "--keep"), some_lines(200))
    assert code == 0
    found = re.fullmatch(r"core-bridge: settings, journals and logs are in (.+)\n", err)
    assert found, err
    directory = Path(found[1])
    assert directory.parent == tmp_path
    names = {path.name for path in directory.iterdir()}
    assert {"edge.toml", "hub.toml", "edge.log", "hub.log", "edge-data", "hub-data"} <= names


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_an_interrupted_demo_takes_its_nodes_along(tmp_path: Path, ending: signal.Signals, code: int) -> None:
    process = start(tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    while not list(tmp_path.glob("*/edge-data/journal.sqlite")):
        assert time.monotonic() < deadline
        time.sleep(0.02)  # another process's file: there is nothing to wait for
    process.send_signal(ending)
    ended, out, err = finish(process)
    assert (ended, out, err) == (code, "", "")
    assert left_behind(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "reason"), [("absent", "no such file or directory"), ("", "is a directory")]
)
def test_an_input_that_cannot_be_read_is_wrong_usage_and_named(
    tmp_path: Path, name: str, reason: str
) -> None:
    code, out, err = finish(start(tmp_path, "--input", str(tmp_path / name), is_measured=True))
    assert (code, out, err) == (2, "", f"core-bridge: {tmp_path / name}: {reason}\n")


def test_an_input_without_rows_is_one_line_and_1(tmp_path: Path) -> None:
    code, out, err = finish(start(tmp_path, "--input", os.devnull, is_measured=True))
    assert (code, out) == (1, "")
    assert err == "core-bridge: BAD_INPUT: the input has no rows: nothing to relay\n"
    assert list(tmp_path.iterdir()) == []
