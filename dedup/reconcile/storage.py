"""The storage of a report: a local directory, or any file system that Hadoop knows.

A local directory is read and written without Spark, so that a report can be verified without Java.
"""

from __future__ import annotations

import os
import shutil
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = "file"


class Storage(Protocol):
    """The operations that a report needs of a file system. Paths are absolute and qualified."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        ...

    def files(self, directory: str) -> list[str]:
        """Every file below a directory, relative to it, sorted; none where there is no such directory."""
        ...

    def read(self, path: str) -> bytes:
        """A whole file. Raises OSError, or Spark's error."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Make or replace a file."""
        ...

    def sha256(self, path: str) -> str:
        """A file's SHA-256 in hex."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a directory another name, which must be free. Raises OSError."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file or a directory with all that is in it; nothing where there is none."""
        ...

    def sync(self, directory: str) -> None:
        """Sync all files below a directory to the disk."""
        ...


class Local:
    """A local file system."""

    def exists(self, path: str) -> bool:
        """See `Storage`."""
        return Path(path).exists()

    def files(self, directory: str) -> list[str]:
        """See `Storage`."""
        root = Path(directory)
        return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir())

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        return Path(path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        """See `Storage`."""
        Path(path).write_bytes(data)

    def sha256(self, path: str) -> str:
        """See `Storage`."""
        with Path(path).open("rb") as file:
            return file_digest(file, "sha256").hexdigest()

    def rename(self, source: str, target: str) -> None:
        """See `Storage`."""
        Path(source).rename(target)
        self._sync(Path(target).parent)

    def delete(self, path: str) -> None:
        """See `Storage`."""
        if Path(path).is_dir():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    def sync(self, directory: str) -> None:
        """See `Storage`."""
        for path in (Path(directory), *Path(directory).rglob("*")):
            self._sync(path)

    @staticmethod
    def _sync(path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class Hadoop:
    """Any other file system, by Spark's own JVM: the jars and the rights that read the logs."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        #: The JVM's packages; nothing public leads there.
        self._jvm: Any = spark._jvm  # noqa: SLF001
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._system: Any = self._path(path).getFileSystem(configuration)

    def qualified(self, path: str) -> str:
        """The path with its scheme and authority."""
        return str(self._system.makeQualified(self._path(path)).toString())

    def exists(self, path: str) -> bool:
        """See `Storage`."""
        return bool(self._system.exists(self._path(path)))

    def files(self, directory: str) -> list[str]:
        """See `Storage`."""
        if not self.exists(directory):
            return []
        root = self.qualified(directory).rstrip("/") + "/"
        found, names = self._system.listFiles(self._path(directory), True), []
        while found.hasNext():
            names.append(self.qualified(found.next().getPath().toString()).removeprefix(root))
        return sorted(names)

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        stream = self._system.open(self._path(path))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        """See `Storage`."""
        stream = self._system.create(self._path(path), True)
        try:
            stream.write(data)
        finally:
            stream.close()

    def sha256(self, path: str) -> str:
        """See `Storage`."""
        stream = self._system.open(self._path(path))
        try:
            return str(self._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
        finally:
            stream.close()

    def rename(self, source: str, target: str) -> None:
        """See `Storage`."""
        if not self._system.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be renamed to {target}")

    def delete(self, path: str) -> None:
        """See `Storage`."""
        self._system.delete(self._path(path), True)

    def sync(self, directory: str) -> None:
        """Do nothing: such file systems vouch for closed files."""

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)


def place(path: str, spark: SparkSession | None = None) -> tuple[Storage, str]:
    """The storage that has `path`, and the path as that storage takes it.

    Args:
        path: with or without a scheme. Without one it is what the session's default file system says, and
            local where there is no session.
        spark: needed for everything that is not local.

    Raises:
        NeedsSpark: the path is not local and there is no session.
    """
    if spark is not None:
        hadoop = Hadoop(spark, path)
        path = hadoop.qualified(path)
        if urlsplit(path).scheme != _LOCAL:
            return hadoop, path
    found = local(path)
    if found is None:
        raise NeedsSpark(path)
    # A link is followed, not replaced.
    return Local(), str(found.resolve())


class NeedsSpark(Exception):
    """A path is on a file system that only Spark can read."""


def local(path: str) -> Path | None:
    """The path on this machine; None where it names another file system.

    Hadoop writes a local file as ``file:/a b`` or ``file:///a b``, a person as ``a b``.
    """
    scheme, separator, rest = path.partition(":")
    if not separator or "/" in scheme:
        return Path(path)
    return Path("/" + rest.lstrip("/")) if scheme == _LOCAL else None
