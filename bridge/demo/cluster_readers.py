"""The readers of the cluster's demo: one at each queue of each node, which process each message once.

A reader takes a page under a lease. In one transaction, under the lease as its ID, it acknowledges the page
and stores what it made of each message, here a copy, at an address of its own. So a page is processed or
not, whatever is killed in between, and what was processed can be counted afterwards.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

from bridge.client.node_client import Answer, NodeClient, Problem, Unreachable, address_path
from bridge.client.retry import persistently
from bridge.demo.cluster_nodes import QUEUES, ClusterNode
from bridge.demo.nodes import LOOK_AGAIN_S
from bridge.demo.traffic import MAX_RETRY_S, RETRY_FOR_S

#: Messages that a reader takes at a time, and for how long they are its own.
PAGE: Final = 200
LEASE_MS: Final = 3_000
#: How long a node keeps a reader's question while it has no message.
WAIT_MS: Final = 500
#: Header of a result: the node whose reader made it. Results go along when a node drains.
READER: Final = "reader"
#: Beyond a lease's end, for clocks that are read one after the other, in seconds.
MARGIN_S: Final = 0.5


def results_of(queue: str) -> str:
    """The address where a node's reader of a queue stores what it has processed; it is not shared."""
    return f"done.{queue}"


@dataclass(slots=True)
class Reader:
    """The reader of one queue of one node."""

    node: ClusterNode
    queue: str
    #: Called with the number of messages of each page that is processed.
    on_processed: Callable[[int], None]

    async def run(self) -> None:
        """Read until cancelled, also over the node's death."""
        path = address_path(QUEUES[self.queue], "queues", self.queue, "messages")
        params = {"max": PAGE, "wait": WAIT_MS, "lease": LEASE_MS}
        async with NodeClient(self.node.connection) as client:
            answered = True
            while True:
                try:
                    page = (await client.call("GET", path, params=params)).body
                except (Problem, Unreachable) as error:
                    if isinstance(error, Problem) and error.status != 503:
                        raise
                    await self._wait_for_lost_page(answered=answered)
                    answered = False
                    continue
                answered = True
                if page["lease"] is not None:
                    await self._process(client, page)

    async def _wait_for_lost_page(self, *, answered: bool) -> None:
        """Wait until a page that was leased, and whose answer was lost, is next again.

        A reader that asked at once would be given what comes behind it, and process it first.
        """
        await asyncio.sleep(LEASE_MS / 1000 + MARGIN_S if answered else LOOK_AGAIN_S)

    async def _process(self, client: NodeClient, page: dict[str, Any]) -> None:
        unit = {
            "duplicate-id": page["lease"],
            "messages": [
                {
                    "address": results_of(self.queue),
                    "body": message["body"],
                    "key": message["key"],
                    "headers": {READER: self.node.name},
                }
                for message in page["messages"]
            ],
            "acknowledge": [{"address": QUEUES[self.queue], "queue": self.queue, "lease": page["lease"]}],
        }
        try:
            await persistently(
                functools.partial(_commit, client, unit),
                on_retry=lambda _: None,
                give_up_after_s=RETRY_FOR_S,
                longest_pause_s=MAX_RETRY_S,
            )
        except Problem as problem:
            if problem.code != "STALE_LEASE":
                raise
            return  # the lease ended before the node was back: nothing is stored, and the page is next again
        self.on_processed(len(page["messages"]))


async def _commit(client: NodeClient, unit: dict[str, Any]) -> Answer:
    return await client.call("POST", "/v1/transactions", packed=unit)


async def processed(node: ClusterNode, queue: str) -> AsyncIterator[dict[str, Any]]:
    """The results at a node of what was read from a queue, in their order.

    Raises: Problem, Unreachable.
    """
    path, after = address_path(results_of(queue), "messages"), -1
    async with NodeClient(node.connection) as client:
        while True:
            try:
                page = (await client.call("GET", path, params={"after": after, "max": PAGE})).body
            except Problem as problem:
                if problem.code == "ADDRESS_NOT_FOUND":
                    return
                raise
            if not page["messages"]:
                return
            for message in page["messages"]:
                yield message
            after = page["messages"][-1]["position"]
