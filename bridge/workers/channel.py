"""Messages between a supervisor and its worker: one line of JSON each, over a socket pair.

The end of the channel is itself a message: to a worker, that its supervisor is gone; to the supervisor, that
the worker is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec

from bridge.errors import BridgeError
from bridge.relay.counts import Counts
from bridge.relay.lag import PartitionStatus
from bridge.relay.lifecycle import State

#: Longest line to the supervisor, in bytes. Every message names one bridge at most, so none comes near.
MOST_LINE_BYTES: Final = 64 * 1024
#: Longest line to a worker: Begin and Renew carry the settings file, whose text may be six times as long in
#: JSON. Renew also names bridges, which the file does, too.
MOST_ORDER_BYTES: Final = 8 * 1024 * 1024
#: Longest reason or trouble that a report carries; longer ones are cut off.
MOST_TEXT_CHARS: Final = 2_000
#: Partitions that one line carries, and characters of the reason of each: together they fit the line.
ROWS_AT_ONCE: Final = 30
MOST_REASON_CHARS: Final = 200
#: Most lanes that a report names.
MOST_LANES_NAMED: Final = 1_000


class Wanted(Enum):
    """The state that the operator wants for a bridge, whichever workers come and go."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class Begin(msgspec.Struct, tag="begin", frozen=True):
    """Supervisor to worker, first: its number and the node's data."""

    worker: int
    #: Text of the settings file that the node runs by, whatever the file has become.
    settings: str
    shutdown_timeout_ms: int
    #: UUID of the node.
    node_id: str = ""


class Want(msgspec.Struct, tag="want", frozen=True):
    """Supervisor to worker: bring this bridge to the wanted state."""

    bridge: str
    wanted: Wanted
    #: Counts the node's orders to this bridge, from 1.
    order: int


class Renew(msgspec.Struct, tag="renew", frozen=True):
    """Supervisor to worker: run by other settings, and make these bridges anew.

    They are stopped, or new. Bridges that are not in the settings any more are stopped, too.
    """

    #: Text of the settings file.
    settings: str
    bridges: tuple[str, ...]
    shutdown_timeout_ms: int


class Written(msgspec.Struct, tag="written", frozen=True):
    """Supervisor to worker: the lines of this number are on disk, or why they are not."""

    number: int
    #: Empty: they are on disk.
    error: str = ""


class Ask(msgspec.Struct, tag="ask", frozen=True):
    """Supervisor to worker: send the partitions of this bridge."""

    bridge: str
    #: Counts the supervisor's questions about this bridge, from 1.
    number: int


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """Supervisor to worker: drain and end."""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """Worker to supervisor: settings read, bridges made, orders taken."""


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """Worker to supervisor, last: the reason why it ends."""

    reason: str


class Report(msgspec.Struct, tag="report", frozen=True, kw_only=True):
    """Worker to supervisor: a bridge's state in this worker; `bridge.relay.operated.Operated` describes the
    fields.
    """

    bridge: str
    #: The latest order that is carried out (start and resume: begun); 0: none yet.
    order: int
    state: State
    reason: str
    store: str
    connected: bool
    in_flight: int
    lag: tuple[int, int | None] | None
    #: Counts since this worker started.
    counts: Counts
    lanes_known: bool = True
    #: The lanes that it has, at most `MOST_LANES_NAMED`.
    owned_lanes: tuple[int, ...] = ()


class Lines(msgspec.Struct, tag="lines", frozen=True):
    """Worker to supervisor: write these to the delivery log. Long ones come in pieces, in order."""

    #: Number of the lines' write in this worker, from 1; the same in all pieces.
    number: int
    #: JSON lines with a newline between.
    text: str
    #: Another piece follows.
    more: bool


class Rows(msgspec.Struct, tag="rows", frozen=True):
    """Worker to supervisor: partitions of a bridge, `ROWS_AT_ONCE` at most, in order."""

    bridge: str
    #: That of the question.
    number: int
    rows: tuple[PartitionStatus, ...]
    #: Others follow.
    more: bool


ToWorker = Begin | Want | Renew | Written | Ask | Stop
FromWorker = Ready | Report | Lines | Rows | Failed
Received = TypeVar("Received")


class ChannelBroken(BridgeError):
    """A line that is too long, or not one of the messages that may come."""

    code = "CHANNEL_BROKEN"


class Channel(Generic[Received]):
    """One end of a channel. `Received` is the type of the other end's messages."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        received: type[Received],
        most_bytes: int = MOST_LINE_BYTES,
    ) -> None:
        """`most_bytes`: of a line that may come, the reader's limit."""
        self._most_bytes = most_bytes
        self._reader = reader
        self._writer = writer
        self._decoder = msgspec.json.Decoder(received)

    @classmethod
    async def on(
        cls, end: socket.socket, received: Any, most_bytes: int = MOST_LINE_BYTES
    ) -> Channel[Received]:
        """The channel on one end of a socket pair, which is the channel's from now on.

        `most_bytes`: of the longest line that may come.
        """
        reader, writer = await asyncio.open_unix_connection(sock=end, limit=most_bytes)
        return cls(reader, writer, received, most_bytes)

    def send(self, message: ToWorker | FromWorker) -> None:
        """Send a line. A line that the other end can no longer read is dropped: `receive` reports its end."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def sent(self) -> None:
        """Wait until the other end has read nearly all lines, so that those that wait for it stay bounded."""
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def receive(self) -> Received | None:
        """The next message; None: the other end is gone, and no message will come any more.

        Raises:
            ChannelBroken: a line that is no message. Nothing after it can be trusted.
        """
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        except ValueError:
            raise ChannelBroken("a line was too long", limit=self._most_bytes) from None
        if not line.endswith(b"\n"):
            return None  # the other end was killed while it wrote, or before
        try:
            return self._decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ChannelBroken(f"a line was no message: {error}") from None

    async def close(self) -> None:
        """Close this end, after the sent lines have gone out or the other end has gone."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def shortened(text: str) -> str:
    """`text`, cut off after the characters that a report carries."""
    return text if len(text) <= MOST_TEXT_CHARS else text[: MOST_TEXT_CHARS - 1] + "…"
