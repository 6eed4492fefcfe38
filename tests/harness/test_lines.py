"""A line carries what its rate allows, loses nothing but what it says, and breaks as it is told."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.harness.api import HOST
from tests.harness.eventually import eventually
from tests.harness.lines import LATE_S, PIECE_LEAST, QUEUE_LEAST, SEGMENT, Line

WITHIN_S = 20.0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(WITHIN_S)
        yield listener


def port(server: socket.socket) -> int:
    found: int = server.getsockname()[1]
    return found


@contextlib.contextmanager
def connected(line: Line, server: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection over a line."""
    with socket.create_connection((HOST, line.port), WITHIN_S) as client:
        target, _ = server.accept()
        target.settimeout(WITHIN_S)
        with target:
            yield client, target


def received(end: socket.socket, count: int) -> bytes:
    """So many bytes of a connection; fewer where it ends before."""
    found = bytearray()
    while len(found) < count and (data := end.recv(min(65_536, count - len(found)))):
        found += data
    return bytes(found)


@contextlib.contextmanager
def sending(end: socket.socket, data: bytes, sent: list[int] | None = None) -> Iterator[None]:
    """Sends in a thread; what a broken connection does not take is not sent. `sent`: bytes of each call."""

    def send() -> None:
        left = memoryview(data)
        with contextlib.suppress(OSError):
            while left:
                count = end.send(left[:65_536])
                left = left[count:]
                if sent is not None:
                    sent.append(count)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        thread.join(WITHIN_S)


def test_bytes_pass_both_ways_and_end_of_file_behind_them(server: socket.socket) -> None:
    asked, answered = os.urandom(300_000), os.urandom(200_000)
    with Line(port(server)) as line, connected(line, server) as (client, target):
        with sending(client, asked):
            assert received(target, len(asked)) == asked
            target.sendall(answered)
            target.shutdown(socket.SHUT_WR)
            assert received(client, len(answered) + 1) == answered
        assert target.recv(1) == b""
    assert (line.up.delivered, line.down.delivered) == (300_000, 200_000)
    assert (line.up.carried, line.up.again, line.connections) == (300_000, 0, 1)


def test_all_connections_of_a_line_share_its_rate(server: socket.socket) -> None:
    rate, count = 100_000, 60_000
    began = time.monotonic()
    with (
        Line(port(server), rate=rate) as line,
        connected(line, server) as (first, to_first),
        connected(line, server) as (second, to_second),
        sending(first, bytes(count)),
        sending(second, bytes(count)),
    ):
        assert len(received(to_first, count)) == len(received(to_second, count)) == count
        # More than it may carry in this time has not passed, however busy the machine is.
        assert line.up.carried <= rate * (time.monotonic() - began + LATE_S) + line.wires[0].piece


def test_directions_have_rates_of_their_own(server: socket.socket) -> None:
    with Line(port(server), rate=1_000, rate_down=500_000) as line:
        assert [wire.piece for wire in line.wires] == [PIECE_LEAST, 10_000]
        line.set_rate(None)
        with connected(line, server) as (client, target), sending(client, bytes(1_000_000)):
            assert len(received(target, 1_000_000)) == 1_000_000


def test_a_queue_is_bounded_and_pushes_back(server: socket.socket) -> None:
    with Line(port(server), rate=8_000) as line, connected(line, server) as (client, _target):
        line.cut()
        sent: list[int] = []
        with sending(client, bytes(16 * 1024 * 1024), sent):
            eventually(lambda: line.up.taken >= QUEUE_LEAST, "the queue is full")
            held_back = sum(sent)
        assert line.up.taken == QUEUE_LEAST
        assert held_back < 4 * 1024 * 1024
    assert line.up.delivered == 0


def test_the_queue_of_a_fast_line_holds_a_second(server: socket.socket) -> None:
    with Line(port(server), rate=1_000_000) as fast, Line(port(server), rate=1_000_000, queue=10) as short:
        assert (fast.wires[0].capacity, short.wires[0].capacity) == (1_000_000, 10)


def test_a_cut_holds_bytes_back_and_loses_none(server: socket.socket) -> None:
    data = os.urandom(100_000)
    with Line(port(server), rate=1_000_000) as line, connected(line, server) as (client, target):
        line.cut()
        with sending(client, data):
            eventually(lambda: line.up.taken == len(data), "the line has taken all")
            assert line.up.delivered <= line.wires[0].piece
            line.heal()
            assert received(target, len(data)) == data
    assert line.resets == []


def test_cuts_come_by_themselves(server: socket.socket) -> None:
    data = os.urandom(500_000)
    with (
        Line(port(server), rate=1_000_000, cut_s=0.05, cut_every_s=0.1) as line,
        connected(line, server) as (client, target),
        sending(client, data),
    ):
        assert received(target, len(data)) == data
        assert line.cuts >= 1
    assert (line.connections, line.resets) == (1, [])


def test_a_reset_reaches_both_ends_and_is_counted(server: socket.socket) -> None:
    with Line(port(server)) as line, connected(line, server) as (client, target):
        client.sendall(b"before")
        assert received(target, 6) == b"before"
        line.reset()
        for end in (client, target):
            with pytest.raises(ConnectionResetError):
                end.recv(1)
        with connected(line, server) as (again, to_again):
            again.sendall(b"after it")
            assert received(to_again, 8) == b"after it"
            line.reset()
    assert [(reset.connections, reset.up, reset.down) for reset in line.resets] == [(1, 6, 0), (1, 8, 0)]


def test_resets_come_by_themselves_and_drop_what_the_line_holds(server: socket.socket) -> None:
    with (
        Line(port(server), rate=10_000, reset_every_s=0.2) as line,
        connected(line, server) as (client, target),
        sending(client, bytes(50_000)),
    ):
        with pytest.raises(ConnectionResetError):
            received(target, 50_000)
        assert 0 <= line.resets[0].up < 50_000


def test_the_reset_of_an_end_passes_behind_its_bytes(server: socket.socket) -> None:
    with Line(port(server), rate=100_000) as line, connected(line, server) as (client, target):
        client.sendall(b"last words")
        eventually(lambda: line.up.taken == 10, "the line has taken all")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        with pytest.raises(ConnectionResetError):
            received(target, 11)
    assert line.up.delivered == 10


def test_a_black_hole_swallows_and_keeps_its_connections(server: socket.socket) -> None:
    with Line(port(server)) as line, connected(line, server) as (client, target):
        line.swallow()
        client.sendall(bytes(1_000_000))
        with socket.create_connection((HOST, line.port)) as lost:
            eventually(lambda: line.connections == 2, "a connection comes")
            line.heal()
            with connected(line, server) as (again, to_again):
                again.sendall(b"works")
                assert received(to_again, 5) == b"works"
            for end in (client, target, lost):
                end.setblocking(False)
                with pytest.raises(BlockingIOError):
                    end.recv(1)
    assert line.up.delivered == 5


def test_lost_segments_are_sent_again_and_all_comes_in_order(server: socket.socket) -> None:
    data = random.Random(1).randbytes(400 * SEGMENT)
    with (
        Line(port(server), rate=2_000_000, loss=0.05, seed=1) as line,
        connected(line, server) as (client, target),
        sending(client, data),
    ):
        assert received(target, len(data)) == data
        assert line.up.carried == len(data) + line.up.again
    assert 0.02 * len(data) < line.up.again < 0.10 * len(data)


def test_a_delay_is_that_of_the_round_trip(server: socket.socket) -> None:
    with Line(port(server), delay_ms=50) as line:
        began = time.monotonic()
        with connected(line, server) as (client, target):
            client.sendall(b"?")
            assert received(target, 1) == b"?"
            # No sooner than it may, however busy the machine is: to connect, and one way.
            assert time.monotonic() - began >= 0.15
            target.sendall(b"!")
            assert received(client, 1) == b"!"
            assert time.monotonic() - began >= 0.20


def test_a_target_that_is_not_there_resets_the_connection(server: socket.socket) -> None:
    gone = port(server)
    server.close()
    # The reset may come before the kernel has answered `connect`.
    with (
        Line(gone) as line,
        pytest.raises(ConnectionResetError),
        socket.create_connection((HOST, line.port), WITHIN_S) as client,
    ):
        client.recv(1)
    assert line.pairs == set()
