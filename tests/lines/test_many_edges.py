"""Many edges of one hub, in this process, over real links: the hub restarts, and all come back."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bridge.errors import TargetUnavailable
from bridge.link.frames import Hello
from bridge.link.limits import VERSION
from bridge.link.node_target import NodeTarget
from bridge.link.socket import Endpoint
from bridge.relay.backoff import Backoff
from bridge.relay.relay import RelayOptions
from tests.harness.eventually import until
from tests.harness.node import MakeNode, Node, made_nodes

#: Longest that all take to come back, in seconds.
BACK_WITHIN_S: Final = 120.0


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    with made_nodes(tmp_path) as make:
        yield make


def hello(number: int) -> Hello:
    return Hello(
        version=VERSION,
        node_id=f"{number:032x}",
        node_name=f"edge-{number}",
        store=f"journal:{number:016x}",
        bridge=f"edge-{number}-to-hub",
        previous="",
        check_producer_ids=True,
        use_duplicate_detection=True,
        producer_window=1 << 20,
        check_period_ms=30_000,
        connection_ttl_ms=60_000,
    )


class Edges:
    """Links that come back by the back-off of a bridge."""

    def __init__(self, hub: Node) -> None:
        self._hub = hub
        self._chance = random.Random(44)
        self.open: set[int] = set()
        #: Attempts that did not succeed.
        self.failed = 0

    async def keep(self, number: int) -> None:
        """One edge: connect, and again when the link is lost."""
        options = RelayOptions(f"edge-{number}", Backoff(1000, 1.0, 1000, self._chance.random))
        target = NodeTarget(Endpoint(self._hub.url), hello(number), call_timeout_ms=30_000)
        try:
            while True:
                await options.retrying(lost=True, before_wait=self._refused)(target.open, [])
                self.open.add(number)
                with contextlib.suppress(TargetUnavailable):
                    await target.lost()
                self.open.discard(number)
        finally:
            await target.close()

    def _refused(self, error: BaseException | None, delay_ms: int) -> None:
        assert isinstance(error, TargetUnavailable), error
        assert delay_ms >= 500
        self.failed += 1


class Pings:
    """Asks ``/ping`` of a hub again and again, from its first answer on."""

    def __init__(self, hub: Node) -> None:
        self._hub = hub
        self.answered = 0
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Pings:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            try:
                assert self._hub.ops.get("/ping").status == 200
            except (OSError, AssertionError) as error:
                if self.answered:  # else it has not opened yet
                    self.failed.append(repr(error))
            else:
                self.answered += 1


async def come_back(make_node: MakeNode, many: int) -> None:
    hub = make_node("hub", acceptor=f"max-connections = {many + 50}").start()
    edges = Edges(hub)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(edges.keep(number)) for number in range(many)]
        await until(lambda: len(edges.open) == many, "every edge has a link", BACK_WITHIN_S)
        await asyncio.to_thread(hub.kill)
        await until(lambda: not edges.open, "every link is lost", BACK_WITHIN_S)
        with Pings(hub) as pings:
            await asyncio.to_thread(hub.start)
            await until(lambda: len(edges.open) == many, "every edge is back", BACK_WITHIN_S)
            links = await asyncio.to_thread(lambda: len(hub.ops.get("/v1/status").json["links"]))
        for task in tasks:
            task.cancel()
    assert (links, pings.failed) == (many, [])
    assert pings.answered > 0


async def test_a_hub_that_restarts_gets_a_hundred_edges_back_and_answers_all_along(
    make_node: MakeNode,
) -> None:
    await come_back(make_node, 100)


@pytest.mark.lines_long
async def test_a_hub_that_restarts_gets_a_thousand_edges_back_and_answers_all_along(
    make_node: MakeNode,
) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    await come_back(make_node, 1000)
