"""The link server: does the work that the receiving end's machine asks for, on the local target."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from bridge.errors import AddressFull, AddressNotFound, BridgeError, DiskFull, MessageTooLarge, TooBusy
from bridge.link.correspondent import Correspondence, LinkEnd
from bridge.link.driver import Driver, Socket, named
from bridge.link.frames import Hello
from bridge.link.machine import Noticed
from bridge.link.receiver import Receiver
from bridge.link.receiving import BodyEnded, ChunkArrived, Delivering, Event, Greeted, Opening
from bridge.messages.batch import Batch
from bridge.relay.ports import ChunkTarget, Receipt, Target, Upload
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
        #: Large bodies that come, by the number of their batch; None: it was refused.
        self._bodies: dict[int, Upload | None] = {}
        #: Chunks that are not stored yet, and the task that stores them, one after the other.
        self._chunks: deque[ChunkArrived] = deque()
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
        self._chunks.clear()  # whatever still refers to this link
        for number in tuple(self._bodies):
            self._end_body(number)

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
            case Delivering(number, batch):
                # Tasks begin in the order in which they are made: the target's calls are in order.
                task = asyncio.create_task(self._deliver(number, batch))
                self._deliveries.add(task)
                task.add_done_callback(self._deliveries.discard)
            case ChunkArrived():
                self._chunks.append(event)
                if self._storer is None:
                    self._storer = asyncio.create_task(self._store_chunks())
            case BodyEnded(number):
                self._end_body(number)
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

    async def _store_chunks(self) -> None:
        try:
            while self._chunks:
                arrived = self._chunks.popleft()
                await self._store_chunk(arrived)
                self._machine.chunk_stored(arrived.number, len(arrived.chunk))
                self._driver.wake()
        except Exception as error:  # noqa: BLE001 - as above
            self._machine.fail(self._named(error))
            self._driver.wake()
        finally:
            self._storer = None

    async def _store_chunk(self, arrived: ChunkArrived) -> None:
        """Store a chunk, unless its body was refused. Raises: BridgeError: it may be stored, or not."""
        if arrived.number not in self._bodies:
            assert isinstance(self._target, ChunkTarget), "WELCOME says that this node takes large bodies"
            self._bodies[arrived.number] = self._target.upload(arrived.stream.identity, arrived.size)
        upload = self._bodies[arrived.number]
        if upload is None:
            return
        try:
            await upload.add(arrived.chunk)
            crash_point("link.chunk-stored")
        except MessageTooLarge as error:
            self._refuse_body(arrived.number, Verdict.REFUSED, error)
        except (AddressFull, AddressNotFound, DiskFull, TooBusy) as error:
            self._refuse_body(arrived.number, Verdict.NOT_NOW, error)

    def _refuse_body(self, number: int, verdict: Verdict, error: BridgeError) -> None:
        self._end_body(number)
        self._bodies[number] = None
        self._machine.body_refused(number, verdict, f"{error.code}: {error.detail}")

    def _end_body(self, number: int) -> None:
        """Let go of a large body: a message has it by now, or none will."""
        upload = self._bodies.pop(number, None)
        if upload is not None:
            upload.give_up()

    async def _deliver(self, number: int, batch: Batch) -> None:
        assert self._target is not None
        if (upload := self._bodies.get(number)) is not None:
            assert batch.block is not None
            batch = replace(batch, block=replace(batch.block, large=upload.kept))
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
