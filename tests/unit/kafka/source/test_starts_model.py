"""Random histories of starts, streams, expired heads, kills and renames, on fakes of brokers and a target.

The source is the real one, down to its questions to the cluster; the model is in `tests.fakes.starts`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from aiokafka.structs import TopicPartition

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.metadata import Cluster, Offset, Partition, Topic
from bridge.kafka.records.decoding import BatchOptions
from bridge.kafka.records.identity import LaneIndex
from bridge.kafka.source.consumer import Fetched, OutOfRange
from bridge.kafka.source.options import SourceOptions, TopicSelection
from bridge.kafka.source.progress import Kind, Mark, Progress, show_a_start
from bridge.kafka.source.source import KafkaSource
from tests.fakes.starts import Bridge, Idle, Killed, Log, Model, Part, body, told_of
from tests.harness.rounds import rounds

CASES: Final = rounds(320)
STEPS: Final = 30
NAMES: Final = ("orders", "bills")
MOST_PARTITIONS: Final = 4


@dataclass
class Record:
    offset: int
    value: bytes
    timestamp: int = 1_790_000_000_000
    key: bytes | None = None
    headers: Sequence[Any] = ()


@dataclass
class World:
    """Brokers, and the progress group. A process that asks them may die before and after each answer."""

    topics: dict[str, str] = field(default_factory=dict)
    logs: dict[Part, Log] = field(default_factory=dict)
    group: dict[TopicPartition, Mark] = field(default_factory=dict)
    #: So many more answers until the process dies; None: it does not.
    fuse: int | None = None

    async def tells_of_a_start(self) -> bool:
        return show_a_start(self.group.values())

    def step(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise Killed

    def at(self, tp: TopicPartition) -> Log:
        return self.logs.get((tp.topic, self.topics.get(tp.topic, ""), tp.partition), Log())

    def make(self, name: str, partitions: int) -> None:
        """The topic, or more partitions of it."""
        topic_id = self.topics.setdefault(name, str(uuid.uuid4()))
        for number in range(partitions):
            self.logs.setdefault((name, topic_id, number), Log())

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.logs = {part: log for part, log in self.logs.items() if part[0] != name}
        self.group = {tp: mark for tp, mark in self.group.items() if tp.topic != name}


class FakeClient:
    """`ClusterClient`."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def cluster(
        self, topics: Sequence[str] | None = (), *, broker: int | None = None, step: object = None
    ) -> Cluster:
        self._world.step()
        found = {
            name: Topic(
                name,
                topic_id,
                {
                    part[2]: Partition(-1 if log.leaderless else 1, 3)
                    for part, log in self._world.logs.items()
                    if part[:2] == (name, topic_id)
                },
            )
            for name, topic_id in self._world.topics.items()
            if topics is None or name in topics
        }
        return Cluster("c", (1,), found)

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int], *, broker: int
    ) -> dict[TopicPartition, int]:
        return {tp: self._world.at(tp).end for tp in epochs}

    async def offsets(
        self, leaders: Mapping[TopicPartition, int], which: Offset, step: object = None
    ) -> dict[TopicPartition, int]:
        self._world.step()
        logs = {tp: self._world.at(tp) for tp in leaders}
        return {tp: log.start if which is Offset.START else log.end for tp, log in logs.items()}

    async def high_watermarks(
        self, tps: Sequence[TopicPartition], *, broker: int
    ) -> dict[TopicPartition, int]:
        return {tp: self._world.at(tp).end for tp in tps}


class FakeProgress(Progress):
    """The group is the world's; nothing is committed by itself."""

    world: World

    async def marks(self) -> dict[TopicPartition, Mark]:
        self.world.step()
        return dict(self.world.group)

    async def commit(self, marks: Mapping[TopicPartition, Mark]) -> None:
        self.world.step()
        self.world.group.update({tp: mark for tp, mark in marks.items() if tp.topic in self.world.topics})
        self.world.step()

    def _begin(self) -> None: ...


class FakeReading:
    """`Reading`: brings what there is, and raises `Idle` where there is nothing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._at: dict[TopicPartition, int] = {}
        self.at_end = False
        self.parked = ()

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._at)

    async def assign(self, positions: Mapping[TopicPartition, int], back_off: object = ()) -> None:
        self._at = dict(positions)

    def back_off(self, tps: Collection[TopicPartition]) -> None: ...

    async def heal(self, there: object) -> None: ...

    def end(self, tp: TopicPartition) -> int:
        return self._world.at(tp).end

    high_watermark = end

    async def fetch(self, wait_ms: int) -> dict[TopicPartition, Fetched]:
        """By name, as a client does: what stands there may be another topic's."""
        found: dict[TopicPartition, Fetched] = {}
        for tp, at in self._at.items():
            log = self._world.at(tp)
            if not log.start <= at <= log.end:
                raise OutOfRange(f"{tp} begins at {log.start} and ends at {log.end}; found {at}")
            if at < log.end and not log.leaderless:
                topic_id = self._world.topics[tp.topic]
                offsets = range(at, log.end)
                records: list[Any] = [Record(one, body(topic_id, tp.partition, one)) for one in offsets]
                found[tp] = Fetched(at, log.end, records)
                self._at[tp] = log.end
        if not found:
            raise Idle
        return found

    async def close(self) -> None:
        self._at = {}


class PassingClock:
    """Time passes when it is said to."""

    def __init__(self) -> None:
        self._now_ms = 1_000_000

    def pass_by(self, ms: int) -> None:
        self._now_ms += ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    wall_ms = monotonic_ms


class History:
    """One bridge and what happens to it and around it, by chance."""

    def __init__(self, rng: random.Random, start_position: str, lanes: int, named: bool) -> None:
        self.rng = rng
        self.world = World()
        self.clock = PassingClock()
        self.named = named
        self.bridge = Bridge(
            self.world,
            Model(start_position),
            self.source,
            self.clock,
            self.world.step,
            lanes=lanes,
            gap_policy=rng.choice(["stop", "continue"]),
        )
        self.done: list[str] = []

    def source(self, lane: int, lanes: int, gap_policy: str) -> KafkaSource:
        options = SourceOptions(
            bridge=self.bridge.name,
            group="group",
            topics=TopicSelection(
                selects=lambda topic: topic in NAMES,
                forward=lambda topic: f"to.{topic}",
                names=NAMES if self.named else (),
                names_only=self.named,
            ),
            batches=BatchOptions(stamp=True, batch_bytes=1 << 20, large_bytes=1 << 17, max_id_bytes=1024),
            start_position=self.bridge.model.start_position,  # type: ignore[arg-type]
            gap_policy=gap_policy,  # type: ignore[arg-type]
            records_start=lane == 0,
        )
        return KafkaSource(
            KafkaConnection("here", "127.0.0.1:1"), LaneIndex(lane, lanes), options, clock=self.clock
        )

    async def before(self) -> None:
        """What there is when the bridge comes, in half of all histories."""
        if self.rng.random() < 0.5:
            for what in (self.make, self.produce, self.expire, self.leaders):
                self.done.append(what.__name__)
                await what()

    async def happen(self) -> None:
        what = self.rng.choices(
            [self.run, self.kill, self.make, self.produce, self.expire, self.stop, self.change],
            [6, 2, 3, 5, 4, 2, 2],
        )[0]
        self.done.append(what.__name__)
        await what()

    # -- the bridge ------------------------------------------------------------------------------------

    def lane(self) -> int:
        """Any; the first start is over when lane 0 has recorded it, so that one is first."""
        return self.rng.randrange(self.bridge.lanes) if self.bridge.model.started else 0

    async def run(self) -> None:
        lane = self.lane()
        self.done[-1] += f" lane {lane} of {self.bridge.lanes} ({self.bridge.gap_policy})"
        await self.bridge.run(lane)

    async def kill(self) -> None:
        """In the middle of it."""
        self.world.fuse = self.rng.randrange(14)
        self.done[-1] += f" after {self.world.fuse}"
        await self.bridge.run(self.lane())
        self.world.fuse = None
        await self.bridge.kill()

    async def stop(self) -> None:
        await self.bridge.stop()

    async def change(self) -> None:
        """What is changed while it is stopped."""
        await self.bridge.stop()
        what = self.rng.choice(["policy", "lanes", "group", "name", "leader"])
        self.done[-1] += f" {what}"
        if what == "policy":
            self.bridge.gap_policy = self.rng.choice(["stop", "continue"])
        elif what == "lanes":
            self.bridge.lanes = self.rng.randint(1, 3)
        elif what == "leader":
            await self.leaders()
        else:
            self.world.group.clear()
            await (self.bridge.rename() if what == "name" else self.lost())

    async def lost(self) -> None:
        """The group's offsets have expired."""
        self.bridge.lost_group()

    # -- the source ------------------------------------------------------------------------------------

    async def make(self) -> None:
        name = self.rng.choice(NAMES)
        if name in self.world.topics and self.rng.random() < 0.3:
            self.done[-1] += f" {name} anew"
            self.world.delete(name)
            await self.bridge.forget()
        partitions = self.rng.randint(1, MOST_PARTITIONS)
        self.done[-1] += f" {name} {partitions}"
        self.world.make(name, partitions)

    def some(self) -> list[tuple[Part, Log]]:
        return [one for one in self.world.logs.items() if self.rng.random() < 0.6]

    async def produce(self) -> None:
        for part, log in self.some():
            log.end += self.rng.randint(1, 9)
            self.done[-1] += f" {part[0]}/{part[2]} to {log.end}"

    async def expire(self) -> None:
        for part, log in self.some():
            log.start = self.rng.randint(log.start, log.end)
            self.done[-1] += f" {part[0]}/{part[2]} to {log.start}"

    async def leaders(self) -> None:
        """Some partitions have none."""
        for part, log in self.world.logs.items():
            log.leaderless = self.rng.random() < 0.3
            self.done[-1] += f" {part[0]}/{part[2]} without" if log.leaderless else ""

    async def end(self) -> None:
        """Everything that is owed is relayed or named."""
        await self.bridge.stop()
        self.bridge.gap_policy = "continue"
        for log in self.world.logs.values():
            log.leaderless = False
        for lane in range(self.bridge.lanes):
            self.done.append(f"end {lane}")
            await self.bridge.run(lane)
        await self.bridge.stop()


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """Have the source ask fakes."""

    def ask(world: World) -> None:
        def progress(connection: KafkaConnection, group: str, clock: Any) -> Progress:
            made = FakeProgress(connection, group, clock)
            made.world = world
            return made

        monkeypatch.setattr("bridge.kafka.source.partitions.ClusterClient", lambda _: FakeClient(world))
        monkeypatch.setattr("bridge.kafka.source.source.Progress", progress)
        monkeypatch.setattr("bridge.kafka.source.source.Reading", lambda *_, **__: FakeReading(world))

    return ask


@pytest.mark.parametrize("named", [False, True], ids=["selected", "named"])
@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("start_position", ["earliest", "latest"])
async def test_what_is_owed_is_relayed_or_named(
    rng: random.Random, brokers: Callable[[World], None], start_position: str, lanes: int, named: bool
) -> None:
    for case in range(CASES // 8 + 1):
        history = History(random.Random(rng.random()), start_position, lanes, named)
        brokers(history.world)
        with told_of(case, history.done):
            await history.before()
            for _ in range(STEPS):
                await history.happen()
            await history.end()


async def test_a_first_start_of_which_only_a_part_was_committed_is_made_whole(
    rng: random.Random, brokers: Callable[[World], None]
) -> None:
    """A right was missing for one of the topics."""
    history = History(rng, "latest", 1, named=False)
    brokers(history.world)
    history.world.make("orders", 2)
    for log in history.world.logs.values():
        log.end = 9
    await history.bridge.run(0)
    await history.bridge.stop()
    one, other = history.world.group
    history.world.group = {one: replace(history.world.group[one], kind=Kind.START, of=2)}
    history.bridge.store.positions.clear()
    history.bridge.model = Model("latest")
    await history.bridge.run(0)
    assert history.world.group[other].of == 2
    assert not history.bridge.store.addresses
