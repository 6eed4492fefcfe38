"""What makes a broker start in 1.2 s instead of 3: a formatted directory to copy, and an AppCDS archive.

Formatting takes Kafka's own tool a second, and what it writes differs between clusters in three lines of
`meta.properties`. Most of a broker's start is loading classes, which the archive spares
(``-XX:ArchiveClassesAtExit``, JEP 350). Both are made once for each Java, beside the jars.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tempfile
import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from bridge.demo.ports import free_ports
from tests.kafka.cluster.distribution import Distribution, distribution, locked
from tests.kafka.cluster.waiting import BrokerFailed, await_line, tail

#: Quick to start rather than quickest at its best: the first compiler only, one collector thread.
QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
#: What a broker logs when it serves.
STARTED: Final = "Kafka Server started"
#: Formatting on a machine under load, in seconds.
FORMAT_TIMEOUT_S: Final = 60
#: Start and clean end of the broker whose classes are recorded, in seconds.
RECORD_TIMEOUT_S: Final = 120
_CHECKPOINT: Final = "bootstrap.checkpoint"


@dataclass(frozen=True)
class Prepared:
    """Kafka, ready to start brokers from."""

    kafka: Distribution
    directory: Path

    def command(self, properties: Path, *, heap: str, jvm: tuple[str, ...]) -> list[str]:
        """The command line of a broker."""
        archive = (
            f"-XX:SharedArchiveFile={self.directory / 'kafka.jsa'}",
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
        )
        memory = (f"-Xmx{heap}", "-XX:+ExitOnOutOfMemoryError")
        return self.kafka.command("kafka.Kafka", str(properties), jvm=(*archive, *memory, *jvm, *_LOGGING))

    def format(self, data: Path, cluster: str, node: int) -> None:
        """Make `data` the empty store of one broker, as ``StorageTool format`` does."""
        data.mkdir(parents=True)
        shutil.copy(self.directory / _CHECKPOINT, data / _CHECKPOINT)
        (data / "meta.properties").write_text(
            f"version=1\ncluster.id={cluster}\nnode.id={node}\ndirectory.id={new_id()}\n", encoding="utf-8"
        )


_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


def new_id() -> str:
    """A new UUID as Kafka writes them: 22 characters of base64url, never with a dash in front."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


@cache
def prepared() -> Prepared:
    """Kafka with all that a quick start needs; made now where it is missing.

    Raises:
        Missing: what a broker needs is not on this machine.
    """
    kafka = distribution()
    # Another Java refuses the archive of this one, and another list of jars needs another.
    key = hashlib.sha256((kafka.java_version + kafka.class_path).encode()).hexdigest()[:12]
    directory = kafka.directory / f"prepared-{key}"
    with locked(kafka.directory):
        if not directory.is_dir():
            _prepare(kafka, directory)
    return Prepared(kafka, directory)


def _prepare(kafka: Distribution, directory: Path) -> None:
    """Format a store, run a broker on it once, and keep what both left."""
    with tempfile.TemporaryDirectory(dir=kafka.directory, prefix="preparing-") as temporary:
        place = Path(temporary)
        port, controller = free_ports(2)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(place / "data"),
        }
        properties = place / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        tool = kafka.command(
            "kafka.tools.StorageTool", "format", "-t", new_id(), "-c", str(properties), jvm=QUICK_START
        )
        formatted = subprocess.run(
            tool, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S, check=False
        )
        if formatted.returncode:
            raise BrokerFailed(
                f"Kafka's storage could not be formatted:\n{formatted.stdout}{formatted.stderr}"
            )
        made = place / "made"
        made.mkdir()
        shutil.copy(place / "data" / _CHECKPOINT, made / _CHECKPOINT)
        _record_classes(kafka, properties, made / "kafka.jsa")
        made.rename(directory)


def _record_classes(kafka: Distribution, properties: Path, archive: Path) -> None:
    """Start a broker and end it, which writes the archive."""
    jvm = (f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:disable", *QUICK_START)
    log = properties.with_name("broker.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            kafka.command("kafka.Kafka", str(properties), jvm=jvm), stdout=output, stderr=output
        )
    try:
        await_line(log, STARTED, process)
        process.terminate()
        process.wait(RECORD_TIMEOUT_S)
    finally:
        process.kill()
        process.wait()
    if not archive.is_file():
        raise BrokerFailed(f"no archive of Kafka's classes was written:\n{tail(log)}")
