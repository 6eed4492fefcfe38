"""Finds the messages that a target topic may refuse, by its brokers' answers for others. Pure.

A topic's limits may not be readable, this machine's clock may be wrong, and the compressed size of a message
is unknown before. So nothing is refused here: a message in doubt is sent to the brokers by itself, before
anything is sent with it (`bridge.kafka.target.plan`). Their answer is kept for later messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.kafka.records.topic_rules import NO_TIMESTAMP, UNKNOWN_LIMIT, TopicRules
from bridge.messages.message import Message

#: Kafka's codes: MESSAGE_TOO_LARGE and RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD.
TOO_LARGE: Final = (10, 18)
_INVALID_TIMESTAMP: Final = 32
_INVALID_RECORD: Final = 87
#: A record batch that the broker finds too large is the last of its size: later ones are smaller by this
#: factor.
SHRINK: Final = 4
#: After so many record batches of about the present size that the broker has taken, larger ones are tried...
GROW_AFTER: Final = 100
#: ...after so many, such as were refused before: each refusal costs a transaction that is not committed.
TRY_AGAIN_AFTER: Final = 2_000
#: The factor by which they grow then.
GROW: Final = 2
#: A time that was taken clears others that are off by up to a quarter more: lateness varies.
_FREED: Final = 5 / 4


@dataclass(slots=True)
class _Side:
    """The limit of the time difference in one direction, ms."""

    #: The largest difference taken, and the smallest that is known to be refused.
    taken_ms: float = 0
    refused_ms: float = UNKNOWN_LIMIT

    def most_ms(self, limit_ms: int) -> float:
        """The largest difference without doubt; `limit_ms` is the limit in the topic's configuration."""
        return min(max(limit_ms, self.taken_ms), self.refused_ms - 1)

    def taken(self, off_ms: int) -> None:
        self.taken_ms = max(self.taken_ms, off_ms * _FREED)
        if self.refused_ms <= off_ms:
            self.refused_ms = UNKNOWN_LIMIT

    def refused(self, off_ms: int) -> None:
        self.refused_ms = min(self.refused_ms, off_ms)
        self.taken_ms = min(self.taken_ms, max(0, off_ms - 1))


@dataclass(slots=True)
class Doubts:
    """The doubts about one topic."""

    #: Largest record batch that is sent, unless one message is larger, bytes.
    most_bytes: int = UNKNOWN_LIMIT
    #: The size of the last record batch that was refused, and how many of at least half of `most_bytes` have
    #: been taken since that changed.
    _refused_bytes: int = UNKNOWN_LIMIT
    _taken_batches: int = 0
    #: The smallest message, in bytes, that was refused for its size.
    _large_from: int = UNKNOWN_LIMIT
    #: Whether a message without a key was refused.
    _keyless: bool = False
    _before: _Side = field(default_factory=_Side)
    _after: _Side = field(default_factory=_Side)

    def of(self, rules: TopicRules, messages: Sequence[Message], now_ms: int) -> list[int]:
        """The indices of the messages in doubt. `now_ms`: by this machine's clock."""
        first, last = self._times(rules, now_ms)
        found = [
            index
            for index, message in enumerate(messages)
            if not first <= message.timestamp <= last and message.timestamp != NO_TIMESTAMP
        ]
        if self._keyless or self._large_from < UNKNOWN_LIMIT:
            found = sorted({*found, *self._of_others(messages)})
        return found

    def _times(self, rules: TopicRules, now_ms: int) -> tuple[float, float]:
        if rules.log_append_time:
            return -UNKNOWN_LIMIT, UNKNOWN_LIMIT
        before, after = self._before.most_ms(rules.before_max_ms), self._after.most_ms(rules.after_max_ms)
        return now_ms - before, now_ms + after

    def _of_others(self, messages: Sequence[Message]) -> list[int]:
        return [
            index
            for index, message in enumerate(messages)
            if self.is_large(message) or (self._keyless and message.key is None)
        ]

    def is_large(self, message: Message) -> bool:
        """Whether a message of this size has been refused: then it goes in a record batch alone."""
        return _size(message) >= self._large_from

    def refused(self, code: int, message: Message, now_ms: int) -> None:
        """Record that the broker refuses this message, with Kafka's error `code`."""
        if code == _INVALID_TIMESTAMP:
            off_ms = message.timestamp - now_ms
            (self._after if off_ms > 0 else self._before).refused(abs(off_ms))
        elif code == _INVALID_RECORD:
            self._keyless = self._keyless or message.key is None
        elif code in TOO_LARGE:
            self._large_from = min(self._large_from, _size(message))

    def refused_batch(self, size: int) -> None:
        """Record that the broker refuses a record batch of so many bytes with several records."""
        self.most_bytes = min(self.most_bytes, max(1, size // SHRINK))
        self._refused_bytes, self._taken_batches = size, 0

    def taken_batch(self, size: int) -> None:
        """Record that the broker has taken a record batch of so many bytes: after some, larger ones go.

        A limit may be raised, and messages may compress better than those that were refused.
        """
        if self.most_bytes == UNKNOWN_LIMIT or 2 * size < self.most_bytes:
            return
        self._taken_batches += 1
        larger = self.most_bytes * GROW
        was_refused = larger >= self._refused_bytes
        if self._taken_batches == (TRY_AGAIN_AFTER if was_refused else GROW_AFTER):
            self._taken_batches = 0
            self.most_bytes = UNKNOWN_LIMIT if was_refused else larger

    def taken(self, message: Message, now_ms: int) -> None:
        """Record that the broker takes this message, which was in doubt."""
        off_ms = message.timestamp - now_ms
        if message.timestamp != NO_TIMESTAMP:
            (self._after if off_ms > 0 else self._before).taken(abs(off_ms))
        if message.key is None:
            self._keyless = False
        if self.is_large(message):
            self._large_from = _size(message) + 1


def _size(message: Message) -> int:
    return len(message.body or b"") + len(message.key or b"")
