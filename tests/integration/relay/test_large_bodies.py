"""Large bodies from journal to journal over a real link: in chunks, whole at the end, once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bridge.errors import DiskFull
from bridge.journal.batching import Cutter
from bridge.journal.dead_letters import DeadLetterService, Route
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import ConfigureCommand
from bridge.journal.source import JournalSource
from bridge.journal.sqlite import pages
from bridge.journal.target import JournalTarget
from bridge.journal.uploads import BodyUpload
from bridge.journal.values.options import AddressPolicy, BridgeQueue, BridgeSelection, JournalOptions
from bridge.journal.values.store import Delivered, Sent, Transaction
from bridge.link import limits
from bridge.link.correspondent import LinkEnd
from bridge.link.frames import Hello
from bridge.link.node_target import NodeTarget
from bridge.link.receiving import NodeIdentity
from bridge.link.socket import Endpoint, serve_link
from bridge.messages.message import LargeBody, Message
from bridge.relay.backoff import Backoff
from bridge.relay.dead_letters import LETTER_HEADERS, DeadLetters
from bridge.relay.lifecycle import Command
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.relay.stages import refuse_large
from bridge.runtime.clock import SystemClock
from tests.fakes.one_lane import OneLane
from tests.harness.eventually import until
from tests.integration.journal.helpers import stored
from tests.integration.journal.test_large_bodies import body_of, bytes_in, chunks_in

KIB = 1024
#: Of the chunks that the tests store; a few of them fill the credit.
CHUNK_BYTES = 64 * KIB
HELLO = Hello(limits.VERSION, "edge-id", "edge", "edge-store", "first", True, True, 64 * KIB, 30_000, 60_000)


#: What the bridge reads.
ADDRESSES = ["orders", "alarms"]


def body(chunks: int) -> bytes:
    return os.urandom(chunks * CHUNK_BYTES - 7)


class Pair:
    """An edge and a hub with a link between them, and a bridge."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory, self.stack = directory, stack
        self.policies: dict[str, AddressPolicy] = {}
        #: The hub's, by its next links.
        self.identity = NodeIdentity("hub-id", "hub", "hub-store", 16 * KIB * KIB, max_body_size=1 << 30)
        #: The connections, to be cut.
        self.connections: list[web.Request] = []
        #: Of a line between them; None: there is none.
        self.line_port: int | None = None
        #: False: the hub takes no connection.
        self.serves = True
        self.relay: OneLane
        self.edge: Journal
        self.hub: Journal

    async def open(self) -> None:
        await self.open_edge()
        self.hub = await self.journal("hub")
        app = web.Application()
        app.router.add_get(limits.PATH, self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        self.stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self.make_relay()

    async def open_edge(self) -> None:
        queue = BridgeQueue("first", ADDRESSES, ADDRESSES.__contains__)
        self.edge = await self.journal("edge", bridges=[queue])

    def make_relay(self) -> None:
        self.relay = self._relay()
        self.stack.push_async_callback(self.relay.command, Command.STOP)

    async def journal(self, name: str, **more: Any) -> Journal:
        policy = lambda address: self.policies.get(f"{name}/{address}", AddressPolicy())  # noqa: E731
        given = JournalOptions(
            self.directory / name, node=name, policy=policy, call_timeout_ms=300, max_message_bytes=1 << 30,
            **more,
        )  # fmt: skip
        journal = await Journal.open(given)
        self.stack.push_async_callback(journal.close)
        return journal

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if not self.serves:
            raise web.HTTPServiceUnavailable
        self.connections.append(request)
        return await serve_link(request, self._end, identity=self.identity, call_timeout_ms=1000)

    def _end(self, hello: Hello) -> LinkEnd:
        return LinkEnd(JournalTarget(self.hub, hello.bridge, check_producer_ids=hello.check_producer_ids))

    def _relay(self) -> OneLane:
        selection = BridgeSelection("first", ADDRESSES.__contains__, lambda address: address)
        source = JournalSource(self.edge, selection, Cutter(1 << 20, 100_000, stamp=True), target_name="hub")
        target = NodeTarget(
            Endpoint(f"ws://127.0.0.1:{self.line_port or self.port}", compression="zstd"),
            HELLO,
            call_timeout_ms=1000,
            read_chunk=self.edge.read_chunk,
        )
        letters = DeadLetters(
            "first", "dead", lambda name: JournalTarget(self.edge, name, check_producer_ids=False)
        )
        return OneLane(
            RelayOptions("first", Backoff(20, 1.0, 20)),
            LaneEnds(source, target, letters),
            clock=SystemClock(),
        )

    def cut(self) -> None:
        for request in self.connections:
            if request.transport is not None:
                request.transport.abort()

    async def put(self, content: bytes, duplicate_id: bytes | None = None, address: str = "orders") -> None:
        """A large message at the edge."""
        one = self.edge.upload(address, len(content))
        for start in range(0, len(content), CHUNK_BYTES):
            await one.add(content[start : start + CHUNK_BYTES])
        submission = Sent.of(address, Message(one.kept.body, b"key", (("kind", b"film"),)), duplicate_id)
        await self.edge.commit(Transaction((submission,), plain=True, large=one.kept))
        one.give_up()

    async def put_small(self, content: bytes) -> None:
        await self.edge.commit(Transaction((Sent.of("orders", Message(content)),), plain=True))

    async def relayed(self) -> None:
        """Start the bridge, and wait until nothing of it is left at the edge."""
        await self.relay.command(Command.START)
        await self.emptied()

    async def emptied(self) -> None:
        edge = self.directory / "edge"
        await until(lambda: not stored(self.edge, "orders"), "the edge has nothing left")
        await until(lambda: chunks_in(edge) == (0, 0), "nor chunks")

    async def at(self, journal: Journal, address: str = "orders") -> list[Delivered]:
        return list(await journal.browse(address, after=-1, most=1000, most_bytes=1 << 40))

    async def arrived(self, address: str = "orders") -> list[bytes | None]:
        found = []
        for one in await self.at(self.hub, address):
            large = isinstance(one.message.body, LargeBody)
            found.append(await body_of(self.hub, one) if large else one.message.whole)
        return found


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(pages, "LARGE_IN_PAGE_BYTES", 0)
    async with AsyncExitStack() as stack:
        made = Pair(tmp_path, stack)
        await made.open()
        yield made


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bodies travel, and be stored, in pieces of 16 KiB, however fast the link is."""
    for module in ("bridge.link.body_pace", "bridge.link.link_server"):
        monkeypatch.setattr(f"{module}.CHUNK_BYTES", 16 * KIB)


def loses(monkeypatch: pytest.MonkeyPatch, journal: Journal, act: Callable[[int], None]) -> None:
    """`act` is called before each chunk that a bridge brings to this journal, with its number of all."""
    chunks = 0
    upload_of_bridge = journal.upload_of_bridge

    def watched(*how: Any) -> BodyUpload:
        made = upload_of_bridge(*how)
        add = made.add

        async def counted(chunk: bytes) -> None:
            nonlocal chunks
            chunks += 1
            act(chunks)
            await add(chunk)

        monkeypatch.setattr(made, "add", counted)
        return made

    monkeypatch.setattr(journal, "upload_of_bridge", watched)


async def test_large_and_small_messages_arrive_whole_in_order_and_once(pair: Pair) -> None:
    """B17, B18: far more than the credit, which bounds what is on its way."""
    pair.identity = replace(pair.identity, credit=3 * CHUNK_BYTES)
    large = [body(20), body(1), body(7)]
    await pair.put_small(b"first")
    for content in large:
        await pair.put(content)
    await pair.put_small(b"last")
    await pair.relayed()
    assert await pair.arrived() == [b"first", *large, b"last"]
    found = await pair.at(pair.hub)
    assert {one.message.headers for one in found[1:4]} == {(("kind", b"film"),)}
    assert all(one.duplicate_id for one in found)  # stamped, as any other message
    assert bytes_in(pair.directory / "hub") == (sum(map(len, large)), 0)


async def test_a_link_that_is_cut_in_mid_body_leaves_nothing_double(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B18: again and again; the body goes on where it was."""
    small_pieces(monkeypatch)
    cuts = {3, 5, 9}
    loses(monkeypatch, pair.hub, lambda chunk: pair.cut() if chunk in cuts else None)
    content = body(10)
    await pair.put(content, b"film-1")
    await pair.put_small(b"last")
    await pair.relayed()
    assert await pair.arrived() == [content, b"last"]
    assert len(pair.connections) == len(cuts) + 1
    await until(lambda: bytes_in(pair.directory / "hub") == (len(content), 0), "nothing else is there")


async def test_an_id_that_is_known_at_the_target_drops_message_and_body(pair: Pair) -> None:
    content = body(3)
    await pair.put(content, b"film-1")
    await pair.relayed()
    other = body(4)
    whole = len(content) + len(other)
    await pair.put(other, b"film-2")
    await pair.edge.clear_id_cache("orders")
    await pair.put(content, b"film-1")
    await pair.emptied()
    assert len(await pair.arrived()) == 2
    await until(lambda: bytes_in(pair.directory / "hub") == (whole, 0), "the third body is gone")


async def test_a_full_target_is_heard_of_before_the_body_is_sent_and_the_message_comes_later(
    pair: Pair,
) -> None:
    """B24: the hub answers the first chunk; other streams of the link would go on."""
    pair.policies["hub/orders"] = AddressPolicy(max_size_bytes=30 * CHUNK_BYTES, full_policy="FAIL")
    filler = Transaction((Sent.of("orders", Message(b"x" * 31 * CHUNK_BYTES)),))
    await pair.hub.create_queue("orders", "reader", "earliest")
    with pytest.raises(Exception, match="holds at most"):
        await pair.hub.commit(filler)
    for _ in range(2):
        await pair.hub.commit(Transaction((Sent.of("orders", Message(b"x" * 16 * CHUNK_BYTES)),)))
    content = body(20)
    await pair.put(content)
    await pair.relay.command(Command.START)
    await until(lambda: "ADDRESS_FULL" in (pair.relay.counts.trouble or ""), "the bridge says why it waits")
    assert chunks_in(pair.directory / "hub") == (0, 0)
    await pair.hub.delete_queue("orders", "reader")
    await pair.hub.create_queue("orders", "late", "latest")
    await pair.emptied()
    assert await pair.arrived() == [content]


async def test_a_disk_that_is_full_in_mid_body_holds_the_message_until_there_is_room(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(chunk: int) -> None:
        if chunk in (4, 5):
            raise DiskFull("no room on the disk")

    loses(monkeypatch, pair.hub, act)
    content = body(6)
    await pair.put(content)
    await pair.relayed()
    assert await pair.arrived() == [content]
    await until(lambda: bytes_in(pair.directory / "hub") == (len(content), 0), "the broken upload is gone")


@pytest.mark.parametrize("limit", ["address", "node"])
async def test_what_is_too_large_for_the_target_is_a_dead_letter_with_its_body(
    pair: Pair, limit: str
) -> None:
    most = 5 * CHUNK_BYTES
    if limit == "address":
        pair.policies["hub/orders"] = AddressPolicy(max_size_bytes=most)
    else:
        pair.identity = replace(pair.identity, max_body_size=most)
    content, fits = body(6), body(3)
    await pair.put(content, b"film-1")
    await pair.put(fits)
    await pair.relay.command(Command.START)
    await until(lambda: not stored(pair.edge, "orders"), "the bridge has passed both")
    assert await pair.arrived() == [fits]
    (dead,) = await pair.at(pair.edge, "dead")
    assert await body_of(pair.edge, dead) == content
    assert dead.duplicate_id == b"film-1"
    headers = dict(dead.message.headers)
    assert set(headers) == {"kind", *LETTER_HEADERS}
    assert (headers["core-bridge-reason"] or b"").startswith(b"MESSAGE_TOO_LARGE")
    # The letter has the chunks that its message had: they were not copied.
    await until(lambda: chunks_in(pair.directory / "edge") == (6, 0), "the other body is gone")
    if limit == "address":
        await replay_and_arrive(pair, dead.position, content)


async def replay_and_arrive(pair: Pair, position: int, content: bytes) -> None:
    """Send the letter again now that its message fits."""
    pair.policies.clear()
    await pair.hub.submit(ConfigureCommand, options=pair.hub.options)
    letters = DeadLetterService(pair.edge, ["dead"], {"first": Route("first")})
    (listed,) = await letters.list()
    assert listed.size == len(content)
    assert (await letters.replay([position])).replayed == [position]

    async def there() -> bool:
        return len(await pair.at(pair.hub)) == 2

    await until(there, "it has arrived")
    assert (await pair.arrived())[-1] == content
    await until(lambda: chunks_in(pair.directory / "edge") == (0, 0), "the edge has nothing left")


async def test_a_node_that_takes_no_chunks_yet_holds_large_messages_and_no_others_are_lost(
    pair: Pair,
) -> None:
    newer, pair.identity = pair.identity, replace(pair.identity, max_body_size=0)
    content = body(2)
    await pair.put_small(b"first")
    await pair.put(content)
    await pair.relay.command(Command.START)
    await until(lambda: "LARGE_BODIES_NOT_TAKEN" in (pair.relay.counts.trouble or ""), "it waits")
    assert await pair.arrived() == [b"first"]
    pair.identity = newer
    pair.cut()
    await pair.emptied()
    assert await pair.arrived() == [b"first", content]


async def test_a_bridge_that_needs_bodies_whole_gets_them_up_to_a_limit(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a transformer does, and Kafka."""
    monkeypatch.setattr("bridge.journal.source.WHOLE_BODY_BYTES", 3 * CHUNK_BYTES)
    selection = BridgeSelection("first", lambda address: address == "orders", lambda address: address)
    cutter = Cutter(1 << 20, 100_000, stamp=True, whole_bodies=True)
    source = JournalSource(pair.edge, selection, cutter, target_name="hub")
    fits, too_large = body(2), body(4)
    for content in (fits, too_large):
        await pair.put(content)
    await source.open({one.identity: _fresh() for one in await source.streams()}, "hub-store")
    read: list[Any] = []
    while len(read) < 2:
        read += [refuse_large(batch, "orders") for batch in await source.read()]
    whole, large = read
    assert [message.whole for message in whole.block.messages()] == [fits]
    assert whole.block.large is None
    assert whole.checksum != whole.block.checksum  # that of the message as it is stored
    ((position, reason),) = large.refusals
    assert (position, reason.split(":")[0]) == (1, "MESSAGE_TOO_LARGE")
    await source.close()


def _fresh() -> Any:
    from bridge.relay.ports import StreamState

    return StreamState(None)


def texts(found: Sequence[Delivered]) -> list[bytes | None]:
    return [one.message.whole for one in found]


async def test_the_edge_stays_usable_while_a_body_crosses(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small messages are stored at the hub between the chunks of a large one."""
    crossing, go_on = asyncio.Event(), asyncio.Event()
    upload_of_bridge = pair.hub.upload_of_bridge

    def held(*how: Any) -> BodyUpload:
        made = upload_of_bridge(*how)
        add = made.add

        async def waits(chunk: bytes) -> None:
            crossing.set()
            await go_on.wait()
            await add(chunk)

        monkeypatch.setattr(made, "add", waits)
        return made

    monkeypatch.setattr(pair.hub, "upload_of_bridge", held)
    content = body(3)
    await pair.put(content)
    await pair.relay.command(Command.START)
    await crossing.wait()
    await pair.hub.commit(Transaction((Sent.of("other", Message(b"meanwhile")),)))
    assert texts(await pair.at(pair.hub, "other")) == [b"meanwhile"]
    go_on.set()
    await pair.emptied()
    assert await pair.arrived() == [content]
