"""Clients that leave in the middle of a body, theirs or the node's."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

from tests.harness.api import HOST
from tests.harness.eventually import PATIENCE_S
from tests.harness.node import Node

MIB: Final = 1024 * 1024
#: Clients at a time.
AT_ONCE: Final = 4
_POST: Final = b"POST /v1/addresses/orders/messages HTTP/1.1\r\nHost: localhost\r\n"
_PAGE: Final = (
    b"GET /v1/addresses/pages/messages?max=1000 HTTP/1.1\r\nHost: localhost\r\n"
    b"Accept: application/msgpack\r\n\r\n"
)


def connected(port: int, receive_bytes: int) -> socket.socket:
    """A connection whose own side keeps little of what comes."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    made.settimeout(PATIENCE_S)
    made.connect((HOST, port))
    return made


def abort_upload(port: int) -> None:
    """Most of a body of 4 MiB, and a reset."""
    with closing(connected(port, 65_536)) as upload:
        upload.sendall(_POST + b"Content-Length: %d\r\n\r\n" % (4 * MIB) + bytes(4 * MIB - 1))
        reset(upload)


def refused_upload(port: int) -> None:
    """A body of 4 MiB for an address that is full."""
    with closing(connected(port, 65_536)) as upload:
        upload.sendall(_POST.replace(b"orders", b"full") + b"Content-Length: %d\r\n\r\n" % (4 * MIB))
        upload.sendall(bytes(4 * MIB))
        assert upload.recv(1024).startswith(b"HTTP/1.1 503 ")


def leave_page(port: int) -> None:
    """The first bytes of a page of 15 MiB, and a reset."""
    with closing(connected(port, 4_096)) as reader:
        reader.sendall(_PAGE)
        assert reader.recv(1024).startswith(b"HTTP/1.1 200 ")
        reset(reader)


def reset(connection: socket.socket) -> None:
    """Closing it from now on is a reset, whatever is on its way."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def fill_pages(node: Node) -> None:
    """15 messages of a MiB, which are a page."""
    for _ in range(15):
        assert node.api.send("pages", b"x" * MIB).status == 200


def growth(node: Node, leave: Callable[[int], None], times: int, *, first: int = 8 * AT_ONCE) -> int:
    """Bytes that the node's process grows by as so many clients leave, after the `first` ones have."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(leave, [node.port] * first))
        before = _resident(node)
        list(pool.map(leave, [node.port] * times))
    return _resident(node) - before


def _resident(node: Node) -> int:
    assert node.api.get("/v1/addresses").status == 200
    return node.resident
