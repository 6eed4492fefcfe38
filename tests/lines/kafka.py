"""The same rows from a node to Kafka: a broker whose clients reach it by a line."""

from __future__ import annotations

import hashlib
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import confluent_kafka

from bridge.demo.ports import HOST, free_ports
from tests.harness.node import made_nodes
from tests.kafka.bridges import connector_tables
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import SILENT
from tests.lines.rows import ROOM, Measured, Row, fill, relay

_ISOLATION: Final = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
_BRIDGE: Final = (
    '[[bridges]]\nname = "{topic}-to-kafka"\nqueue-name = "{topic}"\nstatic-connectors = ["far"]\n'
    "retry-interval = 200\nmax-retry-interval = 200\n"
)


@dataclass(slots=True)
class Topic:
    """A topic as the target of a row. It is read beside the line."""

    cluster: Cluster
    port: int
    name: str
    _consumer: Any = field(init=False)
    _digests: list[bytes] = field(default_factory=list)

    def __enter__(self) -> Self:
        options = {"bootstrap.servers": self.cluster.bootstrap, "group.id": self.name, **_ISOLATION}
        self._consumer = confluent_kafka.Consumer(options, logger=SILENT)
        self._consumer.assign([confluent_kafka.TopicPartition(self.name, 0, 0)])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def stored(self) -> int:
        while found := self._consumer.consume(1000, timeout=0.05):
            for record in found:
                assert record.error() is None, record.error()
                self._digests.append(hashlib.sha256(record.value()).digest())
        return len(self._digests)

    def digests(self) -> list[bytes]:
        return self._digests

    @property
    def most_resident(self) -> int:
        return 0


class FarCluster:
    """One broker with so many listeners, each of which one row at a time has behind its line."""

    def __init__(self, directory: Path, listeners: int = 1) -> None:
        ports = free_ports(listeners)
        self._free: queue.Queue[tuple[str, int]] = queue.Queue()
        for number, port in enumerate(ports):
            self._free.put((f"FAR{number}", port))
        self._cluster = Cluster(
            name="far",
            directory=directory,
            listeners=[f"FAR{number}:PLAINTEXT" for number in range(listeners)],
            advertised={f"FAR{number}": port for number, port in enumerate(ports)},
        )
        self._topics = 0

    @contextmanager
    def running(self) -> Iterator[Self]:
        with self._cluster:
            yield self

    def run(self, row: Row, directory: Path) -> Measured:
        """Run a row to a topic of its own."""
        listener, port = self._free.get()
        self._topics += 1
        topic = f"orders-{self._topics}"
        try:
            self._cluster.create_topic(topic)
            far = self._cluster.broker(1).ports[listener]
            tables = ROOM + connector_tables({"far": f"{HOST}:{port}"}) + "\n" + _BRIDGE.format(topic=topic)
            with made_nodes(directory) as make_node, Topic(self._cluster, far, topic) as target:
                edge = make_node("edge", tables).start_listening()
                fill(edge, row.traffic, topic)
                return relay(row, edge, target, port, topic)
        finally:
            self._free.put((listener, port))
