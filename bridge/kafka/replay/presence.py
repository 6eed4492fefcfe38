"""Finds which messages of a plan a Kafka target has: by IDs, and by counting where several can share one.

The index of the topic's IDs shows at once that a message is missing, and of an ID that only one message can
have that it is present: a stamp of the message's own position, or a producer's ID that the bridge checks.
Other IDs that are found are counted at both ends (`bridge.kafka.replay.copy_count`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from bridge.kafka.replay.copy_count import CopyCount, ids_of
from bridge.kafka.replay.topic_ids import TopicIds
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.message import carried_id
from bridge.relay.ports import Stream
from bridge.replay.copies import ONCE, Due, Judged, Key, Keyed, Tally, fingerprint
from bridge.replay.sending import Part, PlanSource, PlanState


class Counts(Protocol):
    """Makes counts; a count that did not end is returned again for the same IDs."""

    def __call__(self, topic: str, ids: frozenset[bytes]) -> CopyCount:
        """The count of these IDs at both ends."""


class KafkaPresence:
    """Implements `bridge.replay.sending.Presence` for a bridge to Kafka."""

    def __init__(
        self,
        source: PlanSource,
        *,
        plan_state: Callable[[Stream], Awaitable[PlanState]],
        ids_of: Callable[[str], TopicIds] | None,
        counts: Counts,
        stamp: bool,
        checks_ids: bool,
    ) -> None:
        """Create the check from its parts.

        Args:
            source: where the bridge's messages are counted.
            plan_state: the target's store and its next of a plan's stream, without opening it.
            ids_of: the index of a topic's IDs; None: the target is not asked (`--force`).
            counts: makes counts.
            stamp: whether messages get an ID from where they were first stored.
            checks_ids: whether the bridge accepts a producer's ID once.
        """
        self._source = source
        self._plan_state = plan_state
        self._ids_of = ids_of
        self._counts = counts
        self._stamp = stamp
        self._checks_ids = checks_ids
        #: The positions that `judge` last found present: the target covers them and does not store them.
        self.known: frozenset[int] = frozenset()
        self._tally = Tally()
        self._ids: TopicIds | None = None
        #: Counts that have ended, by each of their IDs.
        self._counted: dict[bytes, CopyCount] = {}

    async def plan_state(self, planned: Stream) -> PlanState:
        """As `Presence.plan_state`."""
        return await self._plan_state(planned)

    async def prepare(self, stream: Stream, part: Part, deadline_s: float) -> bool:
        """As `Presence.prepare`."""
        times = [batch.events[0] for batch in part.batches if batch.count]
        if self._ids_of is None or not times:
            return True
        if self._ids is None:
            ids = self._ids_of(stream.target_address)
            if not await ids.read(min(times), deadline_s):
                return False
            self._ids = ids
        shared = frozenset(
            value
            for batch in part.batches
            for value in self._shared_ids(batch)
            if value not in self._counted and value in self._ids.ids
        )
        if not shared:
            return True
        count = self._counts(stream.target_address, shared)
        if not await count.run(self._source, stream, deadline_s):
            return False
        self._counted.update(dict.fromkeys(shared, count))
        return True

    def judge(self, batch: Batch) -> Judged:
        """As `Presence.judge`."""
        judged = Judged()
        if self._ids is not None:
            judged = self._tally.judge(self._keyed(batch), self._present, self._due)
        self.known = judged.known
        return judged

    def stored(self, batch: Batch, judged: Judged) -> None:
        """As `Presence.stored`."""
        left_out = judged.known.union(judged.unknown)
        self._tally.stored(key for position, key in self._keyed(batch) if position not in left_out)

    # -- keys: (an ID, None) where only one message has it, else (the ID, the message's fingerprint) -------

    def _keyed(self, batch: Batch) -> list[Keyed]:
        if batch.block is None:
            return []
        keys: list[Key | None] = []
        shared = self._are_shared(batch)
        values = zip(ids_of(batch, stamp=self._stamp), batch.block.messages(), shared, strict=True)
        for value, message, is_shared in values:
            if value is None:
                keys.append(None)
            elif is_shared:
                keys.append((value, fingerprint(value, message.key, message.body)))
            else:
                keys.append((value, None))
        return list(zip(run_arithmetic.positions(batch.runs), keys, strict=True))

    def _shared_ids(self, batch: Batch) -> set[bytes]:
        values = zip(ids_of(batch, stamp=self._stamp), self._are_shared(batch), strict=True)
        return {value for value, is_shared in values if is_shared and value is not None}

    def _are_shared(self, batch: Batch) -> list[bool]:
        """For each message, whether others can have its ID."""
        if batch.block is None:
            return []
        origins = batch.block.origins if self._stamp else ()
        shared: list[bool] = []
        for stream, first, last in origins:  # first stored elsewhere: it may have come by two ways
            shared += [stream != batch.stream] * (last - first + 1)
        shared = shared or [True] * batch.block.count
        for index, message in enumerate(batch.block.messages()):
            shared[index] |= bool(carried_id(message))
        for index, _ in batch.block.ids:
            shared[index] = not self._checks_ids
        return shared

    def _present(self, key: Key) -> int:
        value, known_by = _parts(key)
        assert self._ids is not None
        if known_by is None:
            return int(value in self._ids.ids)
        count = self._counted.get(value)
        return 0 if count is None else count.present(known_by)

    def _due(self, key: Key) -> Due:
        value, known_by = _parts(key)
        if known_by is None:
            return ONCE
        count = self._counted.get(value)
        # An ID that the topic does not hold: copies that exist now were sent by this plan.
        return Due(least=2**63) if count is None else count.due(known_by)


def _parts(key: Key) -> tuple[bytes, bytes | None]:
    assert isinstance(key, tuple)
    value, known_by = key
    return value, known_by
