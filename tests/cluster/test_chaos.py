"""Nodes are killed, paused, stopped, cut off and deaf at random, while clients move between them.

At the end each message of the ANYCAST address was processed once over the cluster, each of the MULTICAST
address once for each queue name, nothing is left anywhere, and the delivery logs of all nodes agree.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.mesh import SETTLED_S, Mesh, mesh
from tests.cluster.shape import FAR, Shape
from tests.cluster.traffic import Books, Producer, Queue, Reader, left, region
from tests.harness.eventually import LOOK_AGAIN_S, until
from tests.harness.reports import Report
from tests.reconcile.conftest import spark

__all__ = ["spark"]

pytestmark = pytest.mark.processes

MESH = Shape("mesh", 5)
_REST = """
[addresses.jobs]
routing-type = "ANYCAST"
[addresses.results]
routing-type = "ANYCAST"
[addresses.news]
queues = ["all", { name = "eu", filter = "region = 'eu'" }]
[address-settings."#"]
redistribution-delay = 0
"""
JOBS, RESULTS, ALL, EU = ("jobs", "jobs"), ("results", "results"), ("news", "all"), ("news", "eu")


@dataclass(frozen=True)
class Size:
    """How much happens in a run."""

    jobs: int
    news: int
    faults_s: float
    #: Messages of a transaction and of a page, at most.
    at_once: int
    page: int
    producers: int = 4
    pause_s: float = 0.05


SHORT = Size(jobs=1_000, news=600, faults_s=8, at_once=10, page=40)
LONG = Size(jobs=60_000, news=40_000, faults_s=120, at_once=100, page=400, producers=6, pause_s=0.2)
#: Where copies pass other nodes, those that fail hold back more.
LONG_FAR = Size(jobs=9_000, news=6_000, faults_s=45, at_once=50, page=200, pause_s=0.2)


async def run(it: Mesh, size: Size) -> Books:
    """Traffic and faults; returns when everything was processed and nothing is left."""
    books, done = Books(), asyncio.Event()
    begun = asyncio.get_running_loop().time()
    it.spawn()
    await it.settled()
    ready = asyncio.get_running_loop().time()
    producers = [
        Producer(
            it, books, f"{address}{number}", address, count // size.producers, size.at_once, size.pause_s
        )
        for address, count in (("jobs", size.jobs), ("news", size.news))
        for number in range(size.producers)
    ]
    some: list[tuple[Queue, ...]] = [(JOBS,), (JOBS, RESULTS), (RESULTS,), (ALL, EU), (ALL,), (EU, JOBS)]
    readers = [
        Reader(it, books, f"reader{number}", queues, done, size.page, {"jobs": "results"})
        for number, queues in enumerate(some)
    ]
    async with asyncio.TaskGroup() as group:
        keepers = [group.create_task(it.keep_alive(index)) for index in range(len(it.nodes))]
        faults = group.create_task(it.fail_at_random(asyncio.get_running_loop().time() + size.faults_s))
        reading = [group.create_task(reader.run()) for reader in readers]
        await asyncio.gather(*(producer.run() for producer in producers))
        sent = asyncio.get_running_loop().time()
        await faults
        over = asyncio.get_running_loop().time()

        def all_processed() -> bool:
            jobs, news = books.sent["jobs"], books.sent["news"]
            return (
                books.count(JOBS) >= len(jobs)
                and books.count(RESULTS) >= len(jobs)
                and books.count(ALL) >= len(news)
                and books.count(EU) >= sum(region(body) == "eu" for body in news)
            )

        try:
            await until(all_processed, "everything is processed", SETTLED_S + size.faults_s, LOOK_AGAIN_S)
        except AssertionError:
            print(await left(it))
            check(books)
            raise
        finally:
            done.set()
        processed = asyncio.get_running_loop().time()
        await asyncio.gather(*reading)
        seen: dict[str, int] = {}

        async def nothing_left() -> bool:
            nonlocal seen
            seen = await left(it)
            return not seen

        try:
            await until(nothing_left, "nothing is left", SETTLED_S, LOOK_AGAIN_S)
        except AssertionError:
            raise AssertionError(f"left: {seen}") from None
        finally:
            for keeper in keepers:
                keeper.cancel()
    print(
        f"ready {ready - begun:.1f} s, sent {sent - ready:.1f} s, faults over {over - ready:.1f} s,"
        f" processed {processed - ready:.1f} s; {dict(it.faults)};"
        f" {books.unknown} unanswered, {books.duplicates} duplicates"
    )
    return books


def check(books: Books) -> None:
    """Each message once, for each queue that it was for."""
    jobs, news = books.sent["jobs"], books.sent["news"]
    assert len(jobs) == len(set(jobs))
    books.check(JOBS, jobs)
    books.check(RESULTS, [f"jobs/{body}" for body in jobs])
    books.check(ALL, news)
    books.check(EU, [body for body in news if region(body) == "eu"])


async def traffic_and_faults(directory: Path, seed: int, size: Size, shape: Shape = MESH) -> list[Path]:
    """One run; returns the delivery logs."""
    keys = {
        "max-hops": str(shape.max_hops),
        "allow-direct-connections-only": str(shape.is_direct).lower(),
    }
    async with mesh(directory, seed, shape.nodes, _REST, keys=keys, linked=shape.linked) as it:
        try:
            books = await run(it, size)
            await it.stop()
        finally:
            print(f"faults: {dict(it.faults)}")
        check(books)
        it.check_logs()
        return [node.data / "delivery-log" for node in it.nodes]


def check_report(report: Report) -> None:
    """Not one finding, but for IDs that were rightly rejected."""
    assert (report.ended.code, report.summary["verdict"]) == (0, "clean"), report.ended
    wrong = [found for found in report.summary["findings"] if found["kind"] != "rejected"]
    assert wrong == [], wrong[:3]


@pytest.mark.usefixtures("spark")
def test_each_message_is_processed_once_whatever_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    logs = asyncio.run(traffic_and_faults(tmp_path, seed, SHORT))
    check_report(Report.of_this_process(tmp_path / "report", logs, capsys))


@pytest.mark.cluster_long
@pytest.mark.parametrize("seed", range(int(os.environ.get("CHAOS_ROUNDS", "1"))))
def test_long_run(tmp_path: Path, seed: int) -> None:
    """`make test-cluster-long`: 100,000 messages, two minutes of faults."""
    logs = asyncio.run(traffic_and_faults(tmp_path, 1000 + seed, LONG))
    check_report(Report.of(tmp_path / "report", logs))


@pytest.mark.cluster_long
@pytest.mark.parametrize("shape", FAR, ids=str)
def test_long_run_of_chains_and_rings(tmp_path: Path, shape: Shape) -> None:
    """`make test-cluster-long`: copies pass other nodes, while those and the links between them fail."""
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    logs = asyncio.run(traffic_and_faults(tmp_path, seed, LONG_FAR, shape))
    check_report(Report.of(tmp_path / "report", logs))
