"""The files of the delivery logs: found, hashed and named, at any path that Hadoop can read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dedup.reconcile import storage
from dedup.reconcile.errors import BadInput
from dedup.reconcile.log_names import COMPRESSED, ENDINGS, OPEN, is_like_a_log, place_in_log

#: The errors that a call into Java can raise.
FAILURES: Final = (Py4JJavaError, PySparkException)
#: Bytes that are hashed at a time.
_PART: Final = 1 << 20
_GLOB: Final = re.compile(r"[{}\[\]*?\\]")


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file, as of the time when it was found."""

    #: As Hadoop writes it, with a scheme where it has one: ``file:/logs/eu-20261121T185800-000001.jsonl``.
    path: str
    #: Bytes when it was found. What is appended later is not looked at.
    size: int
    #: When it was written last, as its file system says, ms since the epoch.
    modified_ms: int = 0

    @property
    def shown(self) -> str:
        """The path for a person: local files without their scheme."""
        return re.sub(r"^file:/+", "/", self.path)

    @property
    def is_open(self) -> bool:
        """Whether its node was still writing it: its last line may be torn."""
        return self.path.endswith(OPEN)

    @property
    def node(self) -> str:
        """The node that wrote it; the whole path where it is not named as the contract says."""
        place = place_in_log(self.path)
        return place[0] if place is not None else self.path

    @property
    def number(self) -> int:
        """Its number in its log; 0 where its name has none."""
        place = place_in_log(self.path)
        return place[1] if place is not None else 0

    @property
    def is_compressed(self) -> bool:
        """Whether it was compressed since its node completed it."""
        return self.path.endswith(COMPRESSED)

    @property
    def escaped(self) -> str:
        """The path, escaped so that Spark does not take brackets in names for patterns."""
        return _GLOB.sub(r"\\\g<0>", self.path)


@dataclass(frozen=True, slots=True)
class Found:
    """The files at some paths, in order of their paths."""

    files: list[LogFile]
    #: Paths, as a person is shown them, of files that look like a log's and have an ending that is not read.
    left_out: list[str]


def find(spark: SparkSession, paths: Sequence[str], *, may_be_empty: bool = False) -> Found:
    """Every log file at the paths, each once.

    Args:
        spark: whose file systems are asked.
        paths: files, directories (with all below them), or patterns that Hadoop knows.
        may_be_empty: whether no log file is an answer too.

    Raises:
        BadInput: a path is not there or cannot be read, or there is no log file at all.
    """
    found: dict[str, LogFile] = {}
    for path in paths:
        try:
            found.update((file.path, file) for file in _below(spark, path))
        except FAILURES as error:
            raise BadInput(f"{path}: cannot be read: {reason(error)}") from error
    taken = [found[path] for path in sorted(found) if path.endswith(ENDINGS)]
    left_out = [found[path].shown for path in sorted(found) if not path.endswith(ENDINGS)]
    if not taken and not may_be_empty:
        places = ", ".join(paths) or "no directory was given"
        others = f"; {left_out[0]} has an ending that is not read" if left_out else ""
        raise BadInput(f"no delivery log (*{', *'.join(ENDINGS)}) in {places}{others}")
    return Found(taken, left_out)


def bytes_here(paths: Sequence[str]) -> int | None:
    """The size of the log files at the paths; None where one is a pattern, or may be on no local disk."""
    size = 0
    for place in map(storage.local, paths):
        if place is None or not place.exists():
            return None
        found = place.rglob("*") if place.is_dir() else (place,)
        size += sum(path.stat().st_size for path in found if path.name.endswith(ENDINGS))
    return size


def sha256(spark: SparkSession, file: LogFile, size: int) -> str:
    """The hash of the file's first `size` bytes, in hexadecimal. Read as a stream, a local one without Java.

    Raises:
        FileNotFoundError: it has another name by now, because its node has completed it, or it is gone.
        BadInput: it cannot be read.
    """
    here = storage.local(file.path)
    if here is not None:
        return _sha256_here(here, size)
    jvm = java(spark)
    path = jvm.org.apache.hadoop.fs.Path(file.path)
    try:
        whole = path.getFileSystem(_configuration(spark)).open(path)
        try:
            part = jvm.org.apache.commons.io.input.BoundedInputStream(whole, size)
            return str(jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(part))
        finally:
            whole.close()
    except FAILURES as error:
        if is_missing(error):
            raise FileNotFoundError(file.shown) from error
        raise BadInput(f"{file.shown}: cannot be read: {reason(error)}") from error


def _sha256_here(path: Path, size: int) -> str:
    """The SHA-256 of a local file's first `size` bytes. Raises: FileNotFoundError, BadInput."""
    found = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while size > 0 and (part := file.read(min(size, _PART))):
                found.update(part)
                size -= len(part)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
    return found.hexdigest()


def from_uri(spark: SparkSession, uri: str) -> str:
    """The path behind Spark's ``_metadata.file_path``, as `LogFile.path` has it."""
    jvm = java(spark)
    return str(jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(uri)).toString())


@contextmanager
def missing_told() -> Iterator[None]:
    """Turns Spark's errors about a file that was removed into one kind of error.

    Raises:
        FileNotFoundError: a file that was found is not there any more. BadInput: one is damaged.
    """
    try:
        yield
    except FAILURES as error:
        if is_missing(error):
            raise FileNotFoundError(reason(error)) from error
        if (path := damaged(error)) is not None:
            raise BadInput(
                f"{path}: cannot be decompressed: it is damaged, or not all of it is there"
            ) from error
        raise


def damaged(error: Exception) -> str | None:
    """The path of the file that could not be decompressed; None: Java says something else."""
    found = re.search(r"FAILED_READ_FILE.*? while reading file (\S+?)\.\s", str(error), re.DOTALL)
    return re.sub(r"^file:/+", "/", found[1]) if found and found[1].endswith(COMPRESSED) else None


def is_missing(error: Exception) -> bool:
    """Whether Java says that a file is not there."""
    signs = ("FileNotFoundException", "FILE_NOT_EXIST", "PATH_NOT_FOUND")
    return any(sign in str(error) for sign in signs)


def reason(error: Exception) -> str:
    """Java's error in one line: its last cause, without the stack."""
    for line in str(error).splitlines():
        match = re.match(r"(?:: )?(?:Caused by: )?[\w.$]*?(\w+(?:Exception|Error)): (.+)", line)
        if match is not None:
            return f"{match[2]} ({match[1]})"
    return (str(error).splitlines() or [type(error).__name__])[0]


def java(spark: SparkSession) -> Any:
    """The classes of Spark's Java process."""
    return spark._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop's file systems


def _below(spark: SparkSession, place: str) -> Iterator[LogFile]:
    configuration = _configuration(spark)
    path = java(spark).org.apache.hadoop.fs.Path(place)
    system = path.getFileSystem(configuration)
    matches = [path] if system.exists(path) else [one.getPath() for one in system.globStatus(path) or ()]
    if not matches:
        raise BadInput(f"{place}: no such file or directory")
    for match in matches:
        yield from _listed(system, match)


def _listed(system: Any, place: Any) -> Iterator[LogFile]:
    """What looks like a log file at or below a path. `listFiles` starts a process for the rights of each
    local file."""
    for status in system.listStatus(place):
        if status.isDirectory():
            yield from _listed(system, status.getPath())
        elif is_like_a_log(str(status.getPath().getName())):
            path, size = str(status.getPath().toString()), int(status.getLen())
            yield LogFile(path, size, int(status.getModificationTime()))


def _configuration(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
