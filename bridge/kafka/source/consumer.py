"""One consumer and its positions: fetches the next records of manually assigned partitions.

aiokafka's consumer is not trusted where it could lose a record: the positions here move only with the records
that were handed on, and after any error the consumer is set back to them. (`getmany` drops what it has
drained from other partitions when one of them raises; a record too large for a fetch moves the position past
it.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from aiokafka.errors import CorruptRecordException, KafkaError, OffsetOutOfRangeError, UnsupportedCodecError
from aiokafka.structs import TopicPartition

from bridge.errors import SourceUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import explaining, topics_named
from bridge.kafka.client.fetch_limits import FETCH_MAX_WAIT_MS, fetch_options
from bridge.kafka.client.fetch_size import is_receiving
from bridge.kafka.client.pieces import PARTITIONS_AT_ONCE, pieces
from bridge.kafka.records.decoding import Record
from bridge.kafka.records.raw_records import RAW
from bridge.kafka.source.stall_detection import StallDetector

#: After a record could not be decoded, partitions are read one by one for this long, to find it.
CAREFUL_MS: Final = 5_000
#: A partition is parked when the same position could not be decoded this many times.
PARK_AFTER: Final = 3
#: Longest that one request for logs' ends may take; after it a silent consumer is replaced anyway.
ENDS_TIMEOUT_MS: Final = 5_000
#: Partitions that one log event names at most.
MOST_LOGGED: Final = 20


class OutOfRange(SourceUnavailable):
    """The next position has expired, the log was cut back, or the topic is another one by now."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The records of one partition in ``[from_, upto)``; none where there are only markers."""

    from_: int
    upto: int
    records: Sequence[Record] = ()


@dataclass(slots=True)
class _Watch:
    """One partition and the position up to which its records were handed on."""

    at: int
    #: How many times the record at `at` could not be decoded.
    failures: int = 0
    #: The reason why the partition is parked; empty: it is not.
    parked: str = ""
    #: Whether the partition is backed off: its owner does not want its records now.
    backed_off: bool = False

    @property
    def at_rest(self) -> bool:
        """Whether the partition is not fetched."""
        return bool(self.parked) or self.backed_off


@dataclass(slots=True, eq=False)
class Reading:
    """A consumer that can be replaced while others read from it."""

    connection: KafkaConnection
    #: Largest batch, bytes; fetches are sized by it.
    batch_bytes: int
    #: By node id, host and port of the brokers as the cluster has named them last.
    addresses: Callable[[], Mapping[int, tuple[str, int]]] = dict
    _consumer: Any = None
    #: The options with which the consumer was created.
    _options: dict[str, Any] = field(default_factory=dict)
    _watches: dict[TopicPartition, _Watch] = field(default_factory=dict)
    _stalls: StallDetector = field(default_factory=StallDetector)
    #: Partitions are read one by one until then (seconds, monotonic).
    _careful_until: float = 0.0
    #: Whether each partition was read up to the end that its leader named last; they are paused until the
    #: next fetch.
    at_end: bool = False
    _log: Any = field(default_factory=structlog.get_logger)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that are read: assigned, and neither parked nor backed off."""
        return frozenset(tp for tp, watch in self._watches.items() if not watch.at_rest)

    @property
    def parked(self) -> Mapping[tuple[str, int], str]:
        """The parked partitions, each with the offset and the reason why its record cannot be decoded."""
        parked = {tp: watch for tp, watch in self._watches.items() if watch.parked}
        return {
            (topic, number): f"{topic}/{number} stands still at offset {watch.at}: {watch.parked}"
            for (topic, number), watch in parked.items()
        }

    async def assign(
        self, positions: Mapping[TopicPartition, int], backed_off: Collection[TopicPartition] = ()
    ) -> None:
        """Read these from here on, and drop what was fetched before. Parked partitions are tried again.

        Partitions in `backed_off` are assigned but not fetched.

        Raises: SourceUnavailable, SourceRefused.
        """
        self._watches = {tp: _Watch(at, backed_off=tp in backed_off) for tp, at in positions.items()}
        for tp, at in positions.items():
            self._stalls.begins(tp, at)
        self._careful_until = 0.0
        if positions and (self._options != self._options_for(len(positions)) or self._is_lost()):
            await self._stop()
        if positions and self._consumer is not None:
            self._seek()
        elif positions:
            await self._start(len(positions))
        else:
            self._stalls = StallDetector()
            await self._stop()

    def back_off(self, tps: Collection[TopicPartition]) -> None:
        """Stop fetching these until they are assigned anew; what was fetched and not taken is dropped."""
        for tp in tps:
            self._watches[tp].backed_off = True
            if self._consumer is not None:
                self._consumer.pause(tp)

    def _options_for(self, partitions: int) -> dict[str, Any]:
        return fetch_options(self.batch_bytes, self.connection.consumer_options, partitions)

    async def _start(self, partitions: int) -> None:
        """Start a consumer where there is none; it continues where the one before was."""
        if self._consumer is not None:
            return
        options = self._options_for(partitions)
        with explaining(self.connection.name, "Read", "cluster"):
            self._consumer = await self.connection.started_consumer(**options, **RAW)
        self._options = options
        if self._watches:
            self._seek()

    def _is_lost(self) -> bool:
        """Whether no broker is where the consumer looks for it.

        It asks the brokers that it knows for new addresses, and never those in the settings.
        """
        now = self.addresses()
        if self._consumer is None or not now:
            return False
        known = self._consumer._client.cluster.brokers()  # noqa: SLF001
        return bool(known) and all(now.get(one.nodeId) != (one.host, one.port) for one in known)

    def _seek(self) -> None:
        """Assign anew: aiokafka drops what is under way for an older assignment."""
        self._consumer.assign(list(self._watches))  # after this nothing is paused
        self.at_end = False
        for tp, watch in self._watches.items():
            self._consumer.seek(tp, watch.at)
            if watch.at_rest:
                self._consumer.pause(tp)

    # -- fetching --------------------------------------------------------------------------------------

    async def fetch(self, wait_ms: int) -> dict[TopicPartition, Fetched]:
        """Fetch the next records of all partitions; waits at most `wait_ms`. Cancelled, it has taken nothing.

        Raises: OutOfRange, SourceUnavailable, SourceRefused.
        """
        if not self._watches:
            await asyncio.sleep(wait_ms / 1000)
            return {}
        began = time.monotonic()
        try:
            await self._start(len(self._watches))  # the call that replaced it may have been cancelled
            self._resume()
            if began < self._careful_until:
                return await self._fetch_carefully(wait_ms)
            try:
                records = await self._consumer.getmany(timeout_ms=wait_ms)
            except Exception as error:  # noqa: BLE001 - whatever decoding raises
                self._seek()
                self._pass_on(error)
                self._careful_until = time.monotonic() + CAREFUL_MS / 1000
                return {}
            found = await self._moved(records)
            self._pause_at_end()
            return found
        finally:
            if not self._is_receiving():
                self._stalls.waited_ms += (time.monotonic() - began) * 1000

    def _is_receiving(self) -> bool:
        """Whether an answer is coming over a slow line: that is no silence."""
        return self._consumer is not None and is_receiving(self._consumer)

    def _pause_at_end(self) -> None:
        """Pause partitions whose end was reached, so that the next call returns all records that arrive."""
        ends = {tp: self.end(tp) for tp in self.partitions}
        self.at_end = all(end is not None and end <= self._watches[tp].at for tp, end in ends.items())
        if self.at_end:
            self._consumer.pause(*ends)

    def _resume(self) -> None:
        if self.at_end:
            self.at_end = False
            self._consumer.resume(*self.partitions)

    async def _moved(self, records: Mapping[TopicPartition, list[Any]]) -> dict[TopicPartition, Fetched]:
        """The records taken, with the consumer's next read offset as their end. Does not suspend."""
        found: dict[TopicPartition, Fetched] = {}
        for tp, watch in self._watches.items():
            if watch.at_rest:
                continue
            position = await self._consumer.position(tp)
            if position > watch.at:
                found[tp] = Fetched(watch.at, position, records.get(tp, ()))
                watch.at, watch.failures = position, 0
                self._stalls.moved(tp)
        return found

    def _pass_on(self, error: Exception) -> None:
        """Raise errors not about one record. Raises: OutOfRange, SourceUnavailable, SourceRefused."""
        if isinstance(error, OffsetOutOfRangeError):
            raise OutOfRange(f"the log no longer has what comes next: {error}") from error
        if isinstance(error, KafkaError) and not isinstance(
            error, CorruptRecordException | UnsupportedCodecError
        ):
            with explaining(self.connection.name, "Read", topics_named(tp.topic for tp in self._watches)):
                raise error

    async def _fetch_carefully(self, wait_ms: int) -> dict[TopicPartition, Fetched]:
        """Fetch record by record, so that a record that cannot be decoded is located."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            records = {tp: await self._one_by_one(tp) for tp, w in self._watches.items() if not w.at_rest}
            found = await self._moved(records)
            if found or time.monotonic() >= deadline:
                return found
            await asyncio.sleep(FETCH_MAX_WAIT_MS / 1000)

    async def _one_by_one(self, tp: TopicPartition) -> list[Any]:
        records: list[Any] = []
        try:
            while one := await self._consumer.getmany(tp, max_records=1):
                records += one[tp]
        except Exception as error:  # noqa: BLE001 - whatever decoding raises
            if not records:
                self._failed(tp, error)
        return records

    def _failed(self, tp: TopicPartition, error: Exception) -> None:
        """Handle a record that cannot be decoded: try again, and at last park the partition."""
        self._pass_on(error)
        watch = self._watches[tp]
        watch.failures += 1
        self._consumer.seek(tp, watch.at)
        if watch.failures < PARK_AFTER:
            self._careful_until = time.monotonic() + CAREFUL_MS / 1000
            return
        watch.parked = repr(error)
        self._consumer.pause(tp)
        self._careful_until = 0.0
        self._log.error(
            "partition-parked", topic=tp.topic, partition=tp.partition, offset=watch.at, reason=watch.parked
        )

    # -- ends ------------------------------------------------------------------------------------------

    def end(self, tp: TopicPartition) -> int | None:
        """The last stable offset as of the last fetch; None: nothing was fetched yet."""
        if self._consumer is None or tp not in self._watches:
            return None
        found: int | None = self._consumer.last_stable_offset(tp)
        return found

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """The high watermark as of the last fetch: beyond `end` while a transaction is open; None: none."""
        if self._consumer is None or tp not in self._watches:
            return None
        found: int | None = self._consumer.highwater(tp)
        return found

    async def heal(self, there: Collection[TopicPartition]) -> None:
        """Replace a consumer that returns nothing although there are records (docs/kafka-traps.md 10).

        Only partitions that are `there`, with a leader, are asked for: others can return nothing, and no
        broker answers for them, which would delay all reading.

        Raises: SourceUnavailable, SourceRefused.
        """
        silent = self._stalls.run_out(sorted(self.partitions.intersection(there)))
        stuck = await self._stuck(silent) if silent else []
        lost = self._is_lost()
        if stuck or lost:
            self._log.warning(
                "consumer-replaced",
                reason="the brokers have other addresses"
                if lost
                else "nothing came although there is something to read",
                partitions={f"{tp.topic}/{tp.partition}": self._watches[tp].at for tp in stuck[:MOST_LOGGED]},
            )
            self._stalls = StallDetector()
            for tp, watch in self._watches.items():
                self._stalls.begins(tp, watch.at)
            await self._stop()
            await self._start(len(self._watches))

    async def _stuck(self, silent: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        ends: dict[TopicPartition, int] = {}
        try:
            for piece in pieces(silent, PARTITIONS_AT_ONCE):
                async with asyncio.timeout(ENDS_TIMEOUT_MS / 1000):
                    ends |= await self._consumer.end_offsets(piece)
        except (KafkaError, TimeoutError):
            return silent
        return self._stalls.stuck({tp: self._watches[tp].at for tp in silent}, ends)

    async def _stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        stopping = asyncio.ensure_future(consumer.stop())
        try:
            await asyncio.shield(stopping)
        finally:
            await stopping  # also when cancelled: no connection is left open

    async def close(self) -> None:
        """Stop the consumer."""
        self._watches = {}
        await self._stop()
