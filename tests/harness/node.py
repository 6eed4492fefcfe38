"""Nodes as real processes: settings, ports, HTTP, logs, metrics; started, stopped, killed, paused, crashed.

    node = make_node("node-1", rest=bridge_to(hub)).start()
    node.kill()
    node.crash("source.before-settle")
    node.start()

Nothing of the product is imported but the choice of ports.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from bridge.demo.ports import free_ports
from tests.harness.api import HOST, Api
from tests.harness.commands import Ended, Process, command, environment, started
from tests.harness.eventually import PATIENCE_S, eventually
from tests.harness.forked import Streams
from tests.harness.watchdog import WATCHDOG

#: "Bridge state after a peer comes or goes: retry-interval + 2 s", with the retry-interval used here.
RETRY_INTERVAL_MS: Final = 200
STATE_WITHIN_S: Final = RETRY_INTERVAL_MS / 1000 + 2
#: Longest until a bridge is FAILED, brokers' restarts included.
FAILED_WITHIN_S: Final = 60.0

#: The program without Python's collector of reference cycles: what is in one stays for good.
UNCOLLECTED: Final = (
    *(sys.executable, "-c"),
    "import gc, sys; gc.disable(); from bridge.__main__ import main; sys.exit(main())",
)  # fmt: skip


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that is being written: of the last one there may be a part (up to a page's end)."""
    return path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()


@dataclass
class Node:
    """One node; `start`, then `stop` or `kill`, as often as you like. It ends with the test process."""

    name: str
    directory: Path
    #: TOML beneath the tables that every node here has.
    rest: str = ""
    #: Further keys of [node], [acceptor] and [operations].
    node: str = ""
    acceptor: str = ""
    operations: str = ""
    scheme: str = "ws"
    tls: ssl.SSLContext | None = None
    token: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    #: A program to start, such as `UNCOLLECTED`; None: its process is forked.
    program: Sequence[str] | None = None
    #: Of its process; -1: as it is.
    umask: int = -1
    #: Longest that it may take to end, in seconds.
    ends_within_s: float = PATIENCE_S
    port: int = 0
    operations_port: int = 0
    process: Process | None = None

    def __post_init__(self) -> None:
        self.port, self.operations_port = free_ports(2)

    @property
    def file(self) -> Path:
        return self.directory / f"{self.name}.toml"

    @property
    def data(self) -> Path:
        return self.directory / f"{self.name}-data"

    @property
    def log(self) -> Path:
        return self.directory / f"{self.name}.log"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{'localhost' if self.tls else HOST}:{self.port}"

    @property
    def api(self) -> Api:
        return Api(self.port, self.token, self.tls, "localhost" if self.tls else HOST)

    @property
    def ops(self) -> Api:
        return Api(self.operations_port)

    def write(self) -> Path:
        """Write the settings file."""
        self.file.write_text(
            f'[node]\nname = "{self.name}"\ndata-directory = "{self.name}-data"\n{self.node}\n'
            f'[acceptor]\nurl = "{self.scheme}://{HOST}:{self.port}"\n{self.acceptor}\n'
            f'[operations]\nurl = "http://{HOST}:{self.operations_port}"\n{self.operations}\n{self.rest}',
            encoding="utf-8",
        )
        return self.file

    def spawn(self, cwd: Path | None = None, **variables: str) -> Process:
        """Start the process and wait for nothing. It leads a session of its own, which its workers share."""
        self.write()
        cwd, variables = cwd or self.directory, environment(**self.variables, **variables)
        with self.log.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            arguments = ("run", "--settings", str(self.file))
            streams = Streams(nothing.fileno(), log.fileno(), log.fileno())
            self.process = started(
                arguments, streams, cwd=cwd, variables=variables, umask=self.umask, program=self.program
            )
        WATCHDOG.watch(self.process.pid)
        return self.process

    def start_without_waiting(self) -> Self:
        self.spawn()
        return self

    def start_listening(self) -> Self:
        """Start it and wait until it shows its bridges; whether it is ready is not waited for."""
        self.spawn()
        eventually(lambda: self.ops.get("/ready").json["bridges"], f"{self.name} shows its bridges")
        return self

    def run_to_its_end(self, *, settings: Path | None = None) -> Ended:
        """For nodes that cannot start."""
        file = str(settings or self.file)
        return command("run", "--settings", file, cwd=self.directory, variables=self.variables)

    def start(self, cwd: Path | None = None, **variables: str) -> Self:
        """Start it and wait until it is ready."""
        self.spawn(cwd, **variables)
        return self.await_ready()

    def await_ready(self) -> Self:
        process = self.process
        assert process is not None

        def is_ready() -> bool:
            if process.poll() is not None:
                raise AssertionError(f"{self.name} ended with {process.returncode}:\n{self.log.read_text()}")
            return self.ops.get("/ready").status == 200

        eventually(is_ready, f"{self.name} is ready")
        return self

    def signal(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, within_s: float | None = None) -> int:
        """The exit code, once it has ended; within `ends_within_s` unless told otherwise."""
        assert self.process is not None
        code = self.process.wait(self.ends_within_s if within_s is None else within_s)
        WATCHDOG.forget(self.process.pid)
        self.process = None
        return code

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal()
        return self.wait()

    def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        self.wait()

    def crash(self, point: str, times: int = 1, within_s: float | None = None) -> None:
        """Run it until it reaches a crash point for the `times`-th time and dies there.

        The test must see to it that there is something to do.
        """
        self.spawn(CORE_BRIDGE_CRASH_AT=f"{point}:{times}")
        try:
            code = self.wait(within_s)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(
                f"{self.name} did not reach {point} {times} times in {error.timeout:g} s"
            ) from None
        assert code == -signal.SIGKILL, f"{self.name} ended with {code} before it reached {point}"

    def pause(self) -> None:
        """SIGSTOP, to it and its workers: a zombie when `resume` wakes it. Returns when it has stopped."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] in "TZ", f"{self.name} stops")

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def destroy(self) -> None:
        """Leave nothing running, workers included, whatever the test did."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.wait()

    @property
    def resident(self) -> int:
        """Bytes of memory that its process has now."""
        return self._memory("VmRSS")

    @property
    def most_resident(self) -> int:
        """The most bytes of memory that its process has had."""
        return self._memory("VmHWM")

    def _memory(self, name: str) -> int:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024

    # -- what it says of itself ---------------------------------------------------------------------------

    def events(self, name: str = "", **keys: object) -> list[dict[str, Any]]:
        """Events of the log so far, of this name and with these keys."""
        found = [json.loads(line) for line in whole_lines(self.log)] if self.log.exists() else []
        return [
            event
            for event in found
            if name in ("", event["event"]) and all(event.get(key) == value for key, value in keys.items())
        ]

    def event(self, name: str, within_s: float = PATIENCE_S, **keys: object) -> dict[str, Any]:
        """The first such event, awaited."""
        return eventually(lambda: self.events(name, **keys), f"{self.name} logs {name}", within_s)[0]

    def status(self, bridge: str) -> dict[str, Any]:
        """What ``GET /v1/status`` says of a bridge."""
        bridges = self.ops.get("/v1/status").json["bridges"]
        found: dict[str, Any] = next(one for one in bridges if one["name"] == bridge)
        return found

    def bridge_state(self, bridge: str) -> str:
        states: dict[str, str] = self.ops.get("/ready").json["bridges"]
        return states[bridge]

    def await_state(self, bridge: str, state: str, within_s: float = PATIENCE_S) -> None:
        eventually(lambda: self.bridge_state(bridge) == state, f"{bridge} is {state}", within_s)

    def await_failed(self, bridge: str, within_s: float = FAILED_WITHIN_S) -> str:
        """The reason, once the bridge is FAILED."""
        self.await_state(bridge, "FAILED", within_s)
        return str(self.status(bridge)["reason"])

    def metrics(self) -> dict[str, float]:
        """Samples by name and labels, as the text has them."""
        reply = self.ops.get("/metrics")
        assert reply.status == 200
        samples = (line.rpartition(" ") for line in reply.body.decode().splitlines() if line[:1] != "#")
        return {series: float(value) for series, _, value in samples}

    def delivery_lines(self) -> list[dict[str, Any]]:
        """Lines of every file of the delivery log, in the files' order."""
        return [json.loads(line) for path in self.segments() for line in whole_lines(path)]

    def segments(self) -> list[Path]:
        return sorted((self.data / "delivery-log").glob("*.jsonl*"))

    def lag(self, address: str) -> int:
        """Messages that bridges have still to hand over."""
        return sum(bridge["lag"] for bridge in self.api.get(f"/v1/addresses/{address}").json["bridges"])


#: Makes a node that is not started yet: ``make_node("edge", tables, **fields)``.
MakeNode = Callable[..., Node]


@contextlib.contextmanager
def made_nodes(directory: Path, **defaults: Any) -> Iterator[MakeNode]:
    """Makes nodes in a directory; at the end none runs, and none may have logged a trace.

    What they have logged is printed: pytest shows it where the test failed.
    """
    made: list[Node] = []

    def make(name: str = "node", rest: str = "", **fields: Any) -> Node:
        made.append(Node(name, directory, rest, **{**defaults, **fields}))
        return made[-1]

    try:
        yield make
    finally:
        for node in made:
            node.destroy()
            if node.log.exists():
                print(f"--- {node.name}\n{node.log.read_text(encoding='utf-8', errors='replace')}")
    for node in made:
        if node.log.exists():
            log = node.log.read_text(encoding="utf-8")
            assert "Traceback" not in log, f"{node.name} logged an error that nobody foresaw:\n{log}"


def start_together(*nodes: Node) -> None:
    """Start them at the same time: most of a start is the interpreter's, and there are cores for it."""
    for node in nodes:
        node.spawn()
    for node in nodes:
        node.await_ready()


def bridge_to(
    target: Node,
    name: str = "orders-to-hub",
    queue_name: str = '"orders"',
    connector: str = "hub",
    **keys: str,
) -> str:
    """TOML of a connector and a bridge to it; values are TOML, a key is written ``connector__token`` for
    the connector's and ``forwarding_address`` for the bridge's."""
    prefix = "connector__"
    of_connector = {key.removeprefix(prefix): value for key, value in keys.items() if key.startswith(prefix)}
    of_bridge = {
        "queue_name": queue_name,
        "retry_interval": str(RETRY_INTERVAL_MS),
        "max_retry_interval": str(RETRY_INTERVAL_MS),
    } | {key: value for key, value in keys.items() if not key.startswith(prefix)}
    of_connector = {"url": f'"{target.url}"'} | of_connector
    return (
        f"[connectors.{connector}]\n{_keys(of_connector)}\n"
        f'[[bridges]]\nname = "{name}"\nstatic-connectors = ["{connector}"]\n{_keys(of_bridge)}\n'
    )


def _keys(values: Mapping[str, str]) -> str:
    return "".join(f"{key.replace('_', '-')} = {value}\n" for key, value in values.items())
