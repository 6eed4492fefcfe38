"""The demo's nodes: real processes with their own settings files, which can be killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bridge.client.node_client import Connection, NodeClient, Problem, Unreachable, address_path
from bridge.demo.ports import HOST
from bridge.errors import BridgeError

ADDRESS: Final = "orders"
QUEUE: Final = "reader"
BRIDGE: Final = "orders-to-hub"

#: Longest that a node may take to become ready, and to drain, in seconds.
READY_WITHIN_S: Final = 30.0
STOPPED_WITHIN_S: Final = 30.0
#: Pause between two checks of a node, in seconds.
LOOK_AGAIN_S: Final = 0.05
#: Lines of a node's log that are shown when it fails.
LOG_LINES_SHOWN: Final = 15

#: The sections that each node of a demo has.
NODE_SETTINGS: Final = """\
[node]
name = "{name}"
data-directory = "{name}-data"
log-format = "json"

[acceptor]
url = "ws://{host}:{port}"

[operations]
url = "http://{host}:{operations_port}"

[duplicate-detection]
id-cache-size = {id_cache_size}

"""

_SETTINGS: Final = (
    NODE_SETTINGS
    + """\
[addresses.{address}]
"""
)

_HUB: Final = """\
queues = ["{queue}"]
"""

_EDGE: Final = """\

[connectors.hub]
url = "ws://{host}:{link_port}"

[[bridges]]
name = "{bridge}"
queue-name = "{address}"
static-connectors = ["hub"]
retry-interval = 100
max-retry-interval = 500
"""


class DemoFailed(BridgeError):
    """The demo could not be completed; `log` is the end of the log of the node concerned."""

    def __init__(self, detail: str, log: str = "") -> None:
        super().__init__(detail)
        self.log = log

    code = "DEMO_FAILED"


@dataclass(slots=True)
class NodeProcess:
    """One node with any settings. `start`, then `kill` or `stop`, any number of times."""

    name: str
    directory: Path
    operations_port: int
    #: Times that it was killed.
    kills: int = 0
    #: Times that it was suspended.
    pauses: int = 0
    _process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    @property
    def operations(self) -> Connection:
        """The connection to its operations listener."""
        return Connection(f"http://{HOST}:{self.operations_port}")

    @property
    def settings(self) -> Path:
        """Its settings file."""
        return self.directory / f"{self.name}.toml"

    @property
    def log(self) -> Path:
        """The file of its stdout and stderr."""
        return self.directory / f"{self.name}.log"

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            DemoFailed: it ended, or was not ready in time; shows the end of its log.
        """
        # A session of its own: a terminal's Ctrl-C is for the demo, which then ends its nodes.
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bridge", "run", "--settings", str(self.settings)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        async with NodeClient(self.operations) as operations:
            try:
                async with asyncio.timeout(READY_WITHIN_S):
                    while not await self._is_ready(operations):  # noqa: ASYNC110 - of another process
                        await asyncio.sleep(LOOK_AGAIN_S)
            except TimeoutError:
                raise DemoFailed(
                    f"{self.name} is not ready after {READY_WITHIN_S:g} s", self.log_end()
                ) from None

    async def kill(self) -> None:
        """End the process by SIGKILL, as a power cut or the kernel's memory killer would."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
        self.kills += 1

    def pause(self) -> None:
        """Send SIGSTOP: the process is suspended without notice."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self.pauses += 1

    def resume(self) -> None:
        """Send SIGCONT: the process continues as if it had not been suspended."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> int | None:
        """Send SIGTERM; returns the exit code, None: it did not end in time and was killed."""
        if self._process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(STOPPED_WITHIN_S):
                return await self._process.wait()
        except TimeoutError:
            return None
        finally:
            self.kill_now()

    async def gone(self) -> None:
        """Wait for the end of a killed process: asyncio warns if the loop is closed before."""
        if self._process is not None:
            await self._process.wait()

    def kill_now(self) -> None:
        """Kill the process if it runs, without waiting: for failures and Ctrl-C."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def log_end(self) -> str:
        """The last lines of its log."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(f"{self.name}: {line}" for line in lines[-LOG_LINES_SHOWN:])

    async def _is_ready(self, operations: NodeClient) -> bool:
        assert self._process is not None
        if self._process.returncode is not None:
            code = self._process.returncode
            raise DemoFailed(f"{self.name} ended with exit code {code}", self.log_end())
        try:
            await operations.call("GET", "/ready")
        except (Problem, Unreachable):
            return False
        return True


@dataclass(slots=True)
class Node(NodeProcess):
    """A node of the demo between nodes: it takes messages."""

    port: int = field(kw_only=True)

    @property
    def connection(self) -> Connection:
        """The connection to its acceptor."""
        return Connection(f"http://{HOST}:{self.port}")

    def configure(self, *, id_cache_size: int, link_port: int | None = None) -> None:
        """Write the settings file; with `link_port` the node has a bridge to the server at that port."""
        template = _SETTINGS + (_HUB if link_port is None else _EDGE)
        text = template.format(
            name=self.name,
            host=HOST,
            port=self.port,
            operations_port=self.operations_port,
            id_cache_size=id_cache_size,
            address=ADDRESS,
            queue=QUEUE,
            bridge=BRIDGE,
            link_port=link_port,
        )
        self.settings.write_text(text, encoding="utf-8")


async def address_status(client: NodeClient) -> dict[str, Any]:
    """The node's status of the demo's address. Raises: Problem, Unreachable."""
    status: dict[str, Any] = (await client.call("GET", address_path(ADDRESS))).body
    return status


def queued(status: dict[str, Any]) -> int:
    """Number of messages that the bridge has still to deliver: at the edge nothing else keeps any."""
    messages: int = status["messages"]
    return messages
