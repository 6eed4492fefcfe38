"""Counts, at both ends, the messages that share a duplicate ID, so that a replay mistakes none for another.

Both ends are read from their beginnings, for the few IDs that more than one message can have and that the
target holds. The order is: the positions that the target covers, the target, the source. So every copy that
the target has is of a message that was counted, unless the source no longer has it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from bridge.kafka.replay.topic_ids import TopicCopies
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.message import carried_id
from bridge.messages.origins import duplicate_ids
from bridge.relay.ports import Stream
from bridge.replay.copies import Due, fingerprints
from bridge.replay.sending import PlanSource, Sibling

#: By stream of the bridge, the first position that the target has not covered.
Covered = Callable[[], Awaitable[Mapping[str, int]]]


def ids_of(batch: Batch, *, stamp: bool) -> list[bytes | None]:
    """The ID of each message of the batch at a Kafka target."""
    if batch.block is None:
        return []
    own = duplicate_ids(batch.block, stamp=stamp)
    return [carried_id(message) or one for message, one in zip(batch.block.messages(), own, strict=True)]


class CopyCount:
    """One count, which may take several calls; call `run` until it returns True."""

    def __init__(self, ids: frozenset[bytes], topic: TopicCopies, covered: Covered, *, stamp: bool) -> None:
        """`ids`: those that are counted; `stamp`: whether messages without an ID get one."""
        self.ids = ids
        self._topic = topic
        self._ask_covered = covered
        self._stamp = stamp
        self._covered: Mapping[str, int] | None = None
        self._target_is_read = False
        self._siblings: Sequence[Sibling] | None = None
        #: The sibling that is being read, and the position.
        self._at = (0, 0)
        #: Whether the count has ended, and is of no use for another call.
        self.is_done = False
        self._least: Counter[bytes] = Counter()
        self._most: Counter[bytes] = Counter()

    def present(self, fingerprint: bytes) -> int:
        """The number of copies with this fingerprint at the target."""
        return self._topic.copies[fingerprint]

    def due(self, fingerprint: bytes) -> Due:
        """The number of copies that the target should have."""
        is_whole = all(one.is_whole for one in self._siblings or ())
        return Due(self._least[fingerprint], self._most[fingerprint] if is_whole else None)

    async def run(self, source: PlanSource, stream: Stream, deadline_s: float) -> bool:
        """Continue reading; False: the deadline (loop clock) came first.

        Raises: what the ends raise.
        """
        if self._covered is None:
            self._covered = await self._ask_covered()
        if not self._target_is_read:
            self._target_is_read = await self._topic.read(0, deadline_s)
        if not self._target_is_read:
            return False
        # Asked at every call: a source belongs to one call, and knows only the streams it was asked for.
        self._siblings = await source.siblings(stream)
        number, at = self._at
        while number < len(self._siblings):
            one = self._siblings[number]
            at = max(at, one.first)
            if at >= one.end:
                number, at = number + 1, 0
                continue
            part = await source.read(one.stream, ((at, one.end - 1),))
            for batch in part.batches:
                self._count(batch, self._covered.get(one.stream.identity, 0))
            at = part.upto
            self._at = number, at
            if asyncio.get_running_loop().time() >= deadline_s:
                return False
        self.is_done = True
        return True

    def _count(self, batch: Batch, covered: int) -> None:
        if batch.block is None:
            return
        ids = [value if value in self.ids else None for value in ids_of(batch, stamp=self._stamp)]
        if not any(ids):
            return
        found = fingerprints(ids, batch.block.messages())
        for position, value in zip(run_arithmetic.positions(batch.runs), found, strict=True):
            if value is not None:
                self._most[value] += 1
                self._least[value] += position < covered
