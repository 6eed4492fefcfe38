"""The demo of a cluster: nodes come, are killed and leave, with clients and readers at all; and the proof.

The meaning of "in order" here: a client sends its rows in file order, to one node. At every other node, and
at that one, each queue must have them in that order. Clients of different nodes have no order among them. A
node that has taken over another one has two queues in one: each of them must be in order.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Final

from bridge.demo.cluster_compare import ClusterProof, QueueComparison
from bridge.demo.cluster_nodes import (
    ARCHIVE,
    BOARD,
    JOBS,
    QUEUES,
    ClusterNode,
    backlog_for,
    drained,
    known_to_each_other,
    node_status,
    waiting,
)
from bridge.demo.cluster_readers import READER, Reader, processed
from bridge.demo.cluster_traffic import ClusterTraffic, address_of
from bridge.demo.compare import Proof
from bridge.demo.nodes import LOOK_AGAIN_S, DemoFailed
from bridge.demo.ports import free_ports
from bridge.demo.stage import STILL_FOR_S, Stage, ended, together

#: When the third node joins, the second is killed and the third drained, as fractions of all rows.
JOIN_AT: Final = 0.25
KILL_AT: Final = 0.5
DRAIN_AT: Final = 0.75


class ClusterStory(Stage):
    """One run of the demo of a cluster: from two empty nodes over three back to two, and to the proof."""

    async def perform(self) -> Proof:
        """As `Stage.perform`."""
        nodes = self._nodes()
        first, second, joining = nodes
        async with ended(nodes):
            self.progress.note(f"starting {first.name} and {second.name}")
            await together(first.start(), second.start())
            await known_to_each_other((first, second))
            started_at = time.monotonic()
            async with (
                ClusterTraffic(self.rows, str(uuid.uuid4()), self._show_sent) as traffic,
                Readers() as readers,
            ):
                events = Events(self, nodes, traffic, readers)
                readers.read(first)
                readers.read(second)
                await together(
                    traffic.send_to(first), traffic.send_to(second), events.happen(joining, heir=first)
                )
                await self._wait_for_readers((first, second), readers)
            comparisons = await self._compare((first, second), traffic, heir=first)
            seconds = time.monotonic() - started_at
            self._explain(comparisons, traffic)
            await self.stop((first, second))
        return self._proof(comparisons, traffic, nodes, seconds)

    def _nodes(self) -> Sequence[ClusterNode]:
        """The three nodes; the first two are those that all ask for the others."""
        ports = free_ports(6)
        queues = ((JOBS, ARCHIVE), (JOBS, ARCHIVE, BOARD), (JOBS, ARCHIVE))
        nodes = [
            ClusterNode(
                f"node-{index + 1}",
                self.directory,
                ports[2 * index],
                port=ports[2 * index + 1],
                queues=queues[index],
            )
            for index in range(3)
        ]
        for node in nodes:
            node.configure(id_cache_size=self.id_cache_size, contacts=nodes[:2])
        return nodes

    def _show_sent(self, answered: int) -> None:
        self.progress.update(f"sent {answered} of {len(self.rows)}")

    async def _wait_for_readers(self, nodes: Sequence[ClusterNode], readers: Readers) -> None:
        """Wait until nothing waits at any node, for another node or for a reader.

        Nodes are asked one after the other: a message may move from the last to the first meanwhile. So
        nothing must be found twice in a row.
        Raises: DemoFailed: it stands still.
        """
        left, found, changed_at = -1, -1, time.monotonic()
        while found or left:
            left, found = found, sum([waiting(await node_status(node)) for node in nodes])
            now = time.monotonic()
            if found != left:
                changed_at = now
            elif now - changed_at > STILL_FOR_S:
                logs = "\n".join(node.log_end() for node in nodes)
                raise DemoFailed(f"{found} messages have stood still for {STILL_FOR_S:g} s", logs)
            self.progress.update(f"processed {readers.processed}; still waiting: {found}")
            if found:
                await asyncio.sleep(LOOK_AGAIN_S)

    async def _compare(
        self, nodes: Sequence[ClusterNode], traffic: ClusterTraffic, heir: ClusterNode
    ) -> Sequence[QueueComparison]:
        """Read what the readers have processed, queue by queue; the heir has what the drained node's had."""
        comparisons: list[QueueComparison] = []
        for queue, address in QUEUES.items():
            expected = [row.index for row in self.rows if address_of(row.index) == address]
            comparison = QueueComparison(queue, self.rows, expected, traffic.sender_of, (heir.name,))
            for node in nodes:
                async for message in processed(node, queue):
                    reader = message["headers"][READER].decode()
                    comparison.take(reader, message["key"], message["body"])
            comparisons.append(comparison)
        return comparisons

    def _explain(self, comparisons: Sequence[QueueComparison], traffic: ClusterTraffic) -> None:
        sent = ", ".join(f"{count} to {node}" for node, count in sorted(traffic.sent_to.items()))
        self.progress.note(f"rows sent: {sent}")
        kinds = {JOBS: "jobs, ANYCAST", ARCHIVE: "news, MULTICAST, on every node", BOARD: "news, on one node"}
        for comparison in comparisons:
            queue = comparison.queue
            self.progress.note(f"queue {queue} ({kinds[queue]}): {comparison.line()}")
            if comparison.missing:
                self.progress.note(f"first lost rows of queue {queue}: {comparison.missing[:5]}")
        on_purpose, on_retry = traffic.duplicates, traffic.known_on_retry
        self.progress.note(
            f"clients asked again {traffic.retries} times because an answer was lost or not now; "
            f"{on_purpose} of {traffic.repeated} rows sent again on purpose were rejected duplicates"
        )
        self.rejected = (
            f"duplicates rejected {on_purpose + on_retry}: {on_purpose} sent again on purpose, "
            f"{on_retry} because an answer was lost"
        )

    async def stop(self, nodes: Sequence[ClusterNode]) -> None:
        """Stop all nodes. Raises: DemoFailed: one did not drain."""
        codes = await asyncio.gather(*(node.stop() for node in nodes))
        for node, code in zip(nodes, codes, strict=True):
            if code != 0:
                raise DemoFailed(f"{node.name} did not stop in order: exit code {code}", node.log_end())

    def _proof(
        self,
        comparisons: Sequence[QueueComparison],
        traffic: ClusterTraffic,
        nodes: Sequence[ClusterNode],
        seconds: float,
    ) -> ClusterProof:
        lost = {index for comparison in comparisons for index in comparison.missing}
        return ClusterProof(
            sent=len(self.rows),
            repeated=traffic.repeated,
            duplicates=traffic.duplicates,
            arrived=len(self.rows) - len(lost),
            lost=sum(len(comparison.missing) for comparison in comparisons),
            doubled=sum(comparison.doubled for comparison in comparisons),
            out_of_order=sum(comparison.out_of_order for comparison in comparisons),
            kills=sum(node.kills for node in nodes),
            cuts=0,
            seconds=seconds,
            joined=1,
            drained=1,
            processed=sum(comparison.at.total() for comparison in comparisons),
        )


class Readers:
    """The readers of all nodes; they end on exit. Use as an async context manager."""

    def __init__(self) -> None:
        #: By node.
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        #: Messages processed.
        self.processed = 0

    async def __aenter__(self) -> Readers:
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in list(self._tasks):
            await self.stop(node)

    def read(self, node: ClusterNode) -> None:
        """Read each queue of a node."""
        readers = [Reader(node, queue, self._count) for queue in node.queues]
        self._tasks[node.name] = [asyncio.create_task(reader.run()) for reader in readers]

    async def stop(self, node: str) -> None:
        """End the readers of a node. Raises: what has ended one before."""
        tasks = self._tasks.pop(node)
        for task in tasks:
            task.cancel()
        for end in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(end, Exception):
                raise end

    def _count(self, messages: int) -> None:
        self.processed += messages


class Events:
    """The faults and the drain that the demo brings on the cluster while it works."""

    def __init__(
        self,
        story: ClusterStory,
        nodes: Sequence[ClusterNode],
        traffic: ClusterTraffic,
        readers: Readers,
    ) -> None:
        self._story = story
        self._nodes = nodes
        self._traffic = traffic
        self._readers = readers

    async def happen(self, joining: ClusterNode, heir: ClusterNode) -> None:
        """A node joins, with readers and clients; the one that alone has a queue is killed, and returns; the
        first one drains to `heir`, and is gone.

        Raises: DemoFailed: a node does not start, is not noticed by the others, or is not drained.
        """
        total = len(self._story.rows)
        await self._traffic.reached(int(total * JOIN_AT)).wait()
        await self._join(joining)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._traffic.send_to(joining))
            await self._traffic.reached(int(total * KILL_AT)).wait()
            await self._kill(next(node for node in self._nodes if BOARD in node.queues))
            await self._traffic.reached(int(total * DRAIN_AT)).wait()
            await self._drain(joining, heir)

    async def _join(self, node: ClusterNode) -> None:
        note = self._story.progress.note
        note(f"{node.name} joins after {self._traffic.answered} rows")
        await node.start()
        await known_to_each_other(self._nodes)
        self._readers.read(node)
        note(f"every node knows {node.name} after {self._traffic.answered} rows")

    async def _kill(self, node: ClusterNode) -> None:
        note = self._story.progress.note
        await node.kill()
        note(f"killed {node.name} (SIGKILL) after {self._traffic.answered} rows")
        # At least some more rows, where there are any: for the queue that it alone has, they wait elsewhere.
        await self._traffic.reached(min(self._traffic.answered + 1, len(self._story.rows))).wait()
        others = [one for one in self._nodes if one is not node]
        waits = sum([backlog_for(await node_status(other), node.name) for other in others])
        note(f"{waits} messages wait for {node.name} at the other nodes")
        await node.start()
        await known_to_each_other(self._nodes)
        note(f"started {node.name} again; every node knows it")

    async def _drain(self, node: ClusterNode, heir: ClusterNode) -> None:
        """Its readers end, and its clients wait: they go to the heir as soon as that answers for it."""
        note = self._story.progress.note
        note(f"{node.name} drains to {heir.name} after {self._traffic.answered} rows")
        await self._readers.stop(node.name)
        moved = await drained(node, heir)
        await self._traffic.follow(node, heir)
        await self._story.stop((node,))
        note(
            f"{node.name} is drained and stopped: {moved} messages have moved, its clients go to {heir.name}"
        )
