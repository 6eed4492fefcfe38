"""The progress group: the offsets that a bridge commits at its source, and their use.

Such a commit never decides where reading continues where the target knows: that is the target's `next`. It
frees space, serves monitoring, is the evidence that a bridge has run before (design rule 1), and holds the
marks at which the partitions begin that existed at the bridge's first start ever (`start-position`).

The offset's metadata describes it, as compact JSON: its kind, the topic's id (a re-created topic is another)
and the target's store identity. An offset without it, as tools set them, is not used.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import structlog
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.structs import TopicPartition

from bridge.errors import BridgeError, SourceRefused, SourceUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining
from bridge.kafka.client.pieces import pieces
from bridge.runtime.clock import Clock
from bridge.runtime.fault_injection import crash_point

#: Settlements are committed at most this often.
COMMIT_INTERVAL_MS: Final = 1_000
#: Offsets that are committed in one request: those of 500 take some 150 kB of the 1 MiB of a record batch.
MARKS_AT_ONCE: Final = 500
#: How long to retry while there is no coordinator yet: a cluster makes its first group's topic then.
COORDINATOR_TIMEOUT_MS: Final = 15_000
COORDINATOR_RETRY_MS: Final = 200
#: Longest that a commit may take at closing: it frees space only.
CLOSING_TIMEOUT_MS: Final = 3_000
#: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
_COORDINATOR_MOVES: Final = (14, 15, 16)
#: Kinds that older versions wrote, and their present meaning: where a stream began that was not at its mark.
_FORMER: Final = {"lines": "start"}


class Kind(Enum):
    """The meaning of a committed offset."""

    #: The bridge begins here, and so does the delivery log of its sent side; nothing of it was sent yet.
    START = "start"
    #: The partition existed at the bridge's first start without a leader: it begins where its log does when
    #: it is first seen. The offset has no meaning.
    UNSEEN = "unseen"
    #: The target covers everything below.
    SETTLED = "settled"
    #: Not committed by a bridge.
    FOREIGN = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """One committed offset and its metadata."""

    offset: int
    kind: Kind
    topic_id: str = ""
    #: Store identity of the target that covers everything below.
    store: str = ""
    #: Number of marks that the bridge's first start ever made, if this is one of them. 0: any other mark.
    of: int = 0
    #: What other stores confirmed (`bridge.relay.stays`), as text.
    stays: str = ""

    def metadata(self) -> str:
        """The metadata text that is committed."""
        fields: dict[str, Any] = {
            "v": 1,
            "kind": self.kind.value,
            "topic": self.topic_id,
            "store": self.store,
        }
        if self.of:
            fields["of"] = self.of
        if self.stays:
            fields["stays"] = self.stays
        return json.dumps(fields, separators=(",", ":"))


def read_mark(offset: int, metadata: str | None) -> Mark:
    """Decode a committed offset; FOREIGN where its metadata is not a bridge's."""
    try:
        fields = json.loads(metadata or "")
        if fields["v"] == 1:
            kind = _FORMER.get(fields["kind"], fields["kind"])
            topic_id, store, of = str(fields["topic"]), str(fields["store"]), int(fields.get("of", 0))
            return Mark(offset, Kind(kind), topic_id, store, of, str(fields.get("stays", "")))
    except (ValueError, KeyError, TypeError):
        pass  # the metadata is not a bridge's, and says nothing
    return Mark(offset, Kind.FOREIGN)


def show_a_start(marks: Collection[Mark]) -> bool:
    """Whether the content of a group shows that its bridge has run before.

    A first start that was interrupted (a right was missing for one of the topics) may have made only some of
    the marks: then it is still to be made. Offsets that tools have set count: they are set for a bridge that
    has run.
    """
    begun = [mark for mark in marks if mark.kind in (Kind.START, Kind.UNSEEN)]
    made = Counter(mark.of for mark in begun)
    return len(begun) < len(marks) or any(made[mark.of] >= mark.of for mark in begun)


class Progress:
    """Commits and reads the offsets of one group, which has no members."""

    def __init__(self, connection: KafkaConnection, group: str, clock: Clock) -> None:
        self._connection = connection
        self._group = group
        self._clock = clock
        self._client: AIOKafkaClient | None = None
        #: One request at a time: an older commit must not overtake a newer one.
        self._one = asyncio.Lock()
        #: Settlements are committed one after the other too.
        self._turn = asyncio.Lock()
        #: The marks that are settled and not committed.
        self._waiting: dict[TopicPartition, Mark] = {}
        #: The marks that are settled, as far as this process knows; committed or not.
        self._settled: dict[TopicPartition, Mark] = {}
        self._committing: asyncio.Task[None] | None = None
        self._last_commit_ms = -COMMIT_INTERVAL_MS
        #: Whether the last commit failed, and was logged.
        self._failing = False
        self._log = structlog.get_logger().bind(group=group)

    async def marks(self) -> dict[TopicPartition, Mark]:
        """Every offset that is committed in the group. Raises: SourceUnavailable, SourceRefused."""
        with explaining(self._connection.name, "Read", f"group {self._group}"):
            answer = await self._send(OffsetFetchRequest(self._group, None))
        return {
            TopicPartition(topic, partition): read_mark(offset, metadata)
            for topic, partitions in answer.topics
            for partition, offset, metadata, _error in partitions
            if offset >= 0
        }

    async def commit(self, marks: Mapping[TopicPartition, Mark]) -> None:
        """Commit all of them, in pieces: a coordinator writes those of one request as one record batch.

        Raises: SourceUnavailable, SourceRefused: of the pieces, some may have been committed.
        """
        crash_point("kafka-source.before-commit")
        absent: SourceUnavailable | SourceRefused | None = None
        for piece in pieces(marks.items(), MARKS_AT_ONCE):
            topics: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
            for tp, mark in piece:
                topics[tp.topic].append((tp.partition, mark.offset, mark.metadata()))
            try:
                with explaining(self._connection.name, "Read", f"group {self._group}"):
                    await self._send(OffsetCommitRequest(self._group, -1, "", -1, list(topics.items())))
            except (SourceUnavailable, SourceRefused) as error:
                if not isinstance(error.__cause__, UnknownTopicOrPartitionError):
                    raise
                absent = error  # of the others of its piece all are committed
        if absent is not None:
            raise absent
        crash_point("kafka-source.after-commit")

    # -- settlements -----------------------------------------------------------------------------------

    def settle(self, tp: TopicPartition, mark: Mark) -> None:
        """Commit this soon: the first at once, then at most one request every `COMMIT_INTERVAL_MS`."""
        self._waiting[tp] = self._settled[tp] = mark
        self._begin()

    def keep(self, marks: Mapping[TopicPartition, Mark]) -> None:
        """Note marks that are settled and committed already, for `renew`."""
        self._settled.update(marks)

    def settled(self, tp: TopicPartition) -> Mark | None:
        """The settled mark as far as this process knows; None: there is none."""
        return self._settled.get(tp)

    def renew(self) -> None:
        """Commit all settled marks again, before those of a quiet bridge expire at the broker."""
        self._waiting = self._settled | self._waiting
        if self._waiting:
            self._begin()

    def _begin(self) -> None:
        if self._committing is None or self._committing.done():
            self._committing = asyncio.create_task(self._commit_in_time())

    async def settle_now(self, marks: Mapping[TopicPartition, Mark]) -> None:
        """Commit these and the waiting marks now; a failure is logged, and tried again later."""
        self._waiting.update(marks)
        self._settled.update(marks)
        await self._commit_waiting()

    def forget(self, tp: TopicPartition) -> None:
        """Drop the partition's marks: the topic has been re-created."""
        self._waiting.pop(tp, None)
        self._settled.pop(tp, None)

    async def _commit_in_time(self) -> None:
        while self._waiting:
            wait_ms = self._last_commit_ms + COMMIT_INTERVAL_MS - self._clock.monotonic_ms()
            await asyncio.sleep(max(0, wait_ms) / 1000)
            await self._commit_waiting()

    async def _commit_waiting(self) -> None:
        """Commit the waiting marks. A failure is logged once and frees no space; the next call retries."""
        async with self._turn:
            marks, self._waiting = self._waiting, {}
            self._last_commit_ms = self._clock.monotonic_ms()
            if not marks:
                return
            committed = False
            try:
                await self.commit(marks)
                committed = True
            except BridgeError as error:
                # A deleted topic has no offsets, and all the others have been committed.
                committed = isinstance(error.__cause__, UnknownTopicOrPartitionError)
                if not committed and not self._failing:
                    self._log.warning("progress-not-committed", reason=error.detail)
            finally:
                self._failing = not committed
                if not committed:  # also when cancelled
                    self._waiting = marks | self._waiting

    async def close(self) -> None:
        """Commit the waiting marks, if that is quick, and disconnect."""
        task, self._committing = self._committing, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSING_TIMEOUT_MS / 1000):
                await self._commit_waiting()
        except TimeoutError:
            self._log.warning("progress-not-committed", reason="no answer while closing")
        finally:
            self._waiting.clear()
            self._settled.clear()
            await self._disconnect()

    # -- requests --------------------------------------------------------------------------------------

    async def _send(self, request: Any) -> Any:
        """The coordinator's answer, once there is one without an error. Raises: KafkaError."""
        async with self._one:
            deadline = self._clock.monotonic_ms() + COORDINATOR_TIMEOUT_MS
            while True:
                try:
                    answer = await self._ask(request)
                    _raise_error(answer)
                    return answer
                except KafkaError as error:
                    await self._disconnect()
                    moves = getattr(error, "errno", None) in _COORDINATOR_MOVES
                    if not moves or self._clock.monotonic_ms() >= deadline:
                        raise
                await asyncio.sleep(COORDINATOR_RETRY_MS / 1000)

    async def _ask(self, request: Any) -> Any:
        if self._client is None:
            self._client = await self._connection.connected()
        node = await self._client.coordinator_lookup(CoordinationType.GROUP, self._group)
        return await self._client.send(node, request, group=ConnectionGroup.COORDINATION)

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _raise_error(answer: Any) -> None:
    """Raise the first error in an answer about offsets: of the request, or of one partition.

    The error that a topic does not exist comes last: where it is raised there was no other.
    """
    codes = [getattr(answer, "error_code", 0)]
    codes += [partition[-1] for _topic, partitions in answer.topics for partition in partitions]
    for code in sorted(codes, key=lambda code: code == UnknownTopicOrPartitionError.errno):
        if code:
            raise for_code(code)
