"""How the processes of pytest-xdist share the tests out: by file, the dear ones first.

A plugin of `make test`: ``pytest -p tests.sharing -n 3``. Tests of one file share its fixtures, so they stay
together; those of Spark share two sessions, which take a process some 10 s each to start, and those of HTTP's
contract share a node. What takes long begins first: else the last process works alone at the end. Files that
wait and those that compute take turns. Two Kafka clusters serve all of them: a broker that does nothing takes
3 % of a core, and each process would start six.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest
from coverage import Coverage
from xdist.scheduler import LoadScopeScheduling

from bridge.demo import ports
from tests.harness.forked import MEASURED
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.conftest import QUICK_SESSIONS, RUNNING

#: Two processes run these, each with one Spark, which is slow until it has compiled what a job takes: one has
#: the audits, the other the reports. One alone would still be at them when the others are through.
_AUDITS: Final = (
    *("tests/reconcile/test_audit.py", "tests/verdicts/test_audits.py", "tests/kafka/test_audit.py"),
    "tests/cluster/test_chaos.py",
)
_REPORTS: Final = ("tests/reconcile/", "tests/verdicts/test_reconcile.py", "tests/acceptance/test_waiting.py")
#: One process runs all of these, with one node.
_HTTP_CONTRACT: Final = "tests/contracts/http/"
#: Files that take long whoever runs them: they begin first, in this order.
_DEAR: Final = (
    *(*_AUDITS, *_REPORTS),
    *("tests/kafka/exactly_once/", "tests/fault/"),
)
#: Files that wait for brokers and processes. Most of those that only compute come in between...
_WAITING: Final = ("tests/acceptance/kafka/", "tests/kafka/", "tests/lines/", "tests/acceptance/")
#: ...and the rest at the end, where short ones let all processes end together.
_BETWEEN: Final = 9 / 10


#: These tests try by whole nodes, or by chance, what others run step by step: what runs in their own process
#: is not measured. Measuring takes three fifths of what a test computes.
_UNMEASURED: Final = (
    *(
        f"tests/{room}/"
        for room in ("acceptance", "cluster", "fault", "hostile", "lines", "property", "verdicts")
    ),
    *(f"tests/kafka/{room}/" for room in ("exactly_once", "nodes", "traffic")),
)
#: Nor are nodes and commands of these: other tests run the same code, SIGKILL leaves no result of most of
#: them, and measuring takes a third of a node's time and half of a command's.
_UNMEASURED_NODES: Final = (
    *("tests/kafka/exactly_once/", "tests/acceptance/kafka/", "tests/fault/", "tests/hostile/"),
    *("tests/integration/workers/", "tests/lines/", _HTTP_CONTRACT),
    *(
        f"tests/kafka/{name}.py"
        for name in ("client/test_rights", "nodes/test_loops", "nodes/test_readme", "nodes/test_workers")
    ),
    *(
        f"tests/cluster/test_{name}.py"
        for name in (
            *("chaos", "drain_cases", "drain_kills", "drain_load", "hostile", "kills", "leaving"),
            *("hops", "reload", "routing"),
        )
    ),
    *(
        f"tests/acceptance/test_{name}.py"
        for name in (
            *("bridge_filters", "cli", "delivery_log", "failover", "full_address", "link", "link_rights"),
            *("logs", "loops", "operations", "package", "readme", "reload_tls", "replay_plan"),
            *("settings", "transformers", "waiting", "who_did_what"),
        )
    ),
)
#: But for what nobody else runs.
_MEASURED: Final = ("tests/acceptance/kafka/test_replay_plan.py",)


class ByFile(LoadScopeScheduling):
    """A file is one piece of work, and so are all of `_AUDITS`, `_REPORTS` and `_HTTP_CONTRACT`."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path.startswith(_AUDITS):
            return "audits"
        if path.startswith(_REPORTS):
            return "reports"
        return _HTTP_CONTRACT if path.startswith(_HTTP_CONTRACT) else path


def pytest_configure(config: pytest.Config) -> None:
    """Start the clusters, unless they run already; give each of the processes ports of its own."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        number = int(worker["workerid"].removeprefix("gw"))
        ports.share_out(number + 1, worker["workercount"] + 1)
        # All of them import the same modules as they collect: one that is measured will do.
        measuring = Coverage.current()
        if number and measuring is not None:
            measuring.stop()
            config.pluginmanager.register(_MeasuresOnceCollected(measuring))
        return
    # Each process that imports aiohttp reads the system's authorities, 50 ms of computing; no test needs one.
    os.environ |= {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
    if not config.getoption("numprocesses") or RUNNING in os.environ:
        return
    clusters = contextlib.ExitStack()
    config.add_cleanup(clusters.close)
    both = [
        clusters.enter_context(Cluster(name=f"shared-{name}", properties=QUICK_SESSIONS, heap="1g"))
        for name in "ab"
    ]
    os.environ[RUNNING] = ",".join(cluster.bootstrap for cluster in both)


class _MeasuresOnceCollected:
    """The part of this plugin in a process whose collection is not measured."""

    def __init__(self, measuring: Coverage) -> None:
        self._measuring = measuring

    def pytest_collection_finish(self) -> None:
        self._measuring.start()


@pytest.fixture(autouse=True, scope="module")
def coverage_of_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether a module's tests and fixtures are measured, and the processes that they start."""
    name = request.node.nodeid
    measuring = Coverage.current() if name.startswith(_UNMEASURED) else None
    with pytest.MonkeyPatch.context() as patch:
        if name.startswith(_UNMEASURED_NODES) and not name.startswith(_MEASURED):
            patch.delenv(MEASURED, raising=False)
        if measuring is not None:
            measuring.stop()
        yield
        if measuring is not None:
            measuring.start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort them by file as `_DEAR`, `_WAITING` and `_BETWEEN` say; what is equal stays in its order."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    named = [name for begin in (*_DEAR, *_WAITING) for name in files if name.startswith(begin)]
    dear = dict.fromkeys(name for name in named if name.startswith(_DEAR))
    waiting = dict.fromkeys(name for name in named if name not in dear)
    computing = [name for name in files if name not in dear | waiting]
    items[:] = [item for name in (*dear, *_mixed([*waiting], computing)) for item in files[name]]


def _mixed(waiting: list[str], computing: list[str]) -> list[str]:
    """All of both in their order, `_BETWEEN` of the second spread evenly between the first."""
    found: list[str] = []
    taken = 0
    for number, name in enumerate(waiting, start=1):
        upto = int(len(computing) * _BETWEEN * number / len(waiting))
        found += [name, *computing[taken:upto]]
        taken = upto
    return found + computing[taken:]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Pieces of work come in the order in which they were collected."""
    config.option.loadscopereorder = False
    return ByFile(config, log)
