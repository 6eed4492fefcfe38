"""Streams that the target cannot take as its topics are now; they wait, and the others go on. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from bridge.errors import TargetRefused
from bridge.kafka.records.identity import partition_of
from bridge.kafka.records.topic_rules import TopicRules
from bridge.relay.ports import Stream


def why_parked(
    stream: Stream,
    rules: Mapping[str, TopicRules],
    refused: Mapping[str, TargetRefused],
    *,
    preserve_partitions: bool,
) -> str:
    """The reason, as `CODE: detail`, why nothing of this stream can be written; empty: it can.

    Args:
        stream: one that is open.
        rules: the rules of the topics that are there.
        refused: by topic, why nothing can be written to it.
        preserve_partitions: whether a message stays in the partition of its number.
    """
    if stream.empty:
        return ""
    topic = stream.target_address
    if topic in refused:
        return f"{refused[topic].code}: {refused[topic].detail}"
    number = partition_of(stream.identity)
    if topic not in rules or number is None or not preserve_partitions:
        return ""
    there = rules[topic].partitions
    if number < there:
        return ""
    return (
        f"TOO_FEW_PARTITIONS: partition {number} of {stream.address} has none of the same number"
        f" (preserve-partitions) in topic {topic}, which has {there}: add partitions to {topic}, or set"
        " add-partitions = true"
    )
