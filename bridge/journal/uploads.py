"""Large bodies on their way into the journal, chunk by chunk, before the message that has them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from hashlib import blake2b

from bridge.errors import Stopping
from bridge.journal.rules.large_bodies import ChunkCommand, DropBodyCommand
from bridge.messages.block import KeptBody
from bridge.messages.message import DIGEST_BYTES, LargeBody


class BodyUpload:
    """Implements `bridge.relay.ports.Upload`. One chunk is on its way at a time."""

    def __init__(
        self,
        send: Callable[..., ChunkCommand | DropBodyCommand],
        large_id: int,
        address: str,
        whole_size: int,
        *,
        deadline_ms: Callable[[], int],
        from_client: bool = True,
    ) -> None:
        """`send` hands a command to the journal; `address` is where the message goes.

        `whole_size`: the bytes that are known to come. `deadline_ms` says until when a chunk may wait for
        room.
        """
        self._send = send
        self._large_id = large_id
        self._address = address
        self._whole_size = whole_size
        self._deadline_ms = deadline_ms
        self._from_client = from_client
        self._digest = blake2b(digest_size=DIGEST_BYTES)
        self._chunks = 0
        self._size = 0

    @property
    def kept(self) -> KeptBody:
        """The body that has come so far."""
        return KeptBody(self._large_id, LargeBody(self._size, self._digest.digest()))

    async def add(self, chunk: bytes) -> None:
        """Store the next chunk, which is not empty; returns when it is durable.

        Raises:
            AddressNotFound, AddressFull, MessageTooLarge, TooBusy: with the first chunk.
            DiskFull, JournalUnavailable, Stopping.
        """
        # Bound to no name: an error refers to this frame, and the command and its future refer to the error.
        await self._send(
            ChunkCommand,
            large_id=self._large_id,
            number=self._chunks,
            chunk=chunk,
            address=self._address,
            whole_size=max(self._whole_size, len(chunk)),
            from_client=self._from_client,
            size=len(chunk),
            deadline_ms=self._deadline_ms(),
        ).future
        self._digest.update(chunk)
        self._chunks += 1
        self._size += len(chunk)

    def give_up(self) -> None:
        """Let the chunks go, unless a message has them by now; those of a journal that is closed go when it
        opens.
        """
        with contextlib.suppress(Stopping):
            command = self._send(DropBodyCommand, large_id=self._large_id)
            command.future.add_done_callback(lambda future: future.cancelled() or future.exception())
