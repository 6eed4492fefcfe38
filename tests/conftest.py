"""What every test run shares: in CI a skipped test is a failure, and chance is seeded and printed."""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import subprocess
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, Verbosity, settings
from structlog.testing import LogCapture

from bridge.journal.sqlite import reserve

#: In CI the same examples every time, and room for a slow machine; elsewhere new ones at each run.
settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("local", deadline=None, print_blob=True, verbosity=Verbosity.normal)
#: For `make quick`.
settings.register_profile("quick", parent=settings.get_profile("local"), max_examples=10)
#: For a long look at the property tests: HYPOTHESIS_PROFILE=long make unit ARGS=tests/property
settings.register_profile("long", parent=settings.get_profile("local"), max_examples=5_000)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in a shell's background ignores Ctrl-C, and so would the processes to which tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def in_ci() -> bool:
    """Whether this run is a CI run."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if in_ci() else "local"))


def run_seed() -> int:
    """The run's seed: TEST_SEED, a fixed one in CI, else a new one; printed in pytest's header."""
    given = os.environ.get("TEST_SEED")
    if given is not None:
        return int(given)
    return 20130101 if in_ci() else random.SystemRandom().randrange(2**32)


_SEED = run_seed()
# Processes that share the work (pytest-xdist) take the same one.
os.environ["TEST_SEED"] = str(_SEED)


def pytest_report_header() -> str:
    return f"seed: {_SEED} (TEST_SEED={_SEED} repeats it); a skip is {'a failure' if in_ci() else 'a skip'}"


def pytest_collection_finish() -> None:
    """Modules and collected tests stay to the end: the collector of cycles need not look at them again."""
    gc.freeze()


#: What a journal takes its disk to have in the tests of `make quick`.
DISK_BYTES = 32 * 1024 * 1024


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Chance for one test: the run's seed and the test's name, whatever else was run."""
    return random.Random(f"{_SEED}:{request.node.nodeid}")


#: What `make quick` runs: tests that start no process, but for those that are marked so.
_QUICK = tuple(f"tests/{room}/" for room in ("contracts", "integration", "property", "unit"))


@pytest.fixture(autouse=True)
def _no_process_unmarked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of `_QUICK` that starts a process and is not marked `processes` fails."""
    if not request.node.nodeid.startswith(_QUICK) or request.node.get_closest_marker("processes"):
        return

    def refuse(*_arguments: object, **_options: object) -> None:
        pytest.fail(
            "starts a process: mark it with pytest.mark.processes, so that `make quick` leaves it out"
        )

    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(os, "fork", refuse)
    monkeypatch.setattr("tests.harness.forked.Forks.start", refuse)


@pytest.fixture(autouse=True)
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal in a test's own process keeps as little of the disk aside as on a small one: there are a
    thousand of them, and `make quick` has its disk in memory.
    """
    monkeypatch.setattr(reserve, "disk_bytes", lambda _: DISK_BYTES)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What a command that ran in this process made of logging ends with the test."""
    set_up, before, handlers = structlog.is_configured(), structlog.get_config(), logging.root.handlers[:]
    yield
    if set_up:
        structlog.configure(**before)
    else:
        structlog.reset_defaults()
    logging.root.handlers[:] = handlers


@pytest.fixture
def log() -> LogCapture:
    """What is logged while the test runs."""
    capture = LogCapture()
    structlog.configure(processors=[capture], cache_logger_on_first_use=False)
    return capture


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure in CI: what was not run has not been shown to work."""
    report = yield
    if in_ci() and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {_reason(report.longrepr)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for a module that skips itself as it is imported."""
    report = yield
    if in_ci() and report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {_reason(report.longrepr)}"
    return report


def _reason(longrepr: object) -> str:
    match longrepr:
        case (str(path), int(line), str(reason)):
            return f"{path}:{line}: {reason}"
        case _:
            return str(longrepr)
