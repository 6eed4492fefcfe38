"""The clients of the cluster's demo: some at every node, each of which stays with its node.

All take rows from one file, so the nodes share them as they can. Half of the rows go one POST each, half in
transactions; half are jobs (ANYCAST), half are news (MULTICAST). A client that has no answer asks the same
node again, also while that is dead: another node does not know what the first has stored.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

from bridge.client.node_client import Answer, NodeClient, address_path
from bridge.client.retry import persistently
from bridge.demo.cluster_nodes import JOBS, NEWS, ClusterNode
from bridge.demo.milestones import Milestones
from bridge.demo.rows import Row
from bridge.demo.traffic import MAX_RETRY_S, REPEAT_EVERY, RETRY_FOR_S, TRANSACTION
from bridge.errors import BridgeError

#: Clients of each node that send a row at a time, each its own in file order.
CLIENTS: Final = 12
#: A transaction waits until all rows before it but this many are answered: both kinds advance together.
STEP: Final = 6 * TRANSACTION


def address_of(row: int) -> str:
    """The address of a row: two rows are jobs, the next two are news."""
    return NEWS if row // 2 % 2 else JOBS


class ClusterTraffic:
    """Sends each row once, to one node, until it is answered."""

    def __init__(self, rows: Sequence[Row], run: str, on_answer: Callable[[int], None]) -> None:
        """`run` makes the transactions' IDs unique; `on_answer` gets the number of answered rows."""
        odd = rows[1::2]
        self._singles: Iterator[Row] = iter(rows[0::2])
        self._transactions: Iterator[Sequence[Row]] = iter(
            [odd[start : start + TRANSACTION] for start in range(0, len(odd), TRANSACTION)]
        )
        self._run = run
        self._milestones = Milestones(on_answer)
        #: The client that sent each row, by index: its node's name and its number there.
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
        async with NodeClient(node.connection) as client, asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(self._send_singles(client, (node.name, number)))
            clients.create_task(self._send_transactions(client, (node.name, "transactions")))

    async def _send_singles(self, client: NodeClient, sender: tuple[str, Hashable]) -> None:
        sent: list[Row] = []
        for row in self._singles:
            await self._send(functools.partial(_post, client, row), (row,), sender)
            sent.append(row)
        for row in sent[::REPEAT_EVERY]:
            await self._repeat(functools.partial(_post, client, row), 1)

    async def _send_transactions(self, client: NodeClient, sender: tuple[str, Hashable]) -> None:
        sent: list[Sequence[Row]] = []
        for rows in self._transactions:
            await self.reached(rows[0].index - STEP).wait()  # keep pace with the single rows
            await self._send(functools.partial(_commit, client, rows, self._run), rows, sender)
            sent.append(rows)
        for rows in sent[::REPEAT_EVERY]:
            await self._repeat(functools.partial(_commit, client, rows, self._run), len(rows))

    async def _send(
        self, call: Callable[[], Awaitable[Answer]], rows: Sequence[Row], sender: tuple[str, Hashable]
    ) -> None:
        self.sender_of.update((row.index, sender) for row in rows)
        answer = await self._until_answered(call)
        if answer["verdict"] == "duplicate":
            self.known_on_retry += len(rows)
        self.sent_to[sender[0]] = self.sent_to.get(sender[0], 0) + len(rows)
        self._milestones.answer(len(rows))

    async def _repeat(self, call: Callable[[], Awaitable[Answer]], rows: int) -> None:
        self.repeated += rows
        if (await self._until_answered(call))["verdict"] == "duplicate":
            self.duplicates += rows

    async def _until_answered(self, call: Callable[[], Awaitable[Answer]]) -> Mapping[str, Any]:
        answer = await persistently(
            call, on_retry=self._count_retry, give_up_after_s=RETRY_FOR_S, longest_pause_s=MAX_RETRY_S
        )
        body: Mapping[str, Any] = answer.body
        return body

    def _count_retry(self, _: BridgeError) -> None:
        self.retries += 1


async def _post(client: NodeClient, row: Row) -> Answer:
    headers = {"Idempotency-Key": row.id, "Message-Key": row.key.decode()}
    path = address_path(address_of(row.index), "messages")
    return await client.call("POST", path, body=row.body, headers=headers)


async def _commit(client: NodeClient, rows: Sequence[Row], run: str) -> Answer:
    unit = {
        "duplicate-id": f"{run}/{rows[0].index}",
        "messages": [{"address": address_of(row.index), "body": row.body, "key": row.key} for row in rows],
    }
    return await client.call("POST", "/v1/transactions", packed=unit)
