"""Random histories, judged by the audit's comparison: what it says is held against what happened.

Hundreds of histories are one audit, each a few streams with an address of its own.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from dedup.ids import ID_HEADER, Stamp
from dedup.reconcile.audit import compare, job
from dedup.reconcile.audit.plan import Access, Place, Plan, Stream, source_ranges, target_ranges
from dedup.reconcile.audit.records import source_rows, table, target_rows
from dedup.reconcile.audit.summary import StreamCounts, Summary
from tests.reconcile.conftest import quick_session
from tests.verdicts import messages
from tests.verdicts.histories import history
from tests.verdicts.messages import Fate, Record, Truth
from tests.verdicts.world import World

#: Histories of a Kafka source that are judged, here and in the long run.
HISTORIES: Final = 500
HISTORIES_LONG: Final = 20_000
#: Histories of one audit.
TOGETHER: Final = 2_000
#: Kinds of bridges: whether IDs are checked, and whether the target is Kafka.
Kind = tuple[bool, bool]
KINDS: Final[Sequence[Kind]] = ((False, False), (False, True), (True, False), (True, True))


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    yield from quick_session()


def dense(seed: str, number: int) -> World:
    """A short history of a Kafka source with few IDs, of which each end has lost its beginning by chance.

    What `history` brings seldom: a rejected duplicate whose first copy has expired, and its kin.
    """
    rng = random.Random(f"{seed}:dense:{number}")
    shape = messages.Shape(
        number=number,
        is_kafka_source=True,
        is_kafka_target=rng.random() < 0.6,
        checks_ids=rng.random() < 0.7,
        cache=1_000,
        partitions=rng.choice([1, 1, 2]),
    )
    world = World(shape)
    carried = Stamp(f"kafka:other:{number}:0").text(7).encode()
    for _ in range(rng.randint(1, 4)):
        for partition in range(shape.partitions):
            count = rng.randint(2, 8)
            for _ in range(count):
                own = rng.choice([None, None, b"order-1", b"order-2", carried])
                world.produce(partition, own, is_stamp=own == carried, is_refused=rng.random() < 0.03)
            losing = rng.random() < 0.25
            world.relay(partition, count, lost=[at for at in range(count) if losing and rng.random() < 0.4])
            if rng.random() < 0.5:
                world.plan(partition, world.lost(partition), f"{len(world.lines):x}")
    for partition in range(shape.partitions):
        if rng.random() < 0.6:
            world.expire_target(partition, rng.randint(1, world.target.ends.get(partition, 0) + 1))
        if rng.random() < 0.3:
            world.expire_source(partition, rng.randint(1, world.current(partition).end))
    return world


# -- a history as the audit is given it --------------------------------------------------------------------


def _current(world: World) -> list[messages.Stream]:
    return [world.current(partition) for partition in range(world.shape.partitions)]


def streams_of(world: World) -> Iterator[Stream]:
    """What a planner finds: of a node, whose `next` nobody asks for, what the source knows of it."""
    is_kafka, address = world.shape.is_kafka_target, world.shape.address
    for one in _current(world):
        gone = (message.position + 1 for message in one.messages.values() if message.is_gone)
        confirmed = world.target.next.get(one.identity)
        if confirmed is not None and not is_kafka:
            confirmed = min(confirmed, one.confirmed)
        plans = [upto for name, upto in plans_of(world) if name.startswith(f"{one.identity}:replay:")]
        yield Stream(
            one.identity,
            address,
            one.partition,
            start=max(gone, default=one.first),
            end=one.end,
            target=address,
            confirmed=confirmed,
            replayed=max(plans, default=0) if is_kafka else 0,
        )


def plans_of(world: World) -> Iterator[tuple[str, int]]:
    """How far each plan's stream has come."""
    for line in world.lines:
        if ":replay:" in line.stream:
            yield line.stream, line.upto


def places_of(world: World) -> Iterator[Place]:
    for partition in range(world.shape.partitions):
        end = world.target.ends.get(partition, 0)
        yield Place(world.shape.address, partition, world.target_begins(partition), end, end)


def judged(spark: SparkSession, worlds: Sequence[World], output: Path) -> Summary:
    """One audit of histories that check IDs, and deliver, alike."""
    shape = worlds[0].shape
    streams = tuple(one for world in worlds for one in streams_of(world))
    places = tuple(one for world in worlds for one in places_of(world))
    kind = Access("nowhere:nothing", "settings.toml", "a", "kafka" if shape.is_kafka_target else "node")
    plan = Plan(
        "bridge", kind, kind, streams, places,
        preserves_partitions=shape.is_kafka_target, checks_ids=shape.checks_ids,
    )  # fmt: skip
    pieces = {(one.topic, one.partition): one for one in source_ranges(plan)}
    there = {(one.topic, one.partition): one for one in target_ranges(plan)}
    source, target = (
        spark.createDataFrame(
            table(
                row
                for world in worlds
                for one in records(world)
                for row in rows(ranges[world.shape.address, one.partition], [_record(one)])
            )
        )
        for records, ranges, rows in (
            (World.source_records, pieces, source_rows),
            (World.target_records, there, target_rows),
        )
    )
    numbers = {one.identity: number for number, one in enumerate(streams)}
    letters = [
        (-1, numbers[identity], position, None, None, None)
        for world in worlds
        for identity, position in sorted(world.dead_letters())
    ]
    records = compare.beside(source, target).persist()
    try:
        arrived = job.counted(records, checks_ids=shape.checks_ids)
        refused = job.refused(spark.createDataFrame(table(letters)))
        return job.judge(spark, plan, records, refused, arrived, str(output))
    finally:
        records.unpersist()


def _record(one: Record) -> tuple[int, list[tuple[str, bytes | None]], None]:
    return one.offset, [] if one.id is None else [(ID_HEADER, one.id)], None


# -- what is true --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class OfId:
    """What is true of the messages of one ID."""

    #: A producer's, and checked: the ID is the message, however often it was sent.
    is_once: bool
    #: Of what the source still has, and of what it no longer has.
    here: list[Truth] = field(default_factory=list)
    gone: list[Truth] = field(default_factory=list)
    #: Of the former: how many the audit is told are covered and not refused, and how many it is not.
    due: int = 0
    waiting: int = 0

    @property
    def present(self) -> int:
        return sum(len(one.present) for one in (*self.here, *self.gone))

    @property
    def lost_at_most(self) -> int:
        lost = sum(one.fate is Fate.LOST for one in self.here)
        if self.is_once:
            return min(lost, 1) if not any(one.stored for one in (*self.here, *self.gone)) else 0
        return lost

    @property
    def lost_at_least(self) -> int:
        """Copies of one ID are alike: one that is there too often stands for one that is not."""
        if self.is_once:
            return self.lost_at_most
        spare = sum(max(one.stored - 1, 0) for one in self.here) + sum(one.stored for one in self.gone)
        return max(self.lost_at_most - spare, 0)

    @property
    def doubled_at_most(self) -> int:
        if self.is_once:
            return max(self.present - 1, 0) if self.here else 0
        return sum(max(len(one.present) - 1, 0) for one in (*self.here, *self.gone))

    @property
    def doubled_at_least(self) -> int:
        if self.is_once or not self.here:
            return self.doubled_at_most if self.here else 0
        return max(self.present - len(self.here) - len(self.gone), 0)

    @property
    def unknown_at_most(self) -> int:
        """Of a whole history: some are due, some are on their way or refused: whose the copies are is open.

        By what the audit is told. A position that is covered in truth is not known to be where the receipt
        was lost, or where the target's memory was set back: then a copy too many of a message that is due
        looks like the only one of a message that waits, and the other way round.
        """
        return self.waiting if not self.is_once and self.due and self.present else 0


def truths_of(world: World) -> list[OfId]:
    """By ID; only IDs of what the bridge reads now."""
    truths, letters = world.truths(), world.dead_letters()
    told = {one.identity: one.confirmed or 0 for one in streams_of(world)}
    by_id: dict[bytes, OfId] = {}
    for stream in _current(world):
        for position, message in stream.messages.items():
            is_once = world.shape.checks_ids and message.id is not None and not message.is_stamp
            one = by_id.setdefault(message.carried, OfId(is_once))
            (one.gone if message.is_gone else one.here).append(truths[stream.identity, position])
            waits = position >= told[stream.identity] or (stream.identity, position) in letters
            one.waiting += waits and not message.is_gone
            one.due += not waits and not message.is_gone
    return list(by_id.values())


def complaints(world: World, said: Collection[StreamCounts]) -> Iterator[str]:
    """What the audit has said of a history that is not so."""
    truths = truths_of(world)
    lost, doubled, unknown = (
        sum(getattr(one, name) for one in said) for name in ("lost", "doubled", "unknown")
    )
    lost_least, lost_most = (
        sum(getattr(one, f"lost_at_{end}") for one in truths) for end in ("least", "most")
    )
    doubled_least = sum(one.doubled_at_least for one in truths)
    doubled_most = sum(one.doubled_at_most for one in truths)
    is_whole = not any(one.start for one in streams_of(world)) and not any(
        one.start for one in places_of(world)
    )
    if lost + unknown < lost_least:
        yield f"better than the truth: {lost} lost and {unknown} unknown of {lost_least} that are lost"
    if lost > lost_most and not _hides_replays(world):
        yield f"worse than the truth: {lost} lost of {lost_most} that are"
    if doubled + unknown < doubled_least:
        yield f"better than the truth: {doubled} doubled and {unknown} unknown of {doubled_least}"
    if doubled > doubled_most:
        yield f"worse than the truth: {doubled} doubled of {doubled_most}"
    if is_whole:
        unknown_most = sum(one.unknown_at_most for one in truths)
        if unknown > unknown_most:
            yield f"{unknown} unknown, and nothing leaves more than {unknown_most} open"
        if not unknown_most and (lost, doubled) != (lost_least, doubled_least):
            yield f"not exact: {lost} lost of {lost_least}, {doubled} doubled of {doubled_least}"
    if sum(one.foreign for one in said):
        yield "foreign records, of which there are none"


def _hides_replays(world: World) -> bool:
    """A node does not tell what plans have brought: what it no longer has may seem lost (docs/audit.md)."""
    return not world.shape.is_kafka_target and any(plans_of(world))


# -- tests ---------------------------------------------------------------------------------------------------


def check(
    spark: SparkSession, rng: random.Random, count: int, output: Path, kinds: Collection[Kind] = KINDS
) -> None:
    """Judge so many histories of a Kafka source and of these kinds."""
    seed = str(rng.getrandbits(64))
    alike: dict[Kind, list[World]] = defaultdict(list)
    number = 0
    while sum(map(len, alike.values())) < count:
        # One history in two is a dense one; the numbers tell their streams apart.
        for world in (history(seed, 2 * number), dense(seed, 2 * number + 1)):
            kind = world.shape.checks_ids, world.shape.is_kafka_target
            if world.shape.is_kafka_source and kind in kinds:
                alike[kind].append(world)
        number += 1
    assert alike.keys() == {*kinds}
    wrong, verdicts = [], defaultdict[str, int](int)
    for worlds in alike.values():
        for start in range(0, len(worlds), TOGETHER):
            part = worlds[start : start + TOGETHER]
            summary = judged(spark, part, output)
            said = defaultdict[str, list[StreamCounts]](list)
            for one in summary.streams:
                said[one.topic].append(one)
            for world in part:
                counts = said[world.shape.address]
                verdicts[Summary("bridge", counts).verdict] += 1
                wrong += [f"history {world.shape.number}: {one}" for one in complaints(world, counts)]
    print(f"seed {seed}, of {count} histories: {dict(verdicts)}")
    assert not wrong, f"seed {seed}: {len(wrong)} complaints\n" + "\n".join(wrong[:40])
    assert min(verdicts[name] for name in ("clean", "unknown", "lost")) > count // 50


def test_an_audit_says_nothing_better_or_worse_than_the_truth(
    spark: SparkSession, rng: random.Random, tmp_path: Path
) -> None:
    """An audit takes as long for hundreds as for one: of a kind and its opposite, by chance."""
    kind = rng.choice(KINDS)
    check(spark, rng, HISTORIES, tmp_path / "audit", [kind, (not kind[0], not kind[1])])


@pytest.mark.spark_long
def test_a_great_many_audits_say_nothing_better_or_worse_than_the_truth(
    spark: SparkSession, rng: random.Random, tmp_path: Path
) -> None:
    check(spark, rng, HISTORIES_LONG, tmp_path / "audit")
