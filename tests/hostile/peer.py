"""A link peer of its own, from `docs/wire-protocol.md`: it says whatever a test wants, in any order.

Nothing of the product is imported. Blocking sockets, so that a test says exactly what is read and when.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

HOST: Final = "127.0.0.1"
#: Longest that a node may take over one answer, in seconds.
PATIENCE_S: Final = 60.0
_BINARY: Final = 0x2
_CLOSE: Final = 0x8


class Gone(Exception):
    """The node has ended the connection."""


def message(
    body: bytes | None = b"x", key: object = None, headers: object = (), timestamp: object = -1
) -> bytes:
    """A message as an element of a block."""
    return msgspec.msgpack.encode([body, key, headers, timestamp])


def block(*elements: bytes) -> bytes:
    """A block's body: an array32, always."""
    return b"\xdd" + len(elements).to_bytes(4, "big") + b"".join(elements)


@dataclass
class Batch:
    """The fields of a BATCH in their order, of one honest message at `from_`; some of them may lie."""

    number: Any = 0
    index: Any = 0
    from_: Any = 0
    upto: Any = None
    runs: Any = None
    refused: Any = ()
    checksum: Any = 7
    events: Any = (1, 1)
    count: Any = None
    largest: Any = None
    block_checksum: Any = None
    ids: Any = ()
    origins: Any = ()
    body: Any = None
    hops: Any = ()
    elements: Sequence[bytes] = (message(),)

    def fields(self) -> list[Any]:
        """As they are sent."""
        number = len(self.elements)
        numbers = isinstance(self.from_, int)
        upto = self.upto if self.upto is not None else (self.from_ + number if numbers else 1)
        runs = (
            self.runs
            if self.runs is not None
            else ([[self.from_, self.from_ + number - 1]] if numbers else [])
        )
        largest = max(map(len, self.elements), default=0)
        checksum = zlib.crc32(self.elements[-1]) if self.elements else 0
        return [
            "BATCH", self.number, self.index, self.from_, upto, runs, self.refused, self.checksum,
            self.events,
            self.count if self.count is not None else number,
            self.largest if self.largest is not None else largest,
            self.block_checksum if self.block_checksum is not None else checksum,
            self.ids, self.origins,
            self.body if self.body is not None else block(*self.elements),
            self.hops,
        ]  # fmt: skip


class Peer:
    """One connection to a node's `GET /v1/link`."""

    def __init__(self, port: int, token: str = "", *, upgrade: bool = True) -> None:
        self._socket = socket.socket()
        # Small: so that what a node answers soon waits at the node, and not in the kernel.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect((HOST, port))
        self._unread = b""
        #: Of the stream that a case has opened at index 0; and of the next BATCH.
        self.identity = ""
        self.numbers = 0
        #: The code of the CLOSE that a case has read.
        self.ended = ""
        if upgrade:
            self._upgrade(port, token)

    def _upgrade(self, port: int, token: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        bearer = f"Authorization: Bearer {token}\r\n" if token else ""
        self.raw(
            f"GET /v1/link HTTP/1.1\r\nHost: {HOST}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{bearer}"
            "Sec-WebSocket-Protocol: core-bridge.1\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._unread:
            self._more()
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    # -- out ---------------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        """Bytes on the connection."""
        try:
            self._socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as error:
            raise Gone(str(error)) from error

    def push(self, data: bytes, times: int, stuck_s: float = 1.0) -> bool:
        """Send it so many times; False as soon as the node takes no more for `stuck_s`."""
        self._socket.settimeout(stuck_s)
        try:
            for _ in range(times):
                self.raw(data)
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(PATIENCE_S)
        return True

    def binary(self, data: bytes, *, opcode: int = _BINARY) -> None:
        """One WebSocket message; with a mask of zeros nothing has to be masked (RFC 6455 section 5.3)."""
        self.raw(frame_head(len(data), opcode) + data)

    def send(self, *fields: Any) -> None:
        """One frame of the link."""
        self.binary(msgspec.msgpack.encode(fields))

    def batch(self, **fields: Any) -> None:
        """A BATCH; see `Batch`."""
        self.send(*Batch(**fields).fields())

    # -- in ----------------------------------------------------------------------------------------------

    def _more(self) -> None:
        try:
            data = self._socket.recv(65_536)
        except ConnectionError as error:
            raise Gone(str(error)) from error
        if not data:
            raise Gone("closed")
        self._unread += data

    def _take(self, number: int) -> bytes:
        while len(self._unread) < number:
            self._more()
        taken, self._unread = self._unread[:number], self._unread[number:]
        return taken

    def receive(self) -> list[Any]:
        """The next frame of the link. Raises: Gone."""
        first, second = self._take(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._take(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._take(8))
        data = self._take(length)
        if first & 0x0F == _CLOSE:
            raise Gone(f"WebSocket close {data!r}")
        frame: list[Any] = msgspec.msgpack.decode(data)
        return frame

    def until(self, *names: str) -> list[Any]:
        """The next frame of one of these names; the others are passed over. Raises: Gone."""
        while True:
            frame = self.receive()
            if frame[0] in names:
                return frame

    def ending(self) -> str:
        """The code of the node's CLOSE; `GONE` where it ended the connection without one."""
        if self.ended:
            return self.ended
        try:
            return str(self.until("CLOSE")[1])
        except Gone:
            return "GONE"

    def close(self) -> None:
        """Without a word."""
        self._socket.close()

    # -- the way it should be ----------------------------------------------------------------------------

    def hello(self, **fields: Any) -> list[Any]:
        """HELLO, and the WELCOME that it gets."""
        self.send("HELLO", *Hello(**fields).fields())
        return self.until("WELCOME", "CLOSE")

    def open(self, identity: str, address: str = "orders", index: int = 0, run: str = "run-1") -> list[Any]:
        """OPEN, and its OPENED, or the CLOSE instead."""
        self.send("OPEN", index, identity, address, address, run)
        return self.until("OPENED", "CLOSE")

    def deliver(self, **fields: Any) -> list[Any]:
        """A BATCH, and its RECEIPT, or the CLOSE instead."""
        self.batch(**fields)
        return self.until("RECEIPT", "CLOSE")


@dataclass
class Hello:
    """The fields of HELLO in their order."""

    version: Any = 1
    node_id: Any = "99999999-9999-4999-8999-999999999999"
    node_name: Any = "peer"
    store: Any = "99999999-9999-4999-8999-999999999999:aa"
    bridge: Any = "peer-to-hub"
    check_producer_ids: Any = True
    use_duplicate_detection: Any = True
    producer_window: Any = 1_048_576
    check_period_ms: Any = -1
    connection_ttl_ms: Any = -1
    path: Any = ()
    previous: Any = ""
    window: Any = 0
    compression: Any = ()

    def fields(self) -> list[Any]:
        """As they are sent."""
        return list(vars(self).values())


def frame_head(length: int, opcode: int = _BINARY) -> bytes:
    """The head of a WebSocket message of so many bytes, with a mask of zeros."""
    first = bytes([0x80 | opcode])
    if length < 126:
        return first + bytes([0x80 | length]) + bytes(4)
    if length < 65_536:
        return first + bytes([0x80 | 126]) + struct.pack("!H", length) + bytes(4)
    return first + bytes([0x80 | 127]) + struct.pack("!Q", length) + bytes(4)
