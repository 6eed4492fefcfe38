"""One Spark session for all tests of a process, and logs to reconcile."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from dedup.reconcile.session import session

#: Read by Spark's launcher. Each sort and hash table takes a page at once, of a heap of 2 GB 32 MB, which are
#: zeroed. And the first compiler has room for 48 MB of code: after a few minutes it is full, and methods are
#: thrown away and compiled again.
_JAVA: Final = "-Dspark.buffer.pageSize=1m -XX:ReservedCodeCacheSize=256m"
#: Tests reconcile a few hundred lines, and planning takes most of the time: further partitions, compiled
#: plans, and a plan that is made again after each stage take longer than they save.
_QUICK: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # Spark would check its own rules after each of them.
    "spark.sql.lightweightPlanChangeValidation": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Starting it takes some 10 s: whoever needs Spark shares this one."""
    yield from quick_session()


def quick_session() -> Iterator[SparkSession]:
    """The session that runs, or one that is stopped in the end."""
    there = SparkSession.getActiveSession()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", _JAVA)
        found = there or session("local[2]", "core-bridge tests", log_bytes=0)
    for name, value in _QUICK.items():
        found.conf.set(name, value)
    yield found
    if there is None:
        found.stop()


def line(side: str, from_: int, upto: int, **changes: Any) -> dict[str, Any]:
    """A line of the contract that carries every position it covers; `changes` as keys, _ for -."""
    made: dict[str, Any] = {
        "v": 1, "side": side, "node": "eu" if side == "sent" else "us",
        "node-id": "11111111" if side == "sent" else "22222222", "bridge": "orders-to-us", "lane": 0,
        "stream": "journal:a:orders:0", "address": "orders", "target": "orders", "store": "us/1",
        "from": from_, "upto": upto, "runs": [[from_, upto - 1]] if upto > from_ else [], "refused": [],
        "ids": [], "events": [1_700_000_000_000, 1_700_000_000_000], "committed": 1_700_000_000_100,
        "duplicates": 0, "recovered": False,
    }  # fmt: skip
    made |= {key.replace("_", "-"): value for key, value in changes.items()}
    made["count"] = sum(last - first + 1 for first, last in made["runs"])
    return made


def write_log(
    directory: Path,
    lines: Iterable[dict[str, Any] | str],
    *,
    node: str = "us",
    number: int = 1,
    suffix: str = ".jsonl",
) -> Path:
    """One file of a node's delivery log; text is written as it is. Without a newline at its end if open."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{node}-20261121T185800-{number:06}{suffix}"
    texts = [each if isinstance(each, str) else json.dumps(each, separators=(",", ":")) for each in lines]
    path.write_text("\n".join(texts) + ("\n" if suffix == ".jsonl" else ""))
    return path
