"""Two ways to read an address: under the leases of a queue, or by browsing, which changes nothing.

A page of a queue is leased, printed, flushed and only then acknowledged: if the reader is killed, nothing is
lost, and the next one may print its last page again. Where the lease has ended before the acknowledgement
came, the page's messages come back; a reader remembers exactly those and does not print them again. Positions
alone would not suffice: another reader's messages may come back below what has been printed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, BinaryIO, Final

from bridge.cli.encode import Message, encode_json, encode_text
from bridge.client.exit_codes import PROGRAM
from bridge.client.node_client import NodeClient, Problem, Unreachable, address_path
from bridge.client.progress import Progress, warn
from bridge.client.retry import RETRY_FOR_S, is_worth_another_try, persistently
from bridge.errors import BridgeError

#: Messages of a page.
PAGE: Final = 500
#: Longest wait of one call for the first message, in milliseconds.
MAX_WAIT_MS: Final = 10_000
#: How long the node leases a page to this reader, in milliseconds; a page whose answer was lost waits as
#: long.
LEASE_MS: Final = 15_000
#: Pause between two polls of a browse, also while the node cannot be reached, in seconds.
LOOK_AGAIN_S: Final = 0.25
#: Most positions remembered as printed and not acknowledged.
MAX_REMEMBERED: Final = 100_000

_NOT_THERE: Final = frozenset({"QUEUE_NOT_FOUND", "ADDRESS_NOT_FOUND"})


@dataclass(slots=True)
class Printer:
    """Writes messages, and counts how many it may still write."""

    out: BinaryIO
    form: str = "text"
    #: None: no limit.
    count: int | None = None
    printed: int = 0

    @property
    def wanted(self) -> int:
        """The number of messages to ask for next; 0: enough."""
        return PAGE if self.count is None else min(PAGE, self.count - self.printed)

    def write(self, messages: Sequence[Message]) -> None:
        """Write the messages and flush: only then may they be acknowledged."""
        encode = encode_json if self.form == "json" else encode_text
        self.out.writelines(map(encode, messages))
        self.out.flush()
        self.printed += len(messages)

    async def write_all(self, messages: Sequence[Message], client: NodeClient, address: str) -> None:
        """As `write`. As text, a body that is too large for its page is fetched and written piece by piece.

        Raises: Problem, Unreachable: it cannot be fetched; a part of it may be written by then.
        """
        whole: list[Message] = []
        for message in messages:
            if self.form == "json" or "body-size" not in message:
                whole.append(message)
                continue
            self.write(whole)
            whole = []
            path = address_path(address, "messages", str(message["position"]))
            async for piece in client.pieces(path):
                self.out.write(piece)
            self.write([{"position": message["position"], "body": b""}])  # the end of its line
        self.write(whole)


@dataclass(slots=True)
class Deadline:
    """Ends a wait without messages."""

    #: Seconds without a message; None: for ever.
    timeout_s: float | None
    clock: Callable[[], float] = time.monotonic
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        self._since = self.clock()

    def restart(self) -> None:
        """Restart the wait: a message has come."""
        self._since = self.clock()

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        if self.timeout_s is None:
            return float("inf")
        return max(0.0, self._since + self.timeout_s - self.clock())

    @property
    def over(self) -> bool:
        """Whether the wait is over."""
        return self.left_s <= 0.0


@dataclass(slots=True)
class QueueReader:
    """Reads one queue under leases."""

    client: NodeClient
    address: str
    queue: str
    printer: Printer
    deadline: Deadline
    progress: Progress = field(default_factory=Progress)
    #: The filter with which the queue is made where it is missing: from now on, for a filter is not asked
    #: about what is stored. Empty: none, and from the earliest message on.
    filter: str = ""
    #: Whether a missing queue is made.
    create: bool = False
    #: Printed, and not known to be acknowledged: if they come back, they are not printed again.
    _unsettled: set[int] = field(default_factory=set)
    _reached: bool = False
    _first_contact: Deadline = field(default_factory=lambda: Deadline(RETRY_FOR_S))
    _made: bool = False
    #: Ends when no page of this reader whose answer was lost can still be leased; None: no answer was lost.
    _in_doubt: Deadline | None = None

    async def read(self) -> None:
        """Print until there are enough messages, or until none has come for too long.

        Raises:
            Problem, Unreachable: the node refused, or could not be reached at all.
        """
        while self.printer.wanted:
            page = await self._page()
            if page is not None and page["lease"] is not None:
                await self._take(page)
                self.deadline.restart()
            elif self.deadline.over:
                return

    async def _page(self) -> Message | None:
        """The next page; None where there is none now."""
        try:
            if self._in_doubt is not None and await self._somebody_holds_messages():
                await asyncio.sleep(min(LOOK_AGAIN_S, self.deadline.left_s))
                return None
            page: Message = await self._ask()
        except Problem as problem:
            if problem.code in _NOT_THERE and self.create and not self._made:
                await self._make_queue()
                return await self._page()
            await self._wait_out(problem)
            return None
        except Unreachable as error:
            self._in_doubt = self._in_doubt or Deadline(LEASE_MS / 1000)
            await self._wait_out(error)
            return None
        self._reached = True
        return page

    async def _ask(self) -> Any:
        wait_ms = int(min(MAX_WAIT_MS, self.deadline.left_s * 1000))
        params = {"max": self.printer.wanted, "wait": wait_ms, "lease": LEASE_MS}
        path = address_path(self.address, "queues", self.queue, "messages")
        return (await self.client.call("GET", path, params=params)).body

    async def _somebody_holds_messages(self) -> bool:
        """Whether messages may be held by a lease of this reader whose answer was lost.

        Until that lease ends the reader must not continue, or its messages would come after those that follow
        them.
        """
        assert self._in_doubt is not None
        status = (await self.client.call("GET", address_path(self.address))).body
        leased = sum(queue["leased"] for queue in status["queues"] if queue["name"] == self.queue)
        if leased and not self._in_doubt.over:
            return True
        self._in_doubt = None
        return False

    async def _make_queue(self) -> None:
        path = address_path(self.address, "queues", self.queue)
        wanted = {"from": "latest", "filter": self.filter} if self.filter else {"from": "earliest"}
        answer = await self.client.call("PUT", path, packed=wanted)
        if answer.status == HTTPStatus.CREATED:
            self.progress.clear()
            how = "with its filter, from now on" if self.filter else "from its earliest message on"
            warn(f"{PROGRAM}: made queue {self.queue} of {self.address}, {how}")
        self._made = True

    async def _wait_out(self, error: BridgeError) -> None:
        """Pause where a retry may help.

        Raises:
            Problem, Unreachable: the same error, where a retry does not help, or where no attempt succeeded
                in time.
        """
        gave_up = not self._reached and (self._first_contact.over or self.deadline.over)
        if gave_up or not is_worth_another_try(error):
            raise error
        self._note(error)
        await asyncio.sleep(min(LOOK_AGAIN_S, self.deadline.left_s))

    async def _take(self, page: Message) -> None:
        messages = page["messages"]
        fresh = [message for message in messages if message["position"] not in self._unsettled]
        try:
            await self.printer.write_all(fresh, self.client, self.address)
        except OSError:  # the output is closed, full or broken: another reader gets the page at once
            await self._settle("release", page)
            raise
        self._remember(message["position"] for message in messages)
        if await self._settle("acknowledge", page):
            self._unsettled.difference_update(message["position"] for message in messages)

    def _remember(self, positions: Iterable[int]) -> None:
        self._unsettled.update(positions)
        if len(self._unsettled) > MAX_REMEMBERED:
            self._unsettled = set(sorted(self._unsettled)[-MAX_REMEMBERED:])

    async def _settle(self, verb: str, page: Message) -> bool:
        """Acknowledge or release a page; False: its lease has ended, its messages may come again."""
        path = address_path(self.address, "queues", self.queue, verb)

        async def settle() -> None:
            await self.client.call("POST", path, packed={"lease": page["lease"]})

        try:
            retry_for_s = float("inf") if self.deadline.timeout_s is None else RETRY_FOR_S
            await persistently(settle, on_retry=self._note, give_up_after_s=retry_for_s)
        except Problem as problem:
            if problem.code == "STALE_LEASE":
                return False
            raise
        return True

    def _note(self, error: BridgeError) -> None:
        self.progress.update(f"{PROGRAM}: {error.code}: {error}; trying again")


@dataclass(slots=True)
class Browser:
    """Reads an address without changing anything."""

    client: NodeClient
    address: str
    printer: Printer
    deadline: Deadline

    async def read(self) -> None:
        """Print the existing messages; poll for more until none has come for too long.

        Raises:
            Problem, Unreachable: the node refused, or could not be reached.
        """
        after = -1
        while self.printer.wanted:
            messages = await self._after(after)
            if messages:
                await self.printer.write_all(messages, self.client, self.address)
                after = messages[-1]["position"]
                self.deadline.restart()
            elif self.deadline.over:
                return
            else:
                await asyncio.sleep(min(LOOK_AGAIN_S, self.deadline.left_s))

    async def _after(self, position: int) -> Sequence[Message]:
        params = {"after": position, "max": self.printer.wanted}

        async def ask() -> Any:
            return (await self.client.call("GET", address_path(self.address, "messages"), params=params)).body

        retry_for_s = min(RETRY_FOR_S, self.deadline.left_s)
        answer = await persistently(ask, on_retry=lambda _: None, give_up_after_s=retry_for_s)
        messages: Sequence[Message] = answer["messages"]
        return messages
