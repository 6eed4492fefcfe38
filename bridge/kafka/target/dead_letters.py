"""Dead letters on their way to a Kafka target: kept until stored with what covers their positions. Pure.

So a letter is there exactly when its position is covered and empty. One that was kept and not stored when the
process died comes again: the position is not covered, and its message is refused again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.errors import TargetRefused
from bridge.kafka.records.encoding import duplicate_ids, hop_headers
from bridge.kafka.records.topic_rules import INVALID_TIMESTAMP, NO_TIMESTAMP, TopicRules
from bridge.kafka.target.options import KafkaTargetOptions
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.message import Header, Message
from bridge.relay.dead_letters import DeadLetterFailed, letter, reduced
from bridge.relay.ports import Receipt

#: Bytes of bodies kept; beyond that letters carry coordinates in their place.
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
    #: Its producer's ID, else that of its first place.
    duplicate_id: bytes | None = None
    #: The header with the hops it has come through.
    hops: Header | None = None
    #: Coordinates stand in place of the message.
    is_reduced: bool = False
    #: A record batch with it and others was refused: it goes in one of its own, to see which it is.
    is_suspect: bool = False
    #: The broker refused its time, so it has none: that always passes.
    is_untimed: bool = False

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.message.body or b"")

    def reduced(self) -> Letter:
        """The same with coordinates in place of the message."""
        message = reduced(self.message, self.bridge, self.stream, self.position, self.reason)
        return replace(self, message=message, is_reduced=True)

    def record(self, rules: TopicRules, now_ms: int) -> Message:
        """The message to store in the dead-letter topic, by the rules of which it must not fail again."""
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
    place = -1 if position is None else run_arithmetic.index(batch.runs, position)
    if batch.block is None or position is None or place < 0:
        raise DeadLetterFailed(
            f"the target refused position {position}, which is not in its batch", for_good=True
        )
    if source_address == address:
        raise DeadLetterFailed(
            f"{address} is dead-letter-address and bridged: a letter refused there would return",
            for_good=True,
        )
    alone = batch.block.part(place, place + 1)
    (message,) = alone.messages()
    (duplicate_id,) = duplicate_ids(alone, stamp=options.stamp)
    (hops,) = hop_headers(alone)
    return Letter(
        options.bridge, source_address, batch.stream, position, receipt.reason, message, duplicate_id, hops
    )


class Letters:
    """Those that are not stored yet, by stream and position."""

    def __init__(self) -> None:
        self._letters: dict[tuple[str, int], Letter] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._letters)

    def keep(self, one: Letter) -> None:
        """Until its position is covered; in place of one for the same position."""
        self._forget(one.stream, one.position)
        if self._bytes + one.size > MOST_KEPT_BYTES and not one.is_reduced:
            one = one.reduced()
        self._letters[one.stream, one.position] = one
        self._bytes += one.size

    def of(self, stream: str, positions: Sequence[int]) -> list[Letter]:
        """Those of a stream at these positions, in order."""
        if not self._letters:
            return []
        return [self._letters[stream, p] for p in positions if (stream, p) in self._letters]

    def reduce(self, stream: str, position: int, reason: str) -> None:
        """This one does not fit as it is, for `reason`: it loses its time if that is why, else its message.

        Raises:
            TargetRefused: nor without.
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
        """This one stood with others in a record batch that does not fit as it is."""
        self._letters[stream, position] = replace(self._letters[stream, position], is_suspect=True)

    def stored(self, stream: str, positions: Sequence[int]) -> None:
        """They are durable."""
        for position in positions:
            self._forget(stream, position)

    def _forget(self, stream: str, position: int) -> None:
        one = self._letters.pop((stream, position), None)
        if one is not None:
            self._bytes -= one.size
