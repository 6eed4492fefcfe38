"""The loop around a machine, over a connection in memory."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from bridge.link import driver as driver_module
from bridge.link import limits
from bridge.link.batch_frames import to_frame
from bridge.link.codec import decode, encode
from bridge.link.compressor import Compressor
from bridge.link.driver import Driver, now
from bridge.link.frames import BatchFrame, Close, CloseCode, Hello, Ping, Pong, StreamOpened
from bridge.link.machine import LinkState
from bridge.link.room import LinkRoom
from bridge.link.sender import Sender
from bridge.link.zstd import compress, decompress
from bridge.runtime.clock import SystemClock
from tests.unit.link.fakes import FakeSocket
from tests.unit.link.helpers import HELLO, STREAM, WELCOME, batch, open_receiver, open_sender, welcomed_sender


class FakeClock:
    """Both clocks stand where the test puts them."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return 1_000_000 + self.ms


async def test_frames_go_out_and_come_in_and_the_close_is_the_last() -> None:
    socket, sender = FakeSocket(), open_sender()
    changes: list[LinkState] = []
    driver = Driver(sender, socket, FakeClock(), lambda: changes.append(sender.state))
    running = asyncio.create_task(driver.run())
    socket.incoming.put_nowait(encode(Ping(1, 2)))
    assert decode(await socket.sent.get()) == Pong(1, 2, 1_000_000)
    sender.close(CloseCode.GOODBYE, "")
    driver.wake()
    await running
    assert decode(socket.sent.get_nowait()) == Close("GOODBYE")
    assert socket.closed
    assert not socket.was_cut
    assert changes[-1] is LinkState.CLOSED


async def test_a_lost_connection_ends_the_run_with_its_reason() -> None:
    socket, sender = FakeSocket(), open_sender()
    socket.incoming.put_nowait(ConnectionResetError("reset by peer"))
    await Driver(sender, socket, FakeClock(), lambda: None).run()
    assert sender.ending is not None
    assert sender.ending.detail == "reset by peer"
    assert socket.closed


async def test_a_fault_of_ours_ends_the_link_instead_of_hanging_it() -> None:
    socket, sender = FakeSocket(), open_sender()
    socket.incoming.put_nowait(ZeroDivisionError("ours"))
    await Driver(sender, socket, FakeClock(), lambda: None).run()
    assert sender.ending is not None
    assert sender.ending.detail == "ZeroDivisionError; see this node's log"


async def test_a_deadline_is_kept_although_the_writer_is_stuck_and_the_connection_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_module, "FLUSH_S", 0.01)
    socket, clock = FakeSocket(), FakeClock()
    socket.writable.clear()
    sender = open_sender()
    sender.deliver([batch(0, 1)])
    clock.ms = 60_000  # the connection-ttl has passed when the timer is set
    await Driver(sender, socket, clock, lambda: None).run()
    assert sender.ending is not None
    assert sender.ending.code == CloseCode.SILENT
    assert socket.was_cut
    assert socket.closed


async def test_an_earlier_deadline_moves_the_timer() -> None:
    socket, clock = FakeSocket(), FakeClock()
    sender = welcomed_sender()
    driver = Driver(sender, socket, clock, lambda: None)
    running = asyncio.create_task(driver.run())
    await asyncio.sleep(0)
    clock.ms = 24_990
    # The timer is set to the check period, 30,000; this OPEN is due at 25,000.

    sender.open([STREAM], now(clock)._replace(ms=20_000))
    driver.wake()
    clock.ms = 25_000
    await asyncio.wait_for(running, 5)
    assert sender.ending is not None
    assert sender.ending.code == CloseCode.TIMEOUT


async def test_a_batch_above_the_other_ends_frame_limit_is_not_sent_and_refused_for_good() -> None:
    socket = FakeSocket()
    sender = open_sender(welcome=msgspec.structs.replace(WELCOME, max_frame_size=500))
    sender.deliver([batch(0, 1, body=1_000)])
    await Driver(sender, socket, FakeClock(), lambda: None).run()
    close = decode(socket.sent.get_nowait())
    assert isinstance(close, Close)
    assert close.code == CloseCode.FRAME_TOO_LARGE
    assert close.permanent
    assert "takes 500: lower producer-window-size" in close.detail
    assert str(sender.error()).startswith("FRAME_TOO_LARGE: 1")


async def test_cancelling_lets_go_of_the_connection() -> None:
    socket, sender = FakeSocket(), open_sender()
    running = asyncio.create_task(Driver(sender, socket, FakeClock(), lambda: None).run())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert socket.closed
    assert sender.state is LinkState.CLOSED
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("point", ["link.before-open", "link.before-batch", "link.after-batch"])
async def test_crash_points_lie_around_what_is_sent(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dying is stood in for by an error: what had been sent by then is what counts."""

    def die_at(name: str) -> None:
        if name == point:
            raise ConnectionError(f"died at {name}")

    monkeypatch.setattr(driver_module, "crash_point", die_at)
    socket = FakeSocket()
    sender = open_sender() if "batch" in point else welcomed_sender()
    if "batch" in point:
        sender.deliver([batch(0, 1)])
    else:
        sender.open([STREAM], now(SystemClock()))
    await Driver(sender, socket, FakeClock(), lambda: None).run()
    assert sender.ending is not None
    assert sender.ending.detail == f"died at {point}"
    sent = [decode(socket.sent.get_nowait()) for _ in range(socket.sent.qsize())]
    assert [type(frame) for frame in sent] == ([BatchFrame] if point == "link.after-batch" else [])


async def test_hello_is_the_first_frame_of_a_new_link() -> None:
    socket = FakeSocket()
    sender = Sender(HELLO, call_timeout_ms=5_000, now=now(SystemClock()))
    running = asyncio.create_task(Driver(sender, socket, SystemClock(), lambda: None).run())
    assert isinstance(decode(await socket.sent.get()), Hello)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_it_reads_on_only_while_the_machine_takes_more() -> None:
    """What is not read stays with the other end: its connection is full, and it waits."""
    socket, sender = FakeSocket(), open_sender()
    driver = Driver(sender, socket, FakeClock(), lambda: None)
    socket.writable.clear()
    running = asyncio.create_task(driver.run())
    for number in range(2 * limits.ANSWERS_MOST):
        socket.incoming.put_nowait(encode(Ping(number, 0)))
    while sender.may_read:  # noqa: ASYNC110 - what it waits for sets no event
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert socket.incoming.qsize() >= limits.ANSWERS_MOST - 1
    socket.writable.set()
    numbers = [decode(await socket.sent.get()).number for _ in range(2 * limits.ANSWERS_MOST)]  # type: ignore[union-attr]
    assert numbers == list(range(2 * limits.ANSWERS_MOST))
    sender.close(CloseCode.GOODBYE, "")
    driver.wake()
    await running


async def test_a_compressed_frame_waits_while_the_batches_of_other_links_take_too_much() -> None:
    """It is small; unpacked, the frames of many links would be more than all may take."""
    room, socket = LinkRoom(1), FakeSocket()
    hello = msgspec.structs.replace(HELLO, compression=("zstd",))
    receiver = open_receiver(room=room, hello=hello)
    driver = Driver(receiver, socket, FakeClock(), lambda: None)
    running = asyncio.create_task(driver.run())
    for _ in range(10):
        await asyncio.sleep(0)  # it waits for a frame by now
    room.keep(1)
    socket.incoming.put_nowait(compress(encode(to_frame(batch(0, 1), 0, 0))))
    for _ in range(100):
        await asyncio.sleep(0)
    assert (socket.incoming.qsize(), room.kept, receiver.take_events()) == (0, 1, [])
    room.release(1)
    while not room.is_full:  # noqa: ASYNC110 - what it waits for sets no event
        await asyncio.sleep(0)
    assert len(receiver.take_events()) == 1
    receiver.close(CloseCode.GOODBYE, "")
    driver.wake()
    await running
    assert room.kept == 0


async def test_a_frame_leaves_as_the_machine_packs_it() -> None:
    compressor = Compressor("zstd")
    hello = msgspec.structs.replace(HELLO, compression=compressor.offered)
    socket = FakeSocket()
    sender = Sender(hello, call_timeout_ms=5_000, now=now(FakeClock()), compressor=compressor)
    driver = Driver(sender, socket, FakeClock(), lambda: None)
    running = asyncio.create_task(driver.run())
    assert decode(await socket.sent.get()) == hello
    socket.incoming.put_nowait(encode(msgspec.structs.replace(WELCOME, compression="zstd")))
    while sender.state is not LinkState.OPEN:  # noqa: ASYNC110 - what it waits for sets no event
        await asyncio.sleep(0)
    sender.open([STREAM], now(FakeClock()))
    driver.wake()
    assert decode(await socket.sent.get()).index == 0  # type: ignore[union-attr]
    socket.incoming.put_nowait(encode(StreamOpened(0, 0)))
    assert isinstance(decode(await socket.sent.get()), Ping)
    many = batch(0, 1, 100_000)
    sender.deliver([many])
    driver.wake()
    message = await socket.sent.get()
    assert decode(decompress(message, 200_000)) == to_frame(many, 0, 0)
    sender.close(CloseCode.GOODBYE, "")
    driver.wake()
    await running
