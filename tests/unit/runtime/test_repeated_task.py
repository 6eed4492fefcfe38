"""Tasks that do the same work again and again go on after an error, and log it."""

from __future__ import annotations

import ast
import asyncio
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import structlog
from structlog.testing import LogCapture

from bridge.errors import JournalUnavailable
from bridge.runtime.repeated_task import LOG_INTERVAL_S, PAUSE_S, RepeatedTask
from tests.fakes.virtual_time import in_virtual_time

ROOT: Final = Path(__file__).parents[3]

#: Tasks with a loop of their own, by module and function, and who notices that one has ended.
OWN: Final = {
    "bridge/delivery_log/gathering.py:_work": "the callers get its error",
    "bridge/kafka/lanes/group_ownership.py:_keep": "`changed` and `confirmed` raise its error",
    "bridge/kafka/source/progress.py:_commit_in_time": "the next settlement begins another",
    "bridge/kafka/source/sent_log.py:_work": "the next or a waiting call raises its error",
    "bridge/kafka/target/target.py:_watch": "the lane is given up with its error",
    "bridge/kafka/target/target.py:_work": "the lane is given up with its error",
    "bridge/link/driver.py:_read": "the link ends with its error",
    "bridge/link/driver.py:_write": "the link ends with its error",
    "bridge/link/link_server.py:_open": "the link ends with its error",
    "bridge/link/link_server.py:_store_pieces": "the link ends with its error",
    "bridge/relay/lanes.py:_own_lanes": "the bridge fails with its error",
    "bridge/relay/lanes.py:closed": "the bridge fails with its error",
    "bridge/relay/pump.py:_cover_in_time": "the next coverage begins another",
    "bridge/relay/pump.py:_send": "the bridge's connection ends with its error",
    "bridge/relay/pump.py:_settle": "the bridge's connection ends with its error",
    "bridge/workers/worker.py:_listen": "the process ends, and the supervisor starts another",
    "bridge/workers/worker.py:_report": "the process ends, and the supervisor starts another",
    "bridge/workers/worker.py:command": "the process ends, and the supervisor starts another",
}


@pytest.fixture(name="log")
def _log() -> Iterator[LogCapture]:
    capture = LogCapture()
    structlog.configure(processors=[capture])
    yield capture
    structlog.reset_defaults()


class Work:
    """Turns of a second, of which those in `fails` raise."""

    def __init__(self, *fails: int, error: Exception | None = None) -> None:
        self.fails = fails
        self.error = error or RuntimeError("dictionary changed size during iteration")
        self.turns = 0

    async def turn(self) -> None:
        await asyncio.sleep(1)
        self.turns += 1
        if self.turns in self.fails:
            raise self.error


@in_virtual_time
async def test_a_task_that_raises_once_goes_on_and_has_logged_its_name(log: LogCapture) -> None:
    work = Work(2)
    task = RepeatedTask("delete-unused", work.turn)
    task.begin()
    await asyncio.sleep(2.5)
    assert task.failing == "RuntimeError: dictionary changed size during iteration"
    await asyncio.sleep(PAUSE_S + 1)
    assert (work.turns, task.failing, task.failures) == (3, "", 1)
    (line,) = log.entries
    assert (line["event"], line["log_level"], line["task"]) == ("task-failed", "error", "delete-unused")
    assert line["reason"] == "RuntimeError: dictionary changed size during iteration"
    assert line["exc_info"] is work.error
    await task.end()


@in_virtual_time
async def test_a_task_that_goes_on_failing_is_logged_once_a_minute_with_how_often(log: LogCapture) -> None:
    task = RepeatedTask("outbox", Work(*range(1000)).turn)
    task.begin()
    await asyncio.sleep(2 * LOG_INTERVAL_S + 2)
    # A turn and its pause take two seconds.
    assert [line["count"] for line in log.entries] == [1, LOG_INTERVAL_S / 2, LOG_INTERVAL_S / 2]
    await task.end()


@in_virtual_time
async def test_a_foreseen_error_is_logged_without_a_trace(log: LogCapture) -> None:
    task = RepeatedTask("cluster-redistribution", Work(1, error=JournalUnavailable("not now")).turn)
    task.begin()
    await asyncio.sleep(1.5)
    (line,) = log.entries
    assert "exc_info" not in line
    assert line["reason"] == "JOURNAL_UNAVAILABLE: not now"
    await task.end()


@in_virtual_time
async def test_it_ends_after_the_turn_in_which_its_owner_wants_no_more() -> None:
    work = Work()
    task = RepeatedTask("outbox", work.turn, until=lambda: work.turns >= 2)
    task.begin()
    await task.ended()
    assert work.turns == 2


@in_virtual_time
async def test_one_that_has_not_begun_can_be_ended() -> None:
    task = RepeatedTask("outbox", Work().turn)
    await task.ended()
    await task.end()


def test_every_task_with_a_loop_is_a_repeated_task_or_somebody_notices_its_end() -> None:
    trees = {
        path: ast.parse(path.read_text())
        for package in ("bridge", "cluster")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.parent.name not in ("cli", "demo")
    }
    looping: dict[str, set[Path]] = defaultdict(set)
    here: dict[Path, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.AsyncFunctionDef):
                here[path].add(node.name)
                if _loops(node):
                    looping[node.name].add(path)
    found = set()
    for path, tree in trees.items():
        for name, is_certain in _begun(tree):
            is_own = path in looping[name]
            elsewhere = is_certain and name not in here[path] and looping[name]
            if is_own or elsewhere:
                found.add(f"{path.relative_to(ROOT).as_posix()}:{name}")
    assert found - {"bridge/runtime/repeated_task.py:_run"} == set(OWN)


def _loops(function: ast.AsyncFunctionDef) -> bool:
    loops = (node for node in ast.walk(function) if _is_endless(node))
    waits = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    return any(isinstance(inner, waits) for loop in loops for inner in ast.walk(loop))


def _is_endless(node: ast.AST) -> bool:
    return isinstance(node, ast.While) or (
        isinstance(node, ast.For) and ast.unparse(node.iter).startswith("itertools.count(")
    )


def _begun(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """The names of functions that run in tasks; whether one is a coroutine function for certain."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args):
            continue
        begins = ast.unparse(node.func).rpartition(".")[2]
        if begins in ("create_task", "ensure_future"):
            for call in ast.walk(node.args[0]):
                if isinstance(call, ast.Call):
                    yield ast.unparse(call.func).rpartition(".")[2], begins == "create_task"
