"""Apache Kafka from Maven Central: fetched once, checked against a pinned list, kept outside the tree.

``~/.cache/core-bridge/kafka-4.3.0/libs`` (or under ``$XDG_CACHE_HOME``) holds the jars.
`python -m tests.kafka.cluster.distribution fetch` fetches them now; `pin` writes the list anew after
a change of version.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VERSION: Final = "4.3.0"
OLDEST_JAVA: Final = 17
HERE: Final = Path(__file__).parent
#: One line a jar: SHA-256, bytes, name.
PINNED: Final = HERE / "jars.txt"
#: A cold fetch of 55 MB over a slow line, in seconds.
FETCH_TIMEOUT_S: Final = 600
#: ``java -version`` on a machine under load, in seconds.
ASK_TIMEOUT_S: Final = 60


class Missing(RuntimeError):
    """What the machine lacks for a broker, and how to get it."""


@dataclass(frozen=True)
class Jar:
    sha256: str
    bytes: int
    name: str


@dataclass(frozen=True)
class Distribution:
    """Jars that are there and whole, and a Java to run them."""

    directory: Path
    java: str
    #: What ``java -version`` says: which Java this is, to the build.
    java_version: str

    @property
    def class_path(self) -> str:
        """Every jar by name, always in the same order: an AppCDS archive holds for one class path only."""
        return ":".join(str(self.directory / "libs" / jar.name) for jar in pinned())

    def command(self, main: str, *arguments: str, jvm: tuple[str, ...] = ()) -> list[str]:
        """The command line of one of Kafka's classes."""
        return [self.java, *jvm, "-cp", self.class_path, main, *arguments]


def cache() -> Path:
    """Where things are kept that can be had again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "core-bridge"


def distribution() -> Distribution:
    """Kafka, fetched now if it is not there yet.

    Raises:
        Missing: no Java, an old one, no Maven, or no network; says which, and the package.
    """
    java, version = find_java()
    directory = cache() / f"kafka-{VERSION}"
    with locked(directory):
        libs = directory / "libs"
        if not is_whole(libs):
            fetch(libs)
    return Distribution(directory, java, version)


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock against other processes; ends with the process, however that ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pinned() -> list[Jar]:
    """The jars that belong to this version."""
    lines = (line.split() for line in PINNED.read_text(encoding="utf-8").splitlines() if line[:1] != "#")
    return [Jar(sha256, int(size), name) for sha256, size, name in lines]


def find_java() -> tuple[str, str]:
    """A Java that is new enough, and its version. ``$JAVA_HOME`` goes before the path."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = (
        f"Debian 12 and Ubuntu: apt install openjdk-{OLDEST_JAVA}-jre-headless; later: default-jre-headless"
    )
    if java is None or not Path(java).is_file():
        raise Missing(f"a Kafka broker needs Java {OLDEST_JAVA} or newer; found {java or 'none'} ({hint})")
    asked = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
    )
    found = re.search(r'version "(\d+)', asked.stderr)
    if found is None or int(found[1]) < OLDEST_JAVA:
        said = asked.stderr.strip().splitlines()[:1]
        raise Missing(f"a Kafka broker needs Java {OLDEST_JAVA} or newer; found {java}: {said} ({hint})")
    return java, asked.stderr


def is_whole(libs: Path) -> bool:
    """Whether every jar is there with its size; the contents were checked when it was fetched."""
    with contextlib.suppress(FileNotFoundError):
        return all((libs / jar.name).stat().st_size == jar.bytes for jar in pinned())
    return False


def fetch(libs: Path) -> None:
    """Fetch, check, and only then put in place. Call it under the lock."""
    sys.stderr.write(f"fetching Kafka {VERSION} from Maven Central into {libs}\n")
    with tempfile.TemporaryDirectory(dir=libs.parent, prefix="fetching-") as temporary:
        fetched = Path(temporary) / "libs"
        copy_dependencies(fetched)
        for jar in pinned():
            check(fetched / jar.name, jar)
        if libs.exists():
            shutil.rmtree(libs)
        fetched.rename(libs)


def copy_dependencies(into: Path) -> None:
    """Have Maven bring the jars."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("Kafka is fetched by Maven, which is not there (Debian and Ubuntu: apt install maven)")
    command = [maven, "-q", "-B", "-f", str(HERE / "pom.xml"), "dependency:copy-dependencies"]
    try:
        ran = subprocess.run(
            [*command, f"-DoutputDirectory={into}", "-DincludeScope=runtime"],
            capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise Missing(f"Maven did not bring Kafka {VERSION} within {FETCH_TIMEOUT_S} s: {command}") from late
    if ran.returncode:
        raise Missing(
            f"Maven could not bring Kafka {VERSION}: {command}\n{(ran.stdout + ran.stderr)[-2000:]}"
        )


def check(path: Path, jar: Jar) -> None:
    """Refuse a jar that is not the one that was pinned."""
    if not path.is_file():
        raise Missing(f"Maven brought no {jar.name}: {PINNED.name} and pom.xml do not agree")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != jar.sha256:
        raise Missing(f"{jar.name} must have SHA-256 {jar.sha256}; found {found}")


def pin() -> None:
    """Write the list of jars anew from what Maven brings for the pom."""
    with tempfile.TemporaryDirectory() as temporary:
        libs = Path(temporary) / "libs"
        copy_dependencies(libs)
        lines = [
            f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_size} {path.name}\n"
            for path in sorted(libs.glob("*.jar"))
        ]
    head = f"# Kafka {VERSION} and all that it needs: SHA-256, bytes, name. Written by distribution.py pin.\n"
    PINNED.write_text(head + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["pin"]:
            pin()
        case ["fetch"]:
            distribution()
        case _:
            raise SystemExit("usage: python -m tests.kafka.cluster.distribution fetch|pin")
