"""A lock that ends with its process, whatever happens to its file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.runtime.file_lock import FileLock, LockHeld

HOLD = """
import sys
from pathlib import Path
from bridge.runtime.file_lock import FileLock
FileLock.held = FileLock(Path(sys.argv[1]))
FileLock.held.take()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(LockHeld, match=rf"{path} is locked by another process \(pid {process.pid}\)"):
            FileLock(path).take()
        process.kill()
    lock = FileLock(path)
    lock.take()
    assert path.read_text() == str(os.getpid())
    lock.release()
    assert not lock.is_held()


def test_a_lock_whose_file_is_removed_while_it_is_taken_is_taken_on_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    real = FileLock._lock
    removed: list[Path] = []

    def after_a_removal(self: FileLock, descriptor: int) -> None:
        if not removed:
            path.unlink()
            removed.append(path)
        real(self, descriptor)

    monkeypatch.setattr(FileLock, "_lock", after_a_removal)
    lock = FileLock(path)
    lock.take()
    assert removed
    assert lock.is_held()
    with pytest.raises(LockHeld):
        FileLock(path).take()


def test_an_owner_that_is_not_written_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path)
    lock.take()
    path.write_bytes(b"")
    with pytest.raises(LockHeld) as held:
        FileLock(path).take()
    assert held.value.owner == "unknown"
    lock.release()
