"""A disk that is really full: nothing stored is lost, readers go on, and so does all when there is room."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.journal import reserve
from bridge.journal.reserve import Reserve
from tests.integration.journal.helpers import MIB, PATIENCE_S

ROOT = Path(__file__).parents[3]
DRIVER = "tests.integration.journal.full_disk_driver"
#: Mounts a small disk where nobody else sees it, and runs a command: for root, and users where they may.
SMALL_DISK = 'mount -t tmpfs -o size=40m tmpfs "$0" && head -c 12000000 /dev/zero > "$0/filler" && exec "$@"'


def in_small_disk(directory: Path) -> list[str]:
    return ["unshare", "--mount", "--map-root-user", "sh", "-c", SMALL_DISK, str(directory)]


def can_mount() -> bool:
    try:
        command = [*in_small_disk(Path("/tmp")), "true"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


async def run_driver(command: list[str], directory: Path, limit: int) -> dict[str, Any]:
    """What the driver said, all together."""
    process = await asyncio.create_subprocess_exec(
        *command, sys.executable, "-m", DRIVER, str(directory), str(limit),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == 0, errors.decode()
    return {key: value for line in output.splitlines() for key, value in json.loads(line).items()}


#: A limit on file sizes is a full disk to SQLite, too, and works everywhere.
KINDS = ["file-size-limit", *(["small-disk"] if can_mount() else [])]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_full_disk_is_said_survived_and_left_by_itself(tmp_path: Path, kind: str) -> None:
    if kind == "small-disk":
        said = await run_driver(in_small_disk(tmp_path), tmp_path / "data", 0)
    else:
        said = await run_driver([], tmp_path / "data", 24 * MIB)
    assert said["code"] == "DISK_FULL"
    assert "no room on the disk of the journal" in said["detail"]
    assert said["stored"] > 50
    assert said["browsed"] >= said["stored"]
    assert said["read"] >= said["stored"] // 2
    assert said["in_order"]
    assert said["seconds"] < 5
    assert not said["disk_full"]
    assert said["kept"]


def test_the_reserve_takes_a_small_share_and_leaves_as_much_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [160 * MIB]
    monkeypatch.setattr(reserve, "_free_bytes", lambda _directory: free[0])
    kept = Reserve(tmp_path)
    path = tmp_path / reserve.FILE_NAME
    assert (kept.size, path.stat().st_size) == (10 * MIB, 10 * MIB)
    kept.release()
    assert not path.exists()
    free[0] = 6 * MIB
    assert kept.hold()
    assert path.stat().st_size == 10 * MIB // 4
    kept.release()
    free[0] = MIB
    assert not kept.hold()
    assert not path.exists()


def test_a_disk_too_small_for_a_reserve_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "_free_bytes", lambda _directory: 2 * MIB)
    assert (Reserve(tmp_path).size, list(tmp_path.iterdir())) == (0, [])


def test_a_file_system_that_cannot_allocate_has_no_reserve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert (Reserve(tmp_path).size, list(tmp_path.iterdir())) == (0, [])
