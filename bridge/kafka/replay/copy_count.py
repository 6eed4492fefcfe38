"""Counts, at both ends, the messages that share a duplicate ID: before a replay takes one for another.

Both ends are read from their beginnings, for the few IDs that more than one message can have and that the
target holds. In this order: how far the target covers the source, the target, the source. So every copy that
the target has is of a message that was counted, unless the source no longer has it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from bridge.kafka.records.encoding import duplicate_ids
from bridge.kafka.replay.topic_ids import TopicCopies
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.message import carried_id
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
    """One count, which may take several calls; `run` until it answers True."""

    def __init__(self, ids: frozenset[bytes], topic: TopicCopies, covered: Covered, *, stamp: bool) -> None:
        """`ids`: those that are counted; `stamp`: whether messages without an ID get one."""
        self.ids = ids
        self._topic = topic
        self._ask_covered = covered
        self._stamp = stamp
        self._covered: Mapping[str, int] | None = None
        self._target_is_read = False
        self._siblings: Sequence[Sibling] | None = None
        #: Which sibling is being read, and from where.
        self._at = (0, 0)
        #: It has ended, and is of no use for another call.
        self.is_done = False
        self._least: Counter[bytes] = Counter()
        self._most: Counter[bytes] = Counter()

    def held(self, fingerprint: bytes) -> int:
        """How often the target has what is known by this."""
        return self._topic.copies[fingerprint]

    def due(self, fingerprint: bytes) -> Due:
        """How often it should have it."""
        is_whole = all(one.is_whole for one in self._siblings or ())
        return Due(self._least[fingerprint], self._most[fingerprint] if is_whole else None)

    async def run(self, source: PlanSource, stream: Stream, deadline_s: float) -> bool:
        """Read on; False: the deadline (loop clock) came first.

        Raises: what the ends raise.
        """
        if self._covered is None:
            self._covered = await self._ask_covered()
        if not self._target_is_read:
            self._target_is_read = await self._topic.read(0, deadline_s)
        if not self._target_is_read:
            return False
        # Anew at every call: a source is one call's, and knows the streams that it was asked for.
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
