"""The two relays that are compared, as processes: core bridge and MirrorMaker 2."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.nodes import free_port

#: Of MirrorMaker 2's JVM, stated beside its figures.
HEAP = "1g"
#: Of the groups of both: they are held while a backlog is made.
SESSION_MS = 45_000


class Relay:
    """A process that relays `topic` from one cluster to another."""

    name = ""

    def __init__(self, directory: Path, command: list[str], target_topic: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        #: The topic's name at the target.
        self.target_topic = target_topic
        self._log = (directory / "log").open("wb")
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, cwd=directory)

    def cpu_seconds(self) -> float:
        """User and system time since the start, children included."""
        ticks = 0
        for pid in self._pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        """Most resident memory."""
        total = 0
        for pid in self._pids():
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        return total / 1024

    def _pids(self) -> list[int]:
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def pause(self) -> None:
        """Suspend it while a backlog is made."""
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def check(self) -> None:
        """End the run where the process has died."""
        if self._process.poll() is not None:
            raise SystemExit(f"{self.name} died with {self._process.returncode}: see {self._log.name}")

    def stop(self) -> None:
        """Stop it by SIGTERM, and wait."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


class CoreBridge(Relay):
    """Core bridge."""

    name = "core bridge"

    def __init__(
        self,
        directory: Path,
        source: str,
        target: str,
        topic: str,
        *,
        lanes: int,
        extra: str = "",
        exactly_once: bool = True,
    ) -> None:
        """Start it; `extra`: further settings."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = directory / "settings.toml"
        settings.write_text(
            f"""
[node]
name = "bench"
log-level = "warning"
{extra}
[connectors.eu]
url = "kafka://{source}"
[connectors.us]
url = "kafka://{target}"
[connectors.us.kafka]
session-timeout-ms = {SESSION_MS}
[[bridges]]
name = "bench-{time.time_ns()}"
source-connector = "eu"
queue-name = "{topic}"
static-connectors = ["us"]
concurrency = {lanes}
use-duplicate-detection = {str(exactly_once).lower()}
"""
        )
        super().__init__(
            directory, [sys.executable, "-m", "bridge", "run", "--settings", str(settings)], topic
        )


#: Exactly once, with 1 MB batches and a linger.
TUNED = """
us.exactly.once.source.support = enabled
eu.exactly.once.source.support = enabled
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:{port}
eu.consumer.fetch.max.bytes = 8388608
eu.consumer.max.partition.fetch.bytes = 1048576
eu.consumer.max.poll.records = 4000
us.producer.batch.size = 1048576
us.producer.linger.ms = {linger_ms}
us.producer.max.request.size = 4194304
us.producer.buffer.memory = 67108864
"""


class MirrorMaker(Relay):
    """MirrorMaker 2 of the same Kafka."""

    name = "MirrorMaker 2"

    def __init__(
        self, directory: Path, source: str, target: str, topic: str, *, jars: str, linger_ms: int | None = 20
    ) -> None:
        """Start it: exactly once with this linger, or as it comes, which is at least once, with None."""
        tuned = "" if linger_ms is None else TUNED.format(port=free_port(), linger_ms=linger_ms)
        directory.mkdir(parents=True, exist_ok=True)
        properties = directory / "mm2.properties"
        properties.write_text(
            f"""
clusters = eu, us
eu.bootstrap.servers = {source}
us.bootstrap.servers = {target}
eu->us.enabled = true
us->eu.enabled = false
eu->us.topics = {topic}
tasks.max = 4
session.timeout.ms = {SESSION_MS}
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
sync.topic.acls.enabled = false
eu.consumer.auto.offset.reset = earliest
{tuned}
"""
        )
        super().__init__(
            directory,
            [
                "java", f"-Xmx{HEAP}", "-Xms256m", "-XX:+UseG1GC",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                "-cp", jars, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties),
            ],
            f"eu.{topic}",
        )  # fmt: skip
