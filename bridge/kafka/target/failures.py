"""The consequences of a failed transaction: errors for its callers, and judgements for the next attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from bridge.errors import BridgeError, TargetRefused, TargetUnavailable
from bridge.kafka.client.error_codes import HINTS, RECORD_ERRORS
from bridge.kafka.client.errors import explained, said
from bridge.kafka.records.record_batches import RecordBatch, RecordBatches, Segment
from bridge.kafka.records.topic_rules import TopicRules
from bridge.kafka.target.dead_letters import Letters
from bridge.kafka.target.doubts import TOO_LARGE, Doubts
from bridge.kafka.target.refused_records import Isolation
from bridge.kafka.target.transaction import SEND_TIMEOUT_MS, LineTooSlow, Refusal, SendFailed, Throttled


def send_failure(failed: SendFailed, connector: str, topics: Mapping[str, TopicRules]) -> BridgeError:
    """The error for data or state that could not be written."""
    if isinstance(failed.error, Throttled):
        return TargetUnavailable(
            f"connector {connector}: topic {failed.topic} partition {failed.partition}: {failed.error}",
            key="producer-window-size",
            limit=failed.error.limit_ms,
        )
    if isinstance(failed.error, LineTooSlow):
        return TargetUnavailable(
            f"connector {connector}: topic {failed.topic} partition {failed.partition}: {failed.error}",
            key="transaction-timeout-ms" if failed.error.is_at_limit else f"topic {failed.topic}",
        )
    rules = topics.get(failed.topic)
    if isinstance(failed.error, TimeoutError) and rules is not None:
        return TargetUnavailable(
            f"connector {connector}: topic {failed.topic} partition {failed.partition} took nothing for "
            f"{SEND_TIMEOUT_MS} ms: no leader, or less in-sync replicas than min.insync.replicas "
            f"({rules.min_insync_replicas})",
            key=f"topic {failed.topic}",
        )
    return explained(
        failed.error, side="target", connector=connector, operation="Write", resource=f"topic {failed.topic}"
    )


@dataclass(frozen=True, slots=True)
class Judgements:
    """Records the brokers' judgements of records, for later plans."""

    isolation: Isolation
    letters: Letters
    #: The doubts by topic.
    doubts: MutableMapping[str, Doubts]
    journal_topic: str

    def refused(self, refusals: Sequence[Refusal], now_ms: int) -> None:
        """Record that the brokers refuse these record batches.

        Raises:
            TargetRefused: nothing can be left out: it is the journal's record, or a fully reduced dead
                letter. TargetUnavailable: it is the journal's, and will be smaller at the next taking.
        """
        for one in refusals:
            detail = f"topic {one.batch.topic} does not take it: {said(one.error)}; {HINTS[one.code]}"
            reason = f"{RECORD_ERRORS[one.code]}: {detail}"
            if one.batch.topic == self.journal_topic:
                # Journal records are limited to what the topic took when the lane was taken: now it takes
                # less.
                kind = TargetUnavailable if one.code in TOO_LARGE else TargetRefused
                raise kind(reason, key="journal-topic")
            if one.batch.builder.record_count() == 1:
                self._record(one, 0, reason, now_ms)
            elif one.records:
                for index, word in one.records.items():
                    self._record(one, index, f"{reason} ({word})" if word else reason, now_ms)
            elif one.code in TOO_LARGE:
                self.doubts[one.batch.topic].refused_batch(one.batch.builder.size())
                self._letters_of(one.batch)
            else:
                self._narrow(one.batch)

    def _record(self, one: Refusal, index: int, reason: str, now_ms: int) -> None:
        segment = one.batch.segment(index)
        if segment is None:
            return self._narrow(one.batch)
        position, message = segment.at(index)
        if segment.is_letter:
            self.letters.reduce(segment.stream, position, reason)
        else:
            self.isolation.refuse(segment.stream, position, reason)
            self.doubts[one.batch.topic].refused(one.code, message, now_ms)
        return None

    def _narrow(self, batch: RecordBatch) -> None:
        """Begin poison-record isolation: the refused record is one of several, and unknown."""
        self._letters_of(batch)
        for segment in _of_messages(batch):
            self.isolation.narrow(segment.stream, segment.first, segment.last, len(segment.positions))

    def _letters_of(self, batch: RecordBatch) -> None:
        for segment in batch.segments:
            if segment.is_letter:
                self.letters.suspect(segment.stream, segment.first)

    def stored(self, batches: RecordBatches) -> None:
        """Record that the brokers have taken these record batches."""
        for batch in batches:
            doubts = self.doubts.get(batch.topic)
            if doubts is not None:
                doubts.taken_batch(batch.builder.size())

    def probed(self, batches: RecordBatches, refusals: Sequence[Refusal], now_ms: int) -> None:
        """Record a probe's result: the brokers refuse these record batches, and take the others.

        Raises: as `refused`.
        """
        self.isolation.probed()
        refused = {one.batch for one in refusals}
        for batch in batches:
            if batch not in refused:
                for segment in _of_messages(batch):
                    self.isolation.clear(segment.stream, segment.positions)
                    for message in segment.messages:
                        self.doubts[batch.topic].taken(message, now_ms)
        self.refused(refusals, now_ms)


def _of_messages(batch: RecordBatch) -> Iterable[Segment]:
    return (segment for segment in batch.segments if not segment.is_letter)
