"""Finds the messages of a replay plan that the target has, by counting copies. Pure.

A target shows how often it has an ID, and not which of its source's messages brought it. Where only one
message can have brought it, one copy is that message. Where several can (a stream processor has copied a
stamp, or a producer's ID is not checked), the target has them all once it has as many as the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Final, NamedTuple

from bridge.messages.message import LargeBody, Message

#: Identifies messages at both ends. Messages of one key are equal: any of them may stand for another.
Key = Hashable
#: A position and the key of its message; None: nothing identifies it.
Keyed = tuple[int, Key | None]


class Due(NamedTuple):
    """The number of messages of one key that a target should have."""

    #: The number that the source has and that the target is known to cover.
    least: int = 1
    #: With those that may have come besides; None: the source no longer has all that it had.
    most: int | None = 1


#: For a key that only one message can have, or that is accepted once.
ONCE: Final = Due()


class Standing(Enum):
    """The result of counting for one message."""

    MISSING = "missing"
    THERE = "there"
    UNKNOWN = "unknown"


def standing(present: int, due: Due) -> Standing:
    """The standing of a message that the logs report as lost, where the target has `present` of its key.

    Without a copy the logs' report holds, and it holds as long as there are fewer copies than due.
    """
    if present == 0 or present < due.least:
        return Standing.MISSING
    return Standing.THERE if due.most is not None and present >= due.most else Standing.UNKNOWN


@dataclass(frozen=True, slots=True)
class Judged:
    """The standing of a batch's messages, by position."""

    #: The target has them.
    known: frozenset[int] = frozenset()
    #: It cannot be decided whether the target has them: they are not sent, and not reported as present.
    #: Ascending.
    unknown: tuple[int, ...] = ()
    #: For a target that counts copies as it stores (`Batch.copies`).
    copies: tuple[tuple[int, int], ...] = ()


class Tally:
    """The number of each key that the target has, with those that have been sent since it was asked."""

    def __init__(self) -> None:
        self._sent: Counter[Key] = Counter()

    def judge(
        self, messages: Iterable[Keyed], present: Callable[[Key], int], due: Callable[[Key], Due]
    ) -> Judged:
        """Judge each message in turn, as if those before it that are missing had been sent.

        Args:
            messages: those of a batch.
            present: how often the target had a key when it was asked.
            due: how often it should have it; asked only of keys that it has.
        """
        sent = self._sent.copy()
        known, unknown = set[int](), list[int]()
        for position, key in messages:
            if key is None:
                continue
            there = present(key) + sent[key]
            match standing(there, due(key)) if there else Standing.MISSING:
                case Standing.MISSING:
                    sent[key] += 1
                case Standing.THERE:
                    known.add(position)
                case Standing.UNKNOWN:
                    unknown.append(position)
        return Judged(frozenset(known), tuple(unknown))

    def stored(self, keys: Iterable[Key | None]) -> None:
        """Count missing messages that have been stored."""
        self._sent.update(key for key in keys if key is not None)


def fingerprint(duplicate_id: bytes, key: bytes | None, body: bytes | LargeBody | None) -> bytes:
    """The identity of an ID, a key and a body: 16 bytes. Headers and times may change on the way.

    A large body counts by its digest: the same body held whole has another identity.
    """
    digest = blake2b(digest_size=16)
    for part in (duplicate_id, key, body):
        size = -1 if part is None else len(part)
        digest.update(size.to_bytes(8, "big", signed=True))
        digest.update(part.digest if isinstance(part, LargeBody) else part or b"")
    return digest.digest()


def fingerprints(ids: Sequence[bytes | None], messages: Sequence[Message]) -> list[bytes | None]:
    """The fingerprints of messages, by their IDs; None: a message without an ID."""
    return [
        None if value is None else fingerprint(value, message.key, message.body)
        for value, message in zip(ids, messages, strict=True)
    ]
