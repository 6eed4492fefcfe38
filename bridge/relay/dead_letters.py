"""Dead letters in a node's journal: the sending node's, or the target's where Kafka is the source.

One is stored for each refused position, once.

Design rule 1 ensures that a letter is written once. The letters of a stream are a stream of their own,
counted from 0. The positions that have a letter are stored in the field for a sender's run, and so commit
with the letter. Of those that the target has covered since, only the last ones stay known: if the target
forgets more (a restored backup), a letter is stored twice rather than never.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, Protocol

import msgspec

from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block, encode_message, pack
from bridge.messages.message import Header, LargeBody, Message
from bridge.messages.positions import Runs
from bridge.messages.stream_names import LETTERS
from bridge.relay.ports import Receipt, Stream, Target
from dedup.verdict import Verdict

#: The headers of a letter, in their order (contract, 'Dead letters').
LETTER_HEADERS: Final = (
    "core-bridge-reason",
    "core-bridge-bridge",
    "core-bridge-address",
    "core-bridge-stream",
    "core-bridge-position",
)
#: Set on a letter whose message did not fit: its body says where the message was, and why it is not here.
REDUCED_HEADER: Final = "core-bridge-reduced"
#: Set on a letter of a message that was for a queue that is gone: the queue's name.
QUEUE_HEADER: Final = "core-bridge-queue"
#: Begins the reason of a refusal that a smaller letter may pass.
_TOO_LARGE: Final = "MESSAGE_TOO_LARGE"
#: Runs of positions whose letters are remembered after the target has covered them.
REMEMBERED_RUNS: Final = 256
#: Most runs altogether: as text they fit into an OPEN. All positions that are not covered yet are among them,
#: for a bridge whose letters are far ahead delivers first (`bridge.relay.dead_letters_ahead`).
RUNS_MOST: Final = 480
#: Begins the reason of a refusal that a letter without its producer's ID passes.
_BAD_ID: Final = "INVALID_DUPLICATE_ID"
_RUN: Final = re.compile(r"([0-9]{1,16})-([0-9]{1,16})")


def letter(message: Message, bridge: str, address: str, stream: str, position: int, reason: str) -> Message:
    """The message with headers that say why and from where (contract, 'Dead letters')."""
    values = (reason, bridge, address, stream, str(position))
    headers: Iterator[Header] = zip(LETTER_HEADERS, (value.encode() for value in values), strict=True)
    return Message(message.body, message.key, (*message.headers, *headers), message.timestamp)


def place_letter(dead: Message, queue: str) -> Message:
    """The letter `dead` of a message that was for the queue of this name alone."""
    return Message(dead.body, dead.key, (*dead.headers, (QUEUE_HEADER, queue.encode())), dead.timestamp)


def queue_of(dead: Message) -> str:
    """The queue that the message of a letter was for; empty: every queue of its address.

    It is the letter's last header, so one that the message brought does not count.
    """
    name, value = dead.headers[-1] if dead.headers else ("", None)
    return (value or b"").decode("utf-8", "replace") if name == QUEUE_HEADER else ""


def original(message: Message) -> Message:
    """The message that `letter` was made of: the same without the headers that it added."""
    headers = list(message.headers)
    added = set(LETTER_HEADERS)
    if queue_of(message):
        headers.pop()
    for index in range(len(headers) - 1, -1, -1):
        if headers[index][0] in added:
            added.discard(headers[index][0])
            del headers[index]
    return Message(message.body, message.key, tuple(headers), message.timestamp)


def reduced(message: Message, bridge: str, stream: str, position: int, reason: str) -> Message:
    """The remainder of a message that does not fit at the dead-letter address: its coordinates, as JSON."""
    coordinates = {
        "bridge": bridge,
        "stream": stream,
        "position": position,
        "reason": reason,
        "size": len(message.body or b""),
    }
    return Message(msgspec.json.encode(coordinates), None, ((REDUCED_HEADER, b"1"),), message.timestamp)


def queue_letter(alone: Block, where: tuple[str, str, str, int, str], queue: str, most_bytes: int) -> Block:
    """The dead letter of a block's one message that was for the queue of this name alone, as a block.

    `where`: bridge, address, stream, position and reason. Above `most_bytes` only its coordinates stay.
    """
    bridge, _, stream, position, reason = where
    (message,) = alone.messages()
    dead = _letter_block(place_letter(letter(message, *where), queue), alone)
    if dead.largest_whole > most_bytes:
        small = reduced(message, bridge, stream, position, reason)
        dead = _letter_block(place_letter(letter(small, *where), queue), alone)
    return dead


def _letter_block(dead: Message, alone: Block) -> Block:
    """The letter of a block's one message, with its ID, origin and hops, and the large body that it keeps."""
    large = alone.large if isinstance(dead.body, LargeBody) else None
    return pack([encode_message(dead)], alone.ids, alone.origins, alone.hops, large=large)


class DeadLetterFailed(Exception):
    """The dead letter could not be stored; the refused message stays where it is."""

    def __init__(self, reason: str, *, for_good: bool) -> None:
        super().__init__(reason)
        #: Whether trying again does not help.
        self.for_good = for_good


class DeadLetterSink(Protocol):
    """The dead-letter sink: makes dead letters of refused messages."""

    async def store_letter(self, batch: Batch, receipt: Receipt, source_address: str) -> None:
        """Make the dead letter of `receipt.position` durable, or part of what covers the position.

        Raises:
            DeadLetterFailed: it was not stored. TargetUnavailable: whether it was stored is unknown.
        """


class DeadLetters:
    """The dead-letter sink of one bridge; stores its refused messages, one after the other."""

    def __init__(self, bridge: str, address: str, target_of: Callable[[str], Target]) -> None:
        """`target_of` makes a target for a bridge name: at this node's journal, or at another node's."""
        self._bridge = bridge
        self._address = address
        self._target = target_of(f"{bridge}/{address}")
        self._storing = asyncio.Lock()

    async def store_letter(self, batch: Batch, receipt: Receipt, source_address: str) -> None:
        """Make the dead letter of `receipt.position` durable, unless it is already.

        Raises:
            DeadLetterFailed: it was not stored. TargetUnavailable: whether it was stored is unknown.
        """
        position = receipt.position
        index = -1 if position is None else run_arithmetic.index(batch.runs, position)
        if batch.block is None or position is None or index < 0:
            raise DeadLetterFailed(
                f"the target refused position {position}, which is not in its batch", for_good=True
            )
        if source_address == self._address:
            raise DeadLetterFailed(
                f"{self._address} is dead-letter-address and bridged: a letter refused there would return",
                for_good=True,
            )
        async with self._storing:  # the record is read, then written: one letter at a time
            try:
                await self._store_one(batch, index, position, source_address, receipt.reason)
            finally:
                await self._target.close()  # letters are rare: a link to another node is not kept for them

    async def _store_one(
        self, batch: Batch, index: int, position: int, source_address: str, reason: str
    ) -> None:
        letters = batch.stream + LETTERS
        state = (await self._target.open([self._stream(letters, source_address)])).streams[letters]
        stored = _parse(state.run)
        if any(first <= position <= last for first, last in stored):
            return
        covered = run_arithmetic.below(stored, batch.from_)[-REMEMBERED_RUNS:]
        uncovered = run_arithmetic.from_position(stored, batch.from_)
        others = (*covered, *uncovered)[1 - RUNS_MOST :]
        with_this = run_arithmetic.join(sorted((*others, (position, position))))
        stream = self._stream(letters, source_address, _format(with_this))
        number = state.next or 0
        assert batch.block is not None
        alone = batch.block.part(index, index + 1)
        (message,) = alone.messages()
        where = (self._bridge, source_address, batch.stream, position, reason)
        answer = await self._store(stream, number, alone, letter(message, *where))
        if answer.verdict is Verdict.REFUSED and answer.reason.startswith(_TOO_LARGE):
            small = reduced(message, self._bridge, batch.stream, position, reason)
            answer = await self._store(stream, number, alone, letter(small, *where))
        if answer.verdict is Verdict.REFUSED and answer.reason.startswith(_BAD_ID):
            unnamed = replace(alone, ids=())
            answer = await self._store(stream, number, unnamed, letter(message, *where))
        if answer.verdict is not Verdict.STORED:
            refused = answer.verdict is Verdict.REFUSED
            raise DeadLetterFailed(answer.reason or answer.verdict.value, for_good=refused)

    async def _store(self, stream: Stream, number: int, alone: Block, dead: Message) -> Receipt:
        """Deliver a letter, with the ID that the message has: its producer's, or that of its first place."""
        await self._target.open([stream])
        block = _letter_block(dead, alone)
        batch = Batch(stream.identity, number, number + 1, ((number, number),), block, block.checksum)
        (answer,) = await self._target.deliver([batch])
        return answer

    def _stream(self, letters: str, source_address: str, run: str = "") -> Stream:
        return Stream(letters, source_address, self._address, run)


def _format(runs: Runs) -> str:
    """Runs as text: ``100-250,300-300``."""
    return ",".join(f"{first}-{last}" for first, last in runs)


def _parse(text: str) -> Runs:
    # An older node cuts the text short: a run that cannot be read is not known, and may get a second letter.
    found = (_RUN.fullmatch(run) for run in text.split(","))
    return tuple((int(run[1]), int(run[2])) for run in found if run is not None)
