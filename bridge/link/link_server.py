"""The link server: does the work that the receiving end's machine asks for, on the local target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bridge.errors import BridgeError
from bridge.link.correspondent import Correspondence, LinkEnd
from bridge.link.driver import Driver, Socket, named
from bridge.link.frames import Hello
from bridge.link.machine import Noticed
from bridge.link.receiver import Receiver
from bridge.link.receiving import Delivering, Event, Greeted, Opening
from bridge.link.room import LinkRoom
from bridge.messages.batch import Batch
from bridge.relay.ports import Receipt, Target
from bridge.runtime.clock import Clock


class LinkServer:
    """One link's receiving end and what serves it, from HELLO to the end."""

    def __init__(
        self,
        socket: Socket,
        machine: Receiver,
        make_end: Callable[[Hello], LinkEnd],
        clock: Clock,
        room: LinkRoom | None = None,
    ) -> None:
        """`room`: the machine's; None: it is alone."""
        self._room = room
        self._machine = machine
        self._make_end = make_end
        self._driver = Driver(machine, socket, clock, self._on_change)
        self._correspondence = Correspondence(machine, self._driver.send_soon, self._named)
        self._target: Target | None = None
        self._bridge = ""
        self._to_open: list[Opening] = []
        self._opener: asyncio.Task[None] | None = None
        self._deliveries: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until the link ends; then close the target, and leave no task behind."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon(self._driver.wake)  # not while another link's call is under way

        if self._room is not None:
            self._room.join(wake)
        try:
            await self._driver.run()
        finally:
            if self._room is not None:
                self._room.leave(wake)
            await self._let_go()

    def stop(self, reason: str) -> None:
        """End the link: the sender is told the reason once the batches at the target are answered."""
        self._machine.stop(reason)
        self._driver.wake()

    async def _let_go(self) -> None:
        self._correspondence.end()
        if self._target is not None:
            await self._target.close()
        tasks = [*self._deliveries, *([self._opener] if self._opener else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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

    async def _deliver(self, number: int, batch: Batch) -> None:
        assert self._target is not None
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
