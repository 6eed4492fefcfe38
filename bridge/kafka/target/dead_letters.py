"""Dead letters for a Kafka target: kept until stored with the coverage of their positions. Pure.

So a letter is stored exactly when its position is covered and empty. One that was kept but not stored when
the process died is made again: the position is not covered, and its message is refused again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.errors import TargetRefused
from bridge.kafka.records.encoding import hop_headers
from bridge.kafka.records.topic_rules import INVALID_TIMESTAMP, NO_TIMESTAMP, TopicRules
from bridge.kafka.target.options import KafkaTargetOptions
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.message import Header, Message
from bridge.messages.origins import duplicate_ids
from bridge.relay.dead_letters import DeadLetterFailed, letter, reduced
from bridge.relay.ports import Receipt

#: Bytes of bodies kept; beyond that, letters have coordinates in place of the body.
MOST_KEPT_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Letter:
    """One refused message."""

    bridge: str
    #: Name of its stream at the source.
    address: str
    stream: str
    position: int
    reason: str
    message: Message
    #: The ID of its producer, else that of its first position.
    duplicate_id: bytes | None = None
    #: The header with the hops that it has passed.
    hops: Header | None = None
    #: Whether coordinates replace the message.
    is_reduced: bool = False
    #: Whether a record batch with it and others was refused: then it gets one of its own, for isolation.
    is_suspect: bool = False
    #: Whether the broker refused its time: then it has none, which always passes.
    is_untimed: bool = False

    @property
    def size(self) -> int:
        """The size of the body in bytes."""
        return len(self.message.body or b"")

    def reduced(self) -> Letter:
        """A copy with coordinates in place of the message."""
        message = reduced(self.message, self.bridge, self.stream, self.position, self.reason)
        return replace(self, message=message, is_reduced=True)

    def record(self, rules: TopicRules, now_ms: int) -> Message:
        """The message to store in the dead-letter topic; it must not break the topic's rules again."""
        made = letter(self.message, self.bridge, self.address, self.stream, self.position, self.reason)
        key, timestamp = made.key, made.timestamp
        if key is None and rules.compacted:
            key = f"{self.stream}/{self.position}".encode()
        first, last = rules.timestamp_range(now_ms)
        if self.is_untimed:
            timestamp = NO_TIMESTAMP
        elif not first <= timestamp <= last:
            timestamp = now_ms
        return Message(made.body, key, made.headers, timestamp)


def letter_of(batch: Batch, receipt: Receipt, source_address: str, options: KafkaTargetOptions) -> Letter:
    """The letter of the message that `receipt` refused. Raises: DeadLetterFailed."""
    address, position = options.dead_letter_address, receipt.position
    index = -1 if position is None else run_arithmetic.index(batch.runs, position)
    if batch.block is None or position is None or index < 0:
        raise DeadLetterFailed(
            f"the target refused position {position}, which is not in its batch", for_good=True
        )
    if source_address == address:
        raise DeadLetterFailed(
            f"{address} is dead-letter-address and bridged: a letter refused there would return",
            for_good=True,
        )
    alone = batch.block.part(index, index + 1)
    (message,) = alone.messages()
    (duplicate_id,) = duplicate_ids(alone, stamp=options.stamp)
    (hops,) = hop_headers(alone)
    return Letter(
        options.bridge, source_address, batch.stream, position, receipt.reason, message, duplicate_id, hops
    )


class Letters:
    """The letters that are not stored yet, by stream and position."""

    def __init__(self) -> None:
        self._letters: dict[tuple[str, int], Letter] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._letters)

    def keep(self, one: Letter) -> None:
        """Keep the letter until its position is covered; it replaces one for the same position."""
        self._forget(one.stream, one.position)
        if self._bytes + one.size > MOST_KEPT_BYTES and not one.is_reduced:
            one = one.reduced()
        self._letters[one.stream, one.position] = one
        self._bytes += one.size

    def of(self, stream: str, positions: Sequence[int]) -> list[Letter]:
        """The letters of a stream at these positions, in order."""
        if not self._letters:
            return []
        return [self._letters[stream, p] for p in positions if (stream, p) in self._letters]

    def reduce(self, stream: str, position: int, reason: str) -> None:
        """Reduce a letter refused for `reason`: it loses its time if that is why, else its message.

        Raises:
            TargetRefused: it does not fit without them either.
        """
        one = self._letters[stream, position]
        if reason.startswith(INVALID_TIMESTAMP) and not one.is_untimed:
            self.keep(replace(one, is_untimed=True))
            return
        if one.is_reduced:
            raise TargetRefused(
                f"the dead letter of {stream} position {position} ({one.reason}) cannot be stored: {reason}",
                key="dead-letter-address",
            )
        self.keep(one.reduced())

    def suspect(self, stream: str, position: int) -> None:
        """Mark a letter that was with others in a record batch that was refused."""
        self._letters[stream, position] = replace(self._letters[stream, position], is_suspect=True)

    def stored(self, stream: str, positions: Sequence[int]) -> None:
        """Forget these letters: they are durable."""
        for position in positions:
            self._forget(stream, position)

    def _forget(self, stream: str, position: int) -> None:
        one = self._letters.pop((stream, position), None)
        if one is not None:
            self._bytes -= one.size
