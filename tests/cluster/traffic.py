"""Producers and readers of a cluster whose nodes fail, and the books that are kept of it.

Producers have IDs and are sticky: what was not answered is sent again to the same node, or to its heir.
Readers move between nodes and lease pages; what they settle they settle in transactions with IDs, together
with what they send. So each of their answers is definite in the end, and is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.cluster.mesh import AGAIN_S, Answer, Mesh
from tests.harness.eventually import until

#: How long a page is a reader's, in ms.
LEASE_MS: Final = 2_000
#: (address, queue).
Queue = tuple[str, str]


@dataclass
class Books:
    """What was sent, and what was processed."""

    #: By address, the bodies that were answered `stored` or `duplicate`.
    sent: dict[str, list[str]] = field(default_factory=dict)
    #: By queue, how often each body was settled for good.
    processed: dict[Queue, Counter[str]] = field(default_factory=dict)
    #: Answers that did not come, and sends that were answered `duplicate`.
    unknown: int = 0
    duplicates: int = 0

    def settle(self, queue: Queue, bodies: Sequence[str]) -> None:
        """Count what was settled."""
        self.processed.setdefault(queue, Counter()).update(bodies)

    def count(self, queue: Queue) -> int:
        """Different bodies that were processed."""
        return len(self.processed.get(queue, ()))

    async def until_count(self, queue: Queue, count: int, within_s: float) -> None:
        """Wait until so many different bodies were processed."""
        await until(lambda: self.count(queue) >= count, f"{count} of {queue} are processed", within_s)

    def check(self, queue: Queue, wanted: Sequence[str]) -> None:
        """Each of `wanted` once in the queue, and nothing else."""
        found = self.processed.get(queue, Counter())
        twice = sorted(body for body, times in found.items() if times > 1)
        assert not twice, f"{queue}: {len(twice)} processed twice, such as {twice[:5]}"
        lost = sorted(set(wanted) - found.keys())
        assert not lost, f"{queue}: {len(lost)} of {len(wanted)} lost, such as {lost[:5]}"
        strange = sorted(found.keys() - set(wanted))
        assert not strange, f"{queue}: {len(strange)} not sent there, such as {strange[:5]}"


async def commit(mesh: Mesh, books: Books, at: int, transaction: Mapping[str, Any], *, moves: bool) -> Answer:
    """Commit with an ID until there is a definite answer; `moves`: also until it is stored.

    Sticky: after a request without an answer it is asked again at the same node, or at its heir.
    """
    doubt = False
    while True:
        answer = await mesh.ask(mesh.serving(at), "POST", "/v1/transactions", json=transaction)
        if answer.status == 200:
            books.duplicates += answer.json["verdict"] == "duplicate"
            assert doubt or answer.json["verdict"] == "stored", "a duplicate of what was never sent"
            return answer
        if answer.unknown:
            books.unknown += 1
            doubt = True
        elif answer.status in (-1, 503):
            if moves and not doubt:
                at = mesh.random.randrange(len(mesh.nodes))
        else:
            return answer
        await asyncio.sleep(AGAIN_S)


@dataclass
class Producer:
    """Sends numbered messages to one address, some in each transaction."""

    mesh: Mesh
    books: Books
    name: str
    address: str
    count: int
    #: Messages of a transaction, at most.
    at_once: int = 10
    #: Pause between two transactions, in seconds.
    pause_s: float = 0.0
    body_bytes: int = 0

    async def run(self) -> None:
        """Send all of them."""
        chance, sent = self.mesh.random, self.books.sent.setdefault(self.address, [])
        at, number = chance.randrange(len(self.mesh.nodes)), 0
        while number < self.count:
            some = [f"{self.name}-{one}" for one in range(number, min(number + self._some(), self.count))]
            messages = [
                {"address": self.address, "body": body, "headers": {"region": region(body)}} for body in some
            ]
            wanted = {"duplicate-id": f"{self.name}:{number}", "messages": messages}
            answer = await commit(self.mesh, self.books, at, wanted, moves=True)
            assert answer.status == 200, answer
            sent += some
            number += len(some)
            if chance.random() < 0.2:
                at = chance.randrange(len(self.mesh.nodes))
            await asyncio.sleep(self.pause_s)

    def _some(self) -> int:
        return self.mesh.random.randint(1, self.at_once)


def region(body: str) -> str:
    """The header `region` of a message: half of them are of the EU."""
    return "eu" if int(body.rpartition("-")[2]) % 2 else "us"


@dataclass
class Reader:
    """Reads some queues, now at one node, now at another, until told that all is done."""

    mesh: Mesh
    books: Books
    name: str
    queues: Sequence[Queue]
    done: asyncio.Event
    #: Messages of a page, at most.
    most: int = 50
    #: By address, where what is processed of it goes, as `address/body`, in the transaction that settles it.
    results: Mapping[str, str] = field(default_factory=dict)
    #: Pages after which it moves on, at most.
    stays: int = 15
    #: Where it reads; empty: everywhere.
    nodes: Sequence[int] = ()
    _pages: int = 0

    async def run(self) -> None:
        """Read until done."""
        chance = self.mesh.random
        nodes = self.nodes or range(len(self.mesh.nodes))
        while not self.done.is_set():
            at, queue = chance.choice(nodes), chance.choice(self.queues)
            for _ in range(chance.randint(1, self.stays)):
                if not await self._page(self.mesh.serving(at), queue) or self.done.is_set():
                    break

    async def _page(self, at: int, queue: Queue) -> bool:
        """Whether there may be more."""
        chance = self.mesh.random
        path = f"/v1/addresses/{queue[0]}/queues/{queue[1]}"
        wanted = f"max={chance.randint(1, self.most)}&wait={chance.choice((0, 100, 400))}&lease={LEASE_MS}"
        answer = await self.mesh.ask(at, "GET", f"{path}/messages?{wanted}")
        if answer.status != 200:
            await asyncio.sleep(AGAIN_S)
            return False
        page = answer.json
        if page["lease"] is None:
            return False
        if chance.random() < 0.03:
            return True  # forgotten: it comes again when the lease has ended
        if chance.random() < 0.05:
            await self.mesh.ask(at, "POST", f"{path}/release", json={"lease": page["lease"]})
            return True
        messages = page["messages"]
        settles = messages if chance.random() < 0.8 else messages[: chance.randint(1, len(messages))]
        self._pages += 1
        to = self.results.get(queue[0])
        entry = {"address": queue[0], "queue": queue[1], "lease": page["lease"]}
        if len(settles) < len(messages):
            entry["upto"] = settles[-1]["position"]
        sends = [{"address": to, "body": f"{queue[0]}/{one['body']}"} for one in settles if to]
        transaction = {
            "duplicate-id": f"{self.name}:{self._pages}", "acknowledge": [entry], "messages": sends,
        }  # fmt: skip
        done = await commit(self.mesh, self.books, at, transaction, moves=False)
        if done.status == 200:
            self.books.settle(queue, [str(one["body"]) for one in settles])
            if to:
                self.books.sent.setdefault(to, []).extend(str(one["body"]) for one in sends)
        else:
            assert done.status in (404, 409), done
        return True


async def left(mesh: Mesh) -> dict[str, int]:
    """What waits anywhere: queues, bridges' logs and dead letters, by `node address::queue`."""
    found: dict[str, int] = {}
    for index, node in enumerate(mesh.nodes):
        if node.process is None:
            continue
        status = await mesh.surely(index, "GET", "/v1/status", operations=True)
        for address in status["addresses"]:
            for queue in address["queues"]:
                if queue["lag"]:
                    found[f"{node.name} {address['address']}::{queue['name']}"] = queue["lag"]
        for bridge in status["bridges"]:
            if bridge["lag"]:
                found[f"{node.name} {bridge['name']}"] = bridge["lag"]
        letters = await mesh.surely(index, "GET", "/v1/dead-letters?max=1000", operations=True)
        for letter in letters["dead-letters"]:
            found[f"{node.name} dead letter: {letter['reason']}"] = letter["position"]
    return found
