from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from bridge.relay.lifecycle import State
from bridge.settings.load import MAX_FILE_BYTES
from bridge.workers.channel import (
    MOST_LINE_BYTES,
    MOST_ORDER_BYTES,
    MOST_TEXT_CHARS,
    Begin,
    Channel,
    ChannelBroken,
    Failed,
    FromWorker,
    Ready,
    Renew,
    Stop,
    ToWorker,
    Want,
    Wanted,
    shortened,
)
from tests.fakes.workers import report


class Pair:
    def __init__(self, ours: Channel[FromWorker], theirs: Channel[ToWorker], raw: socket.socket) -> None:
        self.ours = ours
        self.theirs = theirs
        #: Writes to the supervisor's end whatever it likes.
        self.raw = raw


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    one, other = socket.socketpair()
    raw = other.dup()
    made = Pair(await Channel.on(one, FromWorker), await Channel.on(other, ToWorker, MOST_ORDER_BYTES), raw)
    yield made
    raw.close()
    await made.ours.close()
    await made.theirs.close()


@pytest.mark.parametrize(
    "message",
    [
        Begin(2, "text", 20_000),
        Renew("\x01" * MAX_FILE_BYTES, ("orders",) * 1_000, 7_000),
        Want("orders", Wanted.PAUSED, 3),
        Stop(),
    ],
)
async def test_a_supervisor_is_understood(pair: Pair, message: ToWorker) -> None:
    """Also the largest settings file, of which each character is six in JSON."""
    pair.ours.send(message)
    assert await pair.theirs.receive() == message


@pytest.mark.parametrize(
    "message",
    [
        Ready(),
        Failed('no "quotes"\nand a second line'),
        report(state=State.FAILED, reason="gone", lag=(7, 1_700_000_000_000), sent=5, trouble="ü"),
        report(lag=None),
    ],
)
async def test_a_worker_is_understood(pair: Pair, message: FromWorker) -> None:
    pair.theirs.send(message)
    assert await pair.ours.receive() == message


async def test_messages_come_in_the_order_they_were_sent(pair: Pair) -> None:
    wants = [Want("orders", Wanted.RUNNING, order) for order in range(1, 500)]
    for want in wants:
        pair.ours.send(want)
    await pair.ours.sent()
    assert [await pair.theirs.receive() for _ in wants] == wants


async def test_the_end_of_the_other_process_is_the_end_of_the_channel(pair: Pair) -> None:
    pair.theirs.send(Ready())
    await pair.theirs.close()
    pair.raw.close()
    assert await pair.ours.receive() == Ready()
    assert await pair.ours.receive() is None


async def test_what_is_sent_to_an_end_that_is_gone_is_dropped(pair: Pair) -> None:
    await pair.theirs.close()
    pair.raw.close()
    for _ in range(3):
        pair.ours.send(Stop())
        await pair.ours.sent()
    assert await pair.ours.receive() is None


async def test_a_line_that_its_writer_was_killed_in_is_no_message(pair: Pair) -> None:
    pair.raw.sendall(b'{"type":"ready"}')
    await pair.theirs.close()
    pair.raw.close()
    assert await pair.ours.receive() is None


async def test_a_line_that_is_no_message_breaks_the_channel(pair: Pair) -> None:
    pair.raw.sendall(b'{"type":"begin"}\n')
    with pytest.raises(ChannelBroken, match="no message"):
        await pair.ours.receive()


async def test_a_line_beyond_the_limit_breaks_the_channel(pair: Pair) -> None:
    writing = asyncio.get_running_loop().sock_sendall
    pair.raw.setblocking(False)
    sending = asyncio.create_task(writing(pair.raw, b"x" * (MOST_LINE_BYTES * 2)))
    with pytest.raises(ChannelBroken) as broken:
        await pair.ours.receive()
    assert broken.value.limit == MOST_LINE_BYTES
    await sending


def test_the_longest_texts_there_are_fit_into_a_line() -> None:
    import msgspec

    text = shortened("\x01" * 3 * MOST_TEXT_CHARS)  # six characters each in JSON
    assert len(text) == MOST_TEXT_CHARS
    line = msgspec.json.encode(report("n" * 249, reason=text, store="s" * 1000, trouble=text))
    assert len(line) < MOST_LINE_BYTES
    assert shortened("as it is") == "as it is"
