"""The bytes of a connection as they come in, before a WebSocket makes messages of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast


class FlowControlled(Protocol):
    """aiohttp's protocol of a connection, as far as it is used here."""

    def pause_reading(self) -> None:
        """Read nothing from the connection."""

    def resume_reading(self) -> None:
        """Read on."""


def _ignore(_data: bytes) -> None:
    """The connection is lost."""


class Wire(asyncio.Protocol):
    """Stands between a transport and its protocol: every call is passed on, and bytes are shown first."""

    __slots__ = ("_early", "_flow", "_held", "_inner", "_on_bytes", "_receive")

    def __init__(self, transport: asyncio.Transport) -> None:
        """From now on the transport's events come by here."""
        inner = cast("asyncio.Protocol", transport.get_protocol())
        #: Called with bytes that have come; None: nobody watches yet.
        self._on_bytes: Callable[[bytes], None] | None = None
        #: Bytes that nobody has seen. aiohttp keeps those behind the head of the upgrade, where a client
        #: did not wait for its answer.
        self._early: bytes = getattr(inner, "_message_tail", b"")
        self._held = False
        self._inner = inner
        #: aiohttp's own pausing, so that it knows of this one.
        self._flow = cast("FlowControlled", inner)
        self._receive = inner.data_received
        transport.set_protocol(self)

    def watch(self, on_bytes: Callable[[bytes], None]) -> None:
        """Show bytes from now on, and those that came before."""
        self._on_bytes = on_bytes
        if self._early:
            early, self._early = self._early, b""
            on_bytes(early)

    def data_received(self, data: bytes) -> None:
        """Show the bytes, and pass them on."""
        if self._on_bytes is None:
            self._early += data
        else:
            self._on_bytes(data)
        self._receive(data)

    def hold(self, held: bool) -> None:
        """Read no bytes, or read on."""
        self._held = held
        if held:
            self._flow.pause_reading()
        else:
            self._flow.resume_reading()

    def stay_held(self) -> None:
        """Call after each message: aiohttp reads on once few messages wait."""
        if self._held:
            self._flow.pause_reading()

    def pause_writing(self) -> None:
        """Pass on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on."""
        self._inner.resume_writing()

    def eof_received(self) -> bool | None:
        """Pass on."""
        return self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        """Pass on, and let go of whoever watches."""
        self._on_bytes = _ignore
        self._inner.connection_lost(error)
