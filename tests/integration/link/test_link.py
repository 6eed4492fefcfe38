"""The node link over a real loopback socket: aiohttp at both ends, a proxy between them where it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import os
import socket as sockets
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web

from bridge.errors import (
    BridgeError,
    Fenced,
    Malformed,
    OutOfSequence,
    TargetBusy,
    TargetRefused,
    TargetUnavailable,
)
from bridge.link import driver, limits
from bridge.link.batch_frames import to_frame
from bridge.link.codec import decode, encode
from bridge.link.compressor import Compression
from bridge.link.correspondent import LinkEnd
from bridge.link.frames import BrokenFrame, Close, CloseCode, Hello, OpenStream, StreamOpened
from bridge.link.node_target import NodeTarget
from bridge.link.receiving import NodeIdentity
from bridge.link.room import LinkRoom
from bridge.link.socket import Endpoint, post, serve_link
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.ports import Receipt, Stream
from dedup.verdict import Verdict
from tests.harness.eventually import until
from tests.harness.lines import Line
from tests.unit.link.fakes import FakeCorrespondent, FakeTarget
from tests.unit.link.helpers import HELLO, OTHER, STREAM, batch, not_now, refused, ws_frame

MIB = 1024 * 1024
#: Nothing here takes a second; what does has hung.
PATIENCE_S = 10.0
IDENTITY = NodeIdentity("node-2", "hub", "hub-store", 16 * MIB)
WINDOW = msgspec.structs.replace(HELLO, producer_window=MIB)


class Node:
    """A receiving node: the handler on a free port, and the target behind it, which outlives links."""

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self.target = FakeTarget()
        self.correspondent: FakeCorrespondent | None = None
        self.token = "secret"
        self.port = 0
        self.hellos: list[Hello] = []
        self.links = 0
        self.make_error: BridgeError | None = None
        self.stopping = asyncio.Event()
        self.room: LinkRoom | None = None
        self.status = 0
        #: Where an answer with a status of 3xx sends the caller.
        self.leads_to = ""
        #: Further headers of such an answer, and its problem.
        self.answers: dict[str, str] = {}
        self.problem = ""
        self.requests = 0
        self._ssl = ssl_context
        self._runner: web.AppRunner | None = None

    def make(self, hello: Hello) -> LinkEnd:
        self.hellos.append(hello)
        if self.make_error is not None:
            raise self.make_error
        return LinkEnd(self.target, self.correspondent)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401)
        if self.status:
            headers = {"Location": self.leads_to, **self.answers}
            return web.Response(status=self.status, headers=headers, text=self.problem)
        self.links += 1
        try:
            return await serve_link(
                request,
                self.make,
                identity=IDENTITY,
                call_timeout_ms=2_000,
                endings=((self.stopping, "the node is going down"),),
                room=self.room,
            )
        except Malformed as error:
            return web.Response(status=error.status, text=error.detail)
        finally:
            self.links -= 1

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", limits.PATH, self.handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._ssl).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


class Proxy:
    """Passes bytes on between a sender and a node, until the test says otherwise."""

    def __init__(self, port: int) -> None:
        self.port = 0
        #: Bytes from the sender after which the connection is cut, in the middle of whatever it is.
        self.cut_after: int | None = None
        #: Cleared: the node's bytes are swallowed, and its receipts with them.
        self.answers = True
        #: Cleared: nothing is read from the sender any more.
        self.reading = asyncio.Event()
        self.reading.set()
        self.connections = 0
        self._node_port = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection, as a cable does: no close frame, no FIN."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        node_reader, node_writer = await asyncio.open_connection("127.0.0.1", self._node_port)
        self._writers |= {writer, node_writer}
        for passing in (self._pass_to_node(reader, node_writer), self._pass_back(node_reader, writer)):
            task = asyncio.create_task(passing)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_to_node(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await self.reading.wait()
                data = await reader.read(65_536)
                if not data:
                    break
                if self.cut_after is not None:
                    data = data[: self.cut_after]
                    self.cut_after -= len(data)
                writer.write(data)
                await writer.drain()
                if self.cut_after == 0:
                    self.cut_after = None
                    self.cut()
        writer.close()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self.answers:
                    writer.write(data)
                    await writer.drain()
        writer.close()


def open_sockets() -> int:
    """Internet sockets that this process holds."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += str(descriptor.readlink()).startswith("socket:")
    return count


@pytest.fixture(autouse=True, scope="module")
def older_objects_are_left_alone() -> Iterator[None]:
    """What other modules have made is collected once, not after every test: that takes 0.15 s each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
async def nothing_leaks() -> AsyncIterator[None]:
    """Every test ends with the sockets and tasks that it began with."""
    before = open_sockets()
    yield
    await until(
        lambda: open_sockets() <= before and len(asyncio.all_tasks()) == 1, "sockets and tasks are gone"
    )
    gc.collect()  # what aiohttp holds unclosed warns now, in the test that it belongs to


@pytest.fixture
async def node(nothing_leaks: None) -> AsyncIterator[Node]:
    node = Node()
    await node.start()
    yield node
    await node.stop()


@pytest.fixture
async def proxy(node: Node) -> AsyncIterator[Proxy]:
    proxy = Proxy(node.port)
    await proxy.start()
    yield proxy
    await proxy.stop()


Connecting = Callable[..., NodeTarget]


@pytest.fixture
async def link_to(nothing_leaks: None) -> AsyncIterator[Connecting]:
    """Makes targets, and closes them."""
    made: list[NodeTarget] = []

    def make(
        port: int,
        token: str = "secret",
        call_timeout_ms: int = 2_000,
        hello: Hello = WINDOW,
        correspondent: FakeCorrespondent | None = None,
        compression: Compression = "off",
    ) -> NodeTarget:
        endpoint = Endpoint(f"ws://127.0.0.1:{port}", token, compression=compression)
        made.append(NodeTarget(endpoint, hello, call_timeout_ms=call_timeout_ms, correspondent=correspondent))
        return made[-1]

    yield make
    for target in made:
        await target.close()


async def failing(awaitable: Awaitable[object]) -> BridgeError:
    """The error that this ends with."""
    with pytest.raises(BridgeError) as caught:
        await awaitable
    return caught.value


# ---------------------------------------------------------------------- the way it should be


async def test_batches_arrive_in_order_and_byte_for_byte_and_are_answered(
    node: Node, link_to: Connecting
) -> None:
    """B1."""
    target = link_to(node.port)
    opened = await target.open([STREAM, OTHER])
    assert opened.store == "hub-store"
    assert opened.streams[STREAM.identity].next is None
    calls = [target.deliver([batch(number * 10, number * 10 + 10)]) for number in range(20)]
    answers = await asyncio.gather(*map(asyncio.ensure_future, calls))
    assert [answer[0].next for answer in answers] == [number * 10 + 10 for number in range(20)]
    assert node.target.stored[STREAM.identity] == list(range(200))
    assert set(node.target.bodies.values()) == {b"x" * 10}
    assert node.hellos == [WINDOW]


async def test_a_message_of_16_mib_arrives_whole(node: Node, link_to: Connecting) -> None:
    """B18."""
    body = os.urandom(16 * MIB)
    target = link_to(node.port)
    await target.open([STREAM])
    large = Batch(STREAM.identity, 0, 1, ((0, 0),), pack([encode_message(Message(body))]))
    (receipt,) = await target.deliver([large])
    assert receipt.verdict is Verdict.STORED
    arrived = node.target.bodies[0]
    assert arrived is not None
    assert hashlib.sha256(arrived).digest() == hashlib.sha256(body).digest()


async def test_a_message_above_what_the_node_takes_is_refused_and_the_link_lives(
    node: Node, link_to: Connecting
) -> None:
    target = link_to(node.port)
    await target.open([STREAM])
    large = Batch(STREAM.identity, 0, 1, ((0, 0),), pack([encode_message(Message(bytes(17 * MIB)))]))
    (receipt,) = await target.deliver([large])
    assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 0)
    assert receipt.reason.startswith("MESSAGE_TOO_LARGE")
    opened = await target.open([STREAM])
    assert opened.streams[STREAM.identity].next is None
    assert (await target.deliver([batch(1, 2)]))[0].verdict is Verdict.STORED


async def test_a_thousand_batches_within_a_small_credit(node: Node, link_to: Connecting) -> None:
    target = link_to(node.port)
    await target.open([STREAM])
    window = asyncio.Semaphore(64)

    async def deliver(number: int) -> Receipt:
        async with window:
            return (await target.deliver([batch(number * 5, number * 5 + 5, body=8_000)]))[0]

    receipts = await asyncio.gather(*(deliver(number) for number in range(1_000)))
    assert {receipt.verdict for receipt in receipts} == {Verdict.STORED}
    assert node.target.stored[STREAM.identity] == list(range(5_000))
    assert len(node.target.handed) == 1_000


async def test_streams_that_appear_later_are_opened_on_the_same_connection(
    node: Node, proxy: Proxy, link_to: Connecting
) -> None:
    target = link_to(proxy.port)
    await target.open([STREAM])
    await target.deliver([batch(0, 1)])
    opened = await target.open([OTHER])
    assert list(opened.streams) == [OTHER.identity]
    await target.deliver([batch(1, 2), batch(0, 1, stream=OTHER)])
    assert proxy.connections == 1


@pytest.mark.parametrize("verdict", [not_now(0), refused(0, 0)], ids=["not-now", "refused"])
async def test_nothing_behind_a_batch_that_was_not_taken_is_stored(
    node: Node, link_to: Connecting, verdict: Receipt
) -> None:
    target = link_to(node.port)
    node.target.next[STREAM.identity] = 0
    node.target.instead = [verdict]
    await target.open([STREAM])
    answers = await asyncio.gather(*(target.deliver([batch(number, number + 1)]) for number in range(5)))
    assert [answer[0].verdict for answer in answers] == [verdict.verdict] + [Verdict.NOT_NOW] * 4
    assert node.target.stored == {}
    opened = await target.open([STREAM])
    assert opened.streams[STREAM.identity].next == 0
    assert (await target.deliver([batch(0, 5)]))[0].verdict is Verdict.STORED


# ---------------------------------------------------------------------- cut, swallowed, stuck


async def test_a_cut_in_the_middle_of_a_batch_loses_and_doubles_nothing(
    node: Node, proxy: Proxy, link_to: Connecting
) -> None:
    """R7, R12."""
    target = link_to(proxy.port)
    await target.open([STREAM])
    await until(
        lambda: target.clock_offset_ms is not None, "the clocks are compared"
    )  # nothing else is on its way
    proxy.cut_after = 250_000
    calls = [
        asyncio.ensure_future(target.deliver([batch(number * 10, number * 10 + 10, body=10_000)]))
        for number in range(5)
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[-1], TargetUnavailable)
    resumed = (await target.open([STREAM])).streams[STREAM.identity].next
    assert resumed == 20, "two batches had arrived whole"
    await target.deliver([batch(resumed, 50)])
    assert node.target.stored[STREAM.identity] == list(range(50))
    assert proxy.connections == 2


async def test_replay_after_swallowed_receipts_is_rejected(
    node: Node, proxy: Proxy, link_to: Connecting
) -> None:
    """R7: stored, but the sender never heard so."""
    target = link_to(proxy.port)
    await target.open([STREAM])
    proxy.answers = False
    waiting = asyncio.ensure_future(target.deliver([batch(0, 5)]))
    await until(lambda: node.target.next.get(STREAM.identity) == 5, "five are stored")
    proxy.cut()
    assert isinstance(await failing(waiting), TargetUnavailable)
    proxy.answers = True
    opened = await target.open([STREAM])
    assert opened.streams[STREAM.identity].next == 5
    (receipt,) = await target.deliver([batch(0, 5)])
    assert receipt.verdict is Verdict.DUPLICATE
    assert node.target.stored[STREAM.identity] == list(range(5))


async def test_a_link_without_answers_is_dead_after_the_ttl_and_can_be_opened_again(
    node: Node, proxy: Proxy, link_to: Connecting
) -> None:
    hello = msgspec.structs.replace(WINDOW, check_period_ms=40, connection_ttl_ms=150)
    target = link_to(proxy.port, hello=hello)
    await target.open([STREAM])
    proxy.answers = False
    error = await failing(target.deliver([batch(0, 1)]))
    assert str(error) == "SILENT: the other end sent no byte for 0.15 s (connection-ttl)"
    proxy.answers = True
    await target.open([STREAM])
    assert (await target.deliver([batch(0, 1)]))[0].verdict is Verdict.DUPLICATE


async def test_a_batch_that_takes_longer_than_the_ttl_arrives_by_its_first_connection(
    node: Node, link_to: Connecting
) -> None:
    hello = msgspec.structs.replace(WINDOW, check_period_ms=300, connection_ttl_ms=1_000)
    with Line(node.port, rate=150_000) as line:
        target = link_to(line.port, hello=hello)
        await target.open([STREAM])
        large = asyncio.ensure_future(target.deliver([batch(0, 1, body=300_000)]))
        await until(lambda: line.wires[0].passed.taken > 100_000, "the batch is on its way")
        await target.open([OTHER])
        assert (await large)[0].verdict is Verdict.STORED
        assert line.connections == 1


async def test_an_idle_link_lives_by_its_pings_and_learns_the_clock_offset(
    node: Node, proxy: Proxy, link_to: Connecting
) -> None:
    hello = msgspec.structs.replace(WINDOW, check_period_ms=20, connection_ttl_ms=200)
    target = link_to(proxy.port, hello=hello)
    await target.open([STREAM])
    await asyncio.sleep(0.5)  # time is the subject: more than twice the ttl
    assert (await target.deliver([batch(0, 1)]))[0].verdict is Verdict.STORED
    assert proxy.connections == 1
    assert target.clock_offset_ms is not None
    assert abs(target.clock_offset_ms) < 100, "one machine, one clock"


async def test_a_node_that_stops_reading_is_given_up_although_frames_wait_to_leave(
    node: Node, proxy: Proxy, link_to: Connecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "FLUSH_S", 0.05)
    hello = msgspec.structs.replace(WINDOW, check_period_ms=40, connection_ttl_ms=150)
    target = link_to(proxy.port, hello=hello)
    await target.open([STREAM])
    proxy.reading.clear()
    large = Batch(STREAM.identity, 0, 1, ((0, 0),), pack([encode_message(Message(bytes(16 * MIB)))]))
    assert isinstance(await failing(target.deliver([large])), TargetUnavailable)
    await target.close()
    proxy.reading.set()


async def test_a_silent_sender_is_given_up_by_the_receiver(node: Node, proxy: Proxy) -> None:
    async with aiohttp.ClientSession() as session:
        ws = await raw_link(session, node.port)
        await ws.send_bytes(encode(msgspec.structs.replace(HELLO, check_period_ms=20, connection_ttl_ms=60)))
        *_, close = [decode(message.data) async for message in ws]
        assert isinstance(close, Close)
        assert close.code == CloseCode.SILENT
    await until(lambda: node.links == 0, "the link is gone")
    assert node.target.closes == 1


# ---------------------------------------------------------------------- refused, fenced, stopped


@pytest.mark.parametrize("token", ["", "wrong"])
async def test_a_wrong_token_is_refused_and_never_shown(node: Node, link_to: Connecting, token: str) -> None:
    """R26."""
    target = link_to(node.port, token=token)
    error = await failing(target.open([STREAM]))
    assert type(error) is TargetUnavailable, "it may be rotated: the bridge tries again"
    assert "HTTP 401" in str(error)
    assert "wrong" not in repr(Endpoint("ws://x", "wrong")) + str(error)


@pytest.mark.parametrize("status", [401, 403, 404, 503])
async def test_an_answer_that_is_no_link_says_its_status(
    node: Node, link_to: Connecting, status: int
) -> None:
    node.status = status
    error = await failing(link_to(node.port).open([STREAM]))
    assert type(error) is TargetUnavailable
    assert f"HTTP {status}" in str(error)


@pytest.mark.parametrize(
    ("status", "asked", "title", "wait_ms"),
    [
        (503, "7", "TOO_BUSY", 7_000),
        (429, "1", "", 1_000),
        (503, "5", "STOPPING", None),  # its restart takes less
        (404, "7", "", None),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", "", None),
        (503, "9" * 40, "", 999_999_000),  # bounded by the back-off
        (503, "0", "", None),
    ],
)
async def test_a_node_that_has_too_much_to_do_says_when_to_come_again(
    node: Node, link_to: Connecting, status: int, asked: str, title: str, wait_ms: int | None
) -> None:
    node.status, node.answers = status, {"Retry-After": asked}
    node.problem = json.dumps({"title": title, "detail": "32 links are being opened"}) if title else ""
    error = await failing(link_to(node.port).open([STREAM]))
    assert isinstance(error, TargetUnavailable)
    assert (error.retry_after_ms if isinstance(error, TargetBusy) else None) == wait_ms
    if wait_ms == 7_000:
        assert str(error).endswith(
            " asks to come again in 7 s: HTTP 503 (TOO_BUSY: 32 links are being opened)"
        )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(node: Node, link_to: Connecting, status: int) -> None:
    """What answers elsewhere is not the node of the settings, and gets neither token nor messages."""
    elsewhere = Node()
    await elsewhere.start()
    node.leads_to = f"http://127.0.0.1:{elsewhere.port}{limits.PATH}"
    node.status = status
    try:
        error = await failing(link_to(node.port).open([STREAM]))
        asked = post(Endpoint(f"ws://127.0.0.1:{node.port}", "secret"), limits.PATH, b"", "text/plain", 2_000)
        assert type(await failing(asked)) is TargetUnavailable
    finally:
        await elsewhere.stop()
    assert type(error) is TargetUnavailable
    assert str(error).endswith(f"it redirects (HTTP {status}) to {node.leads_to}, which is not followed")
    assert not elsewhere.requests


async def test_what_is_no_url_is_refused_not_tried_for_ever() -> None:
    target = NodeTarget(Endpoint("ws://:::"), WINDOW, call_timeout_ms=1_000)
    error = await failing(target.open([STREAM]))
    assert isinstance(error, TargetRefused)
    assert str(error) == "ws://::: is no URL"


async def test_a_node_that_is_not_there_is_unavailable(link_to: Connecting) -> None:
    """R3."""
    with sockets.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        error = await failing(link_to(reserved.getsockname()[1]).open([STREAM]))
    assert isinstance(error, TargetUnavailable)


async def test_a_node_that_accepts_and_says_nothing_is_given_up_after_the_call_timeout(
    link_to: Connecting,
) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    async with server:
        target = link_to(server.sockets[0].getsockname()[1], call_timeout_ms=50)
        error = await failing(target.open([STREAM]))
    assert "did not answer within 50 ms (call-timeout)" in str(error)


async def test_an_open_that_the_target_never_answers_ends_at_the_call_timeout(
    node: Node, link_to: Connecting
) -> None:
    stuck = asyncio.Event()

    class Stuck(FakeTarget):
        async def open(self, streams: object) -> object:  # type: ignore[override]
            await stuck.wait()
            raise AssertionError("never")

    node.target = Stuck()
    error = await failing(link_to(node.port, call_timeout_ms=100).open([STREAM]))
    assert str(error) == "TIMEOUT: OPEN not answered for 100 ms (call-timeout)"


async def test_another_version_is_refused_with_both_versions(node: Node, link_to: Connecting) -> None:
    target = link_to(node.port, hello=msgspec.structs.replace(WINDOW, version=2))
    error = await failing(target.open([STREAM]))
    assert isinstance(error, TargetRefused)
    assert str(error) == "VERSION: this node speaks version 1; found version 2"


async def test_another_subprotocol_is_refused_with_both_names(node: Node) -> None:
    async with aiohttp.ClientSession() as session:
        ws = await raw_link(session, node.port, "core-bridge.2")
        close = decode((await ws.receive()).data)
        assert close == Close(
            CloseCode.VERSION, "this node speaks core-bridge.1; found core-bridge.2", permanent=True
        )
        await ws.close()


async def test_a_server_that_speaks_something_else_is_refused(link_to: Connecting) -> None:
    async def echo(request: web.Request) -> web.WebSocketResponse:
        ws = web.WebSocketResponse(protocols=("chat",))
        await ws.prepare(request)
        await ws.receive()
        return ws

    app = web.Application()
    app.router.add_get(limits.PATH, echo)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    error = await failing(link_to(runner.addresses[0][1]).open([STREAM]))
    await runner.cleanup()
    assert isinstance(error, TargetRefused)
    assert str(error).endswith("does not speak core-bridge.1; it answered none")


async def test_a_plain_get_is_told_what_the_path_is_for(node: Node) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session:
        answer = await session.get(f"http://127.0.0.1:{node.port}{limits.PATH}")
        assert answer.status == 400
        assert "WebSocket" in await answer.text()


@pytest.mark.parametrize("kind", [OutOfSequence, Fenced, TargetUnavailable])
async def test_what_the_target_raises_reaches_whoever_waits_and_whoever_comes_later(
    node: Node, link_to: Connecting, kind: type[BridgeError]
) -> None:
    target = link_to(node.port)
    await target.open([STREAM])
    node.target.free.clear()
    node.target.instead = [kind("the reason")]
    waiting = [asyncio.ensure_future(target.deliver([batch(number, number + 1)])) for number in range(3)]
    await until(lambda: len(node.target.handed) == 3, "three batches are handed over")
    node.target.free.set()
    for call in waiting:
        error = await failing(call)
        assert type(error) is kind
        assert "the reason" in str(error)
    assert type(await failing(target.deliver([batch(0, 1)]))) is kind
    await target.open([STREAM])


async def test_a_bridge_that_is_not_served_is_refused(node: Node, link_to: Connecting) -> None:
    node.make_error = TargetRefused("bridge orders-to-hub is not served here")
    error = await failing(link_to(node.port).open([STREAM]))
    assert isinstance(error, TargetRefused)
    assert "is not served here" in str(error)


async def test_a_node_that_stops_answers_what_is_under_way_and_says_so(
    node: Node, link_to: Connecting
) -> None:
    target = link_to(node.port)
    await target.open([STREAM])
    node.target.free.clear()
    waiting = asyncio.ensure_future(target.deliver([batch(0, 1)]))
    await until(lambda: bool(node.target.handed), "a batch is handed over")
    node.stopping.set()
    await asyncio.sleep(0)
    node.target.free.set()
    assert (await waiting)[0].verdict is Verdict.STORED
    await until(lambda: node.links == 0, "the link is gone")
    assert str(await failing(target.deliver([batch(1, 2)]))) == "STOPPING: the node is going down"
    await until(lambda: node.links == 0, "the link is gone")


async def test_junk_is_answered_with_protocol_and_what_was_found(node: Node) -> None:
    async with aiohttp.ClientSession() as session:
        for send in ("send_bytes", "send_str"):
            ws = await raw_link(session, node.port)
            await getattr(ws, send)(b"junk" if send == "send_bytes" else "junk")
            close = decode((await ws.receive()).data)
            assert isinstance(close, Close)
            assert close.code == CloseCode.PROTOCOL
            assert "4 bytes" in close.detail
            await ws.close()


async def test_a_frame_above_the_limit_ends_the_link_and_the_target_is_let_go(node: Node) -> None:
    async with aiohttp.ClientSession() as session:
        ws = await raw_link(session, node.port)
        await ws.send_bytes(encode(HELLO))
        await ws.receive()
        # The node hangs up as soon as it has read the length, maybe while this is still being sent.
        with contextlib.suppress(ConnectionError):
            await ws.send_bytes(bytes(limits.largest_frame(IDENTITY.max_message_size) + 1))
        await until(lambda: node.links == 0, "the link is gone")
        await ws.close()
    assert node.target.closes == 1


async def test_many_links_with_unfinished_frames_stay_within_max_link_size(node: Node) -> None:
    """Each promises a MiB and sends half of it; those that are read end theirs, then the next are read."""
    node.room = LinkRoom(4 * MIB)
    data = encode(to_frame(batch(0, 1, MIB), 0, 0))
    opening = OpenStream(0, STREAM.identity, STREAM.address, STREAM.target_address, STREAM.run)
    async with contextlib.AsyncExitStack() as stack:
        links = []
        for _ in range(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
            stack.callback(writer.close)
            writer.write(
                b"GET /v1/link HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer secret\r\n"
                b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                b"Sec-WebSocket-Protocol: core-bridge.1\r\n\r\n" + ws_frame(encode(WINDOW))
            )
            await reader.readuntil(b"\r\n\r\n")
            links.append((reader, writer))
        await until(lambda: len(node.hellos) == len(links), "all have been greeted")
        for _, writer in links:
            writer.write(ws_frame(encode(opening)))
        for reader, _ in links:
            answers = [decode(await read_frame(reader)) for _ in range(2)]
            assert isinstance(answers[1], StreamOpened)
        frame = ws_frame(data)
        for _, writer in links:
            writer.write(frame[: len(frame) // 2])
        await until(lambda: node.room is not None and node.room.is_full, "the room is full")
        assert node.room.buffered <= node.room.most + len(data)
        for _, writer in links:
            writer.write(frame[len(frame) // 2 :])
        await until(lambda: len(node.target.handed) == len(links), "each ends its frame")
        await until(lambda: node.room is not None and node.room.buffered == 0, "all are answered")


# ---------------------------------------------------------------------- letting go


async def test_all_links_together_hold_no_more_than_max_link_size(node: Node, link_to: Connecting) -> None:
    """What is beyond it stays with its sender, but for one frame; then all of it comes."""
    node.room = LinkRoom(MIB)
    node.target.free.clear()
    streams = [Stream(f"{STREAM.identity}{number}", "orders", "orders", "run") for number in range(6)]
    targets = [link_to(node.port) for _ in streams]
    for target, stream in zip(targets, streams, strict=True):
        await target.open([stream])
    filling = 3  # batches that make it full
    waiting = [
        asyncio.ensure_future(target.deliver([batch(place, place + 1, MIB // 3, stream)]))
        for target, stream in zip(targets, streams, strict=True)
        for place in range(filling + 1)
    ]
    await until(lambda: len(node.target.handed) >= filling, "the window is full")
    assert node.room.is_full
    await link_to(node.port).open([])  # who comes now is greeted
    assert len(node.target.handed) <= filling + 1 < len(waiting)
    assert node.room.buffered <= node.room.most + MIB // 2, "no frame has begun since"
    node.target.free.set()
    for receipts in await asyncio.gather(*waiting):
        assert receipts[0].verdict is Verdict.STORED
    assert (len(node.target.handed), node.room.buffered) == (len(waiting), 0)


async def test_compressed_frames_of_many_links_are_unpacked_only_where_there_is_room(
    node: Node, link_to: Connecting
) -> None:
    """Each is a hundredth of its content: what waits for room is small."""
    node.room = LinkRoom(1)
    node.target.free.clear()
    streams = [Stream(f"{STREAM.identity}{number}", "orders", "orders", "run") for number in range(8)]
    targets = [link_to(node.port, compression="zstd") for _ in streams]
    for target, stream in zip(targets, streams, strict=True):
        await target.open([stream])
    waiting = [
        asyncio.ensure_future(target.deliver([batch(0, 1, 4 * MIB, stream)]))
        for target, stream in zip(targets, streams, strict=True)
    ]
    await until(lambda: bool(node.target.handed), "one is handed over")
    await link_to(node.port).open([])  # whatever came before this is read by now
    assert (len(node.target.handed), node.room.buffered < 5 * MIB) == (1, True)
    node.target.free.set()
    for receipts in await asyncio.gather(*waiting):
        assert receipts[0].verdict is Verdict.STORED
    assert (len(node.target.handed), node.room.buffered) == (len(waiting), 0)


async def test_close_fails_what_waits_and_ends_the_link_at_both_ends(node: Node, link_to: Connecting) -> None:
    target = link_to(node.port)
    await target.open([STREAM])
    node.target.free.clear()
    waiting = asyncio.ensure_future(target.deliver([batch(0, 1)]))
    await until(lambda: bool(node.target.handed), "a batch is handed over")
    await target.close()
    assert isinstance(await failing(waiting), TargetUnavailable)
    await until(lambda: node.links == 0, "the link is gone")
    assert node.target.closes == 1
    await target.close()
    assert str(await failing(target.deliver([batch(0, 1)]))) == "not connected: open first"


async def test_opening_no_stream_connects_and_says_who_is_there(node: Node, link_to: Connecting) -> None:
    target = link_to(node.port)
    opened = await target.open([])
    assert (opened.store, opened.streams) == ("hub-store", {})
    assert target.welcome is not None
    assert target.welcome.node_name == "hub"
    assert await target.deliver([]) == ()


async def test_a_closed_target_can_be_opened_again(node: Node, link_to: Connecting) -> None:
    """R1."""
    target = link_to(node.port)
    await target.open([STREAM])
    await target.close()
    await target.open([STREAM])
    assert (await target.deliver([batch(0, 1)]))[0].verdict is Verdict.STORED


async def test_close_while_connecting_keeps_no_connection(node: Node, link_to: Connecting) -> None:
    target = link_to(node.port)
    opening = asyncio.ensure_future(target.open([STREAM]))
    await asyncio.sleep(0)  # it has begun to connect
    await target.close()
    assert str(await failing(opening)) == "closed while connecting"
    await until(lambda: node.links == 0, "the link is gone")


async def test_an_open_that_is_cancelled_keeps_no_connection(node: Node, link_to: Connecting) -> None:
    for turns in range(12):
        opening = asyncio.ensure_future(link_to(node.port).open([STREAM]))
        for _ in range(turns):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)


async def test_a_delivery_that_is_cancelled_does_not_disturb_the_others(
    node: Node, link_to: Connecting
) -> None:
    target = link_to(node.port)
    await target.open([STREAM])
    node.target.free.clear()
    calls = [asyncio.ensure_future(target.deliver([batch(number, number + 1)])) for number in range(3)]
    await until(lambda: len(node.target.handed) == 3, "three batches are handed over")
    calls[1].cancel()
    node.target.free.set()
    first, cancelled, third = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(cancelled, asyncio.CancelledError)
    assert [answer[0].next for answer in (first, third) if not isinstance(answer, BaseException)] == [1, 3]


async def test_twenty_cuts_leave_no_socket_and_no_task(node: Node, proxy: Proxy, link_to: Connecting) -> None:
    """R20."""
    target = link_to(proxy.port)
    await target.open([STREAM])
    before = open_sockets()
    for number in range(20):
        await target.deliver([batch(number, number + 1)])
        proxy.cut()
        await failing(target.deliver([batch(number + 1, number + 2)]))
        await target.open([STREAM])
    await until(lambda: open_sockets() <= before and node.links == 1, "one link is left")
    assert node.target.stored[STREAM.identity] == sorted(set(node.target.stored[STREAM.identity]))


# ---------------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for hub.example that signs itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "hub.pem", folder / "hub.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=hub.example", "-addext", "subjectAltName=DNS:hub.example"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


@pytest.mark.parametrize(("name", "works"), [("hub.example", True), (None, False)])
async def test_tls_checks_the_name_in_the_certificate(
    nothing_leaks: None, certificate: tuple[Path, Path], name: str | None, works: bool
) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*certificate)
    node = Node(serving)
    await node.start()
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    endpoint = Endpoint(f"wss://127.0.0.1:{node.port}", "secret", trusting, name)
    target = NodeTarget(endpoint, WINDOW, call_timeout_ms=2_000)
    try:
        if works:
            await target.open([STREAM])
            assert (await target.deliver([batch(0, 1)]))[0].verdict is Verdict.STORED
        else:
            assert "certificate" in str(await failing(target.open([STREAM]))).lower()
    finally:
        await target.close()
        await node.stop()


async def raw_link(
    session: aiohttp.ClientSession, port: int, protocol: str = limits.SUBPROTOCOL
) -> aiohttp.ClientWebSocketResponse:
    """A WebSocket of the test's own."""
    return await session.ws_connect(
        f"ws://127.0.0.1:{port}{limits.PATH}",
        protocols=(protocol,),
        headers={"Authorization": "Bearer secret"},
    )


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next small frame that a node sends."""
    size = (await reader.readexactly(2))[1]
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2))
    return await reader.readexactly(size)


# ---------------------------------------------------------------------- notices


@pytest.fixture
def hub(node: Node) -> FakeCorrespondent:
    """The node's extension."""
    node.correspondent = FakeCorrespondent()
    return node.correspondent


async def test_notices_go_both_ways_beside_batches(
    node: Node, hub: FakeCorrespondent, link_to: Connecting
) -> None:
    edge = FakeCorrespondent(greeting=b"I am edge")
    hub.greeting = b"I am hub"
    target = link_to(node.port, correspondent=edge)
    await target.open([STREAM])
    assert edge.peers == [target.welcome]
    assert hub.peers == [WINDOW]
    largest = os.urandom(limits.NOTICE_MOST)
    calls = []
    for number in range(20):
        calls.append(asyncio.ensure_future(target.deliver([batch(number * 10, number * 10 + 10)])))
        assert edge.notify(largest)
        assert hub.notify(largest)
    answers = await asyncio.gather(*calls)
    assert {answer[0].verdict for answer in answers} == {Verdict.STORED}
    assert node.target.stored[STREAM.identity] == list(range(200))
    await until(lambda: len(hub.calls) == len(edge.calls) == 22, "all have come")
    assert edge.calls == ["connected", b"I am hub", *[largest] * 20]
    assert hub.calls == ["connected", b"I am edge", *[largest] * 20]


async def test_each_connection_is_told_to_both_ends_once_and_so_is_its_end(
    node: Node, hub: FakeCorrespondent, proxy: Proxy, link_to: Connecting
) -> None:
    edge = FakeCorrespondent()
    target = link_to(proxy.port, correspondent=edge)
    for number in range(3):
        await target.open([STREAM])
        assert edge.notify(b"%d" % number)
        await until(lambda: isinstance(hub.calls[-1], bytes), "it has come")
        proxy.cut()
        await failing(target.lost())
        assert not edge.notify(b"nothing is open")
        await until(lambda: hub.calls[-1] == "disconnected" == edge.calls[-1], "both ends know")
    await target.open([STREAM])
    await target.close()
    await target.close()
    await until(lambda: hub.calls[-1] == "disconnected", "the last, too")
    assert edge.calls == ["connected", "disconnected"] * 4
    one = [["connected", b"%d" % number, "disconnected"] for number in range(3)]
    assert hub.calls == [*(call for calls in one for call in calls), "connected", "disconnected"]


async def test_a_connection_that_is_refused_is_told_to_neither_end(
    node: Node, hub: FakeCorrespondent, link_to: Connecting
) -> None:
    node.make_error = TargetRefused("no such bridge")
    edge = FakeCorrespondent()
    await failing(link_to(node.port, correspondent=edge).open([STREAM]))
    assert edge.calls == hub.calls == []


async def test_an_end_without_an_extension_ignores_notices(
    node: Node, hub: FakeCorrespondent, link_to: Connecting
) -> None:
    hub.greeting = b"to none"
    deaf = link_to(node.port)
    await deaf.open([STREAM])
    assert (await deaf.deliver([batch(0, 1)]))[0].verdict is Verdict.STORED
    await deaf.close()
    node.correspondent = None
    edge = FakeCorrespondent(greeting=b"to none")
    target = link_to(node.port, correspondent=edge)
    await target.open([STREAM])
    assert (await target.deliver([batch(1, 2)]))[0].verdict is Verdict.STORED
    assert edge.calls == ["connected"]


@pytest.mark.parametrize("where", ["hub", "edge"])
@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (BrokenFrame("half a record"), TargetUnavailable, "PROTOCOL: half a record"),
        (TargetRefused("forgotten"), TargetRefused, "forgotten"),
        (ZeroDivisionError("a secret"), TargetUnavailable, "INTERNAL: ZeroDivisionError; see the log"),
    ],
)
async def test_an_extension_that_refuses_a_notice_ends_the_link_and_both_ends_hear_why(
    node: Node,
    hub: FakeCorrespondent,
    link_to: Connecting,
    where: str,
    error: Exception,
    kind: type[BridgeError],
    says: str,
) -> None:
    edge = FakeCorrespondent()
    target = link_to(node.port, correspondent=edge)
    await target.open([STREAM])
    refusing, other = (hub, edge) if where == "hub" else (edge, hub)
    refusing.error = error
    assert other.notify(b"a")
    ended = await failing(target.lost())
    assert type(ended) is kind
    assert ended.detail.startswith(says)
    await until(lambda: hub.calls[-1] == "disconnected", "the hub, too")
    assert edge.calls[-1] == "disconnected"
    assert refusing.calls == ["connected", b"a", "disconnected"]


async def test_an_extension_that_fails_at_the_start_of_a_link_ends_it(
    node: Node, hub: FakeCorrespondent, link_to: Connecting
) -> None:
    edge = FakeCorrespondent(connect_error=TargetRefused("not this node"))
    target = link_to(node.port, correspondent=edge)
    assert isinstance(await failing(target.open([STREAM])), TargetRefused)
    assert edge.calls == ["connected", "disconnected"]
    await until(lambda: hub.calls == ["connected", "disconnected"], "the hub, too")


async def test_a_flood_that_the_other_end_does_not_read_takes_no_more_memory(
    node: Node, hub: FakeCorrespondent, proxy: Proxy, link_to: Connecting
) -> None:
    """Notices that cannot leave are refused; once they can, they leave in order, and batches with them."""
    edge = FakeCorrespondent()
    target = link_to(proxy.port, correspondent=edge)
    await target.open([STREAM])
    proxy.reading.clear()
    said = 0
    while True:
        if edge.notify(b"%06d" % said + bytes(limits.NOTICE_MOST - 6)):
            said += 1
        else:
            break
    assert said == limits.NOTICES_MOST
    call = asyncio.ensure_future(target.deliver([batch(0, 1)]))
    proxy.reading.set()
    assert (await call)[0].verdict is Verdict.STORED
    await until(lambda: len(hub.noticed_bodies) == said, "all that was taken has come")
    assert [int(body[:6]) for body in hub.noticed_bodies] == list(range(said))
    assert edge.notify(b"again")


async def test_the_last_word_of_a_node_that_goes_down_comes_before_the_end(
    node: Node, hub: FakeCorrespondent, link_to: Connecting
) -> None:
    edge = FakeCorrespondent()
    target = link_to(node.port, correspondent=edge)
    await target.open([STREAM])
    assert hub.notify(b"I leave")
    node.stopping.set()
    assert "STOPPING" in (await failing(target.lost())).detail
    assert edge.calls == ["connected", b"I leave", "disconnected"]
    node.stopping.clear()
    await target.open([STREAM])
    assert edge.notify(b"I leave, too")
    await target.close()
    await until(lambda: hub.calls[-1] == "disconnected", "the hub knows")
    assert hub.calls[-2] == b"I leave, too"
