"""Real nodes as processes, and their costs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.demo.ports import free_ports


def free_port() -> int:
    """A port without a listener now."""
    return free_ports(1)[0]


@dataclass
class Node:
    """One node; `start` returns when /ready says so."""

    directory: Path
    name: str
    hub_port: int | None = None
    port: int = field(default_factory=free_port)
    operations: int = field(default_factory=free_port)
    extra: str = ""
    process: subprocess.Popen[bytes] | None = None
    ready_seconds: float = 0.0

    def start(self) -> Node:
        """Write the settings, start the node, wait for /ready."""
        self.directory.mkdir(parents=True, exist_ok=True)
        bridge = ""
        if self.hub_port is not None:
            bridge = (
                f'[connectors.hub]\nurl = "ws://127.0.0.1:{self.hub_port}"\n'
                '[[bridges]]\nname = "to-hub"\nqueue-name = "orders"\n'
                'static-connectors = ["hub"]\n'
                "retry-interval = 50\nmax-retry-interval = 50\n"
            )
        queues = "" if self.hub_port is not None else 'queues = ["q"]'
        (self.directory / "settings.toml").write_text(
            f'[node]\nname = "{self.name}"\nlog-level = "warning"\n'
            f'[acceptor]\nurl = "ws://127.0.0.1:{self.port}"\n'
            f'[operations]\nurl = "http://127.0.0.1:{self.operations}"\n'
            f'[address-settings."#"]\nmax-size-bytes = "8GiB"\n'
            f"[addresses.orders]\n{queues}\n{bridge}\n{self.extra}"
        )
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bridge", "run", "--settings", str(self.directory / "settings.toml")]
        )
        while True:
            with contextlib.suppress(OSError):
                if self.operations_json("/ready")["ready"]:
                    break
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} died with {self.process.returncode}")
            time.sleep(0.005)
        self.ready_seconds = time.perf_counter() - began
        return self

    def stop(self) -> None:
        """Stop the node by SIGTERM, and wait."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait()

    def operations_json(self, path: str) -> dict[str, Any]:
        """A GET on the operations port."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.operations}{path}", timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def bridge(self) -> dict[str, Any]:
        """The status of the node's one bridge."""
        status: dict[str, Any] = self.operations_json("/v1/status")["bridges"][0]
        return status

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
            node.stop()
