"""Nodes of a cluster that reach each other through proxies, and what can be done to them at random.

Node `n<i>` reaches `n<j>` through a proxy of its own: one link, a pair or a whole node can be cut off.
Clients use the nodes' own ports. A node that dies is started again by its keeper.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import operator
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import aiohttp

from bridge.demo.proxy import LinkProxy
from bridge.runtime.fault_injection import NAMES
from tests.fault.rig import FaultyNode
from tests.harness.eventually import LOOK_AGAIN_S, until

#: Longest wait for an answer, after which it is not known what became of the request, in seconds.
ANSWER_S: Final = 3.0
#: Pause before a request is made again, in seconds.
AGAIN_S: Final = 0.02
#: Longest that the tables of all nodes take to agree, and that a node takes to end, in seconds.
SETTLED_S: Final = 60.0

#: What can be done to a node, by how often: `stop` is a clean one, `deaf` swallows answers, `alone` cuts all
#: links of a node.
FAULTS: Final = ("kill", "kill", "pause", "stop", "cut", "deaf", "alone")
#: Crash points that a node of a cluster reaches.
CRASH_POINTS: Final = tuple(
    name
    for name in NAMES
    if name.startswith(("journal.before-", "journal.after-", "link.", "source.", "http."))
)
_CONNECTION: Final = {
    "retry-interval": "50",
    "max-retry-interval": "200",
    "reader-timeout": '"700ms"',
    "check-period": "300",
    "connection-ttl": "1200",
    "call-timeout": '"2s"',
    "notification-interval": "300",
    "producer-window-size": '"8KiB"',
    "confirmation-window-size": '"32KiB"',
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request."""

    #: HTTP status; 0: there was no answer, and what became of it is unknown; -1: it was never sent.
    status: int
    json: Any = None

    @property
    def unknown(self) -> bool:
        """Whether the request may have been carried out."""
        if self.status == 503:
            return bool(self.json["title"] == "JOURNAL_UNAVAILABLE")
        return self.status == 0


@dataclass
class Mesh:
    """Nodes, the proxies between them, and one client."""

    nodes: list[FaultyNode]
    proxies: Mapping[tuple[int, int], LinkProxy]
    session: aiohttp.ClientSession
    random: random.Random
    #: Nodes that something is done to now.
    busy: set[int] = field(default_factory=set)
    #: Nodes that are stopped on purpose.
    stopping: set[int] = field(default_factory=set)
    #: By a drained node, its heir.
    heirs: dict[int, int] = field(default_factory=dict)
    #: How often each fault was.
    faults: Counter[str] = field(default_factory=Counter)
    #: Whether nodes that are started again are to die at a named place.
    arms: bool = False

    # -- clients -----------------------------------------------------------------------------------------

    def serving(self, index: int) -> int:
        """The node that answers for a node: itself, or its heir once it is drained."""
        while index in self.heirs:
            index = self.heirs[index]
        return index

    async def ask(
        self, index: int, method: str, path: str, *, operations: bool = False, **how: Any
    ) -> Answer:
        """One request, once."""
        node = self.nodes[index]
        url = f"http://127.0.0.1:{node.operations_port if operations else node.port}{path}"
        try:
            async with self.session.request(method, url, **how) as reply:
                body = await reply.read()
        except aiohttp.ClientConnectorError:
            return Answer(-1)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return Answer(0)
        return Answer(reply.status, json.loads(body) if body else None)

    async def surely(self, index: int, method: str, path: str, **how: Any) -> Any:
        """What a node answers with 2xx, asked again until then."""
        while True:
            answer = await self.ask(index, method, path, **how)
            if answer.status in (200, 201, 204):
                return answer.json
            assert answer.status in (-1, 0, 503), answer
            await asyncio.sleep(AGAIN_S)

    @property
    def sent_bytes(self) -> int:
        """Bytes that nodes have sent over the links that they have made."""
        return sum(proxy.sent_bytes for proxy in self.proxies.values())

    # -- life --------------------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start every node."""
        for node in self.nodes:
            node.spawn()

    async def keep_alive(self, index: int) -> None:
        """Start a node again whenever it ends, until cancelled."""
        node = self.nodes[index]
        while True:
            code = await node.ended(3600)
            # SIGTERM ends a process that is so young that it does not handle it yet.
            stopped = (0, -signal.SIGTERM) if index in self.stopping else ()
            assert code in (-signal.SIGKILL, *stopped), f"{node.name} ended with {code}: {node.log_tail()}"
            await asyncio.sleep(self.random.uniform(0, 1.0))
            node.spawn(CORE_BRIDGE_CRASH_AT=self._crash_point())

    def _crash_point(self) -> str:
        """Where the next process dies by itself, and at which time; empty: nowhere."""
        if not self.arms or self.random.random() < 0.4:
            return ""
        self.faults["armed"] += 1
        return f"{self.random.choice(CRASH_POINTS)}:{self.random.choice((1, 3, 10, 30))}"

    async def settled(self, *indices: int) -> None:
        """These nodes, or all, run, know and reach each other, with the same records."""
        chosen = indices or tuple(range(len(self.nodes)))
        for index in chosen:
            await self._runs(index)
        names = {self.nodes[index].name for index in chosen}

        async def agree() -> bool:
            answers = [await self.ask(index, "GET", "/v1/cluster", operations=True) for index in chosen]
            if any(answer.status != 200 for answer in answers):
                return False
            tables = [{one["name"]: one for one in answer.json["nodes"]} for answer in answers]
            there = all(name in table and table[name]["reachable"] for table in tables for name in names)
            return there and all(
                table[name]["version"] == tables[0][name]["version"] for table in tables for name in names
            )

        await until(agree, f"{sorted(names)} know each other", SETTLED_S, LOOK_AGAIN_S)

    async def knows(self, address: str, queue: str) -> None:
        """Each node knows the queue at the same number of nodes, and at one at least."""

        async def known() -> bool:
            answers = [
                await self.ask(index, "GET", "/v1/cluster", operations=True)
                for index in range(len(self.nodes))
            ]
            counts = {
                sum(
                    (one["address"], one["queue"]) == (address, queue)
                    for node in answer.json["nodes"]
                    for one in node["queues"]
                )
                for answer in answers
                if answer.status == 200
            }
            return all(answer.status == 200 for answer in answers) and len(counts) == 1 and 0 not in counts

        await until(known, f"all know {address}::{queue}", SETTLED_S, LOOK_AGAIN_S)

    async def stop(self) -> None:
        """End every node cleanly."""
        for node in self.nodes:
            if node.process is not None:
                node.signal()
        for node in self.nodes:
            while node.process is not None:
                code = await node.ended(SETTLED_S)
                assert code in (0, -signal.SIGKILL), f"{node.name} ended with {code}: {node.log_tail()}"
                if code:  # at a named place, on the way to its end
                    node.spawn()
                    node.signal()

    def check_logs(self) -> None:
        """No node has logged an error that was not foreseen."""
        for node in self.nodes:
            log = node.log.read_text(encoding="utf-8")
            assert "Traceback" not in log, f"{node.name}:\n{log[log.index('Traceback') - 2000 :][:6000]}"
            assert '"event":"task-failed"' not in log.replace(" ", ""), node.name

    # -- faults ------------------------------------------------------------------------------------------

    async def fail_at_random(self, until_s: float, at_once: int = 2, kinds: Sequence[str] = FAULTS) -> None:
        """So many faults at a time, until the loop's clock says `until_s`."""
        loop = asyncio.get_running_loop()
        self.arms = True

        async def go_on() -> None:
            while loop.time() < until_s:
                await asyncio.sleep(self.random.uniform(0.02, 0.3))
                await self._fail_once(self.random.choice(kinds))

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(go_on())
        self.arms = False
        self.heal()

    def heal(self) -> None:
        """Every link is as new."""
        for proxy in self.proxies.values():
            proxy.heal()

    async def _fail_once(self, kind: str) -> None:
        free = [
            index for index in range(len(self.nodes)) if index not in self.busy and index not in self.heirs
        ]
        pairs = [pair for pair in self.proxies if set(pair) <= set(free)]
        if not pairs:
            return
        index, other = self.random.choice(pairs)
        self.faults[kind] += 1
        self.busy.add(index)
        try:
            match kind:
                case "kill":
                    self._signal(index, signal.SIGKILL)
                    await self._lasts(0.3, 1.5)
                case "stop":
                    self.stopping.add(index)
                    self._signal(index, signal.SIGTERM)
                    await self._lasts(0.5, 1.5)
                case "pause":
                    await self._pause(self.nodes[index])
                case _:
                    await self._cut(kind, index, other)
            await self._runs(index)
        finally:
            self.stopping.discard(index)
            self.busy.discard(index)

    def _signal(self, index: int, number: int) -> None:
        if self.nodes[index].process is not None:
            self.nodes[index].signal(number)

    async def _pause(self, node: FaultyNode) -> None:
        process = node.process
        if process is None:
            return
        process.send_signal(signal.SIGSTOP)
        try:
            await self._lasts(0.2, 2.0)
        finally:
            process.send_signal(signal.SIGCONT)

    async def _cut(self, kind: str, index: int, other: int) -> None:
        if kind == "alone":
            pairs = [pair for pair in self.proxies if index in pair]
        else:
            pairs = [(index, other), (other, index)]
        for pair in pairs:
            if kind == "deaf":
                self.proxies[pair].swallow_answers_after(self.random.randrange(20_000))
            else:
                self.proxies[pair].cut()
        await self._lasts(0.2, 2.0)
        for pair in pairs:
            self.proxies[pair].heal()

    async def _lasts(self, shortest_s: float, longest_s: float) -> None:
        await asyncio.sleep(self.random.uniform(shortest_s, longest_s))

    async def _runs(self, index: int) -> None:
        """The node is there again, before another thing is done to it."""

        async def there() -> bool:
            process = self.nodes[index].process
            code = None if process is None else process.poll()
            assert code in (None, 0, -signal.SIGKILL), self.nodes[index].log_tail()
            answer = await self.ask(index, "GET", "/v1/addresses")
            return answer.status == 200

        await until(there, f"n{index} runs again", SETTLED_S, LOOK_AGAIN_S)


@contextlib.asynccontextmanager
async def mesh(
    directory: Path,
    seed: int,
    count: int,
    rest: str = "",
    own: Sequence[str] = (),
    keys: Mapping[str, str] = MappingProxyType({}),
    linked: Callable[[int, int], bool] = operator.ne,
) -> AsyncIterator[Mesh]:
    """So many nodes, described and not started; everything is gone at the end.

    `rest`: TOML of each node; `own`: of each single one, in order. `keys`: of the cluster connection.
    `linked`: whether two nodes know each other by their settings.
    """
    print(f"seed {seed}")
    nodes = [
        FaultyNode(f"n{index}", directory, node='shutdown-timeout = "10s"', ends_within_s=SETTLED_S)
        for index in range(count)
    ]
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    async with contextlib.AsyncExitStack() as stack:
        proxies: dict[tuple[int, int], LinkProxy] = {}
        for one in range(count):
            for other in range(count):
                if linked(one, other):
                    proxies[one, other] = await stack.enter_async_context(LinkProxy(nodes[other].port))
        for index, node in enumerate(nodes):
            urls = {
                other: f"ws://127.0.0.1:{proxy.port}"
                for (one, other), proxy in proxies.items()
                if one == index
            }
            urls[index] = node.url
            connectors = "".join(f'[connectors.n{one}]\nurl = "{url}"\n' for one, url in urls.items())
            others = json.dumps([f"n{one}" for one in urls if one != index])
            table = "".join(f"{key} = {value}\n" for key, value in {**_CONNECTION, **keys}.items())
            head = f'name = "my-cluster"\nconnector-ref = "{node.name}"\nstatic-connectors = {others}\n'
            table = f"[[cluster-connections]]\n{head}{table}"
            node.rest = "\n".join((rest, own[index] if own else "", connectors, table))
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=timeout))
        try:
            yield Mesh(nodes, proxies, session, random.Random(seed))
        finally:
            for node in nodes:
                node.destroy()
