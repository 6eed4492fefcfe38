"""Random histories of starts, streams and expired heads on a broker; the model is in `tests.fakes.starts`.

The same with every question to the brokers as a place to die: `tests/unit/kafka/source/test_starts_model.py`.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from bridge.kafka.client.metadata import ClusterClient
from bridge.kafka.source.progress import Progress, show_a_start
from bridge.kafka.source.source import KafkaSource
from bridge.runtime.clock import SystemClock
from tests.fakes.starts import Bridge, Log, Model, Part, body, told_of
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.source.rig import Rig, expire, produce, rigged

SHORT: Final = 8
LONG: Final = 150
STEPS: Final = 7
MOST_PARTITIONS: Final = 3
#: Longest that one run of a lane may take, seconds.
WITHIN_S: Final = 30.0


class HurriedClock(SystemClock):
    """The machine's, and more."""

    def __init__(self) -> None:
        self._ahead_ms = 0

    def pass_by(self, ms: int) -> None:
        self._ahead_ms += ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self._ahead_ms


class History:
    """One bridge on one topic of a broker."""

    def __init__(self, rng: random.Random, rig: Rig) -> None:
        self.rng = rng
        self.rig = rig
        self.topic = f"{rig.bridge}.orders"
        self.logs: dict[Part, Log] = {}
        #: The progress group's number: another one is what is left when its offsets have expired.
        self.group = 0
        self.clock = HurriedClock()
        start_position = rng.choice(["earliest", "latest"])
        self.bridge = Bridge(
            self,
            Model(start_position),
            self.source,
            self.clock,
            lanes=rng.randint(1, 2),
            gap_policy=rng.choice(["stop", "continue"]),
        )
        self.done = [f"{start_position}, {self.bridge.lanes} lanes, {self.bridge.gap_policy}"]

    @property
    def _group(self) -> str:
        return f"{self.rig.group}.{self.group}"

    def source(self, lane: int, lanes: int, gap_policy: str) -> KafkaSource:
        return self.rig.source(
            self.topic,
            bridge=self.bridge.name,
            group=self._group,
            lane=lane,
            lanes=lanes,
            gap_policy=gap_policy,
            start_position=self.bridge.model.start_position,
            names=[self.topic],
            names_only=True,
            records_start=lane == 0,
            clock=self.clock,
        )

    async def tells_of_a_start(self) -> bool:
        progress = Progress(self.rig.connection, self._group, SystemClock())
        try:
            return show_a_start((await progress.marks()).values())
        finally:
            await progress.close()

    async def happen(self) -> None:
        what = self.rng.choice([self.run, self.run, self.make, self.produce, self.expire, self.stop])
        self.done.append(what.__name__)
        await what()

    async def run(self) -> None:
        """All lanes, as they start together; lane 0 first."""
        for lane in range(self.bridge.lanes):
            self.done[-1] += f" lane {lane}"
            async with asyncio.timeout(WITHIN_S):
                await self.bridge.run(lane)

    async def stop(self) -> None:
        """And what is changed meanwhile; a killed one commits nothing more."""
        await (self.bridge.kill() if self.rng.random() < 0.5 else self.bridge.stop())
        what = self.rng.choice(["", "policy", "group", "name"])
        self.done[-1] += f" {what}"
        if what == "policy":
            self.bridge.gap_policy = self.rng.choice(["stop", "continue"])
        elif what:
            self.group += 1
            if what == "name":
                await self.bridge.rename()
            else:
                self.bridge.lost_group()

    async def make(self) -> None:
        """The topic, more partitions of it, or another one in its place."""
        partitions = self.rng.randint(1, MOST_PARTITIONS)
        if self.logs and self.rng.random() < 0.3:
            self.done[-1] += " anew"
            await self.bridge.stop()
            await asyncio.to_thread(self.rig.cluster.delete_topic, self.topic)
            self.logs = {}
            await self.bridge.forget()
        self.done[-1] += f" {partitions}"
        if not self.logs:
            await asyncio.to_thread(self.rig.cluster.create_topic, self.topic, partitions)
        elif partitions > len(self.logs):
            await asyncio.to_thread(self.rig.cluster.add_partitions, self.topic, partitions)
        async with ClusterClient(self.rig.connection) as client:
            topic = (await client.cluster([self.topic])).topics[self.topic]
        for number in range(partitions):
            self.logs.setdefault((self.topic, topic.id, number), Log())

    async def produce(self) -> None:
        for (topic, topic_id, number), log in self.logs.items():
            values = [body(topic_id, number, log.end + place) for place in range(self.rng.randint(0, 5))]
            if values:
                await asyncio.to_thread(produce, self.rig.cluster, topic, values, partition=number)
                log.end += len(values)
                self.done[-1] += f" {number} to {log.end}"

    async def expire(self) -> None:
        """Stopped: a client that runs has fetched ahead."""
        await self.bridge.stop()
        for (topic, _, number), log in self.logs.items():
            start = self.rng.randint(log.start, log.end)
            if start > log.start:
                await asyncio.to_thread(expire, self.rig.cluster, topic, start, number)
                log.start = start
                self.done[-1] += f" {number} to {start}"

    async def end(self) -> None:
        await self.bridge.stop()
        self.bridge.gap_policy = "continue"
        await self.run()
        await self.bridge.stop()


@pytest.fixture
async def rig(cluster_a: Reachable) -> AsyncIterator[Rig]:
    async with rigged(cluster_a, f"m{uuid.uuid4().hex[:8]}") as made:
        yield made


@pytest.mark.parametrize(
    "histories", [SHORT, pytest.param(LONG, marks=pytest.mark.kafka_long)], ids=["short", "long"]
)
async def test_what_is_owed_is_relayed_or_named(
    rng: random.Random, rig: Rig, histories: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.kafka.source.lane_reader.METADATA_INTERVAL_MS", 100)
    name: Any = rig.bridge
    for case in range(histories):
        rig.bridge = f"{name}-{case}"
        history = History(random.Random(rng.random()), rig)
        with told_of(case, history.done):
            for _ in range(STEPS):
                await history.happen()
            await history.end()
