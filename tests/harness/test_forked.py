"""A forked process is what a started one is: output, exit code, signals, directory, environment, umask."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.harness import forked
from tests.harness.commands import PROGRAM, Process, environment
from tests.harness.forked import FORKS, Forks, Streams
from tests.harness.node import MakeNode, made_nodes

WITHIN_S = 20.0


def both(*arguments: str, cwd: Path, **variables: str) -> list[tuple[int, bytes, bytes]]:
    """Exit code, stdout and stderr of a started and of a forked process."""
    own = environment(**variables)
    began = subprocess.run([*PROGRAM, *arguments], capture_output=True, cwd=cwd, env=own, check=False)
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        Path(os.devnull).open("rb") as nothing,
    ):
        streams = Streams(nothing.fileno(), out.fileno(), err.fileno())
        code = FORKS.start(arguments, streams, cwd=cwd, environment=own).wait(WITHIN_S)
        out.seek(0)
        err.seek(0)
        return [(began.returncode, began.stdout, began.stderr), (code, out.read(), err.read())]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["validate", "--settings", "node.toml"], ["status", "--no-such-option"], ["nothing"]],
    ids=" ".join,
)
def test_output_and_exit_code_are_those_of_an_interpreter(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "node.toml").write_text('[node]\nname = "${NAME}"\ndata-directory = "data"\n')
    started, forked = both(*arguments, cwd=tmp_path, NAME="of-the-environment")
    assert forked == started
    assert started[1] or started[2]


def test_a_fork_dies_by_a_signal_and_says_so(tmp_path: Path) -> None:
    with made_nodes(tmp_path) as make_node:
        process = running(make_node)
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGKILL)
        assert process.wait(WITHIN_S) == process.poll() == -signal.SIGKILL
        process.kill()  # it has ended: nothing that got its pid since may be killed


def test_a_fork_leads_a_session_in_its_directory_with_its_umask(tmp_path: Path) -> None:
    with made_nodes(tmp_path, umask=0o027) as make_node:
        process = running(make_node)
        assert os.getsid(process.pid) == process.pid
        found = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        assert "Umask:\t0027" in found
        assert Path(f"/proc/{process.pid}/cwd").resolve() == tmp_path.resolve()
        process.terminate()
        assert process.wait(WITHIN_S) == 0


def running(make_node: MakeNode) -> Process:
    process = make_node().start().process
    assert process is not None
    return process


def test_a_fork_that_comes_too_late_is_not_taken_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks = Forks()
    with Path(os.devnull).open("rb") as nothing, (tmp_path / "out").open("wb") as out:
        streams = Streams(nothing.fileno(), out.fileno(), out.fileno())
        with monkeypatch.context() as patch:
            patch.setattr(forked, "_FORKED_WITHIN_S", 0.0)
            with pytest.raises(AssertionError, match="nothing was forked"):
                forks.start(["nothing"], streams, cwd=tmp_path, environment=environment())
        assert forks.start(["--help"], streams, cwd=tmp_path, environment=environment()).wait(WITHIN_S) == 0
