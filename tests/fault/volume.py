"""A node on a small volume that its own messages fill: filled, killed, started, drained, sent to again."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp

from tests.fault.rig import PATIENCE_S, FaultyNode
from tests.harness.eventually import LOOK_AGAIN_S, until
from tests.harness.node import bridge_to

MIB = 1024 * 1024
#: Requests on their way while a volume is filled.
SENDERS = 8
#: Messages are kept for the one that drains.
_SETTINGS = '[address-settings."#"]\nmax-size-bytes = "64GiB"\n'
_READER = f'{_SETTINGS}[addresses.orders]\nqueues = ["q"]\n'
_ANYCAST = '[addresses.orders]\nrouting-type = "ANYCAST"\n'

_QUEUE = "/v1/addresses/orders/queues/q"
#: Who empties the volume; "shared" is a bridge that shares the queue of an ANYCAST address.
Drain = Literal["reader", "bridge", "shared"]


@contextlib.contextmanager
def mounted(directory: Path, mib: int) -> Iterator[Path]:
    """An empty volume of that size at `directory`; for root."""
    directory.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@dataclass
class SmallNode(FaultyNode):
    """A node whose data directory is a volume of its own."""

    def log_bytes(self) -> int:
        """Size of the write-ahead log."""
        path = self.data / "journal.sqlite-wal"
        return path.stat().st_size if path.exists() else 0


@dataclass
class Round:
    """One volume's life."""

    node: SmallNode
    hub: FaultyNode
    #: Who empties the node.
    drainer: Drain
    session: aiohttp.ClientSession
    random: random.Random
    #: Digest of each message that was answered `stored`, by sender, in the order of sending.
    stored: dict[int, list[str]] = field(default_factory=dict)
    #: Digests of what was drained, in order.
    drained: list[str] = field(default_factory=list)
    #: The longest write-ahead log that was seen.
    longest_log: int = 0

    async def ask(self, node: FaultyNode, method: str, path: str, **how: Any) -> tuple[int, Any]:
        """Status and JSON; 0 where the node is not there."""
        port = node.operations_port if path in ("/ready", "/v1/status") else node.port
        try:
            async with self.session.request(method, f"http://127.0.0.1:{port}{path}", **how) as answer:
                body = await answer.read()
                return answer.status, json.loads(body) if body else None
        except (aiohttp.ClientError, OSError):
            return 0, None

    async def until(self, what: str, look: Callable[[], Awaitable[bool]]) -> None:
        """Look until it is so."""

        async def looked() -> bool:
            self.longest_log = max(self.longest_log, self.node.log_bytes())
            return await look()

        try:
            await until(looked, what, PATIENCE_S, LOOK_AGAIN_S)
        except AssertionError as error:
            error.add_note(f"{await self.ask(self.node, 'GET', '/v1/status')}; {self.node.log_tail()}")
            raise

    async def answers(self, node: FaultyNode) -> None:
        """The acceptor is open."""

        async def look() -> bool:
            assert node.process is not None
            assert node.process.returncode is None, f"{node.name} has ended: {node.log_tail()}"
            return (await self.ask(node, "GET", "/v1/addresses"))[0] == 200

        await self.until(f"{node.name} answers", look)

    async def is_full(self) -> bool:
        """Whether the node says that its disk is."""
        _, ready = await self.ask(self.node, "GET", "/ready")
        assert self.node.process is not None
        assert self.node.process.returncode is None, f"it has ended: {self.node.log_tail()}"
        return ready is not None and "the disk is full" in ready["reasons"]

    async def has_room(self) -> bool:
        """Whether it says no more that its disk is full."""
        return not await self.is_full()

    async def restart(self) -> None:
        """Kill it, and start it again."""
        await self.node.kill_now()
        self.node.spawn()
        await self.answers(self.node)

    # -- filling ---------------------------------------------------------------------------------------

    async def fill(self, largest: int, until: Callable[[], Awaitable[bool]]) -> None:
        """Send from several sides until so; what is on its way then is given up.

        A busy machine fills a volume slowly: it takes as long as messages are stored.
        """
        senders = [asyncio.create_task(self._send(number, largest)) for number in range(SENDERS)]
        filled = False
        try:
            while not filled:
                before = self._stored_count()
                try:
                    await self.until("the volume is filled", until)
                    filled = True
                except AssertionError:
                    if self._stored_count() == before:
                        raise
        finally:
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)

    def _stored_count(self) -> int:
        return sum(map(len, self.stored.values()))

    async def _send(self, number: int, largest: int) -> None:
        stored = self.stored.setdefault(number, [])
        while True:
            body = self.random.randbytes(16) * self.random.randint(1, largest // 16)
            status, answer = await self.ask(self.node, "POST", "/v1/addresses/orders/messages", data=body)
            if status == 200 and answer["verdict"] == "stored":
                stored.append(_digest(body))

    async def is_taken_again(self) -> bool:
        """Whether one more message is stored."""
        before = {number: len(stored) for number, stored in self.stored.items()}
        body = self.random.randbytes(1000)
        status, _ = await self.ask(self.node, "POST", "/v1/addresses/orders/messages", data=body)
        assert before
        if status == 200:
            self.stored.setdefault(-1, []).append(_digest(body))
        return status == 200

    # -- draining --------------------------------------------------------------------------------------

    async def drain(self) -> bool:
        """Read a page, or look what the bridge has left; True where nothing is."""
        return await (self._read_page() if self.drainer == "reader" else self._is_relayed())

    async def _read_page(self) -> bool:
        """Lease a page, acknowledge it; True where nothing is left."""
        how = {"headers": {"Accept": "application/json"}}
        status, page = await self.ask(self.node, "GET", f"{_QUEUE}/messages?max=500&lease=1000", **how)
        if status != 200:
            assert status in (0, 503), (status, page)
            return False
        if page["lease"] is None:
            _, found = await self.ask(self.node, "GET", "/v1/addresses/orders")
            return found is not None and found["queues"][0]["lag"] == 0
        digests = [_digest_of(message) for message in page["messages"]]
        status, problem = await self.ask(
            self.node, "POST", f"{_QUEUE}/acknowledge", json={"lease": page["lease"]}
        )
        if status == 204:
            self.drained += digests
        else:
            assert status in (0, 409, 410, 503), (status, problem)
        return False

    async def _is_relayed(self) -> bool:
        """Whether the bridge has brought everything to the hub."""
        _, found = await self.ask(self.node, "GET", "/v1/status")
        return found is not None and found["bridges"][0]["lag"] == 0 and bool(found["addresses"])

    async def browse_hub(self) -> None:
        """What the bridge has brought."""
        after = -1
        while True:
            _, found = await self.ask(self.hub, "GET", f"/v1/addresses/orders/messages?after={after}&max=200")
            if not found["messages"]:
                return
            self.drained += [_digest_of(message) for message in found["messages"]]
            after = found["messages"][-1]["position"]

    def check(self) -> None:
        """Everything that was answered is there once, in order; what was not answered at most once."""
        places: dict[str, int] = {}
        for place, digest in enumerate(self.drained):
            assert digest not in places, f"message {place} is there twice"
            places[digest] = place
        for number, stored in self.stored.items():
            missing = [digest for digest in stored if digest not in places]
            assert not missing, f"sender {number}: {len(missing)} of {len(stored)} are lost"
            found = [places[digest] for digest in stored]
            assert found == sorted(found), f"sender {number}: out of order"


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def _digest_of(message: dict[str, Any]) -> str:
    import base64

    if "body-base64" in message:
        return _digest(base64.b64decode(message["body-base64"]))
    return _digest(message["body"].encode())


@contextlib.asynccontextmanager
async def volume(directory: Path, mib: int, drain: Drain, chance: random.Random) -> AsyncIterator[Round]:
    """The node on its volume and a hub with room, neither started; everything is gone at the end."""
    how = 'shutdown-timeout = "10s"'
    hub = FaultyNode("hub", directory, _READER, how)
    bridge = bridge_to(hub, "to-hub", retry_interval="30", max_retry_interval="30")
    settings = {"reader": _READER, "bridge": _SETTINGS + bridge, "shared": _SETTINGS + bridge + _ANYCAST}
    node = SmallNode("edge", directory, settings[drain], how)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    with mounted(node.data, mib):
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                yield Round(node, hub, drain, session, chance)
        finally:
            for one in (node, hub):
                one.destroy()
