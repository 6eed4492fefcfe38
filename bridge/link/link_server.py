"""The link server: does the work that the receiving end's machine asks for, on the local target."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from bridge.errors import (
    AddressFull,
    AddressNotFound,
    BodyNotKept,
    BridgeError,
    DiskFull,
    MessageTooLarge,
    TooBusy,
)
from bridge.link.correspondent import Correspondence, LinkEnd
from bridge.link.driver import Driver, Socket, named
from bridge.link.frames import Hello
from bridge.link.machine import Noticed
from bridge.link.receiver import Receiver
from bridge.link.receiving import BodyEnded, Delivering, Event, Greeted, Opening, PieceArrived
from bridge.messages.batch import Batch
from bridge.messages.message import CHUNK_BYTES
from bridge.relay.ports import ChunkTarget, Receipt, ResumableUpload, Target
from bridge.runtime.clock import Clock
from bridge.runtime.fault_injection import crash_point
from dedup.verdict import Verdict


class LinkServer:
    """One link's receiving end and what serves it, from HELLO to the end."""

    def __init__(
        self,
        socket: Socket,
        machine: Receiver,
        make_end: Callable[[Hello], LinkEnd],
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._make_end = make_end
        self._driver = Driver(machine, socket, clock, self._on_change)
        self._correspondence = Correspondence(machine, self._driver.send_soon, self._named)
        self._target: Target | None = None
        self._bridge = ""
        self._to_open: list[Opening] = []
        self._opener: asyncio.Task[None] | None = None
        self._deliveries: set[asyncio.Task[None]] = set()
        #: Large bodies that come, by their number.
        self._bodies: dict[int, ResumableUpload] = {}
        #: Pieces that are not stored yet, and the task that stores them, one after the other.
        self._pieces: deque[PieceArrived] = deque()
        self._storer: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve until the link ends; then close the target, and leave no task behind."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon(self._driver.wake)  # not while another link's call is under way

        self._machine.arriving.wake = wake
        try:
            await self._driver.run()
        finally:
            await self._let_go()

    def stop(self, reason: str) -> None:
        """End the link: the sender is told the reason once the batches at the target are answered."""
        self._machine.stop(reason)
        self._driver.wake()

    async def _let_go(self) -> None:
        self._correspondence.end()
        if self._target is not None:
            await self._target.close()
        tasks = [*self._deliveries, *(task for task in (self._opener, self._storer) if task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._pieces.clear()  # whatever still refers to this link
        for upload in self._bodies.values():
            upload.set_aside()
        self._bodies.clear()

    def _on_change(self) -> None:
        for event in self._machine.take_events():
            self._act(event)

    def _act(self, event: Event | Noticed) -> None:
        match event:
            case Greeted(hello):
                self._greet(hello)
            case Opening():
                self._to_open.append(event)
                if self._opener is None:
                    self._opener = asyncio.create_task(self._open())
            case Delivering(number, batch, body):
                # Tasks begin in the order in which they are made: the target's calls are in order.
                task = asyncio.create_task(self._deliver(number, batch, body))
                self._deliveries.add(task)
                task.add_done_callback(self._deliveries.discard)
            case PieceArrived():
                self._pieces.append(event)
                if self._storer is None:
                    self._storer = asyncio.create_task(self._store_pieces())
            case BodyEnded(body, may_come_again):
                self._end_body(body, may_come_again=may_come_again)
            case Noticed(body):
                self._correspondence.noticed(body)

    def _greet(self, hello: Hello) -> None:
        self._bridge = hello.bridge
        try:
            end = self._make_end(hello)
        except Exception as error:  # noqa: BLE001 - whatever it is, the sender must not wait for it
            self._machine.fail(self._named(error))
        else:
            self._target = end.target
            self._machine.welcome(hello)
            self._correspondence.begin(end.correspondent, hello)

    async def _open(self) -> None:
        """Open the streams that wait, including all that have come meanwhile, in one call."""
        assert self._target is not None
        try:
            while self._to_open:
                asked, self._to_open = self._to_open, []
                answer = await self._target.open([opening.stream for opening in asked])
                for opening in asked:
                    self._machine.opened(opening.index, answer.streams[opening.stream.identity])
                self._driver.wake()
        except Exception as error:  # noqa: BLE001 - as above
            self._machine.fail(self._named(error))
            self._driver.wake()
        finally:
            self._opener = None

    async def _store_pieces(self) -> None:
        try:
            while self._pieces:
                pieces = self._next_pieces()
                await self._store(pieces)
                for piece in pieces:
                    self._machine.piece_stored(piece.body, len(piece.piece))
                self._driver.wake()
        except Exception as error:  # noqa: BLE001 - as above
            self._machine.fail(self._named(error))
            self._driver.wake()
        finally:
            self._storer = None

    def _next_pieces(self) -> Sequence[PieceArrived]:
        """The pieces of one body that come next, as many as have come and fit into one chunk."""
        first = self._pieces.popleft()
        found, size = [first], len(first.piece)
        while self._pieces and self._pieces[0].body == first.body:
            size += len(self._pieces[0].piece)
            if size > CHUNK_BYTES:
                break
            found.append(self._pieces.popleft())
        return found

    async def _store(self, pieces: Sequence[PieceArrived]) -> None:
        """Store pieces of a body that follow each other, unless the body has ended.

        Raises: BridgeError: they may be stored, or not.
        """
        first = pieces[0]
        try:
            if first.is_first:
                assert isinstance(self._target, ChunkTarget), "WELCOME says that this node takes large bodies"
                self._bodies[first.body] = self._target.upload(
                    first.stream.identity, first.position, first.size, first.start
                )
            upload = self._bodies.get(first.body)
            piece = b"".join(one.piece for one in pieces)
            if upload is not None:
                await upload.add(piece)
                crash_point("link.chunk-stored")
        except MessageTooLarge as error:
            self._refuse_body(first.body, Verdict.REFUSED, error)
        except (AddressFull, AddressNotFound, BodyNotKept, DiskFull, TooBusy) as error:
            self._refuse_body(first.body, Verdict.NOT_NOW, error)

    def _refuse_body(self, body: int, verdict: Verdict, error: BridgeError) -> None:
        self._end_body(body, may_come_again=False)
        self._machine.body_refused(body, verdict, f"{error.code}: {error.detail}")

    def _end_body(self, body: int, *, may_come_again: bool) -> None:
        """Let go of a large body: a message has it by now, or none will on this link."""
        upload = self._bodies.pop(body, None)
        if upload is None:
            return
        if may_come_again:
            upload.set_aside()
        else:
            upload.give_up()

    async def _deliver(self, number: int, batch: Batch, body: int | None) -> None:
        assert self._target is not None
        if body is not None:
            assert batch.block is not None
            batch = replace(batch, block=replace(batch.block, large=self._bodies[body].kept))
        outcome: Receipt | BridgeError
        try:
            (outcome,) = await self._target.deliver((batch,))
        except Exception as error:  # noqa: BLE001 - as above
            outcome = self._named(error)
        self._machine.delivered(number, outcome)
        self._driver.wake()

    def _named(self, error: Exception) -> BridgeError:
        """The error as the sender may see it."""
        return named(error, self._bridge, "receiving")
