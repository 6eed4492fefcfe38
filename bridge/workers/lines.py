"""Delivery-log lines of a worker: its supervisor writes them, so that a node has one log in one order.

Files of its own would be as durable, but a lane that moves between workers would have lines in two files, and
which of them was written first would be lost. Lines that the supervisor has not confirmed are on disk or not;
either way they are in the journal topic, or behind the group's commit, and the next worker that takes the
lane writes them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from bridge.delivery_log import WriteLines
from bridge.workers.channel import (
    Channel,
    ChannelBroken,
    FromWorker,
    Lines,
    ToWorker,
    Written,
    shortened,
)

#: Characters of one piece: as JSON text, with every character escaped as long as can be, it fits a channel's
#: line.
PIECE_CHARS: Final = 10_000
#: Characters that a worker may have sent in pieces of one number.
MOST_CHARS: Final = 256 * 1024 * 1024


class LinesOut:
    """The worker's end of the lines. `write` is a `bridge.delivery_log.WriteLines`."""

    def __init__(self) -> None:
        self._channel: Channel[ToWorker] | None = None
        self._numbers = 0
        #: The futures of writes that wait, by number.
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def attach(self, channel: Channel[ToWorker]) -> None:
        """Send over this channel from now on."""
        self._channel = channel

    async def write(self, lines: Sequence[str]) -> None:
        """Have the supervisor write the lines; they are on disk when it returns.

        Raises:
            OSError: the supervisor could not write them, or is gone.
        """
        if not lines:
            return
        if self._channel is None:
            raise OSError("the supervisor is gone")
        channel = self._channel
        self._numbers += 1
        number = self._numbers
        done = self._waiting[number] = asyncio.get_running_loop().create_future()
        # All pieces at once: a caller that is cancelled between two of them would break the channel.
        for piece, more in _pieces("\n".join(lines)):
            channel.send(Lines(number, piece, more))
        try:
            await channel.sent()
            await done
        finally:
            self._waiting.pop(number, None)

    def written(self, answer: Written) -> None:
        """Take the supervisor's answer to a write."""
        done = self._waiting.get(answer.number)
        if done is None or done.done():
            return  # the caller that waited was cancelled
        if answer.error:
            done.set_exception(OSError(answer.error))
        else:
            done.set_result(None)

    def lost(self) -> None:
        """Fail the writes that wait, and later ones: the supervisor is gone."""
        self._channel = None
        for done in self._waiting.values():
            if not done.done():
                done.set_exception(OSError("the supervisor is gone"))


class LinesIn:
    """The supervisor's end of one worker's channel."""

    def __init__(self, write: WriteLines | None, channel: Channel[FromWorker]) -> None:
        self._write = write
        self._channel = channel
        self._number = 0
        self._pieces: list[str] = []
        self._chars = 0
        #: Tasks that write lines; a worker has one for each side of each of its lanes.
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, lines: Lines) -> None:
        """Take a piece; the last one of its number is answered once all are on disk.

        Raises:
            ChannelBroken: pieces that do not belong together, or too many.
        """
        if self._pieces and lines.number != self._number:
            raise ChannelBroken("lines were mixed", limit=self._number, found=lines.number)
        self._number = lines.number
        self._pieces.append(lines.text)
        self._chars += len(lines.text)
        if self._chars > MOST_CHARS:
            raise ChannelBroken("too many lines at once", limit=MOST_CHARS, found=self._chars)
        if not lines.more:
            text = "".join(self._pieces)
            self._pieces, self._chars = [], 0
            task = asyncio.create_task(self._bring(lines.number, text.split("\n")))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _bring(self, number: int, lines: Sequence[str]) -> None:
        error = ""
        try:
            if self._write is not None:
                await self._write(lines)
        except Exception as failed:  # noqa: BLE001 - whatever it is, the worker raises it
            error = str(failed) or type(failed).__name__
        self._channel.send(Written(number, shortened(error)))

    async def end(self) -> None:
        """Wait until all lines that came whole are on disk, or could not be written."""
        await asyncio.gather(*self._tasks)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, each with whether further ones follow."""
    for start in range(0, len(text), PIECE_CHARS):
        yield text[start : start + PIECE_CHARS], start + PIECE_CHARS < len(text)
