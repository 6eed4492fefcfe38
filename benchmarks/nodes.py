"""Nodes of the tests' harness as a benchmark wants them, and their costs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from bridge.demo.ports import free_ports
from tests.harness import node as harness
from tests.harness.api import HOST
from tests.harness.commands import PROGRAM

#: A node with a full queue or backlog may take this long to end, in seconds.
ENDS_WITHIN_S: Final = 300.0


def free_port() -> int:
    """A port without a listener now."""
    return free_ports(1)[0]


@dataclass
class Node(harness.Node):
    """One node with an address `orders`: with a bridge to the hub at `hub_port`, or with a queue `q`."""

    hub_port: int | None = None
    #: Further TOML.
    extra: str = ""
    #: Started as users start it: a fork pays for each page of its parent's that it writes to.
    program: Sequence[str] | None = PROGRAM
    ends_within_s: float = ENDS_WITHIN_S
    ready_seconds: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.directory = self.directory.resolve()
        self.node = 'log-level = "warning"'
        self.rest = '[address-settings."#"]\nmax-size-bytes = "8GiB"\n[addresses.orders]\n'
        if self.hub_port is None:
            self.rest += 'queues = ["q"]\n'
        else:
            self.rest += (
                f'[connectors.hub]\nurl = "ws://{HOST}:{self.hub_port}"\n'
                '[[bridges]]\nname = "to-hub"\nqueue-name = "orders"\nstatic-connectors = ["hub"]\n'
                "retry-interval = 50\nmax-retry-interval = 50\n"
            )
        self.rest += self.extra

    def start(self, cwd: Path | None = None, **variables: str) -> Self:
        """Start it, and wait until /ready says so."""
        self.directory.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        super().start(cwd, **variables)
        self.ready_seconds = time.perf_counter() - began
        return self

    def bridge(self) -> dict[str, Any]:
        """The status of the node's one bridge."""
        (status,) = self.ops.get("/v1/status").json["bridges"]
        return dict(status)

    def rss_mib(self) -> float:
        """Resident memory now."""
        return self._status("VmRSS")

    def peak_mib(self) -> float:
        """Most resident memory so far."""
        return self._status("VmHWM")

    def cpu_seconds(self) -> float:
        """User and system time since the start."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, key: str) -> float:
        assert self.process is not None
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) / 1024
        raise KeyError(key)


@contextlib.contextmanager
def running(*nodes: Node) -> Iterator[None]:
    """The nodes are started on entry and stopped on exit."""
    try:
        for node in nodes:
            node.start()
        yield
    finally:
        for node in nodes:
            if node.process is not None:
                node.stop()
