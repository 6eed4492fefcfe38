"""What a failed transaction means: for whoever waits, and for what is sent at the next opening."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.errors import BridgeError, TargetRefused, TargetUnavailable
from bridge.kafka.error_codes import HINTS
from bridge.kafka.errors import code_of, explained, said
from bridge.kafka.letters import Letters
from bridge.kafka.piles import RecordBatch
from bridge.kafka.suspects import Suspects
from bridge.kafka.topic_rules import TopicRules
from bridge.kafka.transaction import RECORD_ERRORS, SEND_TIMEOUT_MS, BatchesRefused, SendFailed


def send_failure(failed: SendFailed, connector: str, topics: Mapping[str, TopicRules]) -> BridgeError:
    """Why data, or what is remembered, could not be written."""
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


def refused_records(
    refused: BatchesRefused, journal_topic: str, suspects: Suspects, letters: Letters
) -> BridgeError:
    """Note what the broker did not take, so that the next attempt finds the record; the error meanwhile."""
    for batch, error in refused.refused:
        code = code_of(error) or 0
        reason = f"{RECORD_ERRORS[code]}: topic {batch.topic} does not take it: {said(error)}; {HINTS[code]}"
        if batch.topic == journal_topic:
            return TargetRefused(reason, key="journal-topic")
        try:
            _note(batch, reason, suspects, letters)
        except TargetRefused as last:
            return last
    return TargetUnavailable(f"the target does not take a record; looking for it: {refused}")


def found_alone(refused: BatchesRefused) -> bool:
    """Whether a message was refused in a record batch of its own: without it the rest can be tried at once.

    Its stream waits from then on, so that there are fewer of them at each attempt.
    """
    return any(
        batch.builder.record_count() == 1 and batch.segments and not batch.segments[0].is_letter
        for batch, _ in refused.refused
    )


def _note(batch: RecordBatch, reason: str, suspects: Suspects, letters: Letters) -> None:
    """Raises: TargetRefused, where a dead letter is as small as can be."""
    total, before = batch.builder.record_count(), -1
    for segment in batch.segments:
        if segment.is_letter and total > 1:
            letters.suspect(segment.stream, segment.first)
        elif segment.is_letter:
            letters.reduce(segment.stream, segment.first, reason)
        else:
            # Of several records none is known to be the one.
            count = 1 if total == 1 else max(2, segment.place - before)
            suspects.narrow(segment.stream, segment.first, segment.last, count, reason)
        before = segment.place
