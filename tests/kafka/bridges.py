"""Settings of bridges with Kafka ends, and how far they are.

node = make_node("node-1", kafka_bridge({"a": a, "b": b}, "a-to-b", queue_name="orders")).start()
await_progress(clusters.a, "a-to-b", "orders")
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import confluent_kafka

from tests.harness.eventually import eventually
from tests.kafka.cluster.reachable import CALL_TIMEOUT_S, SILENT, Reachable

#: Longest that a bridge may take for what has no time of its own, brokers' restarts included, in seconds.
PATIENCE_S: Final = 60.0
#: What bridges of these tests have unless told otherwise: quick to try again.
QUICK: Final[Mapping[str, Any]] = {"retry-interval": 200, "max-retry-interval": 200}


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
