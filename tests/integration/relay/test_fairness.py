"""An address that cannot be delivered to keeps no other of its bridge waiting: two journals, a real link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.source import JournalSource
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import AddressPolicy, BridgeQueue, BridgeSelection, JournalOptions
from bridge.journal.values.store import Acknowledgement, Sent, Transaction
from bridge.link import limits
from bridge.link.correspondent import LinkEnd
from bridge.link.node_target import NodeTarget
from bridge.link.receiving import NodeIdentity
from bridge.link.socket import Endpoint, serve_link
from bridge.messages.message import Message
from bridge.relay.backoff import Backoff
from bridge.relay.lifecycle import Command, State
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.runtime.clock import SystemClock
from tests.fakes.one_lane import OneLane
from tests.harness.eventually import until
from tests.unit.link.helpers import HELLO

BRIDGE = "orders-to-hub"
#: The call-timeout of both nodes: longer than any test may take.
CALL_TIMEOUT_MS = 30_000
#: Longest wait for anything, seconds.
WITHIN_S = 8.0
ADDRESSES = ("full", "orders")
#: Messages of each: many times what may be in flight.
COUNT = 60


class Nodes:
    """An edge with a bridge of two addresses, and a hub that it reaches by a link."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory, self.stack = directory, stack
        self.policies: dict[str, AddressPolicy] = {}
        self.edge: Journal
        self.hub: Journal
        self.relay: OneLane

    async def open(self) -> None:
        queue = BridgeQueue(BRIDGE, ADDRESSES, lambda address: address in ADDRESSES)
        self.edge = await self._journal(JournalOptions(self.directory / "edge", bridges=[queue]))
        self.hub = await self._journal(
            JournalOptions(
                self.directory / "hub",
                policy=lambda address: self.policies.get(address, AddressPolicy()),
                call_timeout_ms=CALL_TIMEOUT_MS,
            )
        )
        app = web.Application()
        app.router.add_get(limits.PATH, self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        self.stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        source = JournalSource(
            self.edge,
            BridgeSelection(BRIDGE, lambda address: address in ADDRESSES, lambda address: address),
            Cutter(500, 100_000, stamp=True),
            target_name="hub",
        )
        endpoint = Endpoint(f"ws://127.0.0.1:{runner.addresses[0][1]}", "")
        self.relay = OneLane(
            RelayOptions(BRIDGE, Backoff(50, 1.0, 50), confirmation_window_size=1_500),
            LaneEnds(source, NodeTarget(endpoint, HELLO, call_timeout_ms=CALL_TIMEOUT_MS)),
            clock=SystemClock(),
        )
        self.stack.push_async_callback(self.relay.command, Command.STOP)

    async def _journal(self, options: JournalOptions) -> Journal:
        journal = await Journal.open(options)
        self.stack.push_async_callback(journal.close)
        return journal

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        return await serve_link(
            request,
            lambda hello: LinkEnd(JournalTarget(self.hub, hello.bridge, check_producer_ids=False)),
            identity=NodeIdentity("node-2", "hub", self.hub.store, 1 << 20),
            call_timeout_ms=CALL_TIMEOUT_MS,
        )

    async def put(self, address: str, bodies: list[bytes]) -> None:
        for start in range(0, len(bodies), 10):
            part = [Sent.of(address, Message(body)) for body in bodies[start : start + 10]]
            await self.edge.commit(Transaction(part))

    async def drained(self, address: str, count: int) -> list[bytes | None]:
        """Read everything at the hub until there were `count`, so that there is room for more."""
        found: list[bytes | None] = []
        async with asyncio.timeout(CALL_TIMEOUT_MS / 1000):
            await self.arrived(address, 1)
            await self.hub.create_queue(address, "reader", "earliest")
            while len(found) < count:
                page = await self.hub.lease(
                    address, "reader", most=100, wait_ms=100, lease_ms=60_000, most_bytes=1 << 20
                )
                if page.lease is not None:
                    found += [delivered.message.whole for delivered in page.messages]
                    await self.hub.acknowledge(Acknowledgement(address, "reader", page.lease))
        return found

    async def arrived(self, address: str, count: int) -> list[bytes | None]:
        """What is at the hub once there are `count`."""
        async with asyncio.timeout(WITHIN_S):
            while True:
                if any(status.address == address for status in await self.hub.addresses()):
                    found = await self.hub.browse(address, after=-1, most=100_000, most_bytes=1 << 30)
                    if len(found) >= count:
                        return [one.message.whole for one in found]
                await asyncio.sleep(0.01)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        made = Nodes(tmp_path, stack)
        await made.open()
        yield made


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (AddressPolicy(1_000, "FAIL"), "ADDRESS_FULL"),
        (AddressPolicy(1_000, "BLOCK"), "ADDRESS_FULL"),
        (AddressPolicy(auto_create=False), "ADDRESS_NOT_FOUND"),
    ],
    ids=["full-fail", "full-block", "missing"],
)
async def test_an_address_that_takes_nothing_keeps_no_other_waiting(
    nodes: Nodes, policy: AddressPolicy, rule: str
) -> None:
    """B20, B23: the other's backlog is many times what may be in flight, and so is its own."""
    bodies = [b"m%03d" % number + b"x" * 100 for number in range(COUNT)]
    nodes.policies["full"] = policy
    await nodes.put("full", bodies)
    await nodes.put("orders", bodies)
    await nodes.relay.command(Command.START)
    assert await nodes.arrived("orders", COUNT) == bodies
    await until(lambda: nodes.relay.counts.trouble.startswith(rule), f"the trouble is {rule}", WITHIN_S)
    assert nodes.relay.state is State.RUNNING
    nodes.policies["full"] = AddressPolicy()  # where it is not there yet; the others are drained
    assert await nodes.drained("full", COUNT) == bodies
    assert nodes.relay.counts.reconnects == 0
