"""How the processes of pytest-xdist share the tests out: by file, the dear ones first.

A plugin of `make test`: ``pytest -p tests.sharing -n 3``. Tests of one file share its fixtures, so they stay
together; those of Spark share a session, which takes a process some 10 s to start. What takes long begins
first: else the last process works alone at the end.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from xdist.scheduler import LoadScopeScheduling

#: One process runs all of these, with one Spark.
_SPARK: Final = ("tests/reconcile/", "tests/kafka/test_audit.py")
#: Files that wait for brokers, Spark or processes, the dearest first; all others come after them.
_DEAR: Final = (
    *_SPARK,
    "tests/kafka/exactly_once/",
    "tests/fault/",
    "tests/acceptance/kafka/",
    "tests/kafka/",
    "tests/acceptance/",
)


class ByFile(LoadScopeScheduling):
    """A file is one piece of work, and so are all of `_SPARK`."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "spark" if path.startswith(_SPARK) else path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort them as `_DEAR` says; what is equal stays in its order."""

    def place(item: pytest.Item) -> int:
        return next((at for at, begin in enumerate(_DEAR) if item.nodeid.startswith(begin)), len(_DEAR))

    items.sort(key=place)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    """Pieces of work come in the order in which they were collected."""
    config.option.loadscopereorder = False
    return ByFile(config, log)
