"""Ctrl-C while Spark works; `test_follow` has the whole, in a process of its own."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from dedup.reconcile import follow, interrupt, session
from dedup.reconcile import main as command


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        logging.disable(logging.NOTSET)


def sparks(*_: object) -> None:
    """Stands in for PySpark's handler."""


sparks.__module__ = "pyspark.core.context"


@pytest.mark.parametrize("found", [signal.default_int_handler, sparks])
def test_it_raises_and_py4j_says_nothing_of_it(
    found: Callable[..., object], caplog: pytest.LogCaptureFixture
) -> None:
    signal.signal(signal.SIGINT, found)
    interrupt.raise_quietly()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    logging.exception("KeyboardInterrupt while sending command.")
    assert caplog.records == []


def test_the_handler_of_a_program_that_has_one_stays() -> None:
    for found in (signal.SIG_IGN, lambda *_: None):
        signal.signal(signal.SIGINT, found)
        interrupt.raise_quietly()
        assert signal.getsignal(signal.SIGINT) is found


def test_other_threads_change_nothing() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt.raise_quietly)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Fakes:
    """A session and a query, and what is asked of them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sparkContext = self

    def setLogLevel(self, level: str) -> None:  # noqa: N802 - as Spark's
        self.asked.append(f"logs {level}")

    def awaitTermination(self) -> None:  # noqa: N802 - as Spark's
        raise KeyboardInterrupt

    def stop(self) -> None:
        self.asked.append("stop")


def test_java_says_nothing_from_a_ctrl_c_on_and_then_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes()
    with pytest.raises(KeyboardInterrupt):
        follow._run(cast(Any, fakes), cast(Any, fakes), cast(Any, None))
    assert fakes.asked == ["logs OFF", "stop"]
    monkeypatch.setattr(session, "session", lambda *_, **__: fakes)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    fakes.asked.clear()
    with pytest.raises(KeyboardInterrupt), command._spark(None):
        raise KeyboardInterrupt
    assert fakes.asked == ["logs OFF", "stop"]
