"""Links between the nodes of a simulation: frames and answers wait until the simulation carries them.

A link can be cut. The sender learns that at once and may lose receipts of what the receiver has stored; the
receiver may not have noticed yet: then frames that were on their way still arrive, late and in any order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.errors import BridgeError, TargetUnavailable
from bridge.journal.target import JournalTarget
from bridge.link.frames import Hello
from bridge.messages.batch import Batch
from bridge.relay.ports import Opened, Receipt, Stream
from cluster.exchange import Conversation


@dataclass(eq=False)
class Frame:
    """A request on its way to the receiver; the future is the sender's."""

    ask: Callable[[JournalTarget], Coroutine[Any, Any, Any]]
    answer: asyncio.Future[Any]


@dataclass(eq=False)
class Answer:
    """The receiver's work on a frame, and the future of the sender that waits for it."""

    work: asyncio.Task[Any]
    answer: asyncio.Future[Any]


@dataclass(eq=False)
class Link:
    """One link, from one node to another."""

    sender: str
    receiver: str
    #: At the receiver.
    target: JournalTarget
    #: The stores that the receiver answers for besides its own.
    inherited: Callable[[], Iterable[str]]
    #: Gets the tasks of the receiver, which end with it.
    hold: Callable[[asyncio.Task[Any]], None]
    #: At the sender and at the receiver.
    out: Conversation
    back: Conversation
    frames: deque[Frame] = field(default_factory=deque)
    answers: deque[Answer] = field(default_factory=deque)
    #: Notices on their way, with the conversation that gets them.
    to_receiver: deque[bytes] = field(default_factory=deque)
    to_sender: deque[bytes] = field(default_factory=deque)
    #: Done when the sender has lost it.
    down: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    #: Whether the receiver has noticed that it is down, or has gone itself.
    noticed: bool = False

    def begin(self, sender: Hello, receiver: Hello) -> None:
        """Both ends are connected."""
        self.out.connected(lambda body: self._say(self.to_receiver, body), receiver)
        self.back.connected(lambda body: self._say(self.to_sender, body), sender)

    def _say(self, notices: deque[bytes], body: bytes) -> bool:
        if self.is_down:
            return False
        notices.append(body)
        return True

    @property
    def is_down(self) -> bool:
        return self.down.done()

    async def ask(self, ask: Callable[[JournalTarget], Coroutine[Any, Any, Any]]) -> Any:
        """Send a frame and wait for its answer. Raises: TargetUnavailable: the link was cut meanwhile."""
        if self.is_down:
            raise TargetUnavailable("the link is down")
        frame = Frame(ask, asyncio.get_running_loop().create_future())
        self.frames.append(frame)
        return await frame.answer

    def carry(self, index: int = 0) -> None:
        """Let a frame arrive at the receiver."""
        frame = self.frames[index]
        del self.frames[index]
        work = asyncio.create_task(frame.ask(self.target))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # the sender may have gone
        self.hold(work)
        self.answers.append(Answer(work, frame.answer))

    def bring_back(self) -> bool:
        """Let the oldest answer arrive at the sender, if it has left; an error ends the link."""
        if not self.answers or not self.answers[0].work.done():
            return False
        answer = self.answers.popleft()
        if answer.work.cancelled():
            self.cut(TargetUnavailable("the receiver has gone"))
        elif (error := answer.work.exception()) is not None:
            if not isinstance(error, BridgeError):
                raise error
            self.cut(error)
            if not answer.answer.done():
                answer.answer.set_exception(error)
        elif not answer.answer.done():
            answer.answer.set_result(answer.work.result())
        return True

    def cut(self, error: BridgeError) -> None:
        """The sender loses the link: its requests fail with `error`."""
        if self.is_down:
            return
        self.down.set_result(None)
        self.to_sender.clear()
        for answer in [one.answer for one in self.answers] + [one.answer for one in self.frames]:
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # the caller may have gone
        self.out.disconnected()

    async def notice(self) -> None:
        """The receiver notices, too: nothing that is still on its way arrives any more."""
        self.noticed = True
        self.frames.clear()
        self.to_receiver.clear()
        self.back.disconnected()
        await self.target.close()


class LinkTarget:
    """Implements `bridge.relay.ports.Target` over links of the simulation."""

    def __init__(self, dial: Callable[[], Link]) -> None:
        """`dial` makes a link. Raises: TargetUnavailable."""
        self._dial = dial
        self.link: Link | None = None

    async def open(self, streams: Sequence[Stream]) -> Opened:
        if self.link is None or self.link.is_down:
            self.link = self._dial()
        inherited = self.link.inherited()
        opened: Opened = await self.link.ask(lambda target: target.open(streams))
        return replace(opened, inherited=tuple(inherited))

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        if self.link is None:
            raise TargetUnavailable("the target is not open")
        receipts: Sequence[Receipt] = await self.link.ask(lambda target: target.deliver(batches))
        return receipts

    async def lost(self) -> None:
        if self.link is not None:
            await asyncio.wait((self.link.down,))
        raise TargetUnavailable("the link is down")

    async def close(self) -> None:
        if self.link is not None:
            self.link.cut(TargetUnavailable("the target was closed"))
            self.link = None
