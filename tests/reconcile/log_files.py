"""Simulated lines as the files of several nodes: rolled, torn, taken away, written again, copied."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bridge.delivery_log import CLOSED, OPEN
from tests.reconcile.faults import Entry, State

#: How a line can be damaged: cut, with other bytes in the middle, or ending in NULs after a loss of power.
_DAMAGES: Final = (
    lambda text: text[: 1 + len(text) // 2],
    lambda text: text[: len(text) // 3] + b"\xff\xfe\x80" + text[-20:],
    lambda text: text[:40] + b"\0" * 40,
    lambda text: text[:-1],
)


@dataclass(frozen=True, slots=True)
class Layout:
    """How lines lie in files."""

    lines_per_file: int = 7
    #: Leave every node's last file open, and cut in its last line.
    open_and_torn: bool = False
    #: Every n-th file is also in the second directory, as if copied there by hand; 0: none.
    copied: int = 0
    #: Of every n-th file the second directory has the beginning, copied while the node was writing; 0: none.
    snapshots: int = 0
    #: Every n-th node writes to the second directory; 0: none.
    moved: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """Where the files are, and which lines in them cannot be read."""

    directories: tuple[Path, Path]
    #: By path; files without any are not in it.
    unreadable: dict[Path, int]


def write(entries: Iterable[Entry], directory: Path, layout: Layout) -> Written:
    """Write every node's log below `directory`."""
    directories = directory / "logs", directory / "more-logs"
    for each in directories:
        each.mkdir(parents=True)
    logs: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        logs[entry.node].append(entry)
    unreadable: dict[Path, int] = {}
    for number, (node, log) in enumerate(sorted(logs.items())):
        is_moved = layout.moved > 0 and number % layout.moved == 0
        writer = _Writer(node, directories[is_moved], layout)
        writer.write(sorted(log, key=lambda entry: entry.order))
        damaged = dict(writer.damaged)
        for path in writer.paths[:: layout.copied] if layout.copied else ():
            copy = directories[not is_moved] / path.name
            shutil.copyfile(path, copy)
            damaged[copy] = damaged[path]
        for path in writer.paths[1 :: layout.snapshots] if layout.snapshots else ():
            copy = directories[not is_moved] / f"{path.name.removesuffix('.open')}.open"
            half = _copy_beginning(path, copy)
            damaged[copy] = [number for number in damaged[path] if number < half]
        unreadable |= {path: len(numbers) for path, numbers in damaged.items() if numbers}
    return Written(directories, unreadable)


def _copy_beginning(path: Path, copy: Path) -> int:
    """What the file was when half of its lines were written and the next one in part; that half."""
    lines = path.read_bytes().splitlines(keepends=True)
    half = len(lines) // 2
    copy.write_bytes(b"".join(lines[:half]) + lines[half][:9])
    return half


class _Writer:
    """One node's files, in the order in which the node wrote them."""

    def __init__(self, node: str, directory: Path, layout: Layout) -> None:
        self._node = node
        self._directory = directory
        self._layout = layout
        self._number = 1
        self._lines: list[bytes] = []
        self._again: list[bytes] = []
        self._damaged: list[int] = []
        self.paths: list[Path] = []
        #: Which lines of each file cannot be read, counted from 0.
        self.damaged: dict[Path, list[int]] = {}

    def write(self, log: Sequence[Entry]) -> None:
        """All lines of the node; ends the last file."""
        for place, entry in enumerate(log):
            if entry.state is State.MISSING:
                self._roll()
                if place == 0 or log[place - 1].state is not State.MISSING:
                    self._number += 1  # the segment that nobody has
                continue
            if entry.state is State.TORN:
                self._damaged.append(len(self._lines))
                self._lines.append(_DAMAGES[place % len(_DAMAGES)](entry.text))
            else:
                self._lines.append(entry.text)
            if entry.state is State.REPEATED:
                self._again.append(entry.text)
            if len(self._lines) >= self._layout.lines_per_file:
                self._roll()
        self._roll()
        self._roll()  # what was to be written again
        if self._layout.open_and_torn and self.paths:
            self._leave_open(log[0].text)

    def _roll(self) -> None:
        if self._lines:
            path = self._directory / f"{self._node}-20231114T221320-{self._number:06}{CLOSED}"
            path.write_bytes(b"\n".join((*self._lines, b"")))
            self.paths.append(path)
            self.damaged[path] = self._damaged
            self._number += 1
        self._lines, self._again, self._damaged = self._again, [], []

    def _leave_open(self, text: bytes) -> None:
        """The node is writing still: a line that is not there whole is no damage."""
        path = self.paths.pop()
        is_open = path.with_name(path.name.removesuffix(CLOSED) + OPEN)
        path.rename(is_open)
        with is_open.open("ab") as file:
            file.write(text[: len(text) // 2])
        self.paths.append(is_open)
        self.damaged[is_open] = self.damaged.pop(path)
