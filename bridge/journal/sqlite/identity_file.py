"""The file beside the journal that says how far the journal had come: `journal.identity`.

SQLite takes an empty file for a new database, and a database whose write-ahead log is gone or cut short for
a whole one. This file says that there was a journal, and how far it had come. It is written after each commit
and not synced: after a loss of power it may say less than the journal has, never more.

It is mapped into memory, as SQLite maps the index of its write-ahead log: a system call a commit took 4 % of
a reader's rate. A kill may leave a line half written, so there are two, written by turns.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bridge.errors import JournalDamaged
from bridge.runtime.private_files import opener

FILE_NAME: Final = "journal.identity"
_FORM: Final = "core-bridge journal 1"
#: What may be done about a journal that is not what it was.
ADVICE: Final = (
    "put back what was there; or, if it is lost for good or was put back on purpose, run "
    "core-bridge journal accept-loss (docs/operations.md, A damaged journal)"
)


class Reached(NamedTuple):
    """How far a journal had come."""

    #: UUID of the node; it never changes.
    node_id: str
    #: The next position, and the number of the newest delivery-log line: they only grow.
    sequence: int
    lines: int
    #: The queue that was written last, and its version; 0: none was since the journal was opened.
    queue_id: int = 0
    queue_version: int = 0

    def encode(self, number: int) -> bytes:
        """A line of `LINE_BYTES`; `number`: of the writes since the file was opened."""
        text = b"%b %020d %b %020d %020d %020d %020d " % (
            _FORM.encode(), number, self.node_id.encode(), *self[1:],
        )  # fmt: skip
        return b"%b%08x\n" % (text, zlib.crc32(text))


#: Bytes of one line, and of the file.
LINE_BYTES: Final = 173
FILE_BYTES: Final = 2 * LINE_BYTES


def read_reached(directory: Path) -> Reached | None:
    """The content of the file in `directory`; None: there is none. Raises: JournalDamaged: unreadable."""
    path = directory / FILE_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalDamaged(
            f"{path} cannot be read ({error.strerror}): {ADVICE}", found=str(path)
        ) from error
    lines = map(_decoded, (content[:LINE_BYTES], content[LINE_BYTES:]))
    found = [line for line in lines if line is not None]
    if not found:
        raise JournalDamaged(f"{path} is damaged: {ADVICE}", key="node.data-directory", found=str(path))
    return max(found)[1]


def _decoded(line: bytes) -> tuple[int, Reached] | None:
    """The number and the content of a line; None: it is damaged, or was being written."""
    with contextlib.suppress(ValueError, TypeError):
        number, node_id, *numbers, _ = line.decode("ascii").removeprefix(_FORM).split()
        reached = Reached(node_id, *map(int, numbers))
        if reached.encode(int(number)) == line:
            return int(number), reached
    return None


def check_files(path: Path, reached: Reached) -> None:
    """Check, before the journal at `path` is opened, that its files are there. Raises: JournalDamaged."""
    had = f"{path.with_name(FILE_NAME)} says that it held positions up to {reached.sequence}"
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise not_as_it_was(path, f"the journal {path} is missing; {had}") from None
    if not size:
        raise not_as_it_was(path, f"the journal {path} is empty (0 bytes); {had}")


def lost_since(
    reached: Reached, node_id: str | None, sequence: int, lines: int, queue_versions: Mapping[int, int]
) -> str:
    """The newest commits that a journal lacks, in words; empty: none that is known."""
    if node_id != reached.node_id:
        return f"is another node's: {node_id}; expected {reached.node_id}"
    if sequence < reached.sequence or lines < reached.lines:
        return (
            f"has lost its newest commits: it ends at position {sequence}, and had come to"
            f" {reached.sequence}; at delivery-log line {lines}, and had come to {reached.lines}"
        )
    if queue_versions.get(reached.queue_id, reached.queue_version) < reached.queue_version:
        return "has lost its newest commits: what readers have leased or acknowledged since then"
    return ""


def not_as_it_was(path: Path, detail: str) -> JournalDamaged:
    """The error about a journal that lacks what it had."""
    return JournalDamaged(f"{detail}: {ADVICE}", key="node.data-directory", found=str(path))


class IdentityFile:
    """The file of an open journal. Owned by the writer's thread."""

    def __init__(self, directory: Path) -> None:
        """Touches nothing."""
        self._path = directory / FILE_NAME
        self._map: mmap.mmap | None = None
        self._now: Reached | None = None
        self._number = 0

    def begin(self, reached: Reached) -> None:
        """Write how far the journal has come when it is opened; durable.

        On a full disk there may be no file: the next opening tries again.
        """
        self.close()
        with contextlib.suppress(OSError):
            is_new = not self._path.exists()
            path = self._path.with_suffix(".identity-new") if is_new else self._path
            descriptor = opener(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, 2 * reached.encode(0), 0)
                os.ftruncate(descriptor, FILE_BYTES)
                os.fsync(descriptor)
                if is_new:
                    path.rename(self._path)
                    _sync_directory(self._path.parent)
                self._map = mmap.mmap(descriptor, FILE_BYTES)
            finally:
                os.close(descriptor)
            self._now, self._number = reached, 0

    def reached(self, sequence: int, lines: int, queue: tuple[int, int] | None) -> None:
        """Write how far a commit has come.

        `queue`: one that it has written, with its version; None: it has written none.
        """
        now = self._now
        if now is None or self._map is None:
            return
        reached = Reached(now.node_id, sequence, lines, *(queue or now[3:]))
        if reached != now:
            self._number += 1
            at = self._number % 2 * LINE_BYTES
            self._map[at : at + LINE_BYTES] = reached.encode(self._number)
            self._now = reached

    def close(self) -> None:
        """Close the file."""
        mapped, self._map, self._now = self._map, None, None
        if mapped is not None:
            mapped.close()


def forget_reached(directory: Path) -> None:
    """Remove the file: the journal is accepted as it is, also where there is none."""
    (directory / FILE_NAME).unlink(missing_ok=True)
    _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
