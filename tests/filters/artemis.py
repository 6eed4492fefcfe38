"""Artemis from Maven Central, for Java programs of the tests; its own `FilterImpl`, asked from here.

The jars are fetched once, checked against a pinned list and kept outside the tree, in
``~/.cache/core-bridge/artemis-2.44.0`` (or under ``$XDG_CACHE_HOME``).
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.kafka.cluster.distribution import FETCH_TIMEOUT_S, Missing, cache, find_java, locked

VERSION: Final = "2.44.0"
HERE: Final = Path(__file__).parent
#: One line a jar: SHA-256, bytes, name.
PINNED: Final = HERE / "jars.txt"
PROGRAM: Final = HERE / "Oracle.java"
#: Longest time for a hundred thousand questions, in seconds.
ASK_TIMEOUT_S: Final = 600


def libraries() -> Path:
    """The directory of the jars, fetched now if they are not there yet.

    Raises:
        Missing: no Maven or no network, or a jar that is not the pinned one.
    """
    directory = cache() / f"artemis-{VERSION}"
    with locked(directory):
        libs = directory / "libs"
        if not libs.is_dir():
            with tempfile.TemporaryDirectory(dir=directory) as temporary:
                fetched = Path(temporary) / "libs"
                _fetch(fetched)
                fetched.rename(libs)
    return libs


def copy_dependencies(pom: Path, into: Path, *options: str) -> None:
    """Let Maven copy the jars that a pom names into a directory. Raises: Missing: no Maven, or no network."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Missing("Maven, which fetches Artemis, is not there (Debian and Ubuntu: apt install maven)")
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    ran = subprocess.run(
        [*command, f"-DoutputDirectory={into}", *options],
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if ran.returncode:
        raise Missing(f"Maven could not bring Artemis {VERSION}: {(ran.stdout + ran.stderr)[-2000:]}")


def _fetch(into: Path) -> None:
    copy_dependencies(HERE / "pom.xml", into, "-DincludeScope=runtime")
    pinned = [line.split() for line in PINNED.read_text("utf-8").splitlines() if line[:1] != "#"]
    for sha256, _size, name in pinned:
        found = hashlib.sha256((into / name).read_bytes()).hexdigest() if (into / name).is_file() else "none"
        if found != sha256:
            raise Missing(f"{name} must have SHA-256 {sha256}; found {found}")


def compiled(program: Path, directory: Path) -> list[str]:
    """Compile a Java program, and the classes beside it that it uses, against Artemis into `directory`; the
    command that runs it.

    Raises:
        Missing: no Java or no Artemis, or the program does not compile.
    """
    java, _ = find_java()
    compiler = shutil.which("javac")
    if compiler is None:
        raise Missing("a Java compiler is needed (Debian and Ubuntu: apt install default-jdk-headless)")
    class_path = f"{libraries()}/*"
    ran = subprocess.run(
        [compiler, "-cp", class_path, "-sourcepath", str(program.parent), "-d", str(directory), str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise Missing(f"{program.name} does not compile: {ran.stdout}{ran.stderr}")
    return [java, "-cp", f"{class_path}:{directory}", program.stem]


class Artemis:
    """Answers what Artemis's filter says. The program is compiled into `directory`."""

    def __init__(self, directory: Path) -> None:
        self._command = compiled(PROGRAM, directory)

    def answers(self, questions: Iterable[dict[str, Any]]) -> list[list[bool] | str]:
        """For each question (``filter`` and ``messages``) the results, or why the condition is refused."""
        lines = [json.dumps(_written(question)) for question in questions]
        ran = subprocess.run(
            self._command,
            input="\n".join([*lines, ""]).encode(),
            capture_output=True,
            timeout=ASK_TIMEOUT_S,
            check=True,
        )
        read: list[Sequence[Any]] = [json.loads(line) for line in ran.stdout.decode().splitlines()]
        assert len(read) == len(lines), ran.stderr.decode()[-2000:]
        return [str(answer[1]) if answer[:1] == ["error"] else list(answer) for answer in read]


def _written(question: dict[str, Any]) -> dict[str, Any]:
    """A question with typed values as texts: JSON of Java's has no -0.0."""
    messages = [
        {
            **message,
            "properties": {
                name: str(value) if name in message["types"] else value
                for name, value in message["properties"].items()
            },
        }
        for message in question["messages"]
    ]
    return {**question, "messages": messages}
