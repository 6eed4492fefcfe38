"""The reconcile command: options, order of work, exit codes. `core-bridge` and spark-submit come here."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from dedup.reconcile.errors import BadInput, NoSpark, NotInstalled
from dedup.reconcile.storage import Local, NeedsSpark, local, place
from dedup.reconcile.text import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dedup.reconcile.summary import Summary

PROGRAM: Final = "core-bridge reconcile"
OK, FAILED, BAD_INPUT = 0, 1, 2
#: All is accounted for, and messages are still on the way (`--fail-on-waiting`).
WAITING = 5
#: Ctrl-C: 128 + SIGINT, as shells say it.
INTERRUPTED = 130
EXIT_CODES: Final = (
    "exit codes: 0 every message is accounted for, 3 messages are lost or doubled, 4 none is known to be\n"
    "lost, but the logs do not cover all of them, 2 bad input (or no Java, PySpark or Jinja2), 1 failed,\n"
    "130 Ctrl-C; with --fail-on-waiting: 5 where it would be 0, and messages are still on the way;\n"
    "with --verify: 0 nothing has changed, 1 something has, 2 no report"
)
_SPARK: Final = "pyspark"
#: Packages that `reconcile` needs beyond core-bridge itself, and their names; Jinja2 on the driver alone.
_EXTRA: Final = {_SPARK: "PySpark", "jinja2": "Jinja2"}
#: The command that installs them.
INSTALL: Final = (
    "pip install 'core_bridge-VERSION-py3-none-any.whl[reconcile]', or '.[reconcile]' in a checkout"
)
#: Set to 1, a failure shows its traceback instead of one line; the same variable as for every command.
_TRACEBACK: Final = "CORE_BRIDGE_TRACEBACK"
#: Where --follow keeps its place, below --state or --output.
_CHECKPOINT: Final = "follow"
#: A value of --late-after: no message is late.
NEVER: Final = -1


def add_options(parser: argparse.ArgumentParser, duration_ms: Callable[[str], int]) -> None:
    """The contract's options.

    Args:
        parser: gets them.
        duration_ms: argparse type of ``60s`` and of `NEVER`; the settings' own where there are settings.
    """
    parser.add_argument(
        "--logs",
        metavar="DIR",
        nargs="+",
        action="extend",
        default=[],
        help="directories, files or patterns with delivery logs of every node; any path that Hadoop reads",
    )
    parser.add_argument(
        "--output", metavar="DIR", help="the report's directory: new, empty or an earlier report"
    )
    parser.add_argument("--master", help="Spark's master (default: what spark-submit says, else local[*])")
    parser.add_argument(
        "--state", metavar="DIR", help="remember here what was found clean, and read new files only"
    )
    parser.add_argument(
        "--late-after",
        metavar="TIME",
        type=duration_ms,
        default=60_000,
        help="a message is late after this time (default: 60s; -1: never)",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="go on, and write a JSON line for what stays open longer than that",
    )
    parser.add_argument(
        "--fail-on-waiting",
        action="store_true",
        help=f"exit {WAITING} where all is accounted for, and messages are still on the way",
    )
    parser.add_argument(
        "--verify", metavar="REPORT", help="see whether a report and its logs are still the same"
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the options; returns the exit code.

    Results go to stdout, everything else to stderr. `arguments.format` is ``text`` or ``json``.
    """
    try:
        return _run(arguments)
    except (BadInput, NoSpark, NotInstalled) as bad:
        return _wrong(str(bad), BAD_INPUT)
    except NeedsSpark as needs:
        return _wrong(f"{needs} is not on this machine", BAD_INPUT)
    except KeyboardInterrupt:  # the end of --follow
        return INTERRUPTED
    except Exception as error:
        if os.environ.get(_TRACEBACK) == "1" or not _is_sparks(error):
            raise
        from dedup.reconcile.files import reason

        return _wrong(reason(error), FAILED)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.verify is not None:
        return _verify(arguments)
    wanted = [name for name in ("logs", "output") if not getattr(arguments, name)]
    if wanted:
        raise BadInput(f"--{wanted[0]} DIR: must be given, unless a report is verified")
    if arguments.follow and arguments.fail_on_waiting:
        raise BadInput("--fail-on-waiting: must not be given with --follow, which ends by Ctrl-C only")
    for package in _EXTRA:
        _check_installed(package)
    _check_places(arguments)
    with _spark(arguments.master, _log_bytes(arguments)) as spark:
        if arguments.follow:
            return _follow(spark, arguments)
        outcome = _reconcile(spark, arguments)
    if arguments.format == "json":
        _say(json.dumps(outcome.content))
    else:
        for line in _told(outcome, arguments.output):
            _say(line)
    if arguments.fail_on_waiting and outcome.waiting and not outcome.exit_code:
        return WAITING
    return outcome.exit_code


def _reconcile(spark: SparkSession, arguments: argparse.Namespace) -> Summary:
    from dedup.reconcile import report
    from dedup.reconcile.job import reconcile
    from dedup.reconcile.page import Made

    # Before the work, not after it.
    report.check_output(*place(arguments.output, spark))
    made = Made(time.time_ns() // 1_000_000, _version(), arguments.late_after)
    _progress(f"reading {', '.join(arguments.logs)}")
    tables = reconcile(spark, arguments.logs, late_after_ms=arguments.late_after, state=arguments.state)
    try:
        return report.write(tables, arguments.output, made)
    finally:
        tables.release()


def _follow(spark: SparkSession, arguments: argparse.Namespace) -> int:
    from dedup.reconcile.follow import follow

    checkpoint = f"{(arguments.state or arguments.output).rstrip('/')}/{_CHECKPOINT}"
    follow(spark, arguments.logs, late_after_ms=arguments.late_after, checkpoint=checkpoint, out=sys.stdout)
    return OK


def _verify(arguments: argparse.Namespace) -> int:
    from dedup.reconcile.verify import verify

    try:
        problems = verify(arguments.verify)
    except NeedsSpark:
        with _spark(arguments.master) as spark:
            problems = verify(arguments.verify, spark)
    if arguments.format == "json":
        _say(json.dumps({"v": 1, "report": arguments.verify, "problems": problems}))
    else:
        for problem in problems:
            _say(problem)
        _say(f"{arguments.verify}: {plural(len(problems), 'problem') if problems else 'ok'}")
    return FAILED if problems else OK


def _check_installed(package: str) -> None:
    if find_spec(package) is None:
        raise NotInstalled(f"{_EXTRA[package]} is not installed; reconcile needs it: {INSTALL}")


def _check_places(arguments: argparse.Namespace) -> None:
    """Check local paths at once, without the seconds that Spark takes to start."""
    if any(name in os.environ for name in ("HADOOP_CONF_DIR", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT")):
        return  # a path without a scheme may be anywhere
    for path in arguments.logs:
        found = local(path)
        if found is not None and not found.exists() and not set(path) & set("*?[{"):
            raise BadInput(f"{path}: no such file or directory")
    directory = local(arguments.output)
    if directory is not None and not arguments.follow:
        from dedup.reconcile.report import check_output

        check_output(Local(), str(directory.resolve()))


def _log_bytes(arguments: argparse.Namespace) -> int | None:
    """The number of bytes to read, where it is known before Spark is started."""
    if arguments.follow or arguments.state is not None:
        return None
    from dedup.reconcile.files import bytes_here

    return bytes_here(arguments.logs)


@contextmanager
def _spark(master: str | None, log_bytes: int | None = None) -> Iterator[SparkSession]:
    """A session, which ends with the command unless the caller had started it."""
    _check_installed(_SPARK)
    from pyspark.sql import SparkSession as Session  # after the extra is known to be there

    from dedup.reconcile import interrupt
    from dedup.reconcile.session import session

    began = Session.getActiveSession() is None
    _progress("starting Spark")
    spark = session(master, "core-bridge reconcile", log_bytes=log_bytes)
    try:
        yield spark
    except KeyboardInterrupt:
        interrupt.hush(spark)
        raise
    finally:
        if began:
            spark.stop()


def _told(outcome: Summary, output: str) -> Iterator[str]:
    yield from outcome.lines
    directory = output.rstrip("/")
    yield f"report: {directory}/report.html"
    if any(found["kind"] == "lost" for found in outcome.content["findings"]):
        yield f"to send again what is lost: core-bridge replay --plan {directory}/replay-plan.json --dry-run"


def _is_sparks(error: Exception) -> bool:
    """Whether it is Spark's or Java's, whose texts are pages long."""
    return any(kind.__module__.partition(".")[0] in {"pyspark", "py4j"} for kind in type(error).__mro__)


def _version() -> str:
    try:
        return version("core-bridge")
    except PackageNotFoundError:  # a job of spark-submit with the packages alone
        return ""


def _wrong(text: str, code: int) -> int:
    sys.stderr.write(f"{PROGRAM}: {' '.join(text.split())}\n")
    return code


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
