"""Ctrl-C while Spark works: a KeyboardInterrupt, without pages of output from Spark's client."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def raise_quietly() -> None:
    """Let Ctrl-C raise KeyboardInterrupt in the main thread, and silence py4j, which logs it with its trace.

    To be called before Spark is started and after it: PySpark then has a handler of its own, which talks to
    Java in the middle of another call to it and fails with a trace. Another handler than these two stays; in
    other threads than the main one nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    found = signal.getsignal(signal.SIGINT)
    is_sparks = getattr(found, "__module__", "").partition(".")[0] == "pyspark"
    if is_sparks or found is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)


def hush(spark: SparkSession) -> None:
    """Hide all output of Java after this: work that is being cancelled fails."""
    spark.sparkContext.setLogLevel("OFF")


def _interrupted(*_: object) -> NoReturn:
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt
