"""A way to a node that is cut in the middle of what is sent on it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Final

from tests.harness.api import HOST

_RESET: Final = b"\1\0\0\0\0\0\0\0"


class CuttingProxy:
    """Cuts each connection after so many bytes of its sender's, for as long as `cutting` is set."""

    def __init__(self, target_port: int, cut_after: int) -> None:
        self._target_port = target_port
        self._cut_after = cut_after
        self._server = socket.create_server((HOST, 0))
        self.port: int = self._server.getsockname()[1]
        self.cuts = 0
        self.cutting = True
        self._ended = False

    @contextlib.contextmanager
    def running(self) -> Iterator[CuttingProxy]:
        """One connection at a time, until it ends."""
        thread = threading.Thread(target=self._serve, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended = True
            self._server.close()
            thread.join(10)

    def _serve(self) -> None:
        self._server.settimeout(0.1)
        while not self._ended:
            try:
                sender, _ = self._server.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with sender, contextlib.suppress(OSError):  # the target may not be there yet
                self._cut(sender, socket.create_connection((HOST, self._target_port)))

    def _cut(self, sender: socket.socket, target: socket.socket) -> None:
        """Pass on what comes, and end with a reset at both ends."""
        with target:
            try:
                self._pass_on(sender, target)
            finally:
                for end in (sender, target):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _pass_on(self, sender: socket.socket, target: socket.socket) -> None:
        sent = 0
        with selectors.DefaultSelector() as ready:
            ready.register(sender, selectors.EVENT_READ, target)
            ready.register(target, selectors.EVENT_READ, sender)
            while not self._ended:
                for key, _ in ready.select(0.1):
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    data = source.recv(65_536)
                    if not data:
                        return
                    key.data.sendall(data)
                    sent += len(data) if source is sender else 0
                if self.cutting and sent >= self._cut_after:
                    self.cuts += 1
                    return
