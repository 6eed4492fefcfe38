"""Real worker processes under a real supervisor; only their bridges' ends are in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.relay.lifecycle import Command, State
from bridge.runtime import logs
from bridge.workers.remote import RemoteBridge
from bridge.workers.supervisor import Supervisor
from tests.fakes.worker_process import BRIDGE, SHUTDOWN_TIMEOUT_MS, supervisor
from tests.harness.eventually import eventually, until
from tests.harness.node import Node, whole_lines

pytestmark = pytest.mark.processes

#: Longest wait for anything that has no time of its own, in seconds: an interpreter starts slowly here.
PATIENCE_S = 20.0
MESSAGES = 50


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """Where this process and its workers write their log."""
    path = tmp_path / "log"
    with path.open("a", encoding="utf-8") as file:
        logs.configure("info", "json", "node-1", file)
        yield path


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """What is started meanwhile inherits this file as its stderr."""
    before = os.dup(2)
    with path.open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def events(log: Path, name: str = "") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in whole_lines(log)]
    return [line for line in lines if name in ("", line["event"])]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@asynccontextmanager
async def supervised(
    log: Path, how: str = "well", workers: int = 2
) -> AsyncIterator[tuple[Supervisor, RemoteBridge]]:
    """Workers that are started, with their bridge; none is left, whatever the test does."""
    made = supervisor(workers, MESSAGES, how)
    with stderr_to(log):
        made.start()
        try:
            yield made, made.bridges[BRIDGE]
        finally:
            await made.kill()


async def relaying(bridge: RemoteBridge, messages: int) -> None:
    await until(lambda: bridge.state is State.RUNNING, "the bridge is RUNNING")
    await until(lambda: bridge.counts.acknowledged == messages, f"{messages} messages are relayed")


async def started(log: Path, number: int) -> list[int]:
    """The pids of the first so many processes, once they are started."""
    await until(lambda: len(events(log, "worker-started")) >= number, f"{number} starts")
    return [event["pid"] for event in events(log, "worker-started")]


async def test_workers_relay_are_seen_as_one_bridge_and_drain(log: Path) -> None:
    async with supervised(log) as (workers, bridge):
        await bridge.command(Command.START)
        await relaying(bridge, 2 * MESSAGES)
        assert (bridge.connected, bridge.store, bridge.in_flight) == (True, "store-1", 0)
        assert workers.problems() == []
        await workers.stop()
    assert {(e["worker"], e["exit"]) for e in events(log, "worker-ended")} == {(1, 0), (2, 0)}
    assert bridge.counts.acknowledged == 2 * MESSAGES
    assert not any(map(is_alive, await started(log, 2)))


async def test_commands_reach_every_worker_and_come_back_when_all_have_obeyed(log: Path) -> None:
    async with supervised(log) as (_, bridge):
        await bridge.command(Command.START)
        await relaying(bridge, 2 * MESSAGES)
        await bridge.command(Command.PAUSE)
        assert bridge.state is State.PAUSED
        await bridge.command(Command.RESUME)
        await until(lambda: bridge.state is State.RUNNING, "it goes on")
        await bridge.command(Command.STOP)
        assert bridge.state.value == "STOPPED"
        assert not bridge.connected


async def test_a_worker_that_is_killed_is_replaced_and_what_it_did_stays_counted(log: Path) -> None:
    async with supervised(log) as (workers, bridge):
        await bridge.command(Command.START)
        await relaying(bridge, 2 * MESSAGES)
        first, other = await started(log, 2)
        os.kill(first, signal.SIGKILL)
        *_, replaced = await started(log, 3)
        # The fake ends are new with the process: it relays its own messages.
        await relaying(bridge, 3 * MESSAGES)
        assert is_alive(other)
        assert is_alive(replaced)
        assert workers.problems() == []
    (ended,) = [event for event in events(log, "worker-ended") if event["exit"] == -signal.SIGKILL]
    assert (ended["level"], ended["retry-in-ms"]) == ("warning", 500)


async def test_a_stopped_bridge_stays_stopped_when_its_worker_is_replaced(log: Path) -> None:
    async with supervised(log, workers=1) as (_, bridge):
        await bridge.command(Command.START)
        await relaying(bridge, MESSAGES)
        await bridge.command(Command.STOP)
        os.kill((await started(log, 1))[0], signal.SIGKILL)
        await started(log, 2)
        await until(bridge._known, "the new process reports")
        assert bridge.state is State.STOPPED
        assert bridge._known()[0].state is State.STOPPED
        await bridge.command(Command.START)
        await relaying(bridge, 2 * MESSAGES)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("refused", "TARGET_REFUSED: worker 1 is not wanted here"),
        ("dies", "its process ended with 7"),
    ],
)
async def test_a_worker_that_cannot_start_is_told_with_its_reason(log: Path, how: str, reason: str) -> None:
    async with supervised(log, how, workers=1) as (workers, _):
        await until(lambda: events(log, "worker-ended"), "it has ended")
        ended = events(log, "worker-ended")[0]
        assert ended["reason"] == reason
        assert workers.problems() == [f"worker 1 does not stay up (1 starts): {reason}"]


async def test_the_others_relay_while_one_cannot_start(log: Path) -> None:
    async with supervised(log, "first-dies") as (workers, bridge):
        await bridge.command(Command.START)
        await relaying(bridge, 5)
        await until(workers.problems, "the first has a problem")


async def test_a_sigterm_drains_the_worker_that_gets_it(log: Path) -> None:
    async with supervised(log, workers=1) as (_, bridge):
        await bridge.command(Command.START)
        await relaying(bridge, MESSAGES)
        os.kill((await started(log, 1))[0], signal.SIGTERM)
        await until(lambda: events(log, "worker-ended"), "it has ended")
        assert events(log, "worker-ended")[0]["exit"] == 0
        await relaying(bridge, 2 * MESSAGES)


@pytest.mark.parametrize(("how", "exit_code"), [("never-drains", 1), ("hangs", -signal.SIGKILL)])
async def test_workers_that_do_not_drain_are_ended_when_the_time_is_up(
    log: Path, how: str, exit_code: int
) -> None:
    async with supervised(log, how) as (workers, bridge):
        await bridge.command(Command.START)
        await relaying(bridge, 2 * MESSAGES)
        pids = await started(log, 2)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await workers.stop()
    assert not any(map(is_alive, pids))
    assert [event["exit"] for event in events(log, "worker-ended")] == [exit_code] * 2


async def test_a_worker_ends_by_itself_when_its_bridges_do_not_drain(log: Path) -> None:
    async with supervised(log, "never-drains", workers=1) as (workers, bridge):
        await bridge.command(Command.START)
        await relaying(bridge, MESSAGES)
        began = time.monotonic()
        await workers.stop()
        assert time.monotonic() - began >= SHUTDOWN_TIMEOUT_MS / 1000
    (late,) = events(log, "worker-not-drained")
    assert (late["worker"], late["shutdown-timeout-ms"]) == (1, SHUTDOWN_TIMEOUT_MS)


async def test_the_log_is_one_whole_lines_with_the_workers_number(log: Path) -> None:
    async with supervised(log, "chatters") as (_, bridge):
        await bridge.command(Command.START)
        await relaying(bridge, 2 * MESSAGES)
    for worker in (1, 2):
        chatter = [event for event in events(log, "chatter") if event["worker"] == worker]
        assert [event["number"] for event in chatter] == list(range(1_000))
        keys = ["timestamp", "level", "event", "node", "bridge", "worker", "number", "text"]
        assert list(chatter[0]) == keys
    assert {event["node"] for event in events(log)} == {"node-1"}


# ------------------------------------------------------------------ a supervisor that is killed


@contextlib.contextmanager
def a_supervisor(log: Path, how: str = "well") -> Iterator[subprocess.Popen[bytes]]:
    """In a process group of its own, as a shell starts it."""
    command = (sys.executable, "-m", "tests.fakes.worker_process", "supervise", "2", str(MESSAGES), how)
    with log.open("ab") as file:
        process = subprocess.Popen(command, stderr=file, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def connected(log: Path, number: int) -> list[int]:
    await until(lambda: len(events(log, "bridge-connected")) == number, "the workers relay")
    return await started(log, number)


@pytest.mark.parametrize("how", ["well", "never-drains"])
async def test_workers_end_by_themselves_when_their_supervisor_is_killed(tmp_path: Path, how: str) -> None:
    log = tmp_path / "log"
    log.touch()
    with a_supervisor(log, how) as process:
        workers = await connected(log, 2)
        process.kill()
        await until(lambda: not any(map(is_alive, workers)), "the workers have ended")


async def test_a_ctrl_c_on_the_terminal_is_the_supervisors_to_act_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    with a_supervisor(log) as process:
        workers = await connected(log, 2)
        os.killpg(process.pid, signal.SIGINT)
        await until(lambda: process.poll() is not None, "the supervisor has ended")
        assert process.returncode == 0
        assert not any(map(is_alive, workers))
    assert "Traceback" not in log.read_text()
    assert {event["exit"] for event in events(log, "worker-ended")} == {0}


# ------------------------------------------------------------------ a whole node

#: Bridges from Kafka to Kafka, with no Kafka there.
KAFKA = """
[connectors.a]
url = "kafka://127.0.0.1:1"
[connectors.b]
url = "kafka://127.0.0.1:2"
[[bridges]]
name = "orders"
source-connector = "a"
static-connectors = ["b"]
queue-name = "orders"
retry-interval = 200
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node("node-1", tmp_path, node='workers = 2\nshutdown-timeout = "5s"', rest=KAFKA)
    yield made
    made.destroy()


def test_a_node_starts_its_workers_shows_their_bridge_and_drains_them(node: Node) -> None:
    node.start()
    node.await_state("orders", "CONNECTING")
    pids = [node.event("worker-started", worker=worker)["pid"] for worker in (1, 2)]
    assert node.event("bridge-disconnected", worker=1)["bridge"] == "orders"
    (status,) = node.ops.get("/v1/status").json["bridges"]
    assert (status["name"], status["state"]) == ("orders", "CONNECTING")
    assert status["reason"]
    assert 'core_bridge_lag_messages{bridge="orders"}' not in node.metrics(), (
        "it is not known: no broker answers"
    )
    assert node.ops.call("POST", "/v1/bridges/orders/stop").json["state"] == "STOPPED"
    assert node.ops.call("POST", "/v1/bridges/orders/resume").status == 409
    assert node.stop() == 0
    assert not any(map(is_alive, pids))
    assert [event["exit"] for event in node.events("worker-ended")] == [0, 0]


def test_a_hangup_ends_neither_node_nor_workers(node: Node) -> None:
    """A terminal that closes sends it to all of them."""
    node.start()
    pids = [node.event("worker-started", worker=worker)["pid"] for worker in (1, 2)]
    for worker in (1, 2):
        node.event("bridge-disconnected", worker=worker)
    assert node.process is not None
    for times in (1, 2):
        os.killpg(node.process.pid, signal.SIGHUP)
        eventually(
            lambda times=times: len(node.events("settings-reloaded")) == times,  # type: ignore[misc]
            "the node reloads its settings",
        )
    assert all(map(is_alive, pids))
    assert node.api.send("stock", b"x").status == 200
    assert node.stop() == 0
    assert [event["exit"] for event in node.events("worker-ended")] == [0, 0]
    assert {event["pid"] for event in node.events("worker-started")} == set(pids)


def test_a_worker_that_starts_again_runs_by_the_settings_of_its_node(node: Node) -> None:
    """Whatever the file has become since the node read it."""
    node.start()
    pid = node.event("worker-started", worker=2)["pid"]
    for worker in (1, 2):
        assert node.event("bridge-disconnected", worker=worker)
    before = node.file.read_text()
    node.file.write_text(before.replace("[[bridges]]", "[[bridges"))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(node.events("worker-started", worker=2)) == 2, "it is started again")
    eventually(lambda: len(node.events("bridge-disconnected", worker=2)) == 2, "it relays, in vain")
    assert node.ops.get("/ready").status == 200
    assert node.ops.call("POST", "/v1/reload").status == 409
    node.file.write_text(before + "max-hops = 3\n")
    assert node.ops.call("POST", "/v1/reload").status == 200
    assert node.stop() == 0


def test_a_second_signal_ends_node_and_workers_at_once(node: Node) -> None:
    node.start()
    node.await_state("orders", "CONNECTING")
    pids = [node.event("worker-started", worker=worker)["pid"] for worker in (1, 2)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # or they would have drained before the second signal comes
    node.signal()
    eventually(lambda: node.ops.get("/ready").json["reasons"] == ["the node is stopping"], "it stops")
    node.signal()
    assert node.wait(2) == 1
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not any(map(is_alive, pids)), "the workers have ended")


def test_one_worker_is_no_process_of_its_own(node: Node) -> None:
    node.node = "workers = 1"
    node.start()
    node.await_state("orders", "CONNECTING")
    assert node.stop() == 0
    assert node.events("worker-started") == []


# ------------------------------------------------------------------ what a worker holds


def test_a_worker_loads_neither_the_journal_nor_http() -> None:
    program = (
        "import sys, bridge.workers.__main__, bridge.workers.worker, bridge.workers.shared\n"
        "import bridge.runtime.logs, bridge.settings\n"
        "import bridge.assembly.bridges, bridge.kafka.node_ends\n"
        "heavy = {'aiohttp', 'sqlite3', 'bridge.journal', 'bridge.http', 'bridge.node'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    alone = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=alone
    )
    assert ran.stdout.strip() == ""
