"""Finds the partitions that a lane reads, and checks whether they are still those that were opened.

aiokafka fetches by a topic's *name*. So fetched records count only when the partition's leader confirms
afterwards that topic id and leader epoch are the ones that were verified at the opening: a topic re-created
meanwhile, or a log cut back by an election, shows in them before its first record can be fetched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka.errors import for_code
from aiokafka.structs import TopicPartition

from bridge.errors import SourceRefused, SourceUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining, topics_named
from bridge.kafka.client.metadata import Cluster, ClusterClient, Offset
from bridge.kafka.client.pieces import PARTITIONS_AT_ONCE, Step, pieces, together
from bridge.kafka.records.identity import LaneIndex, stream_identity
from bridge.kafka.source.options import TopicSelection
from bridge.relay.counts import Counts
from bridge.relay.ports import Stream

#: The topic id of a broker that has none: all its streams would have one identity.
NO_TOPIC_ID: Final = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Found:
    """One partition that the bridge reads, as metadata shows it."""

    stream: Stream
    tp: TopicPartition
    topic_id: str
    #: Node id.
    leader: int
    epoch: int


class Partitions:
    """Asks the cluster about the partitions of one lane."""

    def __init__(
        self,
        connection: KafkaConnection,
        topics: TopicSelection,
        lane: LaneIndex,
        counts: Counts | None = None,
    ) -> None:
        """`counts` show how far a call about many partitions has come."""
        self._counts = Counts() if counts is None else counts
        self._connection = connection
        self._client = ClusterClient(connection)
        self._topics = topics
        self._lane = lane
        #: The source's name in stream and store identities; known once the cluster has answered.
        self.cluster = ""
        #: Of the selected topics, as of the last `find`: partitions without a leader, with topic ids.
        self.leaderless: Mapping[TopicPartition, str] = {}
        #: By node id, host and port of each broker, as of the last answer.
        self.addresses: Mapping[int, tuple[str, int]] = {}
        #: Topics that are named outright and do not exist, as of the last `find`.
        self.missing: Sequence[str] = ()

    async def find(self) -> list[Found]:
        """Every partition with a leader of every selected topic, in all lanes.

        Raises: SourceUnavailable, SourceRefused.
        """
        names, names_only = list(self._topics.names), self._topics.names_only
        cluster = await self._ask(names if names_only else None, None)
        absent = [name for name in names if name not in cluster.topics]
        by_name = cluster if names_only or not absent else await self._ask(absent, None)
        self._check_rights(by_name)
        self.cluster = self._connection.identity or cluster.id
        self.missing = [name for name in absent if name not in by_name.topics]
        found: list[Found] = []
        leaderless: dict[TopicPartition, str] = {}
        for name, topic in sorted(cluster.topics.items()):
            if not self._topics.selects(name):
                continue
            if topic.id == NO_TOPIC_ID and topic.partitions:
                raise SourceRefused(
                    f"connector {self._connection.name}: topic {name} has no topic id, by which streams are "
                    "told apart: core bridge needs Kafka 2.8 or later, with its metadata.version",
                    key=f"topic {name}",
                )
            target = self._topics.forward(name)
            for number, partition in sorted(topic.partitions.items()):
                tp = TopicPartition(name, number)
                if partition.leader < 0:
                    leaderless[tp] = topic.id
                    continue  # no broker can say anything about it now
                identity = stream_identity(self.cluster, topic.id, number)
                stream = Stream(
                    identity,
                    name,
                    target,
                    str(partition.leader_epoch),
                    len(topic.partitions),
                    routing_type=self._topics.routing_type,
                )
                found.append(Found(stream, tp, topic.id, partition.leader, partition.leader_epoch))
        self.leaderless = leaderless
        return found

    def _check_rights(self, by_name: Cluster) -> None:
        """Check rights: a request for all topics leaves out those without; one by name returns the error.

        Raises: SourceUnavailable, SourceRefused.
        """
        for name in self._topics.names:
            if name in by_name.topics and (error := by_name.topics[name].error):
                with explaining(self._connection.name, "Describe", f"topic {name}"):
                    raise for_code(error)

    def in_lane(self, found: Iterable[Found]) -> dict[str, Found]:
        """The partitions of this lane, by stream identity."""
        return {one.stream.identity: one for one in found if self._lane.has(one.tp.topic, one.tp.partition)}

    async def replaced(self, opened: Collection[Found]) -> set[str]:
        """Ask the leaders of `opened` whether they are unchanged; returns the identities of ended streams.

        Raises:
            SourceUnavailable: another leader or epoch: what was fetched may have been cut back since.
        """
        by_leader: dict[int, list[Found]] = defaultdict(list)
        for one in opened:
            by_leader[one.leader].append(one)
        ended = await together(self._ended(leader, there) for leader, there in by_leader.items())
        return set().union(*ended)

    async def _ended(self, leader: int, opened: Sequence[Found]) -> set[str]:
        cluster = await self._ask(sorted({one.tp.topic for one in opened}), leader)
        return {one.stream.identity for one in opened if _is_replaced(one, cluster)}

    async def high_watermarks(self, opened: Collection[Found]) -> dict[TopicPartition, int]:
        """The high watermarks, asked of each leader; without those that are unknown now.

        Raises: SourceUnavailable, SourceRefused.
        """
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for one in opened:
            by_leader[one.leader].append(one.tp)
        answers = await together(
            self._high_watermarks(leader, piece)
            for leader, tps in by_leader.items()
            for piece in pieces(tps, PARTITIONS_AT_ONCE)
        )
        return {tp: high for answer in answers for tp, high in answer.items()}

    async def _high_watermarks(self, leader: int, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with explaining(self._connection.name, "Describe", _topics(tps)):
            return await self._client.high_watermarks(tps, broker=leader)

    async def bounds(
        self, found: Collection[Found]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Log starts and last stable offsets (up to which read_committed reads), asked of each leader.

        Raises: SourceUnavailable, SourceRefused.
        """
        leaders = {one.tp: one.leader for one in found}
        with explaining(self._connection.name, "Describe", _topics(leaders)):
            begins = await self._client.offsets(leaders, Offset.START, self._step("the beginnings"))
            return begins, await self._client.offsets(leaders, Offset.STABLE, self._step("the ends"))

    async def open_from(self, one: Found, offset: int) -> list[tuple[int, int]]:
        """Id and epoch of the producers whose open transaction, the oldest there, begins at `offset`.

        Raises: SourceUnavailable, SourceRefused: also where brokers are too old to say.
        """
        with explaining(self._connection.name, "Read", f"topic {one.tp.topic}"):
            found = await self._client.producers(one.tp.topic, one.tp.partition, broker=one.leader)
        return [(number, state.epoch) for number, state in found.items() if state.open_from == offset]

    async def epoch_ends(self, asked: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """By partition and (leader, epoch): one beyond what was written up to that epoch; -1: not known.

        Raises: SourceUnavailable, SourceRefused.
        """
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp, (leader, _epoch) in asked.items():
            by_leader[leader].append(tp)
        ends = await together(
            self._epoch_ends(leader, {tp: asked[tp][1] for tp in piece})
            for leader, tps in by_leader.items()
            for piece in pieces(tps, PARTITIONS_AT_ONCE)
        )
        return {tp: end for piece in ends for tp, end in piece.items()}

    async def _epoch_ends(
        self, leader: int, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        with explaining(self._connection.name, "Describe", _topics(epochs)):
            return await self._client.epoch_ends(epochs, broker=leader)

    def _step(self, what: str) -> Step:
        """Shows in status how far a call about many partitions has come."""

        def step(done: int, total: int) -> None:
            self._counts.opening = f"asked for {what} of {done:,} of {total:,} partitions of the source"

        return step

    async def _ask(self, topics: list[str] | None, broker: int | None) -> Cluster:
        """Metadata from `broker` or any; asked twice, because a client's list of brokers becomes outdated."""
        resource = "cluster" if topics is None else topics_named(topics)
        for last in (False, True):
            try:
                with explaining(self._connection.name, "Describe", resource):
                    await self._client.open()
                    cluster = await self._client.cluster(topics, broker=broker)
            except SourceUnavailable:
                await self._client.close()  # the next attempt asks the brokers in the settings for the others
                if last:
                    raise
            else:
                self.addresses = cluster.addresses
                return cluster
        raise AssertionError

    async def close(self) -> None:
        """Close the connections; the next request connects again."""
        await self._client.close()


def _is_replaced(one: Found, cluster: Cluster) -> bool:
    """Whether the topic was deleted or re-created. Raises: SourceUnavailable."""
    topic = cluster.topics.get(one.tp.topic)
    if topic is None:
        return True
    if topic.error:
        raise SourceUnavailable(f"{_named(one)}: error {topic.error} in its metadata", key=one.tp.topic)
    if topic.id != one.topic_id:
        return True
    now = topic.partitions.get(one.tp.partition)
    if now is None or (now.leader, now.leader_epoch) != (one.leader, one.epoch):
        found = "none" if now is None else f"{now.leader} (epoch {now.leader_epoch})"
        raise SourceUnavailable(
            f"{_named(one)}: the leader changed from {one.leader} (epoch {one.epoch}) to {found}",
            key=one.tp.topic,
            limit=one.epoch,
            found=None if now is None else now.leader_epoch,
        )
    return False


def _named(one: Found) -> str:
    return f"topic {one.tp.topic} partition {one.tp.partition}"


def _topics(tps: Iterable[TopicPartition]) -> str:
    return topics_named(tp.topic for tp in tps)
