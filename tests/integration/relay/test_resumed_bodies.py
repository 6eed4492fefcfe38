"""Large bodies over links that break: what has come is kept, goes on from there, and is never mixed up."""

from __future__ import annotations

import asyncio
import inspect
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from hashlib import blake2b
from pathlib import Path

import pytest

from bridge.errors import BodyNotKept, Fenced, JournalUnavailable, TooBusy
from bridge.journal import unfinished
from bridge.journal.journal import Journal
from bridge.journal.rules.owners import Caller
from bridge.journal.sqlite import pages
from bridge.journal.target import JournalTarget
from bridge.journal.unfinished import BridgeUpload
from bridge.journal.uploads import UPLOADS_MOST, BodyUpload
from bridge.journal.values.options import AddressPolicy
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.batch import Batch
from bridge.messages.message import DIGEST_BYTES, LargeBody, Message
from bridge.relay.lifecycle import Command
from bridge.relay.ports import Stream, UnfinishedBody
from tests.harness.eventually import until
from tests.harness.lines import Line
from tests.integration.journal.helpers import STREAM, ManualClock, opened, stored
from tests.integration.journal.test_large_bodies import bytes_in, chunks_in
from tests.integration.relay.test_large_bodies import KIB, Pair, body, small_pieces

PIECE = 16 * KIB
#: Some bytes of a body.
BODY = body(3)


class Brought:
    """The pieces that links bring to the hub; a test acts before one is stored."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pieces: list[bytes] = []
        self.act: Callable[[int], object] = lambda _pieces: None
        add = BridgeUpload.add

        async def counted(upload: BridgeUpload, piece: bytes) -> None:
            self.pieces.append(piece)
            if inspect.isawaitable(acted := self.act(len(self.pieces))):
                await acted
            await add(upload, piece)

        monkeypatch.setattr(BridgeUpload, "add", counted)

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces))


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> Brought:
    small_pieces(monkeypatch)
    return Brought(monkeypatch)


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(pages, "LARGE_IN_PAGE_BYTES", 0)
    async with AsyncExitStack() as stack:
        made = Pair(tmp_path, stack)
        await made.open()
        yield made


async def test_over_20_cuts_no_byte_that_came_is_sent_again(pair: Pair, brought: Brought) -> None:
    """B18: a body in 80 pieces, and a cut behind every third of them."""
    brought.act = lambda pieces: pair.cut() if pieces % 3 == 0 else None
    content = body(20)
    await pair.put(content, b"film-1")
    await pair.put_small(b"last")
    await pair.relayed()
    assert await pair.arrived() == [content, b"last"]
    assert len(pair.connections) > 20
    assert b"".join(brought.pieces) == content
    await until(lambda: bytes_in(pair.directory / "hub") == (len(content), 0), "nothing else is there")


async def test_bodies_of_two_streams_each_go_on_where_they_were(pair: Pair, brought: Brought) -> None:
    """One is on its way, and the other waits for its end, over every cut."""
    brought.act = lambda pieces: pair.cut() if pieces % 5 == 0 else None
    contents = {"orders": body(5), "alarms": body(5)}
    for address, content in contents.items():
        await pair.put(content, address=address)
    await pair.relay.command(Command.START)
    for address, content in contents.items():
        await until(lambda: stored(pair.edge, address) == 0, f"{address} has crossed")  # noqa: B023
        assert await pair.arrived(address) == [content]
    assert brought.size == sum(map(len, contents.values()))


async def test_a_hub_that_restarts_in_mid_body_gets_the_body_from_its_beginning(
    pair: Pair, brought: Brought
) -> None:
    content = body(6)
    await pair.put(content)
    await breaks(pair, brought)
    await pair.hub.close()
    pair.hub = await pair.journal("hub")
    pair.serves = True
    await pair.emptied()
    assert await pair.arrived() == [content]
    assert brought.size > len(content)
    await until(lambda: bytes_in(pair.directory / "hub") == (len(content), 0), "what came before is gone")


async def test_a_sender_that_restarts_goes_on_with_the_body(pair: Pair, brought: Brought) -> None:
    content = body(6)
    await pair.put(content)
    await breaks(pair, brought)
    await restart_edge(pair)
    await pair.relay.command(Command.START)
    await pair.emptied()
    assert await pair.arrived() == [content]
    assert b"".join(brought.pieces) == content


async def test_a_restored_source_with_another_body_there_sends_all_of_it(
    pair: Pair, brought: Brought
) -> None:
    """B18: the same stream, position and size; only the digest of what came tells them apart."""
    content, other = body(6), body(6)
    backup = pair.directory / "backup"
    await pair.edge.close()
    shutil.copytree(pair.directory / "edge", backup)
    await restart_edge(pair)
    await pair.put(content)
    await breaks(pair, brought)
    await restart_edge(pair, backup)
    await pair.put(other)
    await pair.relay.command(Command.START)
    await pair.emptied()
    assert await pair.arrived() == [other]
    assert b"".join(brought.pieces).endswith(other)
    await until(lambda: bytes_in(pair.directory / "hub") == (len(other), 0), "nothing of the first is left")


async def test_a_message_that_finds_no_room_when_its_body_has_come_is_not_sent_again(
    pair: Pair, brought: Brought
) -> None:
    """Its address was below its limit when the body began."""
    pair.policies["hub/orders"] = AddressPolicy(max_size_bytes=1 << 20, full_policy="FAIL")
    content = body(6)
    brought.act = lambda pieces: fill(pair.hub) if pieces == 10 else None
    await pair.hub.create_queue("orders", "reader", "earliest")
    await pair.put(content)
    await pair.relay.command(Command.START)
    await until(lambda: "ADDRESS_FULL" in (pair.relay.counts.trouble or ""), "the bridge says why it waits")
    await pair.hub.delete_queue("orders", "reader")
    await pair.hub.create_queue("orders", "late", "latest")
    await pair.emptied()
    assert (await pair.arrived())[-1] == content
    assert b"".join(brought.pieces) == content


def between(pair: Pair, line: Line) -> None:
    """Let the bridge's links go over the line."""
    pair.line_port = line.port
    pair.make_relay()


async def test_a_line_that_is_reset_before_a_body_has_crossed_carries_it_at_a_small_surcharge(
    pair: Pair,
) -> None:
    """B18: 400 kB/s and a reset every 6 s, at five times the speed."""
    content = body(32)
    with Line(pair.port, rate=2_000_000, reset_every_s=0.3) as line:
        between(pair, line)
        await pair.put(content)
        await pair.relayed()
        assert len(line.resets) > 1
        assert line.up.delivered < 1.3 * len(content)
    assert await pair.arrived() == [content]


async def test_over_20_resets_of_a_line_at_most_1_3_times_the_body_is_carried(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, brought = body(64), Brought(monkeypatch)
    with Line(pair.port, rate=16_000_000) as line:

        def reset(_pieces: int) -> None:
            if brought.size > (len(line.resets) + 1) * len(content) / 22:
                line.reset()

        brought.act = reset
        between(pair, line)
        await pair.put(content)
        await pair.relayed()
        assert len(line.resets) >= 20
        assert line.up.delivered < 1.3 * len(content)
    assert await pair.arrived() == [content]


async def test_a_small_message_of_another_address_passes_a_large_body(pair: Pair) -> None:
    """It does not wait until the body has crossed."""
    content = body(32)
    with Line(pair.port, rate=1_000_000) as line:
        between(pair, line)
        await pair.put(content)
        await pair.relay.command(Command.START)
        await until(lambda: line.up.delivered > len(content) / 10, "the body is on its way")
        await pair.edge.commit(Transaction((Sent.of("alarms", Message(b"fire")),), plain=True))
        await until(lambda: pair.hub.views.address("alarms") is not None, "the alarm is there")
        assert pair.hub.views.address("orders") is None, "and the body is not"
        await pair.emptied()
    assert await pair.arrived() == [content]


async def breaks(pair: Pair, brought: Brought) -> None:
    """Start the bridge; its link breaks in mid-body, and there is no other until `serves` is set."""

    def cut(pieces: int) -> None:
        if pieces == 10:
            pair.serves = False
            pair.cut()

    brought.act = cut
    await pair.relay.command(Command.START)
    await until(lambda: not pair.serves, "the link has broken")


async def restart_edge(pair: Pair, backup: Path | None = None) -> None:
    """Stop the edge and open it again; with `backup` as it was then. Its bridge is not started."""
    await pair.relay.command(Command.STOP)
    await pair.edge.close()
    if backup is not None:
        shutil.rmtree(pair.directory / "edge")
        shutil.copytree(backup, pair.directory / "edge")
    await pair.open_edge()
    pair.make_relay()
    pair.serves = True


async def fill(journal: Journal) -> None:
    """Let `orders`, which takes 1 MiB, have more than that."""
    for _ in range(16):
        await journal.commit(Transaction((Sent.of("orders", Message(b"x" * 64 * KIB)),)))


# -- the journal's side of it, by itself --------------------------------------------------------------


class Link:
    """One link to the journal after another, each of which brings pieces of `BODY`."""

    def __init__(self, journal: Journal, stream: str = STREAM) -> None:
        self.journal, self.stream = journal, stream

    async def open(self, caller: Caller | None = None) -> tuple[UnfinishedBody, ...]:
        """The next link opens the stream; answers what is kept."""
        self.end = JournalTarget(self.journal, "first", check_producer_ids=False, caller=caller)
        opened = await self.end.open([Stream(self.stream, "orders", "orders")])
        return opened.streams[self.stream].bodies

    async def bring(self, pieces: int, start: int = 0, position: int = 0) -> BridgeUpload:
        upload = self.end.upload(self.stream, position, len(BODY), start)
        for at in range(start, start + pieces * PIECE, PIECE):
            await upload.add(BODY[at : at + PIECE])
        return upload

    async def leave(self, pieces: int, position: int = 0) -> None:
        """Bring some of a body over a link of its own, which breaks."""
        await self.open()
        (await self.bring(pieces, position=position)).set_aside()


async def test_what_came_over_one_link_is_said_to_the_next_which_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.leave(10)
        (kept,) = await link.open()
        digest = blake2b(BODY[: 10 * PIECE], digest_size=DIGEST_BYTES).digest()
        assert kept == UnfinishedBody(0, len(BODY), 10 * PIECE, digest)
        upload = await link.bring(2, 10 * PIECE)
        assert upload.kept.body.size == len(BODY)
        upload.give_up()
        assert await link.open() == ()
        await until(lambda: bytes_in(tmp_path) == (0, 0), "it is gone")


async def test_a_body_that_begins_anew_replaces_what_was_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.leave(10)
        await link.open()
        (await link.bring(3)).set_aside()
        assert [one.kept for one in await link.open()] == [3 * PIECE]


async def test_only_from_where_it_was_does_a_body_go_on(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.leave(3)
        await link.open()
        for position, size, start in ((0, len(BODY), PIECE), (1, len(BODY), 3 * PIECE), (0, 9, 3 * PIECE)):
            with pytest.raises(BodyNotKept, match="are not here"):
                link.end.upload(STREAM, position, size, start)
        assert [one.kept for one in await link.open()] == [3 * PIECE]


async def test_the_link_before_brings_no_more_once_the_stream_was_opened_again(tmp_path: Path) -> None:
    """It may have been half open: the hub has not noticed that it ended."""
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.open()
        before = await link.bring(3)
        (kept,) = await link.open()
        assert kept.kept == 3 * PIECE
        with pytest.raises(Fenced):
            await before.add(b"late")
        before.set_aside()
        after = await link.bring(1, kept.kept)
        before.give_up()
        after.set_aside()
        assert [one.kept for one in await link.open()] == [4 * PIECE]


async def test_a_piece_that_is_being_stored_at_the_cut_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.open()
        upload = await link.bring(1)
        adding = asyncio.create_task(upload.add(BODY[PIECE : 6 * PIECE]))
        await asyncio.sleep(0)
        adding.cancel()
        await asyncio.wait([adding])
        upload.set_aside()
        assert [one.kept for one in await link.open()] == [6 * PIECE]


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_body_that_came_whole_and_was_not_stored_whole_is_stored_by_the_next_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """The link before breaks, or is succeeded, between two chunks of the last piece."""
    monkeypatch.setattr(unfinished, "CHUNK_BYTES", 4 * PIECE)
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.open()
        upload = await link.bring(1)
        adding = asyncio.create_task(upload.add(BODY[PIECE:]))
        await asyncio.sleep(0)
        if cancelled:
            adding.cancel()
            upload.set_aside()
        (kept,) = await link.open()
        assert kept.kept == len(BODY)
        again = link.end.upload(STREAM, 0, len(BODY), len(BODY))
        await again.add(b"")
        await asyncio.wait([adding])
        digest = blake2b(BODY, digest_size=DIGEST_BYTES).digest()
        assert again.kept.body == LargeBody(len(BODY), digest)
        assert bytes_in(tmp_path) == (len(BODY), 1)
        again.give_up()


async def test_a_body_with_a_piece_that_may_not_be_stored_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.open()
        upload = await link.bring(1)

        async def fails(_upload: BodyUpload, _chunk: bytes) -> None:
            raise JournalUnavailable("the commit failed")

        with monkeypatch.context() as patched:
            patched.setattr(BodyUpload, "add", fails)
            with pytest.raises(JournalUnavailable):
                await upload.add(BODY[PIECE : 6 * PIECE])
        upload.set_aside()
        assert await link.open() == ()


async def test_a_body_is_kept_for_its_caller_and_its_stream_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        link, other = Link(journal), Link(journal, STREAM.replace("orders", "invoices"))
        await link.leave(3)
        await other.leave(2)
        assert await link.open(Caller("user:mallory", "another-node")) == ()
        assert [one.kept for one in await other.open()] == [2 * PIECE]
        assert [one.kept for one in await link.open()] == [3 * PIECE]


async def test_a_body_goes_once_its_position_is_passed(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.leave(3)
        await link.open()
        await link.end.deliver([Batch(STREAM, 0, 1)])
        assert await link.open() == ()
        await until(lambda: bytes_in(tmp_path) == (0, 0), "it is gone")


async def test_a_body_that_nobody_goes_on_with_goes_after_a_day(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as journal:
        link, other = Link(journal), Link(journal, STREAM.replace("orders", "invoices"))
        await link.leave(3)
        clock.advance(unfinished.UNFINISHED_MS - 1)
        await other.leave(1)
        clock.advance(1)
        await other.open()
        assert await link.open() == ()
        await until(lambda: bytes_in(tmp_path) == (PIECE, 1), "it is gone, and the other is not")


@pytest.mark.parametrize("limit", ["UNFINISHED_MOST", "UNFINISHED_BYTES"])
async def test_beyond_a_limit_the_body_goes_that_was_kept_for_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(unfinished, limit, 2 if limit == "UNFINISHED_MOST" else 5 * PIECE)
    clock = ManualClock()
    async with opened(tmp_path, clock) as journal:
        link = Link(journal)
        await link.open()
        for position in range(3):
            clock.advance(1)
            (await link.bring(2, position=position)).set_aside()
        assert [one.position for one in await link.open()] == [1, 2]


async def test_bodies_that_wait_for_a_link_are_not_on_their_way(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.open()
        for position in range(UPLOADS_MOST + 1):
            (await link.bring(1, position=position)).set_aside()
        bodies = await link.open()
        assert len(bodies) == UPLOADS_MOST + 1
        for one in bodies[:-1]:
            link.end.upload(STREAM, one.position, len(BODY), PIECE)
        with pytest.raises(TooBusy):
            link.end.upload(STREAM, bodies[-1].position, len(BODY), PIECE)
        assert [one.kept for one in await link.open()] == [PIECE] * len(bodies)


async def test_small_pieces_share_a_chunk(tmp_path: Path) -> None:
    """A body over a slow line is not thousands of rows; the first piece is stored at once, and the last."""
    async with opened(tmp_path) as journal:
        link = Link(journal)
        await link.open()
        upload = await link.bring(1)
        assert chunks_in(tmp_path) == (1, 1)
        for at in range(PIECE, len(BODY), KIB):
            await upload.add(BODY[at : at + KIB])
        assert bytes_in(tmp_path) == (len(BODY), 1)
        assert chunks_in(tmp_path) == (1 + -(-(len(BODY) - PIECE) // unfinished.TAIL_BYTES), 1)
        upload.give_up()
