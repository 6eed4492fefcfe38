"""The demo between two Kafka clusters: two relays, and the one that has the lane is killed and suspended.

The meaning of "in order" here: rows go to the source's partitions in turn, and at the target each must be in
the partition of the same number, in file order. The cut is a relay that is suspended (SIGSTOP) until the
other one has taken its lane, and that then resumes and does not know of it: a zombie.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bridge.demo.compare import Comparison, Proof
from bridge.demo.kafka_clusters import DemoCluster, DemoRecord, DemoSender
from bridge.demo.kafka_relays import Relay, Route, owner
from bridge.demo.nodes import LOOK_AGAIN_S, DemoFailed
from bridge.demo.ports import free_ports
from bridge.demo.rows import Row
from bridge.demo.stage import STILL_FOR_S, Stage, ended, together
from bridge.errors import BridgeError
from bridge.kafka.records.identity import progress_group
from bridge.settings.kafka_names import group_id, journal_topic

#: Where `make kafka-up` starts its two clusters.
SOURCE: Final = "127.0.0.1:19092"
TARGET: Final = "127.0.0.1:19192"
PARTITIONS: Final = 4
#: Every tenth row is sent again, under the same ID.
REPEAT_EVERY: Final = 10
#: The rows are sent in so many parts; a fault occurs in each but the first.
PARTS: Final = 4
ADVICE: Final = "`make kafka-up` starts two clusters; --source and --target name others"


class NoClusters(BridgeError):
    """There are no two clusters to relay between."""

    code = "NO_CLUSTERS"


async def check_clusters(source: str, target: str) -> None:
    """Ask both clusters for their ids. Raises: NoClusters, with advice."""
    found: list[str] = []
    for side, brokers in (("source", source), ("target", target)):
        try:
            async with DemoCluster("source" if side == "source" else "target", brokers) as cluster:
                found.append(await cluster.cluster_id())
        except BridgeError as error:
            raise NoClusters(f"no Kafka cluster at {brokers} ({side}); {ADVICE}: {error.detail}") from None
    if len(set(found)) < len(found):
        raise NoClusters(f"{source} and {target} are the same Kafka cluster; {ADVICE}")


@dataclass(slots=True)
class KafkaStory(Stage):
    """One run of the demo between two clusters."""

    #: ``host:port,host:port``.
    source: str = SOURCE
    target: str = TARGET
    route: Route = field(init=False)

    def __post_init__(self) -> None:
        run = uuid.uuid4().hex[:8]
        self.route = Route(f"demo-{run}", f"core-bridge-demo-{run}", self.source, self.target)

    @property
    def remains(self) -> str:
        """As `Stage.remains`, and the topics."""
        topic, journal = self.route.topic, journal_topic(self.route.bridge)
        settings = f"settings, journals and logs are in {self.directory}"
        return f"{settings}; topic {topic} is at {self.source} and {self.target}, {journal} at the latter"

    async def perform(self) -> Proof:
        """Run from an empty topic to the proof. Raises: as `Stage.play`."""
        relays = [
            Relay(f"relay-{number}", self.directory, port)
            for number, port in enumerate(free_ports(2), start=1)
        ]
        topic = self.route.topic
        async with DemoCluster("source", self.source) as source, ended(relays):
            await source.make_topic(topic, PARTITIONS)
            for relay in relays:
                relay.configure(self.route, self.id_cache_size)
            self.progress.note("starting two relays; one has the lane, the other waits for it")
            await together(*(relay.start() for relay in relays))
            started_at = time.monotonic()
            async with source.sender(topic) as sender:
                await self._send_and_break(sender, relays)
            in_source = await self._wait_for_relay(source, relays)
            comparison = await self._compare()
            seconds = time.monotonic() - started_at
            if comparison.lost:
                self.progress.note(f"first lost rows: {comparison.missing(5)}")
            for relay in relays:
                if (code := await relay.stop()) != 0:
                    raise DemoFailed(f"{relay.name} did not drain: exit code {code}", relay.log_end())
        repeated = in_source - len(self.rows)
        return Proof(
            sent=len(self.rows),
            repeated=repeated,
            # Covered, and not stored: a record stored twice was not rejected as a duplicate.
            duplicates=max(0, repeated - comparison.doubled),
            arrived=comparison.arrived,
            lost=comparison.lost,
            doubled=comparison.doubled,
            out_of_order=comparison.out_of_order,
            kills=sum(relay.kills for relay in relays),
            cuts=sum(relay.pauses for relay in relays),
            seconds=seconds,
        )

    async def clean_up(self) -> None:
        """Remove the topics; Kafka removes groups without members by itself."""
        async with DemoCluster("source", self.source) as source, DemoCluster("target", self.target) as target:
            await source.remove_topics([self.route.topic])
            await target.remove_topics([self.route.topic, journal_topic(self.route.bridge)])

    # -- sending and breaking --------------------------------------------------------------------------

    async def _send_and_break(self, sender: DemoSender, relays: Sequence[Relay]) -> None:
        """Send half of each part before its fault, and half during it; then repeat the part before.

        So the relay that has to recognise a repetition is not the one that saw the first copy.
        """
        ends = [len(self.rows) * part // PARTS for part in range(PARTS + 1)]
        before, *others = [self.rows[start:end] for start, end in itertools.pairwise(ends)]
        await owner(relays)
        await self._send(sender, before)
        for rows, fault in zip(others, (self._kill, self._kill, self._suspend), strict=True):
            half = len(rows) // 2
            await self._send(sender, rows[:half])
            await together(self._send(sender, rows[half:]), fault(relays))
            await self._send(sender, _repeated(before))
            before = rows
        await self._send(sender, _repeated(before))

    async def _send(self, sender: DemoSender, rows: Sequence[Row]) -> None:
        self.progress.update(f"sending up to row {rows[-1].index}" if rows else "")
        await sender.send(
            [DemoRecord(row.index % PARTITIONS, row.key, row.body, row.id.encode()) for row in rows]
        )

    async def _kill(self, relays: Sequence[Relay]) -> None:
        killed = await owner(relays)
        await killed.kill()
        self.progress.note(f"killed {killed.name}, which had the lane (SIGKILL)")
        taker = await owner(_others(relays, killed))
        await killed.start()
        self.progress.note(f"{taker.name} has the lane; started {killed.name} again")

    async def _suspend(self, relays: Sequence[Relay]) -> None:
        suspended = await owner(relays)
        suspended.pause()
        self.progress.note(f"suspended {suspended.name}, which had the lane (SIGSTOP)")
        taker = await owner(_others(relays, suspended))
        suspended.resume()
        self.progress.note(f"{taker.name} has the lane; {suspended.name} has woken up as a zombie")

    # -- waiting and comparing -------------------------------------------------------------------------

    async def _wait_for_relay(self, source: DemoCluster, relays: Sequence[Relay]) -> int:
        """Wait until the bridge has covered everything in the source; returns the number of these records."""
        topic, group = self.route.topic, progress_group(group_id(self.route.bridge))
        total = sum((await source.ends(topic, PARTITIONS)).values())
        covered, changed_at = -1, time.monotonic()
        while covered < total:
            found = sum((await source.committed(group, topic)).values())
            now = time.monotonic()
            if found != covered:
                covered, changed_at = found, now
            elif now - changed_at > STILL_FOR_S:
                logs = "\n".join(relay.log_end() for relay in relays)
                raise DemoFailed(
                    f"{total - covered} records of the source have stood still for {STILL_FOR_S:g} s", logs
                )
            self.progress.update(f"covered {covered} of {total}")
            await asyncio.sleep(LOOK_AGAIN_S)
        return total

    async def _compare(self) -> Comparison:
        """Read everything at the target, read_committed."""
        comparison = Comparison(self.rows, lambda index: index % PARTITIONS, [None] * len(self.rows))
        async with DemoCluster("target", self.target) as target:
            async for record in target.read(self.route.topic, PARTITIONS):
                comparison.take(record.key if self._is_in_place(record) else None, record.value)
        return comparison

    def _is_in_place(self, record: DemoRecord) -> bool:
        """Whether the record is in its partition, under its ID."""
        if record.key is None or not record.key.isdigit() or int(record.key) >= len(self.rows):
            return False
        row = self.rows[int(record.key)]
        return record.partition == row.index % PARTITIONS and record.id == row.id.encode()


def _others(relays: Sequence[Relay], one: Relay) -> list[Relay]:
    return [relay for relay in relays if relay is not one]


def _repeated(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.index % REPEAT_EVERY == 0]
