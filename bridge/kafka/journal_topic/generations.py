"""Decides how a bridge is cut into lanes: at its first start, by `core-bridge lanes`, and for a new name.

Every decision is one transaction that writes the same `GenerationRecord` to all partitions, under the one
transactional id `<journal topic>.generations`: of two concurrent decisions the later fences the earlier, and
then reads what the earlier has committed. Nothing else is moved here: the takers of lanes do that
(`repartitioning`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from bridge.errors import Fenced, TargetRefused, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.journal_topic.partition_io import JournalLog
from bridge.kafka.journal_topic.records import GenerationRecord, Record, Snapshot, generation_record
from bridge.kafka.journal_topic.repartitioning import (
    adopted,
    check_bridge,
    next_generation,
    superseded,
    with_source,
)
from bridge.kafka.journal_topic.setup import JournalSetup
from bridge.kafka.records import identity

#: Number and pause of the checks by which a fenced process looks for the other's decision.
_LOOKS: Final = 50
_LOOK_PAUSE_MS: Final = 100
#: A transaction that has delayed reading the journal topic for so long was left by a worker that died.
LEFT_OPEN_AFTER_MS: Final = 2_000

#: Makes the next generation from the present one and the partitions; None: nothing has to change.
Decision = Callable[[GenerationRecord | None, Sequence[Snapshot]], GenerationRecord | None]


def decider(topic: str) -> str:
    """The transactional id under which decisions about a journal topic are written."""
    return f"{topic}.generations"


async def set_lanes(
    connection: KafkaConnection, *, bridge: str, topic: str, lanes: int
) -> tuple[GenerationRecord, GenerationRecord]:
    """Cut a bridge into another number of lanes: `core-bridge lanes NAME --set N`.

    Adds partitions to the journal topic where there are fewer than `lanes`, then records the next
    generation. Workers of the old one continue until the first lane of the new one is taken, which fences
    them all; when they take their lanes again they find the new generation and refuse. A transaction that a
    killed worker has left open is ended here, without waiting until the broker does so. So the settings of
    every worker must say `concurrency = N` before it is started again. Nothing is lost or sent twice at
    whatever moment this or a taker dies. The cost of a change: the duplicate IDs of an address that the old
    lanes remembered are merged, and the new lanes each keep the newest `id-cache-size` of them
    (`id_blocks.merged`).

    Args:
        connection: to the bridge's target.
        bridge: its name.
        topic: its journal topic.
        lanes: how many it is to have, at least 1.

    Returns:
        The generation before and the one now; the same where it has that many lanes already.

    Raises:
        TargetUnavailable: whether it was recorded is unknown; run it again.
        TargetRefused: the bridge has never run (its `concurrency` decides then), the topic is another
            bridge's, or a right is missing.
    """
    if lanes < 1:
        raise TargetRefused("a bridge has at least 1 lane", key="concurrency", limit=1, found=lanes)
    setup = JournalSetup(connection)
    if await setup.find(topic) is None:
        raise _never_ran(bridge, topic)
    before: list[GenerationRecord] = []

    def decision(current: GenerationRecord | None, partitions: Sequence[Snapshot]) -> GenerationRecord | None:
        if current is None:
            raise _never_ran(bridge, topic)
        check_bridge(current, bridge=bridge, topic=topic)
        before.append(current)
        if current.lanes == lanes:
            return None
        return next_generation(current, superseded(topic, current, partitions), lanes=lanes)

    # A call that must not change anything must not have added partitions either: they cannot be removed.
    if (current := await present(connection, topic)) is None:
        raise _never_ran(bridge, topic)
    check_bridge(current, bridge=bridge, topic=topic)
    await setup.grow(topic, lanes)
    if current.lanes != lanes:
        await _end_left_open(connection, topic, current, range(current.lanes))
    after = await decide(connection, topic, decision)
    return before[0], after


async def _end_left_open(
    connection: KafkaConnection, topic: str, record: GenerationRecord, lanes: Iterable[int | str]
) -> None:
    """Fence these lanes' owners where an open transaction blocks reading. A live one takes its lane again."""
    found = await JournalSetup(connection).find(topic)
    try:
        await JournalLog(connection, stalled_after_ms=LEFT_OPEN_AFTER_MS).read(
            topic, found.partitions if found else ()
        )
    except TargetUnavailable:
        await JournalLog(connection).fence(
            identity.transactional_id(topic, record.generation, lane) for lane in lanes
        )


async def present(connection: KafkaConnection, topic: str) -> GenerationRecord | None:
    """The present generation of a journal topic; None: there is no such topic, or no bridge has run.

    Raises:
        TargetUnavailable: try again later. TargetRefused: no right to read, or a damaged record.
    """
    if await JournalSetup(connection).find(topic) is None:
        return None
    partitions = await JournalLog(connection).read(topic, [0], settled=False)
    return partitions[0].generation


async def decide(connection: KafkaConnection, topic: str, decision: Decision) -> GenerationRecord:
    """Write the generation that `decision` makes of the present one; only one process decides at a time.

    Raises: as `set_lanes`.
    """
    async with JournalLog(connection).writer(decider(topic)) as writer:
        partitions = await _whole(connection, topic)
        current = partitions[0].generation
        new = decision(current, partitions)
        if new is not None:
            await writer.write(_everywhere(topic, partitions, new))
            return new
    assert current is not None, "a decision makes a first generation where there is none"
    return current


async def first(
    connection: KafkaConnection, topic: str, *, bridge: str, lanes: int, source: str = ""
) -> GenerationRecord:
    """The generation that the bridge has; at its first start ever, a new one of that many lanes.

    One that names no source, because an older version wrote it, gets this one.

    Raises: as `set_lanes`.
    """

    def decision(current: GenerationRecord | None, _: Sequence[Snapshot]) -> GenerationRecord | None:
        if current is None:
            return GenerationRecord(bridge=bridge, source=source, generation=1, lanes=lanes)
        return with_source(current, bridge=bridge, source=source)

    try:
        return await decide(connection, topic, decision)
    except Fenced:
        for _ in range(_LOOKS):  # a worker that started at the same moment was later: it decides the same
            found = await present(connection, topic)
            if found is not None and decision(found, ()) is None:
                return found
            await asyncio.sleep(_LOOK_PAUSE_MS / 1000)
        raise


async def adopt(
    connection: KafkaConnection,
    topic: str,
    previous: str,
    *,
    bridge: str,
    lanes: int,
    source: str = "",
    owner: str = "",
) -> GenerationRecord:
    """Continue under a new name: the state in `previous`, the former name's journal topic, becomes the past.

    The same transaction marks the old topic as moved, so that nothing runs under both names. A topic that
    has a state of its own keeps it, and the other is left alone; only one that moved to `previous` takes
    back. Bridges with and without `previous-name` must not be started for the first time at the same moment.
    A transaction that a killed worker of the old name has left open is ended, as by `set_lanes`.

    Args:
        connection: to the cluster that has both.
        topic: the bridge's journal topic, which exists.
        previous: the former one, which exists; the same where both names have one `journal-topic`.
        bridge: the new name.
        lanes: how many it has after this.
        source: where its messages come from, by this name.
        owner: the node UUID of the lanes where a node's journal is the source; other nodes end their own.

    Raises:
        TargetUnavailable: as `set_lanes`. TargetRefused: also where the old topic has moved elsewhere.
    """
    if (left := await present(connection, previous)) is not None:
        await _end_left_open(connection, previous, left, [owner] if owner else range(left.lanes))
    async with JournalLog(connection).writer(decider(previous)) as writer:
        if previous != topic:
            await JournalLog(connection).fence([decider(topic)])
        old = await _whole(connection, previous)
        own = await _whole(connection, topic) if previous != topic else old
        new, gone = adopted(topic, own, previous, old, bridge=bridge, lanes=lanes, source=source)
        if new != own[0].generation:
            records = _everywhere(topic, own, new)
            if gone is not None:
                records += _everywhere(previous, old, gone)
            await writer.write(records)
        return new


def _everywhere(
    topic: str, partitions: Sequence[Snapshot], record: GenerationRecord
) -> list[tuple[str, int, Record]]:
    """The record in each partition: the taker of a lane finds it by reading that lane's partition alone."""
    return [(topic, partition, generation_record(record)) for partition in range(len(partitions))]


async def _whole(connection: KafkaConnection, topic: str) -> list[Snapshot]:
    """All partitions of a topic, from the first."""
    found = await JournalSetup(connection).find(topic)
    if found is None:
        raise TargetRefused(f"there is no journal topic {topic}", key="journal-topic", found=topic)
    partitions = await JournalLog(connection).read(topic, found.partitions.keys())
    return [partitions[number] for number in sorted(partitions)]


def _never_ran(bridge: str, topic: str) -> TargetRefused:
    return TargetRefused(
        f"bridge {bridge} has never run: its journal topic {topic} has no lanes yet, and its first start"
        " makes as many as `concurrency` says",
        key="concurrency",
    )
