"""Large bodies on their way into the journal, chunk by chunk, before the message that has them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from hashlib import blake2b
from itertools import count
from typing import Any, Final

from bridge.errors import Stopping, TooBusy
from bridge.journal.rules.large_bodies import ChunkCommand, DropBodyCommand
from bridge.messages.block import KeptBody
from bridge.messages.message import DIGEST_BYTES, LargeBody

#: Large bodies on their way into a journal at a time, from clients and from bridges.
UPLOADS_MOST: Final = 64


class Uploads:
    """The large bodies on their way into one journal; limits their number."""

    def __init__(self, send: Callable[..., Any], next_large_id: int) -> None:
        """`send` hands a command to the journal."""
        #: Numbers of large bodies: none is given out twice, also when the file is opened again.
        self._large_ids = count(next_large_id)
        self._send = send
        self._begun: set[BodyUpload] = set()

    def begin(
        self, address: str, whole_size: int, deadline_ms: Callable[[], int], *, from_client: bool = True
    ) -> BodyUpload:
        """A body of a message for `address`, empty where that is not known yet (`ChunkCommand.address`);
        `whole_size` bytes of it are known to come.

        `deadline_ms` says until when a chunk may wait for room.
        """
        return BodyUpload(
            self, self._send, next(self._large_ids), address, whole_size, deadline_ms, from_client
        )

    def add(self, upload: BodyUpload) -> None:
        """Count one whose first chunk has come. Raises: TooBusy: there are `UPLOADS_MOST`."""
        if len(self._begun) >= UPLOADS_MOST:
            found = len(self._begun) + 1
            raise TooBusy("so many large bodies are on their way", limit=UPLOADS_MOST, found=found)
        self._begun.add(upload)

    def discard(self, upload: BodyUpload) -> None:
        """Count it no more."""
        self._begun.discard(upload)


class BodyUpload:
    """Implements `bridge.relay.ports.Upload`; `Uploads.begin` makes it. One chunk is on its way at a time."""

    def __init__(
        self,
        uploads: Uploads,
        send: Callable[..., Any],
        large_id: int,
        address: str,
        whole_size: int,
        deadline_ms: Callable[[], int],
        from_client: bool,
    ) -> None:
        self._uploads = uploads
        self._send = send
        self._large_id = large_id
        self._address = address
        self._whole_size = whole_size
        self._deadline_ms = deadline_ms
        self._from_client = from_client
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self._chunks = 0
        self._size = 0
        #: The chunk that is on its way. Kept no longer than that: its error refers to the frame of `add`.
        self._under_way: ChunkCommand | None = None
        self._abandoned = False

    @property
    def kept(self) -> KeptBody:
        """The body that has come so far."""
        return KeptBody(self._large_id, LargeBody(self._size, self._digest.digest()))

    def digest_with(self, tail: bytes) -> bytes:
        """The digest of the body that has come so far, and of bytes behind it."""
        digest = self._digest.copy()
        digest.update(tail)
        return digest.digest()

    async def add(self, chunk: bytes) -> None:
        """Store the next chunk, which is not empty; returns when it is durable.

        Raises:
            AddressNotFound, AddressFull, MessageTooLarge: with the first chunk.
            TooBusy: `UPLOADS_MOST` bodies are on their way. DiskFull, JournalUnavailable, Stopping.
            ConnectionAbortedError: it was abandoned.
        """
        if not self._chunks:
            self._uploads.add(self)
        self._under_way = self._send(
            ChunkCommand,
            large_id=self._large_id,
            number=self._chunks,
            chunk=chunk,
            address=self._address,
            whole_size=max(self._whole_size, len(chunk)),
            from_client=self._from_client,
            size=len(chunk),
            deadline_ms=self._deadline_ms(),
        )
        try:
            await self._under_way.future
        except asyncio.CancelledError:
            self._under_way.drop()
            if self._abandoned:
                raise ConnectionAbortedError("the sender has left") from None
            raise
        finally:
            self._under_way = None
        self._digest.update(chunk)
        self._chunks += 1
        self._size += len(chunk)

    def abandon(self) -> None:
        """End the wait for a chunk that is on its way, whose sender has left: it need not be stored."""
        self._abandoned = True
        if self._under_way is not None:
            self._under_way.future.cancel()

    def give_up(self) -> None:
        """Let the chunks go, unless a message has them by now; those of a journal that is closed go when it
        opens.
        """
        self._uploads.discard(self)
        with contextlib.suppress(Stopping):
            command = self._send(DropBodyCommand, large_id=self._large_id)
            command.future.add_done_callback(lambda future: future.cancelled() or future.exception())
