"""Nodes with Kafka bridges as real processes: killed, stopped in their tracks, and crashed at named points.

    node = make_node("node-1", kafka_bridge({"a": a, "b": b}, "a-to-b", queue_name="orders"))
    node.start()
    node.kill()
    node.crash("kafka.before-commit")
    node.start()
    await_progress(clusters.a, "a-to-b", "orders")

What a node is besides (ports, log, HTTP, metrics) is in `tests.acceptance.nodes`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from tests.acceptance.nodes import LOOK_AGAIN_S, Node, eventually
from tests.kafka.reachable import CALL_TIMEOUT_S, SILENT, Reachable
from tests.kafka.watchdog import WATCHDOG

#: Longest that a bridge may take for what has no time of its own, brokers' restarts included, in seconds.
PATIENCE_S: Final = 60.0
#: What bridges of these tests have unless told otherwise: quick to try again.
QUICK: Final[Mapping[str, Any]] = {"retry-interval": 200, "max-retry-interval": 200}

__all__ = ["LOOK_AGAIN_S", "KafkaNode", "await_progress", "bridge_table", "connector_tables", "kafka_bridge"]


class KafkaNode(Node):
    """One node; workers of its own end with it."""

    def spawn(self, cwd: Path | None = None, **variables: str) -> subprocess.Popen[bytes]:
        """Start the process, wait for nothing; it ends with the test process."""
        process = super().spawn(cwd, **variables)
        WATCHDOG.watch(process.pid)
        return process

    def crash(self, point: str, times: int = 1, within_s: float = PATIENCE_S) -> None:
        """Run it until it reaches a crash point for the `times`-th time and dies there.

        The test must see to it that there is something to do.
        """
        self.spawn(CORE_BRIDGE_CRASH_AT=f"{point}:{times}")
        try:
            code = self.wait(within_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} did not reach {point} {times} times in {within_s:g} s"
            ) from None
        assert code == -signal.SIGKILL, f"{self.name} ended with {code} before it reached {point}"

    def pause(self) -> None:
        """SIGSTOP, to it and its workers: a zombie when `resume` wakes it. Returns when it has stopped."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def wait(self, within_s: float = PATIENCE_S) -> int:
        """The exit code, once it has ended."""
        assert self.process is not None
        pid = self.process.pid
        code = super().wait(within_s)
        WATCHDOG.forget(pid)
        return code

    def destroy(self) -> None:
        """Leave nothing running, workers included."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.wait()

    def status(self, bridge: str) -> dict[str, Any]:
        """What ``GET /v1/status`` says of a bridge."""
        bridges = self.ops.get("/v1/status").json["bridges"]
        found: dict[str, Any] = next(one for one in bridges if one["name"] == bridge)
        return found

    def await_failed(self, bridge: str, within_s: float = PATIENCE_S) -> str:
        """The reason, once the bridge is FAILED."""
        self.await_state(bridge, "FAILED", within_s)
        return str(self.status(bridge)["reason"])


def connector_tables(
    connectors: Mapping[str, Reachable | str], options: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """TOML of Kafka connectors, by name; `options` go to their `kafka` tables."""
    tables = []
    for name, cluster in connectors.items():
        brokers = cluster if isinstance(cluster, str) else cluster.bootstrap
        tables.append(f"[connectors.{name}]\n{_keys({'url': f'kafka://{brokers}'})}")
        if options and name in options:
            tables.append(f"[connectors.{name}.kafka]\n{_keys(options[name])}")
    return "\n".join(tables)


def bridge_table(name: str, **options: Any) -> str:
    """TOML of one bridge; an option is written ``queue_name``, its value as Python's."""
    given = {key.replace("_", "-"): value for key, value in options.items()}
    return f"[[bridges]]\n{_keys({'name': name, **QUICK, **given})}"


def kafka_bridge(
    connectors: Mapping[str, Reachable | str],
    name: str,
    *,
    queue_name: str | list[str],
    source: str = "a",
    target: str = "b",
    **options: Any,
) -> str:
    """TOML of connectors and one bridge between two of them."""
    ends = {"source_connector": source, "static_connectors": [target]}
    return connector_tables(connectors) + "\n" + bridge_table(name, queue_name=queue_name, **ends, **options)


def await_progress(
    source: Reachable, bridge: str, topic: str, *, group: str = "", within_s: float = PATIENCE_S
) -> None:
    """Return when the bridge has committed the end of every partition of a source topic.

    The end is the last stable offset: what an open transaction holds back is not waited for.

    Args:
        group: where progress is committed; default: that of a bridge between two clusters.
    """
    group = group or f"core-bridge.{bridge}.progress"
    # A consumer, not an admin client: librdkafka's admin client (2.x) follows a null pointer where the answer
    # is that the coordinator has moved, and ends the process.
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": source.bootstrap, "group.id": group, "enable.auto.commit": False},
        logger=SILENT,
    )

    def caught_up() -> bool:
        ends = source.offsets(topic, committed=True)
        committed = _committed(consumer, topic, ends)
        return all(end == 0 or committed.get(partition, -1) >= end for partition, end in ends.items())

    with contextlib.closing(consumer):
        eventually(caught_up, f"{group} is at the end of {topic}", within_s)


def _committed(consumer: Any, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """What the consumer's group has committed; below 0: nothing. It joins no group for that."""
    asked = [confluent_kafka.TopicPartition(topic, partition) for partition in partitions]
    try:
        found = consumer.committed(asked, timeout=CALL_TIMEOUT_S)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() in _COMING:
            return {}
        raise
    return {place.partition: place.offset for place in found}


#: Answers of a coordinator that is being moved or loaded.
_COMING: Final = (
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError._TIMED_OUT,
    confluent_kafka.KafkaError._WAIT_COORD,
)


def _keys(values: Mapping[str, Any]) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
