"""Dead letters as their operator sees them: listed, and sent again (semantics D54)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.errors import AddressNotFound, InvalidAddress
from bridge.journal.journal import Journal
from bridge.journal.rules import dead_letters
from bridge.journal.rules.arrivals import Came
from bridge.journal.rules.commands import MoveCommand, Moved
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.routing import Destination
from bridge.journal.values.store import QueueStatus
from bridge.messages import hops
from bridge.messages.addresses import check_name
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.messages.stream_names import replay_address
from bridge.relay.dead_letters import LETTER_HEADERS, REDUCED_HEADER, original, queue_of

#: Letters and bytes that are sent again in one transaction.
LETTERS_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 8 * 1024 * 1024
#: Letters read in one step.
_STEP: Final = 500
#: A position in its letter's header: ASCII digits, as many as 2^50 has.
_POSITION: Final = re.compile(r"[0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class Route:
    """The destination to which a bridge's dead letters are sent again."""

    #: The bridge's name now.
    bridge: str
    #: The address here that the bridge delivers to, by source address; None: the bridge reads this journal,
    #: and takes them from there.
    target_address: Callable[[str], str] | None = None
    #: Whether the bridge has a transformer.
    transforms: bool = False


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter."""

    #: Where it is in this journal.
    position: int
    dead_letter_address: str
    bridge: str
    #: The address or topic at the source, the stream, and the message's position in it.
    address: str
    stream: str
    source_position: int
    reason: str
    #: Bytes of its body.
    size: int
    duplicate_id: bytes | None


@dataclass(slots=True)
class Replayed:
    """The outcome of sending dead letters again."""

    replayed: list[int] = field(default_factory=list)
    #: (position, why not).
    skipped: list[tuple[int, str]] = field(default_factory=list)


class DeadLetterService:
    """The dead letters in one node's journal."""

    def __init__(self, journal: Journal, addresses: Sequence[str], routes: Mapping[str, Route]) -> None:
        """Takes the addresses that hold dead letters, and the route of each bridge by the name that a letter
        has for it.
        """
        self._journal = journal
        self._addresses = sorted(set(addresses))
        self._routes = routes

    async def list(self, *, after: int = -1, most: int = 100) -> Sequence[Letter]:
        """The first letters at positions > `after` that were not sent again, by position.

        Raises: JournalUnavailable.
        """
        found = await self._found(after, most)
        return [described(entry) for entry in found]

    async def _found(self, after: int, most: int) -> Sequence[dead_letters.Found]:
        found: list[dead_letters.Found] = []
        for address in self._addresses:
            at = after
            while page := await self._journal.look(dead_letters.read_found, address, at, most):
                of_letters = [entry for entry in page if is_letter(entry)]
                found.extend(of_letters)
                at = page[-1].position
                if len(page) < most or len(of_letters) == len(page):
                    break
        return sorted(found, key=lambda entry: entry.position)[:most]

    async def replay(self, positions: Sequence[int] | None) -> Replayed:
        """Send these letters again, or all there are now. Each is sent once, however often this is called.

        A letter goes back to the bridge that it died on: to an address that only that bridge reads, or, where
        it came to this node from Kafka, to where the bridge would have stored it here. Its ID is not checked.
        It is no dead letter any more from the commit on that stores it there.

        Raises: AddressFull, DiskFull, JournalUnavailable; what was sent before that stays sent.
        """
        outcome = Replayed()
        by_address: dict[str, list[Moved]] = {}
        missing = set(positions or ())
        async for entry in self._wanted(positions):
            missing.discard(entry.position)
            moved = await self._moved(entry)
            if isinstance(moved, str):
                outcome.skipped.append((entry.position, moved))
                continue
            waiting = by_address.setdefault(entry.at, [])
            waiting.append(moved)
            if len(waiting) >= LETTERS_AT_ONCE or sum(one.block.size for one in waiting) >= BYTES_AT_ONCE:
                await self._send(entry.at, by_address.pop(entry.at), outcome)
        for address, waiting in by_address.items():
            await self._send(address, waiting, outcome)
        outcome.skipped += [(position, "no dead letter, or sent again before") for position in missing]
        outcome.replayed.sort()
        outcome.skipped.sort()
        return outcome

    async def _wanted(self, positions: Sequence[int] | None) -> AsyncIterator[dead_letters.Found]:
        if positions is None:
            upto = max([status.next for status in await self._journal.addresses()], default=0)
            after = -1
            while page := await self._found(after, _STEP):
                for entry in page:
                    if entry.position < upto:  # one that is refused again meanwhile is a new letter
                        yield entry
                after = page[-1].position
            return
        for position in sorted(set(positions)):
            for entry in await self._found(position - 1, 1):
                if entry.position == position:
                    yield entry

    async def _send(self, address: str, waiting: Sequence[Moved], outcome: Replayed) -> None:
        sent = await self._journal.submit(
            MoveCommand,
            address=address,
            queue=REPLAYED_QUEUE,
            messages=waiting,
            size=sum(one.block.size for one in waiting),
            deadline_ms=self._journal.deadline_ms(),
        )
        outcome.replayed += sent
        gone = {one.first for one in waiting} - set(sent)
        outcome.skipped += [(position, "sent again meanwhile") for position in gone]

    async def _queues(self, address: str) -> Sequence[QueueStatus]:
        try:
            return (await self._journal.address(address)).queues
        except AddressNotFound:
            return ()

    async def _moved(self, entry: dead_letters.Found) -> Moved | str:
        """The letter as it is to be moved to its destination, or why it cannot be."""
        message = entry.message
        if message.header(REDUCED_HEADER) is not None:
            return "its message did not fit here: only its coordinates are known"
        bridge, address = _text(message, "core-bridge-bridge"), _text(message, "core-bridge-address")
        queue = queue_of(message)
        route = None if queue else self._routes.get(bridge)
        if entry.came is not Came.LETTER_HERE:
            return "a bridge of another node has dead-lettered it: it is sent again there"
        refused = _refused_name(address)
        if route is None and not queue:
            refused = f"the bridge {bridge} is not one of this node's"
        elif route is not None and route.target_address is not None and route.transforms:
            refused = f"only a replay plan takes it through the transformer of the bridge {bridge}"
        if refused:
            return refused
        encoded, of = encode_message(original(message)), entry.block
        block = pack([encoded], of.ids, of.origins, of.hops, large=of.large)
        places = ((entry.position, entry.position + 1),)
        if route is None:
            there = any(queue == one.name for one in await self._queues(address))
            gone = f"there is no queue {queue} of {address}"
            return Moved(places, entry.from_, Destination(address, only=(queue,)), block) if there else gone
        if route.target_address is not None:
            to = Destination(route.target_address(address))
            return Moved(places, entry.from_, to, block, learns_ids=True)
        to = Destination(replay_address(route.bridge, address), route.bridge)
        before = hops.given_back(block.hops, hops.hop(bridge, self._journal.store))
        return Moved(places, entry.from_, to, block.hopped(before))


def _refused_name(address: str) -> str:
    """Why no address can have this name; empty: one can."""
    try:
        check_name(address, "core-bridge-address")
    except InvalidAddress as error:
        return f"{error.code}: {error.detail}"
    return ""


def is_letter(entry: dead_letters.Found) -> bool:
    """Whether a bridge stored it here; clients may send to the address, too, whatever headers they set."""
    if entry.came not in (Came.LETTER_HERE, Came.LETTER):
        return False
    message = entry.message
    names = {name for name, _ in message.headers}
    number = _text(message, "core-bridge-position")
    return names.issuperset(LETTER_HEADERS) and bool(_POSITION.fullmatch(number))


def described(entry: dead_letters.Found) -> Letter:
    """The letter as the operator sees it."""
    message = entry.message
    return Letter(
        position=entry.position,
        dead_letter_address=entry.at,
        bridge=_text(message, "core-bridge-bridge"),
        address=_text(message, "core-bridge-address"),
        stream=_text(message, "core-bridge-stream"),
        source_position=int(_text(message, "core-bridge-position")),
        reason=_text(message, "core-bridge-reason"),
        size=len(message.body or b""),
        duplicate_id=entry.duplicate_id,
    )


def _text(message: Message, name: str) -> str:
    return (message.header(name) or b"").decode("utf-8", "replace")
