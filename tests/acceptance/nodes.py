"""Real nodes for the acceptance tests: processes, ports, files, logs. Nothing of the product is imported."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pytest

from bridge.demo.ports import free_ports

ROOT: Final = Path(__file__).parents[2]
HOST: Final = "127.0.0.1"
#: Longest that anything may take that has no time of its own in the contract, in seconds.
PATIENCE_S: Final = 20.0
#: Pause between two looks at another process, in seconds.
LOOK_AGAIN_S: Final = 0.02
#: "Bridge state after a peer comes or goes: retry-interval + 2 s", with the retry-interval used here.
RETRY_INTERVAL_MS: Final = 200
STATE_WITHIN_S: Final = RETRY_INTERVAL_MS / 1000 + 2

Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen | None], what: str, within_s: float = PATIENCE_S) -> Seen:
    """What `look` finds, as soon as it finds something: None, False and refused connections are nothing."""
    deadline = time.monotonic() + within_s
    seen: object = None
    while True:
        late = time.monotonic() > deadline
        try:
            found = look()
        except (OSError, http.client.HTTPException) as error:
            seen = error
        else:
            if found:
                return found
            seen = found
        if late:
            pytest.fail(f"not within {within_s:g} s: {what}; last seen: {seen!r}")
        time.sleep(LOOK_AGAIN_S)


# ------------------------------------------------------------------ HTTP


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] in ("application/json", "application/problem+json"), self
        return json.loads(self.body)

    @property
    def msgpack(self) -> Any:
        assert self.headers["content-type"] == "application/msgpack", self
        return msgspec.msgpack.decode(self.body)

    def is_problem(self, status: int, title: str) -> dict[str, Any]:
        """The problem, after a look at its form (RFC 9457)."""
        assert (self.status, self.headers["content-type"]) == (status, "application/problem+json"), self.body
        problem: dict[str, Any] = json.loads(self.body)
        assert (problem["type"], problem["title"], problem["status"]) == ("about:blank", title, status), (
            problem
        )
        assert problem["detail"]
        assert set(problem) <= {"type", "title", "status", "detail", "key", "limit", "found", "duplicates"}
        assert ("retry-after" in self.headers) == (status == 503)
        return problem


@dataclass(frozen=True)
class Api:
    """One HTTP face of a node; a connection for each call."""

    port: int
    token: str = ""
    tls: ssl.SSLContext | None = None
    #: Name to connect to; certificates are made for it.
    host: str = HOST

    def connect(self, timeout_s: float = PATIENCE_S) -> http.client.HTTPConnection:
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **json_body: Any,
    ) -> Reply:
        """`json_body`: a JSON object, with ``duplicate_id`` for ``duplicate-id``."""
        with contextlib.closing(self.connect()) as connection:
            return exchange(connection, method, path, body, self._with_token(headers), **json_body)

    def get(self, path: str, **headers: str) -> Reply:
        return self.call("GET", path, headers=_named(headers))

    def await_status(self, path: str, status: int, within_s: float = PATIENCE_S) -> Reply:
        """The first answer with this status."""

        def look() -> Reply | None:
            reply = self.get(path)
            return reply if reply.status == status else None

        return eventually(look, f"{path} answers {status}", within_s)

    def send(self, address: str, body: bytes, **headers: str) -> Reply:
        """One POST; a header is written ``Message_Key``."""
        return self.call("POST", f"/v1/addresses/{address}/messages", body, _named(headers))

    def commit(self, *messages: Mapping[str, Any], **rest: Any) -> Reply:
        return self.call("POST", "/v1/transactions", messages=list(messages), **rest)

    def browse(self, address: str, query: str = "max=1000") -> list[dict[str, Any]]:
        reply = self.get(f"/v1/addresses/{address}/messages?{query}")
        if reply.status == 404:
            return []
        messages: list[dict[str, Any]] = reply.json["messages"]
        return messages

    def bodies(self, address: str) -> list[Any]:
        return [message.get("body", message.get("body-base64")) for message in self.browse(address)]

    def lease(self, address: str, queue: str, query: str = "") -> tuple[str | None, list[dict[str, Any]]]:
        reply = self.get(f"/v1/addresses/{address}/queues/{queue}/messages?{query}")
        assert reply.status == 200, reply
        assert set(reply.json) == {"lease", "messages"}
        return reply.json["lease"], reply.json["messages"]

    def settle(self, verb: str, address: str, queue: str, **lease: Any) -> Reply:
        return self.call("POST", f"/v1/addresses/{address}/queues/{queue}/{verb}", **lease)

    def make_queue(self, address: str, queue: str, **wanted: Any) -> int:
        return self.call("PUT", f"/v1/addresses/{address}/queues/{queue}", **wanted).status

    def _with_token(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        given = dict(headers or {})
        if self.token:
            given.setdefault("Authorization", f"Bearer {self.token}")
        return given


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    **json_body: Any,
) -> Reply:
    """One request on a connection that stays open."""
    given = dict(headers or {})
    if json_body:
        body = json.dumps(
            {name.replace("_", "-").strip("-"): value for name, value in json_body.items()}
        ).encode()
        given.setdefault("Content-Type", "application/json")
    connection.request(method, path, body, given)
    response = connection.getresponse()
    return Reply(
        response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    )


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def titles(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The bodies of messages."""
    return [message["body"] for message in messages]


# ------------------------------------------------------------------ processes


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    """For the product's processes: found wherever they are started, and with no settings of the caller's."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("CORE_BRIDGE_")}
    return own | {"PYTHONPATH": str(ROOT)} | variables


def command(
    *arguments: str,
    data: bytes = b"",
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    timeout_s: float = PATIENCE_S,
) -> Ended:
    """Run ``core-bridge ARGUMENTS`` to its end."""
    ran = subprocess.run(
        [sys.executable, "-m", "bridge", *arguments],
        input=data,
        capture_output=True,
        cwd=cwd,
        env=environment(**(variables or {})),
        timeout=timeout_s,
        check=False,
    )
    assert b"Traceback" not in ran.stderr, ran.stderr.decode()
    return Ended(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


RUN: Final = ("-m", "bridge", "run")
#: The same without Python's collector of reference cycles: what is in one stays for good.
RUN_UNCOLLECTED: Final = (
    "-c", "import gc, sys; gc.disable(); from bridge.cli import main; sys.exit(main(sys.argv[1:]))", "run",
)  # fmt: skip


@dataclass
class Node:
    """One node; `start`, then `stop` or `kill`, as often as you like."""

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
    #: Whether its process looks for reference cycles.
    collects: bool = True
    #: Of its process; -1: as it is.
    umask: int = -1
    port: int = 0
    operations_port: int = 0
    process: subprocess.Popen[bytes] | None = None

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

    def spawn(self, cwd: Path | None = None, **variables: str) -> subprocess.Popen[bytes]:
        """Start the process and wait for nothing."""
        self.write()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *(RUN if self.collects else RUN_UNCOLLECTED), "--settings", str(self.file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cwd or self.directory,
                env=environment(**self.variables, **variables),
                start_new_session=True,
                umask=self.umask,
            )
        return self.process

    def start_without_waiting(self) -> Node:
        self.spawn()
        return self

    def run_to_its_end(self, *, settings: Path | None = None) -> Ended:
        """For nodes that cannot start."""
        file = str(settings or self.file)
        return command("run", "--settings", file, cwd=self.directory, variables=self.variables)

    def start(self, cwd: Path | None = None, **variables: str) -> Node:
        """Start it and wait until it is ready."""
        self.spawn(cwd, **variables)
        return self.await_ready()

    def await_ready(self) -> Node:
        process = self.process
        assert process is not None

        def is_ready() -> bool:
            if process.poll() is not None:
                pytest.fail(f"{self.name} ended with {process.returncode}:\n{self.log.read_text()}")
            return self.ops.get("/ready").status == 200

        eventually(is_ready, f"{self.name} is ready")
        return self

    def signal(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, within_s: float = PATIENCE_S) -> int:
        """The exit code, once it has ended."""
        assert self.process is not None
        code = self.process.wait(within_s)
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

    def destroy(self) -> None:
        """Leave nothing running, whatever the test did."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def resident(self) -> int:
        """Bytes of memory that its process has now."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    # -- what it says of itself ---------------------------------------------------------------------------

    def events(self, name: str = "", **keys: object) -> list[dict[str, Any]]:
        """Events of the log so far, of this name and with these keys."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        found = [json.loads(line) for line in lines]
        return [
            event
            for event in found
            if name in ("", event["event"]) and all(event.get(key) == value for key, value in keys.items())
        ]

    def event(self, name: str, within_s: float = PATIENCE_S, **keys: object) -> dict[str, Any]:
        """The first such event, awaited."""
        return eventually(lambda: self.events(name, **keys), f"{self.name} logs {name}", within_s)[0]

    def bridge_state(self, bridge: str) -> str:
        states: dict[str, str] = self.ops.get("/ready").json["bridges"]
        return states[bridge]

    def await_state(self, bridge: str, state: str, within_s: float = PATIENCE_S) -> None:
        eventually(lambda: self.bridge_state(bridge) == state, f"{bridge} is {state}", within_s)

    def metrics(self) -> dict[str, float]:
        """Samples by name and labels, as the text has them."""
        reply = self.ops.get("/metrics")
        assert reply.status == 200
        samples = (line.rpartition(" ") for line in reply.body.decode().splitlines() if line[:1] != "#")
        return {series: float(value) for series, _, value in samples}

    def delivery_lines(self) -> list[dict[str, Any]]:
        """Lines of every file of the delivery log, in the files' order."""
        return [json.loads(line) for path in self.segments() for line in path.read_text().splitlines()]

    def segments(self) -> list[Path]:
        return sorted((self.data / "delivery-log").glob("*.jsonl*"))

    def lag(self, address: str) -> int:
        """Messages that bridges have still to hand over."""
        return sum(bridge["lag"] for bridge in self.api.get(f"/v1/addresses/{address}").json["bridges"])


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


# ------------------------------------------------------------------ certificates


def make_certificates(directory: Path, *names: str) -> Iterator[Path]:
    """``NAME.pem`` and ``NAME.key`` in `directory`, for localhost, signed by ``authority.pem``."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificates of this test")
    for name in ("authority", *names):
        authority = name == "authority"
        signer = [] if authority else ["-CA", "authority.pem", "-CAkey", "authority.key"]
        constraint = f"basicConstraints=critical,CA:{'TRUE' if authority else 'FALSE'}"
        request = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        request += ["-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        request += ["-addext", "subjectAltName=DNS:localhost", "-addext", constraint]
        subprocess.run([*request, *signer], cwd=directory, check=True, capture_output=True)
        yield directory / f"{name}.pem"


def client_tls(directory: Path, name: str | None = None) -> ssl.SSLContext:
    """Trusts the authority; with `name`, shows that certificate."""
    context = ssl.create_default_context(cafile=directory / "authority.pem")
    if name is not None:
        context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    return context
