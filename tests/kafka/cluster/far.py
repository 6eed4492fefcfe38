"""A cluster of one broker that clients reach by a line of `tests.harness.lines`, or directly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bridge.demo.ports import HOST, free_ports
from tests.harness.lines import Line
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import Running

_FAR: Final = "FAR"


class Far(NamedTuple):
    """The cluster, and the port of the line to it."""

    #: Reached without the line.
    cluster: Cluster
    port: int

    def line(self, rate: float, *, delay_ms: float = 0.0, queue: int | None = None) -> Line:
        """A line to it, one at a time."""
        port = self.cluster.broker(1).ports[_FAR]
        return Line(port, rate=rate, delay_ms=delay_ms, queue=queue, port=self.port)

    @property
    def reached(self) -> Running:
        """The cluster over the line."""
        return Running(f"{HOST}:{self.port}")


@contextmanager
def far_cluster(directory: Path) -> Iterator[Far]:
    """A broker that runs, and tells who came by the line to come back by it."""
    (port,) = free_ports(1)
    with Cluster(
        name="far", directory=directory, listeners=(f"{_FAR}:PLAINTEXT",), advertised={_FAR: port}
    ) as cluster:
        yield Far(cluster, port)
