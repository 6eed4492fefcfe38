"""The clients of the cluster's demo: some at every node, each of which stays with its node.

All take rows from one file, so the nodes share them as they can. Half of the rows go one POST each, half in
transactions; half are jobs (ANYCAST), half are news (MULTICAST). A client that has no answer asks the same
node again, also while that is dead: another node does not know what the first has stored. Only the heir
of a drained node does: its clients go there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from bridge.client.node_client import Answer, NodeClient, address_path
from bridge.client.retry import persistently
from bridge.demo.cluster_nodes import JOBS, NEWS, ClusterNode
from bridge.demo.milestones import Milestones
from bridge.demo.rows import Row
from bridge.demo.traffic import MAX_RETRY_S, REPEAT_EVERY, RETRY_FOR_S, TRANSACTION
from bridge.errors import BridgeError

#: Clients of each node that send a row at a time, each its own in file order.
CLIENTS: Final = 12
#: Makes one call by a client of the present node.
Call = Callable[[NodeClient], Awaitable[Answer]]
#: A transaction waits until all rows before it but this many are answered: both kinds advance together.
STEP: Final = 6 * TRANSACTION


def address_of(row: int) -> str:
    """The address of a row: two rows are jobs, the next two are news."""
    return NEWS if row // 2 % 2 else JOBS


class ClusterTraffic:
    """Sends each row once, to one node, until it is answered. Use as an async context manager."""

    def __init__(self, rows: Sequence[Row], run: str, on_answer: Callable[[int], None]) -> None:
        """`run` makes the transactions' IDs unique; `on_answer` gets the number of answered rows."""
        odd = rows[1::2]
        self._singles: Iterator[Row] = iter(rows[0::2])
        self._transactions: Iterator[Sequence[Row]] = iter(
            [odd[start : start + TRANSACTION] for start in range(0, len(odd), TRANSACTION)]
        )
        self._run = run
        self._milestones = Milestones(on_answer)
        #: By node, the connection of its clients: to it, or to its heir.
        self._connections: dict[str, NodeClient] = {}
        self._opened = contextlib.AsyncExitStack()
        #: By node whose clients have gone to its heir, that one.
        self._heirs: dict[str, str] = {}
        #: By row, the client that sent it: entry node, the node where it began, its number there.
        self.sender_of: dict[int, Hashable] = {}
        #: Rows sent to each node, by its name.
        self.sent_to: dict[str, int] = {}
        #: Answers that were lost or "not now", and for which a client asked again.
        self.retries = 0
        #: Rows sent again on purpose, and how many of them were answered "duplicate".
        self.repeated = 0
        self.duplicates = 0
        #: Rows sent again because an answer was lost, and answered "duplicate": the first copy was stored.
        self.known_on_retry = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    @property
    def answered(self) -> int:
        """Rows that have been answered."""
        return self._milestones.answered

    def reached(self, answered: int) -> asyncio.Event:
        """An event that is set once that many rows are answered."""
        return self._milestones.reached(answered)

    async def send_to(self, node: ClusterNode) -> None:
        """Send rows to a node until no rows are left, then a tenth of them again.

        Raises:
            Problem, Unreachable: in a group: the node refused, or gave no answer for too long.
        """
        self._connections[node.name] = await self._opened.enter_async_context(NodeClient(node.connection))
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(self._send_singles(node.name, number))
            clients.create_task(self._send_transactions(node.name))

    async def follow(self, leaver: ClusterNode, heir: ClusterNode) -> None:
        """The clients of a drained node go to its heir, which has its IDs."""
        self._heirs[leaver.name] = heir.name
        self._connections[leaver.name] = await self._opened.enter_async_context(NodeClient(heir.connection))

    async def _send_singles(self, node: str, number: int) -> None:
        sent: list[Row] = []
        for row in self._singles:
            await self._send(_post(row), (row,), node, number)
            sent.append(row)
        for row in sent[::REPEAT_EVERY]:
            await self._repeat(_post(row), 1, node)

    async def _send_transactions(self, node: str) -> None:
        sent: list[Sequence[Row]] = []
        for rows in self._transactions:
            await self.reached(rows[0].index - STEP).wait()  # keep pace with the single rows
            await self._send(_commit(rows, self._run), rows, node, "transactions")
            sent.append(rows)
        for rows in sent[::REPEAT_EVERY]:
            await self._repeat(_commit(rows, self._run), len(rows), node)

    async def _send(self, call: Call, rows: Sequence[Row], node: str, number: Hashable) -> None:
        begun_at = self._entry(node)
        answer = await self._until_answered(call, node)
        entry = self._entry(node)
        if answer["verdict"] == "duplicate":
            self.known_on_retry += len(rows)
            entry = begun_at
        self.sender_of.update((row.index, (entry, node, number)) for row in rows)
        self.sent_to[entry] = self.sent_to.get(entry, 0) + len(rows)
        self._milestones.answer(len(rows))

    def _entry(self, node: str) -> str:
        """The node that the clients of a node send to now."""
        return self._heirs.get(node, node)

    async def _repeat(self, call: Call, rows: int, node: str) -> None:
        self.repeated += rows
        if (await self._until_answered(call, node))["verdict"] == "duplicate":
            self.duplicates += rows

    async def _until_answered(self, call: Call, node: str) -> Mapping[str, Any]:
        answer = await persistently(
            lambda: call(self._connections[node]),
            on_retry=self._count_retry,
            give_up_after_s=RETRY_FOR_S,
            longest_pause_s=MAX_RETRY_S,
        )
        body: Mapping[str, Any] = answer.body
        return body

    def _count_retry(self, _: BridgeError) -> None:
        self.retries += 1


def _post(row: Row) -> Call:
    headers = {"Idempotency-Key": row.id, "Message-Key": row.key.decode()}
    path = address_path(address_of(row.index), "messages")
    return lambda client: client.call("POST", path, body=row.body, headers=headers)


def _commit(rows: Sequence[Row], run: str) -> Call:
    unit = {
        "duplicate-id": f"{run}/{rows[0].index}",
        "messages": [{"address": address_of(row.index), "body": row.body, "key": row.key} for row in rows],
    }
    return lambda client: client.call("POST", "/v1/transactions", packed=unit)
