"""`previous-name` at a target: the fake, the journal, and a node over a real socket."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web

from bridge.errors import Fenced, TargetRefused
from bridge.journal.journal import Journal
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import JournalOptions
from bridge.link import limits
from bridge.link.correspondent import LinkEnd
from bridge.link.frames import Hello
from bridge.link.node_target import NodeTarget
from bridge.link.receiving import NodeIdentity
from bridge.link.socket import Endpoint, serve_link
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.relay.ports import Stream, StreamState, Target
from dedup.verdict import Verdict
from tests.fakes.ends import FakeStore, FakeTarget

STREAM = Stream("journal:incarnation-1:orders:0", "orders", "orders", "run-1")
OTHER = Stream("journal:incarnation-1:bills:0", "bills", "bills", "run-1")

#: Makes the target of a bridge by its name and its previous one, on one and the same store.
Make = Callable[[str, str], Target]


def _hello(bridge: str, previous: str) -> Hello:
    return Hello(
        version=limits.VERSION,
        node_id=str(uuid.uuid4()),
        node_name="edge",
        store="edge-store",
        bridge=bridge,
        check_producer_ids=False,
        use_duplicate_detection=True,
        producer_window=1 << 20,
        check_period_ms=30_000,
        connection_ttl_ms=60_000,
        previous=previous,
    )


async def _listen(stack: AsyncExitStack, journal: Journal) -> str:
    """The URL of a node's link to `journal`."""

    def end_of(hello: Hello) -> LinkEnd:
        return LinkEnd(
            JournalTarget(journal, hello.bridge, check_producer_ids=False, previous=hello.previous)
        )

    async def link(request: web.Request) -> web.StreamResponse:
        who = NodeIdentity(journal.identity.node_id, "hub", journal.store, 1 << 14)
        return await serve_link(request, end_of, identity=who, call_timeout_ms=5_000)

    app = web.Application()
    app.router.add_get(limits.PATH, link)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return f"ws://127.0.0.1:{runner.addresses[0][1]}"


@pytest.fixture(params=["fake", "journal", "node"])
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    async with AsyncExitStack() as stack:
        make_one = await _maker(request.param, tmp_path, stack)

        def make(bridge: str, previous: str = "") -> Target:
            target = make_one(bridge, previous)
            stack.push_async_callback(target.close)
            return target

        yield make


async def _maker(kind: str, directory: Path, stack: AsyncExitStack) -> Make:
    if kind == "fake":
        store = FakeStore()
        return lambda bridge, previous: FakeTarget(store, bridge, previous)
    journal = await Journal.open(JournalOptions(directory))
    stack.push_async_callback(journal.close)
    if kind == "journal":
        return lambda bridge, previous: JournalTarget(
            journal, bridge, check_producer_ids=False, previous=previous
        )
    endpoint = Endpoint(await _listen(stack, journal))
    return lambda bridge, previous: NodeTarget(endpoint, _hello(bridge, previous), call_timeout_ms=5_000)


async def opened(target: Target, stream: Stream = STREAM) -> StreamState:
    async with asyncio.timeout(5):
        return (await target.open([stream])).streams[stream.identity]


def batch(from_: int, upto: int, stream: Stream = STREAM) -> Batch:
    block = pack([encode_message(Message(b"m%d" % place)) for place in range(from_, upto)])
    return Batch(stream.identity, from_, upto, ((from_, upto - 1),), block, upto * 11)


async def deliver(target: Target, one: Batch) -> Verdict:
    async with asyncio.timeout(5):
        (receipt,) = await target.deliver([one])
    return receipt.verdict


async def test_a_stream_never_seen_counts_what_the_previous_name_has_brought(make: Make) -> None:
    old = make("first", "")
    await old.open([STREAM])
    await old.deliver([Batch(STREAM.identity, 0, 0)])
    new = make("second", "first")
    answer = (await new.open([OTHER])).streams[OTHER.identity]
    assert (answer.next, answer.has_run) == (None, True)
    elsewhere = Stream("journal:incarnation-2:bills:0", "bills", "bills", "run-1")
    assert not (await new.open([elsewhere])).streams[elsewhere.identity].has_run


async def test_a_renamed_bridge_goes_on_where_it_stopped(make: Make) -> None:
    old = make("old", "")
    await opened(old)
    await deliver(old, batch(0, 7))
    await old.close()
    renamed = make("new", "old")
    state = await opened(renamed)
    assert (state.next, state.run, state.checksum) == (7, "run-1", 77)
    assert await deliver(renamed, batch(3, 7)) is Verdict.DUPLICATE
    assert await deliver(renamed, batch(7, 9)) is Verdict.STORED


async def test_opened_again_it_finds_its_own_position(make: Make) -> None:
    old = make("old", "")
    await opened(old)
    await deliver(old, batch(0, 7))
    for expected in (7, 8, 9):
        renamed = make("new", "old")
        assert (await opened(renamed)).next == expected
        await deliver(renamed, batch(expected, expected + 1))
        await renamed.close()


async def test_a_link_of_the_old_name_is_fenced_by_the_new_one(make: Make) -> None:
    old = make("old", "")
    await opened(old)
    await deliver(old, batch(0, 7))
    renamed = make("new", "old")
    await opened(renamed)
    with pytest.raises(Fenced):
        await deliver(old, batch(7, 9))
    assert await deliver(renamed, batch(7, 9)) is Verdict.STORED


async def test_a_link_of_the_old_name_that_delivered_nothing_yet_is_fenced_too(make: Make) -> None:
    old = make("old", "")
    await opened(old)
    assert (await opened(make("new", "old"))).next is None
    with pytest.raises(Fenced):
        await deliver(old, batch(0, 7))


async def test_the_old_name_is_refused_when_it_comes_back(make: Make) -> None:
    old = make("old", "")
    await opened(old)
    await deliver(old, batch(0, 7))
    await opened(make("new", "old"))
    for _ in range(2):
        with pytest.raises(TargetRefused) as raised:
            await opened(make("old", ""))
        assert "new" in str(raised.value)


async def test_renamed_back_it_goes_on_again(make: Make) -> None:
    old = make("old", "")
    await opened(old)
    await deliver(old, batch(0, 7))
    renamed = make("new", "old")
    await opened(renamed)
    await deliver(renamed, batch(7, 9))
    back = make("old", "new")
    assert (await opened(back)).next == 9
    with pytest.raises(TargetRefused):
        await opened(make("new", ""))


async def test_a_third_name_must_name_the_second(make: Make) -> None:
    old = make("old", "")
    await opened(old)
    await deliver(old, batch(0, 7))
    await opened(make("new", "old"))
    with pytest.raises(TargetRefused):
        await opened(make("newest", "old"))
    assert (await opened(make("newest", "new"))).next == 7


async def test_where_both_names_have_delivered_each_keeps_its_own(make: Make) -> None:
    old, new = make("old", ""), make("new", "")
    await opened(old)
    await opened(new)
    await deliver(old, batch(0, 7))
    await deliver(new, batch(0, 3))
    renamed = make("new", "old")
    assert (await opened(renamed)).next == 3
    assert (await opened(make("old", ""))).next == 7


async def test_a_stream_that_was_opened_only_is_adopted(make: Make) -> None:
    """Started once without `previous-name`, and refused: the position is still the old one's."""
    old = make("old", "")
    await opened(old)
    await deliver(old, batch(0, 7))
    assert (await opened(make("new", ""))).next is None
    assert (await opened(make("new", "old"))).next == 7


async def test_streams_are_adopted_one_by_one(make: Make) -> None:
    old = make("old", "")
    await opened(old)
    await deliver(old, batch(0, 7))
    await opened(old, OTHER)
    await deliver(old, batch(0, 2, OTHER))
    renamed = make("new", "old")
    await opened(renamed)
    again = make("old", "")
    assert (await opened(again, OTHER)).next == 2
    assert (await opened(renamed, OTHER)).next == 2
