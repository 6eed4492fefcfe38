"""An HTTP client of its own: it says whatever a test wants, byte for byte, and need not listen."""

from __future__ import annotations

import socket
from collections import deque
from typing import Final

HOST: Final = "127.0.0.1"
#: A node that has not answered by then hangs, however busy the machine is; in seconds.
PATIENCE_S: Final = 60.0
#: Connections that cases leave open behind them: others are served beside so many.
_LEFT_OPEN: Final[deque[socket.socket]] = deque()
_LEFT_OPEN_MOST: Final = 60


class Client:
    """One connection."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.socket()
        # Small: so that what is not read soon waits at the node, and not in the kernel.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self._socket.settimeout(PATIENCE_S)
        self._socket.connect((HOST, port))
        self._unread = b""
        #: Header lines that an honest request has.
        self.honest = f"Host: {HOST}:{port}\r\nAuthorization: Bearer {token}\r\n".encode()

    def raw(self, data: bytes) -> bool:
        """Bytes on the connection; False: the node has ended it, or takes no more."""
        try:
            self._socket.sendall(data)
        except (ConnectionError, TimeoutError):
            return False
        return True

    def ask(self, method: str, path: str, body: bytes = b"", *lines: bytes) -> str:
        """A request that is whole, with these header lines besides; answers as `answer` does."""
        self.raw(request(method, path, self.honest + b"".join(line + b"\r\n" for line in lines), body))
        return self.answer()

    def answer(self, patience_s: float = PATIENCE_S) -> str:
        """The status of the next answer, which is read to its end; `GONE` or `NOTHING` where none comes."""
        self._socket.settimeout(patience_s)
        try:
            while b"\r\n\r\n" not in self._unread:
                if not self._more():
                    return "GONE"
            head, _, self._unread = self._unread.partition(b"\r\n\r\n")
            status = head.split(b" ", 2)[1].decode()
            for line in head.split(b"\r\n")[1:]:
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    while len(self._unread) < int(value):
                        if not self._more():
                            return "GONE"
                    self.body, self._unread = self._unread[: int(value)], self._unread[int(value) :]
        except TimeoutError:
            return "NOTHING"
        return status

    def _more(self) -> bool:
        try:
            data = self._socket.recv(65_536)
        except ConnectionError:
            return False
        self._unread += data
        return bool(data)

    def finish(self) -> None:
        """Send no more, and go on reading."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        """Without a word."""
        self._socket.close()

    def stay(self) -> None:
        """Leave the connection open, and do nothing any more, while other cases come."""
        _LEFT_OPEN.append(self._socket)
        while len(_LEFT_OPEN) > _LEFT_OPEN_MOST:
            _LEFT_OPEN.popleft().close()


def let_all_go() -> None:
    """Close what cases have left open."""
    while _LEFT_OPEN:
        _LEFT_OPEN.popleft().close()


def request(method: str, path: str, lines: bytes, body: bytes) -> bytes:
    """A request whose Content-Length is true."""
    length = b"Content-Length: %d\r\n" % len(body)
    return f"{method} {path} HTTP/1.1\r\n".encode() + lines + length + b"\r\n" + body
