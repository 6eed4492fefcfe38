"""Plays the demo: starts the nodes, sends, breaks, waits, reads, compares, and cleans up whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bridge.cli.client import NodeClient, address_path
from bridge.cli.progress import Progress
from bridge.cli.retry import persistently
from bridge.demo.compare import Comparison, Proof
from bridge.demo.faults import Faults
from bridge.demo.nodes import (
    ADDRESS,
    LOOK_AGAIN_S,
    QUEUE,
    DemoFailed,
    Node,
    address_status,
    free_ports,
    queued,
)
from bridge.demo.proxy import LinkProxy
from bridge.demo.rows import Row
from bridge.demo.traffic import Traffic, sender_of

#: Duplicate IDs that the nodes remember: the default, or every ID of a larger input.
DEFAULT_ID_CACHE_SIZE: Final = 20_000
#: How long the backlog may stand still before the demo gives up, in seconds.
STILL_FOR_S: Final = 60.0
#: Messages that the reader takes at a time.
PAGE: Final = 1_000


@dataclass(slots=True)
class Story:
    """One run of the demo."""

    rows: Sequence[Row]
    progress: Progress
    keep: bool = False
    #: Where settings, journals and logs are; removed at the end unless `keep` is set or it went wrong.
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="core-bridge-demo-")))
    #: Whether the directory is still there after `play`.
    kept: bool = False

    async def play(self) -> Proof:
        """From two empty nodes to the proof.

        Raises:
            DemoFailed: a node failed, or messages stood still for too long.
        """
        self.kept = True
        proof: Proof | None = None
        try:
            proof = await self._play()
        except asyncio.CancelledError:
            self.kept = self.keep
            raise
        else:
            self.kept = self.keep or not proof.holds
        finally:
            self.progress.clear()
            if not self.kept:
                shutil.rmtree(self.directory, ignore_errors=True)
        return proof

    async def _play(self) -> Proof:
        ports = free_ports(4)
        edge = Node("edge", self.directory, ports[0], ports[1])
        hub = Node("hub", self.directory, ports[2], ports[3])
        async with LinkProxy(hub.port) as link, _ended((edge, hub)):
            ids = max(DEFAULT_ID_CACHE_SIZE, len(self.rows))
            hub.configure(id_cache_size=ids)
            edge.configure(id_cache_size=ids, link_port=link.port)
            self.progress.note("starting two nodes, edge and hub")
            await _together(hub.start(), edge.start())
            async with NodeClient(edge.connection) as edge_client, NodeClient(hub.connection) as hub_client:
                started_at = time.monotonic()
                traffic = Traffic(edge_client, self.rows, str(uuid.uuid4()), self._show_sent)
                faults = Faults(edge, hub, link, traffic, len(self.rows), self.progress.note)
                await _together(traffic.send_all(), faults.happen())
                await traffic.repeat()
                await self._wait_for_relay(edge_client)
                comparison = await self._compare(hub_client, traffic)
                seconds = time.monotonic() - started_at
            self._explain(comparison, traffic)
            for node in (edge, hub):
                if (code := await node.stop()) != 0:
                    raise DemoFailed(f"{node.name} did not drain: exit code {code}", node.log_end())
        return Proof(
            sent=len(self.rows),
            repeated=traffic.repeated,
            duplicates=traffic.duplicates,
            arrived=comparison.arrived,
            lost=comparison.lost,
            doubled=comparison.doubled,
            out_of_order=comparison.out_of_order,
            kills=edge.kills + hub.kills,
            cuts=link.cuts,
            seconds=seconds,
        )

    def _show_sent(self, answered: int) -> None:
        self.progress.update(f"sent {answered} of {len(self.rows)}")

    async def _wait_for_relay(self, edge: NodeClient) -> None:
        """Until nothing is queued at the edge any more."""
        left, changed_at = -1, time.monotonic()
        while left != 0:
            found = queued(await address_status(edge))
            now = time.monotonic()
            if found != left:
                left, changed_at = found, now
            elif now - changed_at > STILL_FOR_S:
                raise DemoFailed(f"{left} messages have stood still at the edge for {STILL_FOR_S:g} s")
            self.progress.update(f"queued at the edge: {left}")
            if left:
                await asyncio.sleep(LOOK_AGAIN_S)

    async def _compare(self, hub: NodeClient, traffic: Traffic) -> Comparison:
        """Read everything at the hub by queue, with acknowledgement."""
        comparison = Comparison(self.rows, sender_of, traffic.edge_positions)
        messages_path = address_path(ADDRESS, "queues", QUEUE, "messages")
        acknowledge_path = address_path(ADDRESS, "queues", QUEUE, "acknowledge")
        while True:
            page = (await hub.call("GET", messages_path, params={"max": PAGE})).body
            if page["lease"] is None:
                return comparison
            for message in page["messages"]:
                comparison.take(message["key"], message["body"])
            await self._acknowledge(hub, acknowledge_path, page["lease"])
            self.progress.update(f"compared {comparison.arrived} of {len(self.rows)}")

    async def _acknowledge(self, hub: NodeClient, path: str, lease: str) -> None:
        async def settle() -> Any:
            return await hub.call("POST", path, packed={"lease": lease})

        await persistently(settle, on_retry=lambda _: None)

    def _explain(self, comparison: Comparison, traffic: Traffic) -> None:
        self.progress.note(
            f"clients asked again {traffic.retries} times because an answer was lost; "
            f"{traffic.duplicates} of {traffic.repeated} rows sent again on purpose were duplicates"
        )
        if comparison.lost:
            self.progress.note(f"first lost rows: {comparison.missing(5)}")


@contextlib.asynccontextmanager
async def _ended(nodes: Sequence[Node]) -> AsyncIterator[None]:
    """Whatever happens inside, no node outlives it."""
    try:
        yield
    finally:
        for node in nodes:
            node.kill_now()
        for node in nodes:
            await node.gone()


async def _together(*coroutines: Any) -> None:
    """Run side by side; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as failures:
        raise _first(failures) from None


def _first(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
