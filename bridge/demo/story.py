"""The demo between two nodes: starts them, sends, breaks, waits, reads and compares."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, Final

from bridge.client.node_client import NodeClient, address_path
from bridge.client.retry import persistently
from bridge.demo.compare import Comparison, Proof
from bridge.demo.faults import Faults
from bridge.demo.nodes import (
    ADDRESS,
    LOOK_AGAIN_S,
    QUEUE,
    DemoFailed,
    Node,
    address_status,
    queued,
)
from bridge.demo.ports import free_ports
from bridge.demo.proxy import LinkProxy
from bridge.demo.stage import STILL_FOR_S, Stage, ended, together
from bridge.demo.traffic import Traffic, sender_of

#: Messages that the reader takes at a time.
PAGE: Final = 1_000


class Story(Stage):
    """One run of the demo between two nodes: from two empty ones to the proof."""

    async def perform(self) -> Proof:
        """As `Stage.perform`."""
        ports = free_ports(4)
        edge = Node("edge", self.directory, ports[1], port=ports[0])
        hub = Node("hub", self.directory, ports[3], port=ports[2])
        async with LinkProxy(hub.port) as link, ended((edge, hub)):
            hub.configure(id_cache_size=self.id_cache_size)
            edge.configure(id_cache_size=self.id_cache_size, link_port=link.port)
            self.progress.note("starting two nodes, edge and hub")
            await together(hub.start(), edge.start())
            async with NodeClient(edge.connection) as edge_client, NodeClient(hub.connection) as hub_client:
                started_at = time.monotonic()
                traffic = Traffic(edge_client, self.rows, str(uuid.uuid4()), self._show_sent)
                faults = Faults(edge, hub, link, traffic, len(self.rows), self.progress.note)
                await together(traffic.send_all(), faults.happen())
                await traffic.repeat()
                await self._wait_for_relay(edge_client)
                comparison = await self._compare(hub_client, traffic)
                seconds = time.monotonic() - started_at
            self._explain(comparison, traffic)
            on_purpose, on_retry = traffic.duplicates, traffic.known_on_retry
            self.rejected = (
                f"duplicates rejected {on_purpose + on_retry}: {on_purpose} sent again on purpose, "
                f"{on_retry} because an answer was lost"
            )
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
        """Wait until nothing is queued at the edge."""
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
        """Read everything at the hub through a queue, with acknowledgement."""
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
            f"clients asked again {traffic.retries} times because an answer was lost or not now; "
            f"{traffic.duplicates} of {traffic.repeated} rows sent again on purpose were rejected duplicates"
        )
        if comparison.lost:
            self.progress.note(f"first lost rows: {comparison.missing(5)}")
