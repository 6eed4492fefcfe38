"""Dead letters of a journal source: stored in this node's journal, once for each refused position.

That a letter is written once is design rule 1 again. The letters of a stream are a stream of their own,
counted from 0. Which positions have a letter stands where a sender's run otherwise does, and so commits
with the letter. Of those that the target has covered since, only the last ones stay known: if it forgets
more (a restored backup), a letter comes twice rather than never.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bridge import runs as run_arithmetic
from bridge.batch import Batch
from bridge.block import Block, encode_message, pack
from bridge.message import Header, Message
from bridge.ports import Receipt, Stream, Target
from bridge.runs import Runs
from dedup.verdict import Verdict

#: Runs of positions whose letters are remembered after the target has covered them.
REMEMBERED_RUNS: Final = 256


def letter(message: Message, bridge: str, address: str, stream: str, position: int, reason: str) -> Message:
    """The message with headers that say why and from where (contract, 'Dead letters')."""
    headers: list[Header] = [
        ("core-bridge-reason", reason.encode()),
        ("core-bridge-bridge", bridge.encode()),
        ("core-bridge-address", address.encode()),
        ("core-bridge-stream", stream.encode()),
        ("core-bridge-position", str(position).encode()),
    ]
    return Message(message.body, message.key, (*message.headers, *headers), message.timestamp)


class DeadLetterFailed(Exception):
    """The dead letter could not be stored; the refused message stays where it is."""

    def __init__(self, reason: str, *, for_good: bool) -> None:
        super().__init__(reason)
        #: Whether trying again does not help.
        self.for_good = for_good


class DeadLetters:
    """Buries refused messages of one bridge."""

    def __init__(self, bridge: str, address: str, target_of: Callable[[str], Target]) -> None:
        """`target_of` makes this node's journal a target for the bridge name it is given."""
        self._bridge = bridge
        self._address = address
        self._target = target_of(f"{bridge}/{address}")

    async def bury(self, batch: Batch, receipt: Receipt, source_address: str) -> None:
        """Make the dead letter of `receipt.position` durable, unless it is already.

        Raises:
            DeadLetterFailed: it was not stored. TargetUnavailable: whether it was is unknown.
        """
        position = receipt.position
        places = list(run_arithmetic.positions(batch.runs))
        if batch.block is None or position is None or position not in places:
            raise DeadLetterFailed(
                f"the target refused position {position}, which is not in its batch", for_good=True
            )
        if source_address == self._address:
            raise DeadLetterFailed(
                f"{self._address} is dead-letter-address and bridged: a letter refused there would return",
                for_good=True,
            )
        letters = f"{batch.stream}:dead-letters"
        state = (await self._target.open([self._stream(letters, source_address)])).streams[letters]
        buried = _parse(state.run)
        if any(first <= position <= last for first, last in buried):
            return
        covered = run_arithmetic.below(buried, batch.from_)[-REMEMBERED_RUNS:]
        uncovered = run_arithmetic.from_position(buried, batch.from_)
        with_this = run_arithmetic.join(sorted((*covered, *uncovered, (position, position))))
        await self._target.open([self._stream(letters, source_address, _format(with_this))])
        block = self._block(batch, places.index(position), source_address, receipt)
        number = state.next or 0
        (answer,) = await self._target.deliver(
            [Batch(letters, number, number + 1, ((number, number),), block, block.checksum)]
        )
        if answer.verdict is not Verdict.STORED:
            refused = answer.verdict is Verdict.REFUSED
            raise DeadLetterFailed(answer.reason or answer.verdict.value, for_good=refused)

    def _stream(self, letters: str, source_address: str, run: str = "") -> Stream:
        return Stream(letters, source_address, self._address, run)

    def _block(self, batch: Batch, index: int, source_address: str, receipt: Receipt) -> Block:
        """The letter, with the ID that the message has: its producer's, or that of its first place."""
        assert batch.block is not None
        assert receipt.position is not None
        alone = batch.block.part(index, index + 1)
        (message,) = alone.messages()
        dead = letter(message, self._bridge, source_address, batch.stream, receipt.position, receipt.reason)
        return pack([encode_message(dead)], alone.ids, alone.origins)


def _format(runs: Runs) -> str:
    """Runs as text: ``100-250,300-300``."""
    return ",".join(f"{first}-{last}" for first, last in runs)


def _parse(text: str) -> Runs:
    pairs = (run.split("-") for run in text.split(",") if run)
    return tuple((int(first), int(last)) for first, last in pairs)
