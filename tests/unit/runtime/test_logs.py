"""Logs as the contract writes them, and what must never be in them."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from bridge.runtime import logs


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def stream() -> io.StringIO:
    out = io.StringIO()
    logs.configure("info", "json", "edge-1", out)
    return out


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_the_contracts_keys_in_their_order(stream: io.StringIO) -> None:
    logs.get(bridge="orders-to-hub").info("bridge-disconnected", reason="cut", retry_in_ms=2000)
    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "event", "node", "bridge", "reason", "retry-in-ms"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("timestamp"))
    assert line == {
        "level": "info",
        "event": "bridge-disconnected",
        "node": "edge-1",
        "bridge": "orders-to-hub",
        "reason": "cut",
        "retry-in-ms": 2000,
    }


def test_an_event_of_no_bridge_has_no_bridge_key(stream: io.StringIO) -> None:
    logs.get().info("listening", acceptor="ws://127.0.0.1:61616", operations=None)
    logs.get().info("stopped", bridge=None, queued=0)
    assert [list(line)[3:] for line in lines(stream)] == [
        ["node", "acceptor", "operations"],
        ["node", "queued"],
    ]


def test_timestamps_are_utc_with_milliseconds() -> None:
    assert logs.timestamp(1_357_017_420.0) == "2013-01-01T05:17:00.000Z"
    assert logs.timestamp(1_357_017_420.9996) == "2013-01-01T05:17:00.999Z"


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_what_is_less_urgent_than_the_level_is_not_written(level: logs.Level, written: list[str]) -> None:
    stream = io.StringIO()
    before = logs.get()
    logs.configure(level, "json", "n", stream)
    for name in ("debug", "info", "warning", "error"):
        getattr(before, name)("something")
    assert [line["level"] for line in lines(stream)] == written


def test_a_terminal_gets_the_console_and_a_pipe_gets_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for format_, stream, is_json in (
        ("auto", Terminal(), False),
        ("auto", io.StringIO(), True),
        ("console", io.StringIO(), False),
        ("json", Terminal(), True),
    ):
        logs.configure("info", format_, "edge-1", stream)  # type: ignore[arg-type]
        logs.get(bridge="b").warning("journal-full", retry_in_ms=5)
        text = stream.getvalue()
        assert text.startswith("{") == is_json, (format_, text)
        assert "\x1b" not in text
        assert text.count("\n") == 1
        assert ("retry-in-ms=5" in text) == (not is_json)


def test_colors_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        logs.configure("info", "console", "n", stream)
        logs.get().info("listening")
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b[" not in pipe.getvalue()


class Opaque:
    """Like pydantic's SecretStr: its text is not its content."""

    def __str__(self) -> str:
        return "**********"


SECRET = "s3cr3t-value"


@pytest.mark.parametrize(
    "values",
    [
        {"token": SECRET},
        {"tokens": [SECRET]},
        {"sasl_plain_password": SECRET},
        {"ssl-password": SECRET},
        {"headers": {"Authorization": SECRET}},
        {"connector": {"url": "x", "nested": [{"token": SECRET}]}},
        {"passphrase": SECRET},
        {"ssl_key_passphrases": [SECRET]},
        {"mytoken": SECRET},
        {"Proxy-Authorization": SECRET},
        {"connection": {"credential": SECRET}},
        {"url": f"ws://user:{SECRET}@hub:61616/v1/link"},
        {"url": f"ws://user:p@{SECRET}@hub:61616/v1/link"},
        {"reason": f"refused: Authorization: Bearer {SECRET}"},
        {"reason": ValueError(f"cannot reach https://{SECRET}@hub")},
        {"reason": f"Bearer {SECRET}".encode()},
    ],
)
def test_a_secret_never_reaches_a_log(values: dict[str, Any], stream: io.StringIO) -> None:
    logs.get().error("bridge-failed", **values)
    assert SECRET not in stream.getvalue()
    assert "***" in stream.getvalue()


def test_what_only_looks_like_a_secret_stays(stream: io.StringIO) -> None:
    logs.get().info(
        "x", key="k-1", bridge="tokens-to-hub", url="ws://hub:61616", token="", mail="a@b.example"
    )
    assert lines(stream)[0]["key"] == "k-1"
    assert (lines(stream)[0]["bridge"], lines(stream)[0]["url"]) == ("tokens-to-hub", "ws://hub:61616")
    assert lines(stream)[0]["mail"] == "a@b.example"


class State(Enum):
    RUNNING = "RUNNING"


def test_values_of_any_kind_become_json(stream: io.StringIO) -> None:
    logs.get().info("x", state=State.RUNNING, path=Path("a/b"), raw=b"\xff!", many=(1, None), opaque=Opaque())
    (line,) = lines(stream)
    assert (line["state"], line["path"], line["raw"]) == ("RUNNING", "a/b", "\\xff!")
    assert (line["many"], line["opaque"]) == ([1, None], "**********")


def test_an_exception_is_one_line_of_json(stream: io.StringIO) -> None:
    try:
        raise RuntimeError("disk")
    except RuntimeError:
        logs.get().exception("bridge-failed")
    (line,) = lines(stream)
    assert line["level"] == "error"
    assert "RuntimeError: disk" in line["exception"]


def test_what_libraries_warn_of_comes_out_the_same_way(stream: io.StringIO) -> None:
    logs.configure("info", "json", "edge-1", stream)  # twice: still one line each
    logging.getLogger("aiohttp.server").info("not this")
    logging.getLogger("asyncio").error("Task exception was never retrieved in %s", "x")
    (line,) = lines(stream)
    assert (line["event"], line["logger"], line["level"]) == ("library", "asyncio", "error")
    assert line["message"] == "Task exception was never retrieved in x"


@pytest.mark.parametrize(
    ("level", "written"),
    [(logging.WARNING, "warning"), (35, "warning"), (logging.CRITICAL, "error")],
)
def test_libraries_have_two_levels(stream: io.StringIO, level: int, written: str) -> None:
    logging.getLogger("some.client").log(level, "Bearer %s", SECRET, stack_info=True)
    (line,) = lines(stream)
    assert list(line) == ["timestamp", "level", "event", "node", "logger", "message"]
    assert (line["level"], line["message"]) == (written, "Bearer ***")


def test_a_library_that_repeats_itself_is_heard_once_a_minute(stream: io.StringIO) -> None:
    now_s = [0.0]
    logs.configure("info", "json", "n", stream, clock=lambda: now_s[0])
    client = logging.getLogger("some.client")
    for _ in range(120):
        client.error("Unable connect to %s", "a:1")
        now_s[0] += 0.5
    client.error("Unable connect to %s", "b:2")
    client.error("Unable connect to %s", "a:1")
    logging.getLogger("other").error("Unable connect to a:1")
    assert [(line["logger"], line["message"], line.get("repeated")) for line in lines(stream)] == [
        ("some.client", "Unable connect to a:1", None),
        ("some.client", "Unable connect to b:2", None),
        ("some.client", "Unable connect to a:1", 119),
        ("other", "Unable connect to a:1", None),
    ]


def test_exceptions_of_libraries_are_always_written(stream: io.StringIO) -> None:
    for number in range(3):
        try:
            raise RuntimeError(str(number))
        except RuntimeError:
            logging.getLogger("asyncio").exception("a task failed")
    assert [line["exception"].rpartition(" ")[2] for line in lines(stream)] == ["0", "1", "2"]


def test_only_so_many_texts_of_libraries_are_remembered(stream: io.StringIO) -> None:
    logs.configure("info", "json", "n", stream, clock=lambda: 0.0)
    client = logging.getLogger("some.client")
    for number in (0, 0, *range(1, logs.LIBRARY_TEXTS), 1, 0, logs.LIBRARY_TEXTS, 0):
        client.error("text %d", number)
    told = [line["message"] for line in lines(stream)]
    # The hundred-and-first pushed out the one that was written first.
    assert told == [f"text {number}" for number in (*range(logs.LIBRARY_TEXTS + 1), 0)]


def test_a_stream_that_is_gone_costs_the_line_and_not_the_caller() -> None:
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    closed = io.StringIO()
    logs.configure("info", "json", "n", closed)
    closed.close()
    logs.get().info("lost")
    logs.configure("info", "json", "n", Broken())
    logs.get().info("lost too")


@pytest.mark.processes
def test_logs_go_to_stderr_and_never_to_stdout() -> None:
    program = (
        "from bridge.runtime import logs; logs.configure('info', 'auto', 'n');"
        "logs.get().info('listening', name='é')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        env=os.environ,
    )
    assert done.stdout == ""
    assert json.loads(done.stderr)["name"] == "é"


class Clock:
    """Time that moves when a test says so, and the one timer that was set on it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        self.timers.append((self.now + delay_s, call))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self.timers if at <= self.now]
        self.timers = [(at, call) for at, call in self.timers if at > self.now]
        for call in due:
            call()


def counts(stream: io.StringIO) -> list[int]:
    return [line["count"] for line in lines(stream) if line["event"] == "duplicate-rejected"]


def test_rejected_duplicates_are_logged_at_most_once_a_second_and_none_goes_uncounted(
    stream: io.StringIO,
) -> None:
    """D56: counters by kind, one rate-limited line."""
    clock = Clock()
    tally = logs.Tally(logs.get(bridge="b"), "duplicate-rejected", clock=clock, later=clock.later)
    tally.add()
    assert counts(stream) == [1]
    for _ in range(10):
        tally.add(2)
    assert counts(stream) == [1]
    assert len(clock.timers) == 1
    clock.advance(0.5)
    tally.add(5)
    clock.advance(0.5)
    assert counts(stream) == [1, 25]
    clock.advance(10)
    assert counts(stream) == [1, 25]
    tally.add(3)
    assert counts(stream) == [1, 25, 3]


def test_without_a_timer_the_next_one_or_the_stop_brings_the_rest(stream: io.StringIO) -> None:
    clock = Clock()
    tally = logs.Tally(logs.get(), "duplicate-rejected", clock=clock)
    tally.add(1)
    tally.add(1)
    clock.advance(1)
    tally.add(1)
    tally.add(4)
    tally.flush()
    tally.flush()
    assert counts(stream) == [1, 2, 4]


def test_each_bridge_has_a_limit_of_its_own(stream: io.StringIO) -> None:
    for bridge in ("a", "b"):
        logs.rate_limited("duplicate-rejected", bridge=bridge).add(7)
    assert [(line["bridge"], line["count"]) for line in lines(stream)] == [("a", 7), ("b", 7)]
