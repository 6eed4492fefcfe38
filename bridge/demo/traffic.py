"""The demo's clients: even rows one POST each, odd rows in transactions, a tenth of both sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from bridge.client.node_client import NodeClient, address_path
from bridge.client.retry import persistently
from bridge.demo.milestones import Milestones
from bridge.demo.nodes import ADDRESS
from bridge.demo.rows import Row
from bridge.errors import BridgeError

#: Clients that send even rows side by side, each its own in file order.
CLIENTS: Final = 32
#: Odd rows in a transaction.
TRANSACTION: Final = 100
#: Every tenth POST and transaction is sent again.
REPEAT_EVERY: Final = 10
#: How long a client retries a dead node before the demo gives up, and the longest pause, in seconds.
RETRY_FOR_S: Final = 120.0
MAX_RETRY_S: Final = 0.3
#: A transaction waits until all rows before it but this many are answered: both kinds advance together.
STEP: Final = 2 * TRANSACTION


class Traffic:
    """Sends every row until it is answered."""

    def __init__(
        self, client: NodeClient, rows: Sequence[Row], run: str, on_answer: Callable[[int], None]
    ) -> None:
        """`run` makes the transactions' IDs unique; `on_answer` gets the number of answered rows."""
        self._client = client
        self._milestones = Milestones(on_answer)
        self._singles = rows[0::2]
        odd = rows[1::2]
        self._transactions = [odd[start : start + TRANSACTION] for start in range(0, len(odd), TRANSACTION)]
        self._run = run
        #: The position of each row at the edge, by index; None: the answer that named it was lost.
        self.edge_positions: list[int | None] = [None] * len(rows)
        #: Answers that were lost or "not now", and for which the client retried.
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

    async def send_all(self) -> None:
        """Send every row once.

        Raises:
            Problem, Unreachable: in a group: the node refused, or gave no answer for too long.
        """
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(self._send_singles(self._singles[number::CLIENTS]))
            clients.create_task(self._send_transactions())

    async def repeat(self) -> None:
        """Send a tenth again with the same IDs: each must be answered as a duplicate."""
        singles = self._singles[::REPEAT_EVERY]
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(self._repeat_singles(singles[number::CLIENTS]))
            clients.create_task(self._repeat_transactions())

    async def _send_singles(self, rows: Sequence[Row]) -> None:
        for row in rows:
            answer = await self._post(row)
            if answer["verdict"] == "stored":
                self.edge_positions[row.index] = answer["positions"][0]
            else:
                self.known_on_retry += 1
            self._milestones.answer(1)

    async def _send_transactions(self) -> None:
        for rows in self._transactions:
            await self.reached(rows[0].index - STEP).wait()  # keep pace with the single rows
            answer = await self._commit(rows)
            if answer["verdict"] == "stored":
                first, last = answer["positions"][ADDRESS]
                if last - first + 1 == len(rows):
                    for offset, row in enumerate(rows):
                        self.edge_positions[row.index] = first + offset
            else:
                self.known_on_retry += len(rows)
            self._milestones.answer(len(rows))

    async def _repeat_singles(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.repeated += 1
            answer = await self._post(row)
            self.duplicates += answer["verdict"] == "duplicate"

    async def _repeat_transactions(self) -> None:
        for rows in self._transactions[::REPEAT_EVERY]:
            self.repeated += len(rows)
            if (await self._commit(rows))["verdict"] == "duplicate":
                self.duplicates += len(rows)

    async def _post(self, row: Row) -> dict[str, Any]:
        headers = {"Idempotency-Key": row.id, "Message-Key": row.key.decode()}
        return await self._until_answered(
            lambda: self._client.call(
                "POST", address_path(ADDRESS, "messages"), body=row.body, headers=headers
            )
        )

    async def _commit(self, rows: Sequence[Row]) -> dict[str, Any]:
        unit = {
            "duplicate-id": f"{self._run}/{rows[0].index}",
            "messages": [{"address": ADDRESS, "body": row.body, "key": row.key} for row in rows],
        }
        return await self._until_answered(lambda: self._client.call("POST", "/v1/transactions", packed=unit))

    async def _until_answered(self, call: Callable[[], Any]) -> dict[str, Any]:
        answer = await persistently(
            call, on_retry=self._count_retry, give_up_after_s=RETRY_FOR_S, longest_pause_s=MAX_RETRY_S
        )
        body: dict[str, Any] = answer.body
        return body

    def _count_retry(self, _: BridgeError) -> None:
        self.retries += 1


def sender_of(index: int) -> Hashable:
    """The client that sent a row: the one of the transactions, or one of those of the single rows."""
    return "transactions" if index % 2 else index // 2 % CLIENTS
