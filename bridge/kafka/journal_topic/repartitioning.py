"""Repartitioning: cuts a bridge into other lanes, and takes over its former state. Pure.

Every cut is a generation, recorded in all partitions of the journal topic. A lane is *initialised* when its
partition says that it holds the lane's whole state for the generation that counts. Until then earlier
generations hold the state, maybe under a bridge's former name: the record names them as `past`. The taker of
such a lane fences all of the past, reads it whole, and writes the lane's own part with its first transaction.
State that it leaves in place may be other lanes' and is never deleted; a stream's next only grows, so that
the greatest found anywhere is the one that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from bridge.errors import TargetRefused
from bridge.kafka.journal_topic.id_blocks import AddressIds, merged, stored_ids
from bridge.kafka.journal_topic.lane_state import LaneState, ids_in_block
from bridge.kafka.journal_topic.options import StateOptions
from bridge.kafka.journal_topic.records import (
    DEFAULT_BATCH_BYTES,
    GenerationRecord,
    LaneRecord,
    Past,
    Snapshot,
    StreamRecord,
)
from bridge.kafka.records.identity import LANE_HASH, lane_of, partition_of
from dedup.cache import IdCache


def check_bridge(record: GenerationRecord, *, bridge: str, topic: str) -> None:
    """Raises TargetRefused where the topic is another bridge's, or one of a former name."""
    if record.moved:
        raise TargetRefused(
            f"what bridge {record.bridge} remembered has moved from the journal topic {topic} to"
            f" {record.moved}: start it under its new name, or set previous-name to that one to take it back",
            key="previous-name",
            found=record.moved,
        )
    if record.bridge != bridge:
        raise TargetRefused(
            f"the journal topic {topic} belongs to bridge {record.bridge}: give {bridge} another"
            f" journal-topic, or set previous-name = {record.bridge!r} if it is the same bridge renamed",
            key="journal-topic",
            limit=record.bridge,
            found=bridge,
        )


def check_source(record: GenerationRecord, *, bridge: str, source: str, topic: str) -> None:
    """Raises TargetRefused where the bridge has brought messages from another source so far."""
    if record.source and source and record.source != source:
        raise TargetRefused(
            f"the journal topic {topic} is what bridge {bridge} remembers of the source {record.source}; this"
            f" one's source is {source}, and workers of both would leave some messages without a worker: give"
            f" this bridge another name, with previous-name = {bridge!r} if it takes the other's place (the"
            " other then stops)",
            key="source-connector",
            limit=record.source,
            found=source,
        )


def with_source(record: GenerationRecord, *, bridge: str, source: str) -> GenerationRecord | None:
    """A copy of an older version's generation, which does not name the bridge's source, with the source.

    None: nothing has to change, or it is not this bridge's.
    """
    if record.source or not source or record.moved or record.bridge != bridge:
        return None
    return msgspec.structs.replace(record, source=source)


def check_lanes(record: GenerationRecord, *, bridge: str, lanes: int, topic: str) -> None:
    """Raises TargetRefused where the bridge is cut differently than its settings say."""
    if record.hash != LANE_HASH:
        raise TargetRefused(
            f"the journal topic {topic} puts streams into lanes by {record.hash}, this core bridge by"
            f" {LANE_HASH}",
            key="journal-topic",
            limit=LANE_HASH,
            found=record.hash,
        )
    if record.lanes != lanes:
        raise TargetRefused(
            f"the journal topic {topic} has {record.lanes} lanes and the settings say concurrency = {lanes}:"
            f" set it back to {record.lanes}, or run `core-bridge lanes {bridge} --set {lanes}`",
            key="concurrency",
            limit=record.lanes,
            found=lanes,
        )


def lane_identity(record: GenerationRecord) -> LaneRecord:
    """The record with which a lane of this generation is initialised."""
    return LaneRecord(
        bridge=record.bridge, generation=record.generation, lanes=record.lanes, hash=record.hash
    )


def superseded(topic: str, record: GenerationRecord, partitions: Sequence[Snapshot]) -> tuple[Past, ...]:
    """The `past` that the successor of a generation must have.

    Args:
        topic: the generation's journal topic.
        record: the generation.
        partitions: of the topic, all of them, from the first.
    """
    here = Past(topic, record.generation, record.lanes)
    expected = lane_identity(record)
    lanes = partitions[: record.lanes]
    whole = len(lanes) == record.lanes and all(partition.lane("") == expected for partition in lanes)
    # Nodes that have not run here for long may still have their state in the past: it is kept for them.
    if whole and not any(partition.owned for partition in partitions):
        return (here,)
    return (*(past for past in record.past if past != here), here)


def next_generation(record: GenerationRecord, past: tuple[Past, ...], **changes: Any) -> GenerationRecord:
    """The generation after `record`, with these fields changed."""
    fields = {"moved": "", **changes}
    return msgspec.structs.replace(record, generation=record.generation + 1, past=past, **fields)


def adopted(
    topic: str,
    own: Sequence[Snapshot],
    previous: str,
    old: Sequence[Snapshot],
    *,
    bridge: str,
    lanes: int,
    source: str = "",
) -> tuple[GenerationRecord, GenerationRecord | None]:
    """The generation of a bridge that continues under a new name, and the new record of its former topic.

    Args:
        topic: the bridge's journal topic.
        own: all its partitions, from the first.
        previous: the journal topic under the former name; the same where both names have one.
        old: all partitions of that.
        bridge: the new name.
        lanes: how many it has after this.
        source: where its messages come from after this; the former name's source may have been another.

    Returns:
        The present generation where the bridge has a state of its own, or there is nothing to adopt.

    Raises:
        TargetRefused: the former topic has moved already.
    """
    current, former = own[0].generation, old[0].generation
    renamed = previous == topic
    taken_back = current is not None and current.moved == previous
    if current is not None and not (renamed or taken_back) and any(each.is_initialised for each in own):
        return current, None
    start = current or GenerationRecord(bridge=bridge, generation=0, lanes=lanes)
    if former is None:
        return current or next_generation(start, (), source=source), None
    if former.moved:
        raise TargetRefused(
            f"what bridge {former.bridge} remembered has moved from the journal topic {previous} to"
            f" {former.moved}, so {topic} cannot adopt it"
            + (" again: what it had adopted is gone" if former.moved == topic else ""),
            key="previous-name",
            found=former.moved,
        )
    gone = superseded(previous, former, old)
    past = gone if renamed or current is None else (*superseded(topic, current, own), *gone)
    names = dict.fromkeys((*start.adopted, *former.adopted, previous))
    new = next_generation(
        start,
        tuple(dict.fromkeys(past)),
        bridge=bridge,
        source=source,
        lanes=lanes,
        adopted=tuple(name for name in names if name != topic or renamed),
    )
    return new, None if renamed else next_generation(former, gone, moved=topic)


def taken_over(
    lane: LaneRecord,
    number: int,
    own: Snapshot,
    everything: Sequence[Snapshot],
    options: StateOptions,
    *,
    most_bytes: int = DEFAULT_BATCH_BYTES,
) -> LaneState:
    """The state of a lane that is not initialised, collected from the partitions that had its streams before.

    An address's duplicate IDs come from all lanes that had some, as any of them may have accepted an ID that
    belongs here now; `id_blocks.merged` chooses those that fit.

    Args:
        lane: the record with which it will be initialised.
        number: the lane's.
        own: the snapshot of its partition.
        everything: the snapshots of every partition of now and of the past, `own` among them.
        options: the settings of the state; with an `owner` the lane is the node's, whatever its number.
        most_bytes: of a record batch that the journal topic takes.

    Raises:
        TargetRefused: a record is damaged or of a newer version.
    """
    owner = options.owner
    streams: dict[str, StreamRecord] = {}
    for snapshot in everything:
        for identity, record in snapshot.streams(owner).items():
            before = streams.get(identity)
            if (owner or _lane(identity, record, lane.lanes) == number) and (
                before is None or record.next > before.next
            ):
                streams[identity] = record
    found = [snapshot.ids(owner) for snapshot in everything]
    stored = own.ids(owner)
    ids: dict[str, AddressIds] = {}
    for address in sorted({address for addresses in found for address in addresses}):
        cache = IdCache(options.id_cache_size(address))
        if options.persist_ids:
            lists = [stored_ids(addresses.get(address, {}))[0] for addresses in found]
            cache.load(merged(lists, cache.capacity))
        per_block = ids_in_block(most_bytes)
        ids[address] = AddressIds(
            cache, persist=options.persist_ids, stored=stored.get(address), per_block=per_block
        )
    return LaneState(lane, options, streams=streams, ids=ids, most_bytes=most_bytes)


def _lane(identity: str, record: StreamRecord, lanes: int) -> int:
    """The lane of a stream; the first, where the stream is no partition of a topic."""
    partition = partition_of(identity)
    return 0 if partition is None else lane_of(record.address, partition, lanes)
