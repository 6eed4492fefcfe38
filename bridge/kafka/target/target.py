"""Kafka as a target: one lane of a bridge, written by one transactional producer (design section 5).

The path of a batch: `deliver` puts it in the queue, `bridge.kafka.target.plan` decides about it and fills
record batches, `bridge.kafka.target.transaction` (or `without_transaction`) stores them with the state of the
stream, and the receipt is returned. Batches that arrive while a transaction runs go into the next.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Final

import structlog

from bridge.delivery_log import WriteLines
from bridge.errors import Fenced, OutOfSequence, TargetRefused, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.journal_topic.journal_topic import JournalTopic
from bridge.kafka.records.identity import partition_of, store_identity
from bridge.kafka.records.topic_rules import TopicRules
from bridge.kafka.target.dead_letter_writes import store_refused
from bridge.kafka.target.dead_letters import Letters, letter_of
from bridge.kafka.target.delivery_queue import DeliveryQueue
from bridge.kafka.target.doubts import Doubts
from bridge.kafka.target.failures import Judgements, send_failure
from bridge.kafka.target.lane import MOST_TAKINGS, TargetLane
from bridge.kafka.target.options import KafkaTargetOptions, RelayHooks
from bridge.kafka.target.pace import Measured, Pace, longer_ms
from bridge.kafka.target.parking import why_parked
from bridge.kafka.target.plan import Delivery, OpenStream, Plan, Setting, plan
from bridge.kafka.target.received_log import ReceivedLog
from bridge.kafka.target.refused_records import Isolation
from bridge.kafka.target.stored_records import StoredRecords
from bridge.kafka.target.topics import TargetTopics
from bridge.kafka.target.transaction import BatchesRefused, SendFailed
from bridge.kafka.target.truncation import losses
from bridge.messages.batch import Batch
from bridge.relay.counts import Counts
from bridge.relay.dead_letters import DeadLetterFailed, DeadLetterSink
from bridge.relay.ports import Opened, Receipt, Stream, StreamState
from bridge.runtime.clock import Clock

__all__ = ["KafkaTarget", "KafkaTargetOptions", "RelayHooks", "WriteLines"]

#: Longest that closing waits for the running transaction; then it is in doubt, and the next taker decides.
CLOSE_TIMEOUT_MS: Final = 2_000
#: Interval at which an idle target checks whether the cluster is available; longer over a slow line.
WATCH_INTERVAL_MS: Final = 1_000
#: With more topics than this the leaders of all are asked for less often, so that it costs the same.
REFRESHED_AT_ONCE: Final = 100
#: Attempts at a transaction, each of which leaves out what brokers refused at the one before.
MOST_ATTEMPTS: Final = 100
_NO_HOOKS: Final = RelayHooks()


class KafkaTarget:
    """Implements `bridge.relay.ports.Target` for one lane of a bridge."""

    def __init__(
        self,
        connection: KafkaConnection,
        journal: JournalTopic,
        lane: int,
        options: KafkaTargetOptions,
        *,
        clock: Clock,
        write_lines: WriteLines | None = None,
        hooks: RelayHooks = _NO_HOOKS,
    ) -> None:
        """Create the target; `open` is the first call that connects.

        Args:
            connection: to the cluster.
            journal: the bridge's journal topic there; its creator closes it.
            lane: this lane's number.
            options: the bridge's settings.
            clock: for receipts, delivery-log lines, and the time limits of topics.
            write_lines: makes delivery-log lines durable; the next transaction waits for it.
            hooks: the relay's.
        """
        self._connection = connection
        self._journal = journal
        self._number = lane
        self._options = options
        self._clock = clock
        self._hooks = hooks
        self._received_log = ReceivedLog(write_lines)
        self._counts = Counts() if hooks.counts is None else hooks.counts
        self._dead_letters: DeadLetterSink = self if hooks.dead_letters is None else hooks.dead_letters
        self._log = structlog.get_logger().bind(bridge=options.bridge)
        self._topics = TargetTopics(connection, options, self._counts)
        self._rules: dict[str, TopicRules] = {}
        #: By topic, why nothing can be written to it; the others go on.
        self._refused: dict[str, TargetRefused] = {}
        self._store = ""
        self._letters = Letters()
        self._isolation = Isolation()
        self._stored = StoredRecords()
        #: By topic; they outlive its rules, which are read anew at each opening.
        self._doubts: defaultdict[str, Doubts] = defaultdict(Doubts)
        self._judgements = Judgements(self._isolation, self._letters, self._doubts, journal.topic)
        self._pace = Pace(self._counts, self._log, clock)
        #: How long a transaction may be open, where a message needs longer than the connection says; 0: as it
        #: says.
        self._transaction_ms = 0
        self._opening = asyncio.Lock()
        #: Counts openings of streams.
        self._epoch = 0
        self._open: dict[str, OpenStream] = {}
        self._lane: TargetLane | None = None
        #: The lane's work and its watch; and the task that ends both.
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._going: asyncio.Task[None] | None = None
        self._queue = DeliveryQueue()
        self._stopping = False
        #: Set while no lane is owned; then `_failure` is the reason.
        self._ended = asyncio.Event()
        self._ended.set()
        self._failure: Exception = TargetUnavailable("the target is not open")

    # -- the port --------------------------------------------------------------------------------------

    async def open(self, streams: Sequence[Stream]) -> Opened:
        """Take the lane where it is not owned, make the topics, and return the remembered state.

        Raises:
            TargetUnavailable: try again later.
            TargetRefused: a right or a setting is missing, for all topics; says which. Where it is missing
                for some, their streams are parked: their batches are answered with NOT_NOW.
        """
        async with self._opening:
            await self._make_ready(streams)
            was_owned = self._lane is not None
            lane = await self._taken()
            if was_owned:
                await lane.refresh()
            await self._log_losses(lane, streams)
            new = any(lane.state.stream(stream.identity) is None for stream in streams)
            has_run = bool(lane.state.streams) or (new and await self._journal.has_run())
            if self._lane is not lane:  # lost meanwhile: no task would handle deliveries
                raise self._failure
            states: dict[str, StreamState] = {}
            for stream in streams:
                self._epoch += 1
                before = self._open.get(stream.identity)
                if before is not None:
                    before.blocked = True
                self._open[stream.identity] = OpenStream(stream, self._epoch)
                record = lane.state.stream(stream.identity)
                if record is None:
                    states[stream.identity] = StreamState(None, epoch=self._epoch, has_run=has_run)
                else:
                    states[stream.identity] = StreamState(
                        record.next, record.run, record.checksum, self._epoch
                    )
            return Opened(self._store, states)

    async def deliver(self, batches: Sequence[Batch]) -> Sequence[Receipt]:
        """Store each batch, all of it or nothing; calls may overlap and take effect in their order.

        A batch that one transaction cannot carry over the line is stored in parts
        (`bridge.kafka.target.parts`).

        Raises:
            OutOfSequence: nothing of that batch was stored.
            TargetUnavailable, Fenced: whether anything was stored is unknown; open again to learn it.
            TargetRefused: a right or a setting is missing; says which.
        """
        opened = [self._opened(batch) for batch in batches]
        futures = [self._queue.put(batch, one) for batch, one in zip(batches, opened, strict=True)]
        answers = await asyncio.gather(*futures, return_exceptions=True)
        receipts: list[Receipt] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            receipts.append(answer)
        return receipts

    async def store_letter(self, batch: Batch, receipt: Receipt, source_address: str) -> None:
        """Keep the dead letter of a refused message: it is stored with the coverage of its position.

        The signature is that of `bridge.relay.dead_letters.DeadLetters.store_letter`.

        Raises:
            DeadLetterFailed: it cannot be kept. TargetUnavailable, TargetRefused: as `open`.
        """
        letter = letter_of(batch, receipt, source_address, self._options)
        address = self._options.dead_letter_address
        if address not in self._rules:
            found = await self._topics.ready({address: 0})
            if address in found.refused:
                raise found.refused[address]
            if address not in found.rules:
                raise DeadLetterFailed(
                    f"there is no topic {address}, and create-topics is false", for_good=False
                )
            self._rules.update(found.rules)
        self._letters.keep(letter)

    @property
    def parked(self) -> Mapping[tuple[str, int], str]:
        """The parked source partitions, each with the reason why nothing of it can be written."""
        found: dict[tuple[str, int], str] = {}
        for one in self._open.values():
            why = why_parked(
                one.stream,
                self._rules,
                self._refused,
                preserve_partitions=self._options.preserve_partitions,
            )
            if why:
                found[one.stream.address, partition_of(one.stream.identity) or 0] = why
        return found

    async def lost(self) -> None:
        """Wait for the loss of the lane, never returns; checks the cluster every `WATCH_INTERVAL_MS`.

        Raises:
            TargetUnavailable, Fenced, TargetRefused: why the lane is not owned any more.
        """
        await self._ended.wait()
        raise self._failure

    async def close(self) -> None:
        """Let the running transaction end, and close. Waiting deliveries fail. Never raises."""
        self._stopping = True
        self._queue.wake()
        if self._tasks:
            working, *_ = self._tasks
            await asyncio.wait((working,), timeout=CLOSE_TIMEOUT_MS / 1000)
        self._fail(TargetUnavailable("the target was closed"))
        await self._gone()

    # -- the lane --------------------------------------------------------------------------------------

    async def _make_ready(self, streams: Sequence[Stream]) -> None:
        """Make or check the topics, and read their rules anew."""
        least: dict[str, int] = {}
        sources: dict[str, str] = {}
        for stream in streams:
            if stream.empty:
                continue
            keeps = self._options.preserve_partitions and partition_of(stream.identity) is not None
            partitions = stream.partitions if keeps else 0
            least[stream.target_address] = max(partitions, least.get(stream.target_address, 0))
            sources[stream.target_address] = stream.address
        letters = self._options.dead_letter_address
        if letters in self._rules or len(self._letters):  # found once; it may have been deleted since
            least.setdefault(letters, 0)
        if least or not self._store:
            found = await self._topics.ready(least, sources)
            for address in least:
                self._rules.pop(address, None)
                self._refused.pop(address, None)
            self._rules.update(found.rules)
            self._refused.update(found.refused)
            self._store = store_identity(self._connection.identity or found.cluster)
            if self._refused and not self._rules.keys() - {letters}:
                raise next(iter(self._refused.values()))

    async def _log_losses(self, lane: TargetLane, streams: Sequence[Stream]) -> None:
        """Log the confirmed messages that the target has lost (`bridge.kafka.target.truncation`)."""
        records = ((stream, lane.state.stream(stream.identity)) for stream in streams)
        known = [(stream, record) for stream, record in records if record is not None]
        for loss in await losses(known, self._rules, lane.ends):
            self._log.error("target-truncated", **asdict(loss))

    async def _taken(self) -> TargetLane:
        """The lane, taken if it is not owned."""
        if self._lane is not None:
            return self._lane
        await self._gone()
        if isinstance(self._failure, Fenced) and self._hooks.confirmed is not None:
            await self._hooks.confirmed()
        try:
            lane = await TargetLane.take(
                self._connection, self._journal, self._number,
                most_records=self._options.most_records,
                acknowledged=None if self._options.transactions else self._stored.add,
                transaction_ms=self._transaction_ms,
            )  # fmt: skip
        except Fenced as error:
            self._failure = error  # the next attempt asks whether this process owns the lane
            raise
        except TargetRefused as error:
            if not self._transaction_ms:
                raise
            longer, self._transaction_ms = self._transaction_ms, 0
            raise TargetUnavailable(
                f"a message needs a transaction of {longer} ms over this line: {error.detail}", limit=longer
            ) from error
        self._lane = lane
        self._stopping = False
        self._ended.clear()
        name = f"kafka-target-{self._options.bridge}-{self._number}"
        self._tasks = (
            asyncio.create_task(self._work(lane), name=name),
            asyncio.create_task(self._watch(lane), name=f"{name}-watch"),
        )
        return lane

    def _fail(self, error: Exception) -> None:
        """Give the lane up: all waiting deliveries fail, and no stream is open any more."""
        lane, self._lane = self._lane, None
        if lane is None:
            return
        self._failure = error
        self._open.clear()
        self._queue.fail(error)
        self._ended.set()
        self._going = asyncio.create_task(_let_go(lane, self._tasks))
        self._tasks = ()

    async def _gone(self) -> None:
        """Wait until the last owned lane is completely discarded."""
        if self._going is not None:
            await asyncio.wait((self._going,))

    # -- work ------------------------------------------------------------------------------------------

    def _opened(self, batch: Batch) -> OpenStream:
        opened = self._open.get(batch.stream)
        if opened is None:
            if self._lane is None:
                raise self._failure
            raise TargetUnavailable(f"{batch.stream} is not open", key="stream", found=batch.stream)
        return opened

    async def _work(self, lane: TargetLane) -> None:
        """Run transaction after transaction, until one fails or the target is closed."""
        self._received_log.restart()
        try:
            await self._received_log.catch_up(lane.state)
            while not self._stopping:
                deliveries = self._queue.take(self._pace.most_bytes)
                if deliveries:
                    await self._settle(lane, deliveries)
                else:
                    await self._queue.wait_for_more()
            await self._received_log.written()
        except SendFailed as failed:
            self._fail(send_failure(failed, self._connection.name, self._rules))
        except Exception as error:  # noqa: BLE001 - the callers that wait for receipts raise it
            self._fail(error)

    async def _watch(self, lane: TargetLane) -> None:
        """Notice that the cluster or the journal topic is gone, also while nothing is sent."""
        try:
            for watch in itertools.count():
                await asyncio.sleep(self._pace.watch_interval_ms(WATCH_INTERVAL_MS) / 1000)
                try:
                    if lane.waits_ms < WATCH_INTERVAL_MS:
                        await self._check(lane, watch)
                except TargetUnavailable:
                    # Behind records on a slow line no answer comes in time: the transaction's limit decides.
                    if lane.waits_ms < WATCH_INTERVAL_MS:
                        raise
                if self._queue.is_idle:
                    self._pace.rest()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody would notice the next loss
            self._fail(error)

    async def _check(self, lane: TargetLane, watch: int) -> None:
        if watch % (1 + len(self._rules) // REFRESHED_AT_ONCE):
            await lane.check_reachable()
        else:
            await lane.refresh()
        await lane.check_journal()

    async def _settle(self, lane: TargetLane, deliveries: Sequence[Delivery]) -> None:
        """Answer all. Messages that brokers refuse are found, left out, and REFUSED or made dead letters."""
        for _ in range(MOST_ATTEMPTS):
            made = await self._planned(lane, deliveries)
            if made.is_probe:
                with self._pace.measured(self._measured(lane, made)):
                    refused = await lane.probe(made.batches)
                self._counts.resent += made.batches.records
                self._judgements.probed(made.batches, refused, self._clock.wall_ms())
            elif not (self._options.stores_letters and await store_refused(made.answers, self._dead_letters)):
                try:
                    await self._transact(lane, made)
                    return
                except BatchesRefused as error:
                    self._judgements.refused(error.refused, self._clock.wall_ms())
                    if not self._options.transactions:  # what was taken is stored, and left out now
                        self._counts.resent += error.records
                        continue
                    self._counts.resent += made.batches.records
                await lane.retake()
        raise TargetUnavailable(
            f"brokers have refused records at each of {MOST_ATTEMPTS} attempts", limit=MOST_ATTEMPTS
        )

    async def _transact(self, lane: TargetLane, made: Plan) -> None:
        await self._received_log.catch_up(lane.state)
        await self._received_log.written()
        if made.is_empty:
            made.answered()
        else:
            await self._stored_in_time(lane, made)
            made.committed()
            self._judgements.stored(made.batches)
        committed_ms = self._clock.wall_ms()
        for delivery, answer in made.answers:
            if delivery.future.done():
                continue
            if isinstance(answer, OutOfSequence):
                delivery.future.set_exception(answer)
            else:
                if answer.duplicates and self._hooks.on_duplicates is not None:
                    self._hooks.on_duplicates(answer.duplicates)
                for position, reason in delivery.dead_lettered.items():
                    self._log.warning(
                        "dead-letter", stream=delivery.batch.stream, position=position, reason=reason
                    )
                delivery.future.set_result(replace(answer, committed=committed_ms))
        self._received_log.begin(made.lines)

    async def _stored_in_time(self, lane: TargetLane, made: Plan) -> None:
        one = self._measured(lane, made)
        expected_ms = self._pace.expected_ms(one.size)
        try:
            with self._pace.measured(one):
                await lane.commit(
                    made.batches, lambda offsets: made.records(offsets, self._clock.wall_ms()), expected_ms
                )
        except SendFailed as failed:
            if (
                made.batches.records == 1
                and "transaction_timeout_ms" not in self._connection.producer_options
            ):
                self._transaction_ms = longer_ms(failed.error, lane.transaction_ms, one.size)
            raise

    async def _planned(self, lane: TargetLane, deliveries: Sequence[Delivery]) -> Plan:
        """Plan the next transaction, where it would not end another that is open."""
        await lane.renew()
        for _ in range(MOST_TAKINGS):
            made = plan(deliveries, lane.state, self._setting(lane), self._clock.wall_ms())
            if await lane.is_clear(made.batches.by_partition.keys()):
                return made
            await lane.retake()
        raise TargetUnavailable(
            f"a transaction was left open, and again after each of {MOST_TAKINGS} ends", limit=MOST_TAKINGS
        )

    @staticmethod
    def _measured(lane: TargetLane, made: Plan) -> Measured:
        return Measured(lane.throttle, made.batches.bytes, lane.round_trip_ms)

    def _setting(self, lane: TargetLane) -> Setting:
        return Setting(
            options=self._options,
            line_writer=self._received_log.writer(self._options, self._number, self._store),
            topics=self._rules,
            refused=self._refused,
            letters=self._letters,
            isolation=self._isolation,
            stored=self._stored,
            doubts=self._doubts,
            make_builder=lane.make_builder,
            exact=not self._connection.producer_options.get("compression_type"),
        )


async def _let_go(lane: TargetLane, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel the tasks of a lane, and then discard its producer."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await lane.discard()
