"""Two real nodes as processes with a link proxy between them, all of which can be made to fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp

from bridge.demo.ports import free_ports
from tests.harness.eventually import LOOK_AGAIN_S, until
from tests.harness.node import Node

#: How long anything in a round may take before the round has failed, seconds.
PATIENCE_S = 60.0


#: Segments roll often, so that every crash point is reached.
_NODE = 'shutdown-timeout = "10s"'
_ROLLING = '[delivery-log]\nroll-interval = "300ms"\nroll-size = "4KiB"\n'
_ORDERS = '[addresses.orders]\nqueues = ["q"]\n'
_EDGE = (
    f'{_ROLLING}[connectors.hub]\nurl = "ws://127.0.0.1:{{link_port}}"\n'
    '[[bridges]]\nname = "to-hub"\nqueue-name = "orders"\nstatic-connectors = ["hub"]\n'
    "retry-interval = 30\nmax-retry-interval = 30\ncheck-period = 300\nconnection-ttl = 900\n"
    'producer-window-size = "4KiB"\nconfirmation-window-size = "16KiB"\n'
    'pending-ack-timeout = "2s"\n'
)


@dataclass
class LinkProxy:
    """TCP between edge and hub: cuts, delays, and swallows what the hub says (receipts)."""

    target_port: int
    port: int = field(default_factory=lambda: free_ports(1)[0])
    delay_s: float = 0.0
    swallowing: bool = False
    cuts: int = 0
    _server: asyncio.Server | None = None
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        other_writer = None
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            self._writers.add(other_writer)
            await asyncio.gather(
                self._pipe(reader, other_writer, receipts=False),
                self._pipe(other_reader, writer, receipts=True),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, other_writer):
                if one is not None:
                    one.close()
                    self._writers.discard(one)
            self._tasks.discard(task)

    async def _pipe(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, receipts: bool
    ) -> None:
        while data := await reader.read(65536):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            if receipts and self.swallowing:
                continue
            writer.write(data)
            await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Break every connection now; new ones are taken."""
        self.cuts += 1
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """No more delay; what was swallowed is gone with its connection, as on a real network."""
        self.delay_s = 0.0
        if self.swallowing:
            self.cut()
        self.swallowing = False

    async def stop(self) -> None:
        """Cut, and take no more."""
        if self._server is not None:
            self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass
class FaultyNode(Node):
    """A node that dies often, and is asked about it in a loop: the same directory and ports every time."""

    kills: int = 0

    async def ended(self, within_s: float = PATIENCE_S) -> int:
        """The exit code, once the process has ended; `start` begins another one."""
        process = self.process
        assert process is not None
        await until(lambda: process.poll() is not None, f"{self.name} ends", within_s, LOOK_AGAIN_S)
        code = self.wait()
        self.kills += code == -signal.SIGKILL
        return code

    async def kill_now(self) -> None:
        """SIGKILL, and wait for the end."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def stop_cleanly(self, client: Client) -> int:
        """SIGTERM; the exit code. What dies at its crash point on the way is started again first."""
        while True:
            self.signal()
            code = await self.ended()
            if code != -signal.SIGKILL:
                return code
            self.spawn()
            await client.ask("GET", "/v1/addresses")

    async def keep_alive(self) -> None:
        """Start again whenever it dies; cancelled at the end of a round."""
        while True:
            code = await self.ended()
            assert code == -signal.SIGKILL, f"{self.name} ended with {code}: {self.log_tail()}"
            self.spawn()

    def log_tail(self) -> str:
        """The end of what it logged."""
        return self.log.read_text(encoding="utf-8")[-2000:]

    def lines_once(self) -> list[dict[str, Any]]:
        """Every line of its delivery log, equal ones once."""
        return list({json.dumps(line): line for line in self.delivery_lines()}.values())


class Client:
    """HTTP that is asked again, with the same IDs, until it is answered."""

    def __init__(self, node: FaultyNode, session: aiohttp.ClientSession) -> None:
        self._base = f"http://127.0.0.1:{node.port}"
        self._session = session

    async def ask(self, method: str, path: str, **arguments: Any) -> tuple[int, Any]:
        """Status and JSON of the first answer that is not 503."""
        while True:
            try:
                async with self._session.request(method, self._base + path, **arguments) as answer:
                    body = await answer.read()
                    if answer.status != 503:
                        return answer.status, json.loads(body) if body else None
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(0.02)


@dataclass
class Rig:
    """Edge, hub and what is between them."""

    edge: FaultyNode
    hub: FaultyNode
    proxy: LinkProxy
    session: aiohttp.ClientSession
    random: random.Random

    def client(self, node: FaultyNode) -> Client:
        """A client of one node."""
        return Client(node, self.session)

    async def fail_at_random(self) -> None:
        """The link is cut, slow or deaf, and one of the nodes is killed, at random instants."""
        for _ in range(6):
            await asyncio.sleep(self.random.uniform(0.02, 0.4))
            match self.random.randrange(5):
                case 0 | 1:
                    self.proxy.cut()
                case 2:
                    self.proxy.delay_s = self.random.choice([0.0, 0.01])
                case 3:
                    self.proxy.swallowing = True
                    await asyncio.sleep(0.2)
                    self.proxy.heal()
                case 4:
                    node = self.random.choice([self.edge, self.hub])
                    if node.process is not None:
                        node.process.kill()


@contextlib.asynccontextmanager
async def rig(directory: Path, seed: int, *, edge: str = "", hub: str = _ORDERS) -> AsyncIterator[Rig]:
    """Both nodes described, none started; everything is gone at the end.

    `edge` and `hub`: TOML at the end of the bridge's table, and of the hub's file.
    """
    hub_node = FaultyNode("hub", directory, _ROLLING + hub, _NODE)
    proxy = await LinkProxy(hub_node.port).start()
    edge_node = FaultyNode("edge", directory, _EDGE.format(link_port=proxy.port) + edge, _NODE)
    connector = aiohttp.TCPConnector(force_close=False, limit=0)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            yield Rig(edge_node, hub_node, proxy, session, random.Random(seed))
    finally:
        await proxy.stop()
        for node in (edge_node, hub_node):
            node.destroy()
