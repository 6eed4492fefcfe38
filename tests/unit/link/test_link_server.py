"""The receiving end's work on its target, over a connection in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bridge.errors import Conflict, TargetRefused
from bridge.link import driver as driver_module
from bridge.link import limits
from bridge.link.batch_frames import to_frame
from bridge.link.codec import decode, encode
from bridge.link.correspondent import LinkEnd
from bridge.link.driver import now
from bridge.link.frames import (
    AnyFrame,
    Close,
    CloseCode,
    Credit,
    Hello,
    Notice,
    OpenStream,
    Ping,
    Pong,
    ReceiptFrame,
    Welcome,
)
from bridge.link.link_server import LinkServer
from bridge.link.receiver import Receiver
from bridge.runtime.clock import SystemClock
from dedup.verdict import Verdict
from tests.harness.eventually import until
from tests.unit.link.fakes import FakeCorrespondent, FakeSocket, FakeTarget
from tests.unit.link.helpers import HELLO, IDENTITY, OTHER, STREAM, batch, coverage


class Serving:
    """A server under test: the test is the sender."""

    def __init__(self) -> None:
        self.socket = FakeSocket()
        self.target = FakeTarget()
        self.correspondent: FakeCorrespondent | None = FakeCorrespondent()
        self.make_error: Exception | None = None
        clock = SystemClock()
        self.machine = Receiver(IDENTITY, call_timeout_ms=5_000, now=now(clock))
        self.server = LinkServer(self.socket, self.machine, self.make, clock)
        self.running = asyncio.create_task(self.server.run())

    def make(self, hello: Hello) -> LinkEnd:
        if self.make_error is not None:
            raise self.make_error
        assert hello == HELLO
        return LinkEnd(self.target, self.correspondent)

    def tell(self, *frames: AnyFrame) -> None:
        for frame in frames:
            self.socket.incoming.put_nowait(encode(frame))

    async def hear(self) -> AnyFrame:
        """The next frame that is no CREDIT."""
        while True:
            frame = decode(await asyncio.wait_for(self.socket.sent.get(), 5))
            if not isinstance(frame, Credit):
                return frame

    async def open(self) -> None:
        self.tell(HELLO)
        assert isinstance(await self.hear(), Welcome)
        self.tell(OpenStream(0, STREAM.identity, STREAM.address, STREAM.target_address, STREAM.run))
        await self.hear()


@pytest.fixture
async def serving() -> AsyncIterator[Serving]:
    serving = Serving()
    yield serving
    serving.running.cancel()
    await asyncio.gather(serving.running, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task was left behind"


async def test_deliveries_overlap_and_begin_in_order(serving: Serving) -> None:
    await serving.open()
    serving.target.free.clear()
    serving.tell(*(to_frame(batch(number, number + 1), number, 0) for number in range(4)))
    while len(serving.target.handed) < 4:
        serving.target.came.clear()
        await serving.target.came.wait()
    assert [handed.from_ for handed in serving.target.handed] == [0, 1, 2, 3]
    serving.target.free.set()
    heard = [await serving.hear() for _ in range(4)]
    assert [frame.number for frame in heard if isinstance(frame, ReceiptFrame)] == [0, 1, 2, 3]


async def test_the_target_is_asked_for_streams_that_come_later_together(serving: Serving) -> None:
    await serving.open()
    later = [OpenStream(1, OTHER.identity, "invoices", "invoices"), OpenStream(2, "s", "a", "a")]
    serving.tell(*later)
    assert [type(await serving.hear()).__name__ for _ in later] == ["StreamOpened"] * 2


async def test_out_of_sequence_closes_with_that_code_and_the_target_is_let_go(serving: Serving) -> None:
    await serving.open()
    serving.target.next[STREAM.identity] = 3
    serving.tell(to_frame(batch(5, 6), 0, 0))
    assert await serving.hear() == Close("OUT_OF_SEQUENCE", "from 5 beyond next 3")
    await serving.running
    assert serving.target.closes == 1


async def test_a_bridge_that_is_refused_hears_why(serving: Serving) -> None:
    serving.make_error = TargetRefused("bridge orders-to-hub is not served here")
    serving.tell(HELLO)
    assert await serving.hear() == Close(
        "TARGET_REFUSED", "bridge orders-to-hub is not served here", permanent=True
    )
    await serving.running


@pytest.mark.parametrize("where", ["make", "open", "deliver"])
async def test_an_error_nobody_foresaw_ends_the_link_and_its_text_stays_here(
    serving: Serving, where: str
) -> None:
    secret = ZeroDivisionError("a secret of this node")
    if where == "make":
        serving.make_error = secret
        serving.tell(HELLO)
    elif where == "open":
        serving.target.open_error = secret
        serving.tell(HELLO)
        await serving.hear()
        serving.tell(OpenStream(0, STREAM.identity, "orders", "orders"))
    else:
        await serving.open()
        serving.target.instead = [secret]
        serving.tell(to_frame(batch(0, 1), 0, 0))
    close = await serving.hear()
    assert close == Close(CloseCode.INTERNAL, "ZeroDivisionError; see the log of the receiving node")
    await serving.running


async def test_stopping_answers_what_is_under_way_and_then_tells_the_sender(serving: Serving) -> None:
    await serving.open()
    serving.target.free.clear()
    serving.tell(to_frame(batch(0, 1), 0, 0))
    await serving.target.came.wait()
    serving.server.stop("the node is going down")
    serving.target.free.set()
    assert await serving.hear() == ReceiptFrame(0, Verdict.STORED, 1, committed=1)
    assert await serving.hear() == Close("STOPPING", "the node is going down")
    await serving.running
    assert serving.target.closes == 1


async def test_the_targets_word_goes_back_whole(serving: Serving) -> None:
    await serving.open()
    serving.tell(to_frame(coverage(0, 9), 0, 0))
    assert await serving.hear() == ReceiptFrame(0, Verdict.STORED, 9, committed=1)


@pytest.mark.parametrize(("point", "receipts"), [("link.before-receipt", 0), ("link.after-receipt", 1)])
async def test_crash_points_lie_around_the_receipt(
    serving: Serving, point: str, receipts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dying is stood in for by an error: stored in both cases, heard of in one."""
    await serving.open()

    def die_at(name: str) -> None:
        if name == point:
            raise ConnectionError(f"died at {name}")

    monkeypatch.setattr(driver_module, "crash_point", die_at)
    serving.tell(to_frame(batch(0, 1), 0, 0))
    await serving.running
    assert serving.target.next[STREAM.identity] == 1
    assert serving.socket.sent.qsize() == receipts


async def test_the_correspondent_is_told_of_the_link_and_speaks_behind_the_welcome(serving: Serving) -> None:
    assert serving.correspondent is not None
    serving.correspondent.greeting = b"first"
    serving.tell(HELLO)
    assert isinstance(await serving.hear(), Welcome)
    assert await serving.hear() == Notice(b"first")
    assert serving.correspondent.peers == [HELLO]
    serving.tell(Notice(b"a"), Notice(b"b"), Close("GOODBYE"))
    await serving.running
    assert serving.correspondent.calls == ["connected", b"a", b"b", "disconnected"]
    assert not serving.correspondent.notify(b"too late")


async def test_notices_to_a_node_without_an_extension_are_ignored(serving: Serving) -> None:
    serving.correspondent = None
    await serving.open()
    serving.tell(Notice(b"a"), Ping(1, 2))
    assert isinstance(await serving.hear(), Pong)


async def test_a_link_that_is_refused_has_no_correspondent(serving: Serving) -> None:
    serving.make_error = Conflict("not yours")
    serving.tell(HELLO)
    assert await serving.hear() == Close("CONFLICT", "not yours")
    await serving.running
    assert serving.correspondent is not None
    assert serving.correspondent.calls == []


@pytest.mark.parametrize("where", ["connected", "noticed"])
@pytest.mark.parametrize(
    ("error", "close"),
    [
        (Conflict("a node of this UUID is there"), Close("CONFLICT", "a node of this UUID is there")),
        (TargetRefused("forgotten"), Close("TARGET_REFUSED", "forgotten", permanent=True)),
        (
            ZeroDivisionError("a secret"),
            Close("INTERNAL", "ZeroDivisionError; see the log of the receiving node"),
        ),
    ],
)
async def test_a_correspondents_error_closes_the_link(
    serving: Serving, where: str, error: Exception, close: Close
) -> None:
    correspondent = serving.correspondent
    assert correspondent is not None
    if where == "connected":
        correspondent.connect_error = error
        serving.tell(HELLO)
        assert isinstance(await serving.hear(), Welcome)
    else:
        correspondent.error = error
        await serving.open()
        serving.tell(Notice(b"a"), Notice(b"behind it"))
    assert await serving.hear() == close
    await serving.running
    assert correspondent.calls == ["connected", *([b"a"] if where == "noticed" else []), "disconnected"]
    assert serving.target.closes == 1


async def test_a_flood_whose_answers_are_not_read_is_handed_over_at_once_and_none_is_kept(
    serving: Serving,
) -> None:
    correspondent = serving.correspondent
    assert correspondent is not None
    await serving.open()
    correspondent.echoes = True
    serving.socket.writable.clear()
    serving.tell(*(Notice(b"%d" % number) for number in range(10_000)), Ping(1, 2))
    await until(serving.socket.incoming.empty, "all of them have come")
    assert correspondent.noticed_bodies == [b"%d" % number for number in range(10_000)]
    taken = 10_000 - correspondent.untaken
    # One may be with the connection while the others wait.
    assert limits.NOTICES_MOST <= taken <= limits.NOTICES_MOST + 1
    serving.socket.writable.set()
    heard = [await serving.hear() for _ in range(taken + 1)]
    assert any(isinstance(frame, Pong) for frame in heard[:2]), "ahead of the notices that wait"
    notices = [frame for frame in heard if isinstance(frame, Notice)]
    assert notices == [Notice(b"%d" % number) for number in range(taken)]


async def test_a_node_that_goes_down_says_its_last_word_first(serving: Serving) -> None:
    assert serving.correspondent is not None
    await serving.open()
    assert serving.correspondent.notify(b"I leave")
    serving.server.stop("the node is going down")
    assert await serving.hear() == Notice(b"I leave")
    assert await serving.hear() == Close("STOPPING", "the node is going down")
    await serving.running
