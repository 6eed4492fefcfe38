"""The faults of the demo's nodes: a cut link, a killed sender, a killed receiver, at the worst moments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bridge.client.node_client import NodeClient
from bridge.demo.nodes import LOOK_AGAIN_S, DemoFailed, Node, address_status, queued
from bridge.demo.proxy import LinkProxy
from bridge.demo.traffic import Traffic

#: When the link is cut and when the sender is killed, as fractions of all rows.
CUT_AT: Final = 0.25
KILL_AT: Final = 0.5
#: Bytes that the healed link carries before the receiver's answers are swallowed: more than a handshake.
ANSWERED_BYTES: Final = 4 * 1024
#: How long to wait for the receiver to store what it will not be able to confirm, in seconds.
STORED_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults in their order."""

    edge: Node
    hub: Node
    link: LinkProxy
    traffic: Traffic
    #: Number of all rows.
    total: int
    note: Callable[[str], None]

    async def happen(self) -> None:
        """Cut the link, kill the sender with messages queued, heal, kill the receiver with unread receipts.

        Raises:
            DemoFailed: a node does not come back, or nothing was queued or moved in time.
        """
        async with NodeClient(self.edge.connection) as edge, NodeClient(self.hub.connection) as hub:
            await self._cut(edge)
            await self._kill_sender(edge)
            await self._kill_receiver(edge, hub)

    async def _cut(self, edge: NodeClient) -> None:
        await self.traffic.reached(int(self.total * CUT_AT)).wait()
        self.link.cut()
        self.note(f"cut the link after {self.traffic.answered} rows")
        # At least one more row, so that something is queued behind the cut.
        await self.traffic.reached(min(self.traffic.answered + 1, self.total)).wait()
        await self.traffic.reached(int(self.total * KILL_AT)).wait()
        self.note(f"messages queued at the edge: {queued(await address_status(edge))}")

    async def _kill_sender(self, edge: NodeClient) -> None:
        await self.edge.kill()
        self.note("killed the edge (SIGKILL)")
        await self.edge.start()
        self.note(f"started the edge again; still queued: {queued(await address_status(edge))}")

    async def _kill_receiver(self, edge: NodeClient, hub: NodeClient) -> None:
        before = (await address_status(hub))["next"]
        self.link.swallow_answers_after(ANSWERED_BYTES)
        self.note("healed the link, but from now on the hub's receipts do not come back")
        try:
            async with asyncio.timeout(STORED_WITHIN_S):
                while (after := (await address_status(hub))["next"]) == before:
                    if not queued(await address_status(edge)):
                        break  # some rows fit before the receipts are swallowed
                    await asyncio.sleep(LOOK_AGAIN_S)
        except TimeoutError:
            raise DemoFailed(
                f"the hub stored nothing within {STORED_WITHIN_S:g} s of the link's healing",
                self.edge.log_end(),
            ) from None
        await self.hub.kill()
        self.note(f"killed the hub (SIGKILL) when it had stored {after - before} rows more")
        self.link.heal()
        await self.hub.start()
        self.note("started the hub again")
