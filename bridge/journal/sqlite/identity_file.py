"""The file beside the journal that says how far the journal had come: `journal.identity`.

SQLite takes an empty file for a new database, and a database whose write-ahead log is gone or cut short for
a whole one. This file says that there was a journal, and how far it had come. It is written after each commit
and not synced: after a loss of power it may say less than the journal has, never more.
"""

from __future__ import annotations

import contextlib
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

    def encode(self) -> bytes:
        """The file's one line; always of the same length, so that it is written in place."""
        text = b"%b %b %020d %020d %020d %020d " % (_FORM.encode(), self.node_id.encode(), *self[1:])
        return b"%b%08x\n" % (text, zlib.crc32(text))


def read_reached(directory: Path) -> Reached | None:
    """The content of the file in `directory`; None: there is none. Raises: JournalDamaged: unreadable."""
    path = directory / FILE_NAME
    try:
        line = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalDamaged(
            f"{path} cannot be read ({error.strerror}): {ADVICE}", found=str(path)
        ) from error
    with contextlib.suppress(ValueError, TypeError):
        node_id, *numbers, _ = line.decode("ascii").removeprefix(_FORM).split()
        reached = Reached(node_id, *map(int, numbers))
        if reached.encode() == line:
            return reached
    raise JournalDamaged(f"{path} is damaged: {ADVICE}", key="node.data-directory", found=str(path))


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
        self._descriptor: int | None = None
        self._now: Reached | None = None

    def begin(self, reached: Reached) -> None:
        """Write how far the journal has come when it is opened; durable.

        On a full disk there may be no file: the next opening tries again.
        """
        with contextlib.suppress(OSError):
            if self._descriptor is None:
                self._open(reached)
            self._write(reached, sync=True)

    def _open(self, reached: Reached) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            made = self._path.with_suffix(".identity-new")
            descriptor = opener(str(made), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, reached.encode(), 0)
                os.fsync(descriptor)
                made.rename(self._path)
            except OSError:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
            _sync_directory(self._path.parent)

    def reached(self, sequence: int, lines: int, queue: tuple[int, int] | None) -> None:
        """Write how far a commit has come.

        `queue`: one that it has written, with its version; None: it has written none.
        """
        now = self._now
        if now is None:
            return
        reached = Reached(now.node_id, sequence, lines, *(queue or now[3:]))
        if reached != now:
            with contextlib.suppress(OSError):  # then the file says less than the journal has
                self._write(reached, sync=False)

    def _write(self, reached: Reached, *, sync: bool) -> None:
        if self._descriptor is None:
            return
        os.pwrite(self._descriptor, reached.encode(), 0)
        self._now = reached
        if sync:
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor, self._now = self._descriptor, None, None
        if descriptor is not None:
            os.close(descriptor)


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
