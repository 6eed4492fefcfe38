"""Processes of the product, forked from one that has imported it already.

Importing the product takes half a second of computing, twice that where coverage is measured, and tests start
its nodes and commands more than a thousand times. A fork of a process that has done so begins at
`bridge.cli.main`, with a session, a directory, an environment and streams of its own, and ends as any process
does. It is measured where its environment asks for that. Where the start itself is tested, interpreters are
started instead.

    process = FORKS.start(["status", "--url", url], Streams(...), cwd=directory, environment=variables)
    code = process.wait(20)
"""

from __future__ import annotations

import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.harness.watchdog import WATCHDOG

ROOT: Final = Path(__file__).parents[2]
#: Longest request: arguments and environment, as JSON.
_REQUEST_BYTES: Final = 1 << 20
#: Longest that a fork may take, in seconds; the first one waits for the product's import.
_FORKED_WITHIN_S: Final = 60.0
#: Set where the processes that a test starts are measured (`tests.sharing`); coverage reads it.
MEASURED: Final = "COVERAGE_PROCESS_CONFIG"
#: Modules that nodes and commands import when they run.
_PRELOADED: Final = (
    "bridge.node.wiring",
    "bridge.kafka.node_ends",
    "bridge.workers.supervisor",
    "bridge.client",
)


class Streams(NamedTuple):
    """File descriptors of a process's standard streams."""

    stdin: int
    stdout: int
    stderr: int


def unmeasured(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a process, and those that it starts, are not measured."""
    return {name: value for name, value in environment.items() if name != MEASURED}


class ForkedProcess:
    """One forked process, used as `subprocess.Popen` is."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self._forks = forks
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or minus the signal; None: it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises: subprocess.TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"core-bridge (pid {self.pid})", timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self.returncode = self._forks.ended(self.pid, timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)


class Forks:
    """Asks one process, which is started with the first request, to fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._asking = threading.Lock()
        self._socket: socket.socket | None = None
        #: The number of the request that is waited for; the pid of its fork, until it is taken.
        self._asked = 0
        self._forked: int | None = None
        #: Exit codes by pid, until they are asked for.
        self._codes: dict[int, int] = {}

    def start(
        self,
        arguments: Sequence[str],
        streams: Streams,
        *,
        cwd: Path | None,
        environment: Mapping[str, str],
        umask: int = -1,
    ) -> ForkedProcess:
        """A process that runs ``core-bridge ARGUMENTS``. It leads a session of its own."""
        request: dict[str, Any] = {"arguments": [*arguments], "environment": {**environment}}
        request |= {"cwd": str(cwd or Path.cwd()), "umask": umask}
        with self._asking:
            self._asked += 1
            request["number"] = self._asked
            socket.send_fds(self._connected(), [json.dumps(request).encode()], streams)
            with self._changed:
                self._changed.wait_for(lambda: self._forked is not None, _FORKED_WITHIN_S)
                pid, self._forked = self._forked, None
                if pid is None:
                    self._asked += 1  # a late answer is to no request
                    raise AssertionError(f"nothing was forked within {_FORKED_WITHIN_S:g} s")
                return ForkedProcess(self, pid)

    def ended(self, pid: int, timeout: float | None) -> int | None:
        """The exit code of a process, once; None: it runs after `timeout` seconds still."""
        with self._changed:
            self._changed.wait_for(lambda: pid in self._codes, timeout)
            code = self._codes.pop(pid, None)
        if code is not None:
            assert self._socket is not None
            self._socket.send(json.dumps({"reap": pid}).encode())
        return code

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                server = subprocess.Popen(
                    [sys.executable, "-m", "tests.harness.forked", str(theirs.fileno())],
                    cwd=ROOT,
                    env=unmeasured(os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            WATCHDOG.watch(server.pid)
            threading.Thread(target=self._listen, args=(self._socket, server), daemon=True).start()
        return self._socket

    def _listen(self, connection: socket.socket, server: subprocess.Popen[bytes]) -> None:
        while said := connection.recv(_REQUEST_BYTES):
            message = json.loads(said)
            with self._changed:
                if "forked" in message and message["number"] == self._asked:
                    self._forked = message["forked"]
                elif "forked" in message:  # too late: its test has given it up
                    os.kill(message["forked"], signal.SIGKILL)
                else:
                    self._codes[message["ended"]] = message["code"]
                self._changed.notify_all()
        server.wait()


#: The forks of this test process.
FORKS: Final = Forks()


# -- in the process that forks ----------------------------------------------------------------------------


class _Server:
    """Forks for each request, and says who has ended."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._running: set[int] = set()
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes)

    def run(self) -> tuple[dict[str, Any], list[int]] | None:
        """In each fork its request and its streams; None when nobody asks any more."""
        while True:
            ready, _, _ = select.select([self._connection.fileno(), self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._say_who_has_ended()
            if self._connection.fileno() not in ready:
                continue
            said, streams, _, _ = socket.recv_fds(self._connection, _REQUEST_BYTES, len(Streams._fields))
            if not said:
                return None
            request = json.loads(said)
            if "reap" in request:  # not before: until then nobody else may get the pid
                os.waitpid(request["reap"], 0)
            elif self._fork(request["number"], streams):
                return request, streams

    def _say_who_has_ended(self) -> None:
        for pid in sorted(self._running):
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None:
                self._running.discard(pid)
                code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
                self._connection.send(json.dumps({"ended": pid, "code": code}).encode())

    def _fork(self, number: int, streams: list[int]) -> bool:
        """Whether this is the fork."""
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(self._woken)
            os.close(self._wakes)
            self._connection.close()
            return True
        self._running.add(pid)
        for stream in streams:
            os.close(stream)
        self._connection.send(json.dumps({"forked": pid, "number": number}).encode())
        return False


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Take on what a process gets from the one that starts it."""
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in {*streams} - {0, 1, 2}:
        os.close(stream)
    # What Python has found out about them, such as whether they can seek, is of the process that forks.
    sys.stdout, sys.stderr = _text_to(1, sys.stdout.encoding), _text_to(2, sys.stderr.encoding)
    os.chdir(request["cwd"])
    if request["umask"] >= 0:
        os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["core-bridge", *request["arguments"]]


def _text_to(descriptor: int, encoding: str) -> io.TextIOWrapper:
    """A stream for text, as Python makes stdout and stderr."""
    errors = "backslashreplace" if descriptor == 2 else "strict"
    file = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(file), encoding, errors, line_buffering=descriptor == 2)


def _preload() -> None:
    import gc
    from importlib import import_module

    from bridge.cli import COMMANDS

    for name in ("coverage", *_PRELOADED, *(module for module, _ in COMMANDS.values())):
        import_module(name)
    gc.collect()
    gc.freeze()  # so that no fork writes to the pages of these objects


def _main() -> int:
    """The process that forks, and each of its forks."""
    _preload()
    connection = socket.socket(fileno=int(sys.argv[1]))
    asked = _Server(connection).run()
    if asked is None:
        return 0
    _become(*asked)
    from importlib import reload

    import coverage

    from bridge.__main__ import main
    from bridge.runtime import fault_injection

    coverage.process_startup()  # if it is measured
    if "CORE_BRIDGE_CRASH_AT" in os.environ:
        reload(fault_injection)  # which reads it when it is imported
    return main()


if __name__ == "__main__":
    sys.exit(_main())
