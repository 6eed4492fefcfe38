"""Two real journals in one process and bridges between them: put, relay, cut, look at what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec

from bridge.errors import TargetUnavailable
from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.source import JournalSource
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import AddressPolicy, BridgeQueue, BridgeSelection, JournalOptions
from bridge.journal.values.store import AddressStatus, Delivered, Sent, Transaction
from bridge.messages.batch import Batch
from bridge.messages.message import Message
from bridge.relay.backoff import Backoff
from bridge.relay.dead_letters import DeadLetters
from bridge.relay.lifecycle import Command, State
from bridge.relay.ports import Opened, Receipt, Stream, Target
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.runtime.clock import SystemClock
from tests.fakes.lossy_end import LossyTarget, Lost
from tests.fakes.one_lane import OneLane
from tests.harness.eventually import until

#: At a real journal; a test that waits longer for something has failed.
LONGEST_S = 5
MAX_MESSAGE = 10_000


class Link:
    """A `JournalTarget` whose receipts can be lost on the way."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.loses = False
        self._cut = asyncio.Event()

    async def open(self, streams: Sequence[Stream]) -> Opened:
        self._cut.clear()
        return await self.target.open(streams)

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        receipts = await self.target.deliver(batches)
        if self.loses:
            await self._cut.wait()
            raise TargetUnavailable("the link was cut")
        return receipts

    async def lost(self) -> None:
        await self._cut.wait()
        raise TargetUnavailable("the link was cut")

    def cut(self) -> None:
        self._cut.set()

    async def close(self) -> None:
        await self.target.close()


class Nodes:
    """An edge with bridges, and a hub."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory = directory
        self.stack = stack
        self.policies: dict[str, AddressPolicy] = {}
        self.bridges = ["first"]
        #: Positions that relays made from now on lose, by address.
        self.lost: Lost = {}
        self.edge: Journal
        self.hub: Journal
        self.links: dict[str, Link] = {}
        self.relays: list[OneLane] = []

    def policy(self, address: str) -> AddressPolicy:
        return self.policies.get(address, AddressPolicy())

    async def open(self) -> None:
        queues = [BridgeQueue(name, ["orders"], lambda address: address == "orders") for name in self.bridges]
        self.edge = await self._journal("edge", bridges=queues)
        self.hub = await self._journal("hub", max_message_bytes=MAX_MESSAGE)

    async def _journal(self, name: str, **options: Any) -> Journal:
        journal = await Journal.open(
            JournalOptions(
                self.directory / name, node=name, policy=self.policy, call_timeout_ms=300, **options
            )
        )
        self.stack.push_async_callback(journal.close)
        return journal

    async def restart(self) -> None:
        for relay in self.relays:
            await relay.command(Command.STOP)
        await self.edge.close()
        await self.hub.close()
        await self.open()

    def source(self, name: str, *, stamp: bool = True, batch_bytes: int = 1 << 20) -> JournalSource:
        return JournalSource(
            self.edge,
            BridgeSelection(name, lambda address: address == "orders", lambda address: address),
            Cutter(batch_bytes, 100_000, stamp=stamp),
            target_name="hub",
        )

    def relay(
        self, name: str = "first", *, stamp: bool = True, batch_bytes: int = 1 << 20, **options: Any
    ) -> OneLane:
        source = self.source(name, stamp=stamp, batch_bytes=batch_bytes)
        target = JournalTarget(self.hub, name, check_producer_ids=False)
        link = self.links[name] = Link(LossyTarget(target, self.lost))
        edge = self.edge
        letters = DeadLetters(
            name, "dead", lambda named: JournalTarget(edge, named, check_producer_ids=False)
        )
        relay = OneLane(
            RelayOptions(name, Backoff(20, 1.0, 20), **options),
            LaneEnds(source, link, letters),
            clock=SystemClock(),
        )
        self.relays.append(relay)
        return relay

    async def put(self, bodies: Sequence[bytes], *, together: int = 10) -> None:
        for start in range(0, len(bodies), together):
            await self.put_at("orders", bodies[start : start + together])

    async def put_at(self, address: str, bodies: Sequence[bytes]) -> None:
        await self.edge.commit(Transaction([Sent.of(address, Message(body)) for body in bodies]))

    async def idle(self) -> None:
        """Wait until no bridge has anything left."""

        async def nothing_left() -> bool:
            return not any([await self.backlog(name) for name in self.bridges])

        await until(nothing_left, "nothing is left")

    async def confirmed(self, relay: OneLane) -> None:
        """Wait for the first receipt."""

        async def some() -> bool:
            return relay.counts.acknowledged > 0

        await until(some, "some have arrived")

    async def stored(self, messages: int) -> None:
        """Wait until so many messages are at the hub, whatever the edge knows of it."""

        async def there() -> bool:
            return sum(status.messages for status in await self.hub.addresses()) >= messages

        await until(there, "they are there")

    async def backlog(self, name: str = "first") -> int:
        return await self.edge.read(_lag, name)

    async def nothing_of(self, name: str) -> bool:
        return await self.backlog(name) == 0

    async def failed(self, relay: OneLane) -> bool:
        return relay.state is State.FAILED

    async def status(self, journal: Journal, address: str = "orders") -> AddressStatus:
        return await journal.address(address)

    async def at(self, journal: Journal, address: str = "orders") -> Sequence[Delivered]:
        return await journal.browse(address, after=-1, most=100_000, most_bytes=1 << 30)

    async def arrived(self) -> list[bytes | None]:
        return [delivered.message.whole for delivered in await self.at(self.hub)]

    async def lines(self, journal: Journal, side: str, bridge: str | None = "first") -> list[dict[str, Any]]:
        found = [msgspec.json.decode(line) for _, line in await journal.lines(0, 10_000)]
        return [line for line in found if line["side"] == side and line["bridge"] == bridge]


def _lag(connection: Any, bridge: str) -> int:
    (lag,) = connection.execute(
        "SELECT max(a.next - q.next, 0) FROM queues q JOIN addresses a USING (address_id) WHERE q.bridge = ?",
        (bridge,),
    ).fetchone()
    return int(lag)


def bodies(first: int, end: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, end)]
