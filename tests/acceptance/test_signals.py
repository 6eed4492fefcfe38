"""Signals that come to a node while it starts: at its first instant, while it imports, while it opens."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.harness.commands import PROGRAM, environment
from tests.harness.eventually import PATIENCE_S
from tests.harness.node import MakeNode
from tests.harness.watchdog import WATCHDOG

#: Modules in the order in which a node imports them: each is an instant of its start.
IMPORTED: Final = ("argparse", "bridge.cli", "bridge.settings.model", "bridge.node.wiring")


class Starting:
    """A process whose stderr is read a line at a time; each module that it imports is a line, too."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.events: list[dict[str, Any]] = []

    def await_line(self, is_it: Callable[[str], bool]) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith("{"):
                self.events.append(json.loads(line))
            else:
                assert line.startswith("import time:"), line
            if is_it(line):
                return
            assert not self.named("listening") or line.startswith("import"), "it waits for more by now"
        raise AssertionError(f"it ended with {self._process.wait()} before: {self.events}")

    def await_import(self, module: str) -> None:
        self.await_line(lambda line: line.split("|")[-1].strip() == module)

    def await_event(self, event: str) -> None:
        self.await_line(lambda line: f'"event":"{event}"' in line.replace(" ", ""))

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Its exit code, once it has ended."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if line.startswith("{"):
                self.events.append(json.loads(line))
        return self._process.wait(PATIENCE_S)

    def named(self, event: str) -> Sequence[dict[str, Any]]:
        return [one for one in self.events if one["event"] == event]


@contextmanager
def starting(
    file: Path, *arguments: str, program: Sequence[str] = PROGRAM, channel: int | None = None
) -> Iterator[Starting]:
    process = subprocess.Popen(
        [*program, *(arguments or ("run",)), "--settings", str(file)],
        pass_fds=() if channel is None else (channel,),
        stderr=subprocess.PIPE,
        text=True,
        env=environment(PYTHONPROFILEIMPORTTIME="1"),
        start_new_session=True,
    )
    WATCHDOG.watch(process.pid)
    try:
        yield Starting(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        WATCHDOG.forget(process.pid)
        assert process.stderr is not None
        process.stderr.close()


@pytest.mark.parametrize("module", IMPORTED)
def test_a_stop_while_the_node_imports_ends_it_in_order(make_node: MakeNode, module: str) -> None:
    node = make_node()
    with starting(node.write()) as process:
        process.await_import(module)
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        (stopped,) = process.named("stopped")
        assert (stopped["level"], stopped["reason"]) == ("info", "SIGTERM before the node had started")
        assert process.events == [stopped]
    assert not node.data.exists()


def test_ctrl_c_while_the_node_imports_ends_it_in_order(make_node: MakeNode) -> None:
    with starting(make_node().write()) as process:
        process.await_import("argparse")
        process.signal(signal.SIGINT)
        assert process.end() == 0
        assert process.named("stopped")[0]["reason"] == "SIGINT before the node had started"


@pytest.mark.parametrize("module", ["argparse", "bridge.workers.worker"])
def test_a_stop_while_a_worker_imports_ends_it_and_its_nodes_other_signals_do_not(
    make_node: MakeNode, module: str
) -> None:
    ours, theirs = socket.socketpair()
    channel = theirs.fileno()
    arguments = ("--worker", "1", "--channel", str(channel))
    program = (sys.executable, "-m", "bridge.workers")
    with ours, theirs, starting(make_node().write(), *arguments, program=program, channel=channel) as process:
        process.await_import(module)
        process.signal(signal.SIGHUP)
        process.signal(signal.SIGINT)
        process.signal(signal.SIGTERM)
        assert (process.end(), process.events) == (0, [])


def test_hangups_while_the_node_starts_are_one_reload_once_it_has_started(make_node: MakeNode) -> None:
    with starting(make_node().write()) as process:
        for module in IMPORTED:
            process.await_import(module)
            process.signal(signal.SIGHUP)
        process.await_event("listening")
        process.await_event("settings-reloaded")
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        assert [one["event"] for one in process.events] == ["listening", "settings-reloaded", "stopped"]


#: An extension whose part in the start never ends.
HELD: Final = """
import asyncio, sys
from bridge.__main__ import main
from bridge.node import extension, wiring
class Held(extension.Extension):
    async def start(self, node):
        print('{"event":"held"}', file=sys.stderr, flush=True)
        await asyncio.Event().wait()
wiring.installed = lambda settings: [Held()]
sys.exit(main())
"""


def test_a_stop_while_the_node_waits_for_a_part_of_its_start_ends_it_in_order(make_node: MakeNode) -> None:
    node = make_node()
    with starting(node.write(), program=(sys.executable, "-c", HELD)) as process:
        process.await_event("held")
        process.signal(signal.SIGTERM)
        assert process.end() == 0
        assert [one["event"] for one in process.events] == ["held", "stopped"]
        assert process.named("stopped")[0]["queued"] == 0
    assert node.start().stop() == 0


def test_a_thread_of_foreign_code_does_not_hold_a_stopped_node(make_node: MakeNode) -> None:
    node = make_node("node", bridge_to_nowhere("tests.harness.transformers:LeavesThread")).start_listening()
    assert node.stop() == 0
    held = node.event("exit-held")
    assert "left-behind" in held["threads"]
    assert [one["event"] for one in node.events()][-2:] == ["stopped", "exit-held"]


def bridge_to_nowhere(transformer: str) -> str:
    return (
        '[connectors.hub]\nurl = "ws://127.0.0.1:1"\n[[bridges]]\nname = "to-hub"\nqueue-name = "orders"\n'
        f'static-connectors = ["hub"]\ntransformer = "{transformer}"\n'
    )
