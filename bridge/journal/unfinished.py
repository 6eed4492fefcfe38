"""Large bodies that bridges bring, each piece by piece; what came before a cut is kept for the next link.

The journal's chunks have the bodies that are kept, memory their last bytes. Nothing but this process knows of
them: when the journal opens, their chunks belong to no message, and go (`bridge.journal.rules.large_bodies`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bridge.errors import BodyNotKept, Fenced
from bridge.journal.rules.owners import Owner
from bridge.journal.uploads import BodyUpload, Uploads
from bridge.messages.block import KeptBody
from bridge.messages.message import CHUNK_BYTES
from bridge.relay.ports import UnfinishedBody
from bridge.runtime.clock import Clock

#: Bodies that are kept for a link to come, their bytes, and for how long. Beyond the first two the one goes
#: that has been kept for longest.
UNFINISHED_MOST: Final = 256
UNFINISHED_BYTES: Final = 2 * 1024 * 1024 * 1024
UNFINISHED_MS: Final = 24 * 60 * 60 * 1000
#: Bytes of a body that wait in memory until they are a chunk: not each small piece costs a commit. The first
#: piece does not wait, because it shows whether there is room.
TAIL_BYTES: Final = 64 * 1024


class BodyPlace(NamedTuple):
    """Which body it is: the bridge's caller, the bridge, the stream, and the position of its message."""

    owner: Owner
    bridge: str
    stream: str
    position: int


class _Body:
    """The bytes of one body that have come, over one link or several."""

    def __init__(self, place: BodyPlace, size: int, upload: BodyUpload) -> None:
        self.place = place
        #: Bytes of the whole.
        self.size = size
        self.upload = upload
        #: Those that have come, and those of them that are not in the journal yet.
        self.came = 0
        self.tail = b""
        #: The link's end of it; None: no link brings it now.
        self.holder: BridgeUpload | None = None
        #: The chunk that is being stored: it goes on when its link ends.
        self.storing: asyncio.Task[None] | None = None
        #: Whether a chunk was stored is not known, so nothing can follow it.
        self.broken = False
        #: When it was set aside, monotonic ms.
        self.since_ms = 0

    @property
    def is_chunk(self) -> bool:
        """Whether the tail is to be stored now."""
        if not self.tail:
            return False
        whole, first = self.came == self.size, self.came == len(self.tail)
        return whole or first or len(self.tail) >= TAIL_BYTES

    async def store(self) -> None:
        """Store a chunk of the tail; it is stored, too, when the caller is cancelled."""
        self.storing = asyncio.create_task(self._store())
        self.storing.add_done_callback(_ignore_error)
        await asyncio.shield(self.storing)

    async def _store(self) -> None:
        chunk = self.tail[:CHUNK_BYTES]
        try:
            await self.upload.add(chunk)
        except BaseException:
            self.broken = True
            raise
        self.tail = self.tail[len(chunk) :]

    async def settled(self) -> None:
        """Wait until no chunk is being stored."""
        if self.storing is not None:
            await asyncio.wait([self.storing])

    def described(self) -> UnfinishedBody:
        """The part of it that the sender is told."""
        digest = self.upload.digest_with(self.tail)
        return UnfinishedBody(self.place.position, self.size, self.came, digest)


class BridgeUpload:
    """Implements `bridge.relay.ports.ResumableUpload`: one link's end of a body."""

    def __init__(self, bodies: UnfinishedBodies, body: _Body) -> None:
        self._bodies = bodies
        self._body = body

    @property
    def kept(self) -> KeptBody:
        """The body that has come so far."""
        return self._body.upload.kept

    async def add(self, chunk: bytes) -> None:
        """Take the next piece; returns when it is stored, or waits with others to become a chunk.

        It may be empty where the body has come whole: the link before may have left some of it to be stored.

        Raises: as `BodyUpload.add`; Fenced: a newer link has opened the stream.
        """
        body = self._body
        if body.holder is not self:
            raise Fenced(f"a newer link has opened {body.place.stream}: it goes on with the large body")
        body.tail = body.tail + chunk if body.tail else chunk
        body.came += len(chunk)
        while body.is_chunk and body.holder is self:
            await body.store()

    def abandon(self) -> None:
        """End the wait in `add`: the sender has left."""
        self._body.upload.abandon()

    def set_aside(self) -> None:
        """Keep what has come for a later link."""
        if self._body.holder is self:
            self._bodies.set_aside(self._body)

    def give_up(self) -> None:
        """Let the body go, unless a message has it by now."""
        if self._body.holder is self:
            self._bodies.drop(self._body)


class UnfinishedBodies:
    """The large bodies that bridges bring into one journal, and those of which a part is kept."""

    def __init__(self, uploads: Uploads, clock: Clock) -> None:
        self._uploads = uploads
        self._clock = clock
        self._bodies: dict[BodyPlace, _Body] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def begin(self, place: BodyPlace, size: int, start: int, make: Callable[[], BodyUpload]) -> BridgeUpload:
        """The body of a message that comes from byte `start` on; 0: from its beginning, which `make` begins.

        Raises:
            BodyNotKept: the `start` bytes before it are not here.
            TooBusy: `UPLOADS_MOST` bodies are on their way.
        """
        body = self._bodies.get(place)
        if start:
            found = 0 if body is None or body.holder is not None or body.broken else body.came
            if body is None or (found, body.size) != (start, size):
                detail = f"{start} bytes of the body at {place.position} are not here; found {found}"
                raise BodyNotKept(f"{detail}. It is sent from its beginning", limit=start, found=found)
            self._uploads.add(body.upload)
        else:
            if body is not None:
                self.drop(body)
            body = self._bodies[place] = _Body(place, size, make())
        body.holder = BridgeUpload(self, body)
        return body.holder

    async def kept(self, owner: Owner, bridge: str, stream: str, next_: int) -> Sequence[UnfinishedBody]:
        """The bodies kept of the stream, from position `next_` on; bodies before it go.

        A link that still brings one brings no more of it: the stream was opened by another.
        """
        found = [body for place, body in self._bodies.items() if place[:3] == (owner, bridge, stream)]
        for body in found:
            if body.holder is not None:
                self.set_aside(body)
            await body.settled()
        self._expire()
        found = [body for body in found if self._bodies.get(body.place) is body]
        for body in found:
            if body.place.position < next_ or body.broken or not body.came:
                self.drop(body)
        return [body.described() for body in found if body.place in self._bodies]

    def set_aside(self, body: _Body) -> None:
        """Keep the body for a link to come, within the limits."""
        body.holder = None
        body.since_ms = self._clock.monotonic_ms()
        self._uploads.discard(body.upload)
        aside = sorted(self._aside(), key=lambda one: one.since_ms, reverse=True)
        size = 0
        for number, one in enumerate(aside):
            size += one.came
            if number >= UNFINISHED_MOST or size > UNFINISHED_BYTES:
                self.drop(one)
        self._expire()

    def drop(self, body: _Body) -> None:
        """Let the body go, unless a message has it by now."""
        body.holder = None
        if self._bodies.get(body.place) is body:
            del self._bodies[body.place]
        if body.storing is not None and not body.storing.done():
            body.upload.abandon()
        body.upload.give_up()

    def close(self) -> None:
        """Forget all of it: the journal is going down."""
        self._closed = True
        self._bodies.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _aside(self) -> list[_Body]:
        return [body for body in self._bodies.values() if body.holder is None]

    def _expire(self) -> None:
        """Drop what has been kept for `UNFINISHED_MS`, and come back when the next one has."""
        now_ms = self._clock.monotonic_ms()
        for body in self._aside():
            if now_ms - body.since_ms >= UNFINISHED_MS:
                self.drop(body)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        aside = self._aside()
        if aside and not self._closed:
            left_ms = min(body.since_ms for body in aside) + UNFINISHED_MS - now_ms
            self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._expire)


def _ignore_error(task: asyncio.Task[None]) -> None:
    """Look at the error of a chunk, for which the caller may not wait any more: `broken` says it."""
    if not task.cancelled():
        task.exception()
