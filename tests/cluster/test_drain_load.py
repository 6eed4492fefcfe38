"""Drains under load: producers go on at the heir, readers go on, subscriptions miss nothing meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.mesh import AGAIN_S, FAULTS, SETTLED_S, Mesh, mesh
from tests.cluster.traffic import Books, Producer, Queue, Reader, left
from tests.harness.eventually import LOOK_AGAIN_S, until

pytestmark = pytest.mark.processes

_REST: Final = '[address-settings."#"]\nredistribution-delay = 0\n'
_JOBS: Final = '[addresses.jobs]\nrouting-type = "ANYCAST"\n'
JOBS, EVERYWHERE = ("jobs", "jobs"), ("news", "everywhere")


@dataclass
class Load:
    """Producers and readers at all nodes while some of them are drained."""

    it: Mesh
    #: The queue that only one node has at first, by node.
    only: dict[int, Queue] = field(default_factory=dict)
    books: Books = field(default_factory=Books)

    async def drain(self, leaver: int, heir: int) -> None:
        """Drain a node, and stop it when it is drained."""
        while True:
            answer = await self.it.ask(
                leaver,
                "POST",
                "/v1/cluster/drain",
                operations=True,
                json={"to": f"n{heir}", "lease-timeout": 1000},
            )
            if answer.status == 200:
                break
            assert answer.status in (0, -1, 404, 409, 503), answer
            await asyncio.sleep(AGAIN_S)

        async def done() -> bool:
            found = await self.it.ask(leaver, "GET", "/v1/cluster/drain", operations=True)
            return found.status == 200 and found.json["phase"] == "DONE"

        await until(done, f"n{leaver} is drained", SETTLED_S, LOOK_AGAIN_S)
        self.it.heirs[leaver] = heir

    async def run(self, drains: Sequence[tuple[int, int]], faults_s: float = 0.0, count: int = 400) -> None:
        """All of it; returns when everything was processed and nothing is left."""
        it, books, done = self.it, self.books, asyncio.Event()
        it.spawn()
        await it.settled()
        for leaver, _ in drains:
            self.only[leaver] = ("news", f"only{leaver}")
            await it.surely(leaver, "PUT", f"/v1/addresses/news/queues/only{leaver}", json={})
        for index in range(len(it.nodes)):
            await it.surely(index, "PUT", "/v1/addresses/news/queues/everywhere", json={})
        for _, queue in self.only.values():
            await it.knows("news", queue)
        queues = [JOBS, EVERYWHERE, *self.only.values()]
        producers = [
            Producer(it, books, f"{address}{number}", address, count, pause_s=0.02)
            for address in ("jobs", "news")
            for number in range(3)
        ]
        readers = [Reader(it, books, f"reader{number}", queues, done) for number in range(4)]
        async with asyncio.TaskGroup() as group:
            loop = asyncio.get_running_loop()
            keepers = [group.create_task(it.keep_alive(index)) for index in range(len(it.nodes))]
            reading = [group.create_task(reader.run()) for reader in readers]
            sending = [group.create_task(producer.run()) for producer in producers]
            await until(lambda: len(books.sent.get("news", ())) > count / 4, "there is traffic", SETTLED_S)
            draining = [group.create_task(self.drain(*one)) for one in drains]
            if faults_s:
                # A node that stops cleanly has no queues until it is back: it would rightly miss some.
                unclean = [kind for kind in FAULTS if kind != "stop"]
                await it.fail_at_random(loop.time() + faults_s, kinds=unclean)
            await asyncio.gather(*draining)
            await asyncio.gather(*sending)

            def all_processed() -> bool:
                return all(books.count(queue) >= len(books.sent[queue[0]]) for queue in queues)

            try:
                await until(all_processed, "everything is processed", SETTLED_S, LOOK_AGAIN_S)
            except AssertionError:
                print(await left(it))
                self.check()
                raise
            done.set()
            await asyncio.gather(*reading)

            async def nothing_left() -> bool:
                return not await left(it)

            await until(nothing_left, "nothing is left", SETTLED_S, LOOK_AGAIN_S)
            for keeper in keepers:
                keeper.cancel()
        self.check()
        await it.stop()
        it.check_logs()

    def check(self) -> None:
        """Each message once for each queue."""
        for queue in (JOBS, EVERYWHERE, *self.only.values()):
            self.books.check(queue, self.books.sent[queue[0]])


async def test_producers_and_readers_go_on_at_the_heir(tmp_path: Path) -> None:
    async with mesh(tmp_path, 1, 3, _REST, [_JOBS, "", ""]) as it:
        await Load(it).run([(0, 1)])


async def test_two_drains_at_once_to_one_heir(tmp_path: Path) -> None:
    async with mesh(tmp_path, 2, 3, _REST, [_JOBS, _JOBS, ""]) as it:
        await Load(it).run([(0, 2), (1, 2)])


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.cluster_long) for n in range(1, 10))]
)
async def test_drains_among_kills_and_cuts(tmp_path: Path, seed: int) -> None:
    async with mesh(tmp_path, 10 + seed, 4, _REST, [_JOBS] * 4) as it:
        await Load(it).run([(0, 1), (2, 3)], faults_s=8.0 if seed else 4.0)
