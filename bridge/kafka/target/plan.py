"""Plans one transaction in memory before anything is sent: coverage, IDs, refusals. No I/O.

Batches are judged in the order of the calls, each on top of those before it. Where one turns out not to fit
while its record batches are made, all of it is planned again without it: that is rare, and so the record
batches need not be taken apart.

A broker refuses a record batch whole, and with it the transaction. So where a message is in doubt a plan is a
*probe* first: it holds the messages in doubt and nothing else, and is never committed. The broker names those
that it refuses, and the next plan has none of them: a refusal costs the record itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from bridge.delivery_log import LineWriter
from bridge.errors import OutOfSequence, TargetRefused
from bridge.kafka.journal_topic.id_blocks import MOST_ID_BYTES
from bridge.kafka.journal_topic.lane_state import LaneChange, LaneState, StreamRecord
from bridge.kafka.journal_topic.records import Record
from bridge.kafka.records.encoding import headers_of, hop_headers, timed
from bridge.kafka.records.identity import partition_of
from bridge.kafka.records.partitioner import partitioned
from bridge.kafka.records.record_batches import Appended, Builder, Offsets, RecordBatches, TooLarge
from bridge.kafka.records.topic_rules import INVALID_TIMESTAMP, TopicRules
from bridge.kafka.target.coverage import Covered, last_offsets
from bridge.kafka.target.dead_letters import Letters
from bridge.kafka.target.delivery import Delivery, OpenStream
from bridge.kafka.target.doubts import Doubts
from bridge.kafka.target.options import KafkaTargetOptions
from bridge.kafka.target.parking import why_parked
from bridge.kafka.target.received_lines import received_lines
from bridge.kafka.target.refused_records import Isolation, in_order
from bridge.kafka.target.stored_records import StoredRecords
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import Block, IndexedId
from bridge.messages.message import Header, Message
from bridge.messages.origins import duplicate_ids
from bridge.messages.stream_names import kind_of_stream
from bridge.relay.ports import Receipt, Stream
from dedup.coverage import Outcome, judge
from dedup.verdict import Verdict

__all__ = ["Delivery", "OpenStream", "Plan", "Setting", "plan"]


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of planning; the same for every transaction until the next opening."""

    options: KafkaTargetOptions
    #: The writer of delivery-log lines; None: there is no delivery log.
    line_writer: LineWriter | None
    #: The rules by topic; a topic that does not exist is not in it.
    topics: Mapping[str, TopicRules]
    #: By topic, why nothing can be written to it.
    refused: Mapping[str, TargetRefused]
    letters: Letters
    isolation: Isolation
    #: What is stored already and not covered yet; nothing where there are transactions.
    stored: StoredRecords
    #: The doubts by topic, for all that are in `topics`.
    doubts: Mapping[str, Doubts]
    #: Starts a record batch of at most so many bytes.
    make_builder: Callable[[int], Builder]
    #: Whether record batches have the same size at the broker as here.
    exact: bool


@dataclass(slots=True)
class Columns:
    """The messages of a batch, as columns."""

    positions: list[int]
    messages: list[Message]
    ids: list[bytes | None]
    hops: list[Header | None]

    def drop(self, indices: Collection[int]) -> None:
        """Leave out the messages at these indices."""
        kept = [index for index in range(len(self.positions)) if index not in indices]
        self.positions = [self.positions[index] for index in kept]
        self.messages = [self.messages[index] for index in kept]
        self.ids = [self.ids[index] for index in kept]
        self.hops = [self.hops[index] for index in kept]


#: The target fields of a `StreamRecord`: offsets, and the id of the topic that has them.
Where = tuple[tuple[tuple[str, int, int], ...], str]


class _PlanAgain(Exception):
    """The plan so far is of no use."""


class _Doubtful(Exception):
    """The plan so far holds messages that the broker must judge first."""


def plan(deliveries: Sequence[Delivery], state: LaneState, setting: Setting, now_ms: int) -> Plan:
    """Plan the transaction that answers these deliveries.

    Raises:
        TargetRefused: a dead letter cannot be stored, even fully reduced.
    """
    is_probe = False
    while True:
        made = Plan(state, setting, now_ms, is_probe=is_probe)
        try:
            for delivery in deliveries:
                made.add(delivery)
        except _PlanAgain:
            is_probe = False
            continue
        except _Doubtful:
            is_probe = True
            continue
        return made


class Plan:
    """One planned transaction; `plan` fills it."""

    def __init__(self, state: LaneState, setting: Setting, now_ms: int, *, is_probe: bool = False) -> None:
        #: Whether it holds the messages in doubt and nothing else, and must not be committed.
        self.is_probe = is_probe
        self._state = state
        self._setting = setting
        self._now_ms = now_ms
        self._change: LaneChange = state.change()
        self._blocked: set[OpenStream] = set()
        self.batches = RecordBatches(setting.make_builder, exact=setting.exact)
        #: The coverage by stream identity.
        self.covered: dict[str, Covered] = {}
        #: The answer to each delivery once this is committed.
        self.answers: list[tuple[Delivery, Receipt | OutOfSequence]] = []
        #: Delivery-log lines; `records` makes them.
        self.lines: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.covered

    def add(self, delivery: Delivery) -> None:
        """Decide about one batch, all of it or nothing (design rule 1)."""
        self.answers.append((delivery, self._answer(delivery)))

    def _answer(self, delivery: Delivery) -> Receipt | OutOfSequence:
        batch, opened = delivery.batch, delivery.opened
        stream = opened.stream
        next_position = self._change.next(batch.stream)
        if opened.blocked or opened in self._blocked:
            return self._not_now(
                opened, next_position, "NOT_NOW: a batch before this one was not taken; open the stream again"
            )
        if reason := self._why_not_now(stream, batch):
            return self._not_now(opened, next_position, reason)
        judgement = judge(next_position, batch.from_, batch.upto)
        if judgement.outcome is Outcome.OUT_OF_SEQUENCE:
            return OutOfSequence(
                f"{batch.stream}: the batch begins at {batch.from_}; expected at most {next_position}",
                limit=next_position,
                found=batch.from_,
            )
        if judgement.outcome is Outcome.DUPLICATE:
            return Receipt(batch.stream, Verdict.DUPLICATE, judgement.next, duplicates=batch.count)
        fresh = batch.after(judgement.start)
        if stream.empty:
            self._cover(opened, fresh, ())
            return Receipt(batch.stream, Verdict.STORED, batch.upto)
        return self._taken(delivery, fresh, next_position)

    def _taken(self, delivery: Delivery, fresh: Batch, next_position: int | None) -> Receipt:
        """Store the messages that were not covered before, or refuse them."""
        batch, opened = delivery.batch, delivery.opened
        stream = opened.stream
        rules = self._setting.topics[stream.target_address]
        columns = self._read(fresh, stream)
        delivery.refusals = {**self._refusals(fresh, columns, stream, rules), **delivery.too_large}
        if delivery.refusals:
            self._blocked.add(opened)
            first = min(delivery.refusals)
            return Receipt(batch.stream, Verdict.REFUSED, next_position or 0, first, delivery.refusals[first])
        rejected = self._reject_known(columns, stream.target_address, fresh)
        self._append(delivery, columns, rules)
        if not self.is_probe:
            self._append_letters(fresh)
        self._cover(opened, fresh, rejected)
        repeated = len(rejected)
        duplicates = batch.count - fresh.count + repeated
        return Receipt(
            batch.stream,
            Verdict.STORED,
            batch.upto,
            duplicates=duplicates,
            repeated=repeated,
            dead_lettered=tuple(sorted(delivery.dead_lettered)),
        )

    def _why_not_now(self, stream: Stream, batch: Batch) -> str:
        """The reason why the topics cannot take the batch as they are now; empty: they can."""
        setting = self._setting
        parked = why_parked(
            stream,
            setting.topics,
            setting.refused,
            preserve_partitions=setting.options.preserve_partitions,
        )
        if parked or stream.empty:
            return parked
        absent = self._absent(stream, batch)
        return f"ADDRESS_NOT_FOUND: there is no topic {absent}, and create-topics is false" if absent else ""

    def _absent(self, stream: Stream, batch: Batch) -> str:
        """A topic that the batch needs and that does not exist; empty: none."""
        topics, letters_to = self._setting.topics, self._setting.options.dead_letter_address
        if stream.target_address not in topics:
            return stream.target_address
        needs_letters = letters_to not in topics and self._setting.letters.of(batch.stream, batch.refused)
        return letters_to if needs_letters else ""

    def _not_now(self, opened: OpenStream, next_position: int | None, reason: str) -> Receipt:
        self._blocked.add(opened)
        return Receipt(opened.stream.identity, Verdict.NOT_NOW, next_position or 0, reason=reason)

    # -- the messages ----------------------------------------------------------------------------------

    def _read(self, fresh: Batch, stream: Stream) -> Columns:
        """The batch's messages as they will be stored."""
        block, options = fresh.block, self._setting.options
        if block is None:
            return Columns([], [], [], [])
        positions = list(run_arithmetic.positions(fresh.runs))
        messages: Sequence[Message] = block.messages()
        if partition_of(stream.identity) is None:
            messages = timed(messages, fresh.events[0] or self._now_ms)
        ids = duplicate_ids(block, stamp=options.stamp)
        return Columns(positions, list(messages), ids, hop_headers(block))

    def _refusals(self, fresh: Batch, columns: Columns, stream: Stream, rules: TopicRules) -> dict[int, str]:
        """Positions of messages that are known never to be storable, each with the rule."""
        if fresh.block is None:
            return {}
        found = {
            **self._refused_before(stream.identity, columns, rules),
            **self._ids_too_long(fresh.block, stream),
            **rules.all_refused(columns.messages),
        }
        return {columns.positions[index]: reason for index, reason in found.items()}

    def _refused_before(self, identity: str, columns: Columns, rules: TopicRules) -> dict[int, str]:
        """Indices of the messages that the broker has refused already, with its reason."""
        found = self._setting.isolation.refused(identity, columns.positions)
        for index, word in found.items():
            if word.startswith(INVALID_TIMESTAMP):
                found[index] = f"{word}; {rules.time_limits(columns.messages[index], self._now_ms)}"
        return found

    def _ids_to_check(self, block: Block | None, identity: str) -> Sequence[IndexedId]:
        """The producers' IDs that are checked against the cache; none of a replay's."""
        return block.ids if block is not None and self._checks_ids(identity) else ()

    def _checks_ids(self, identity: str) -> bool:
        return self._setting.options.check_producer_ids and kind_of_stream(identity).checks_ids

    def _ids_too_long(self, block: Block, stream: Stream) -> dict[int, str]:
        """Index and rule of the messages whose ID no journal record could hold with others."""
        return {
            index: f"INVALID_DUPLICATE_ID: an ID of {len(value)} bytes; a Kafka target that checks IDs "
            f"(check-producer-ids) remembers up to {MOST_ID_BYTES}"
            for index, value in self._ids_to_check(block, stream.identity)
            if len(value) > MOST_ID_BYTES and self._state.id_entries(stream.target_address)[1]
        }

    def _reject_known(self, columns: Columns, address: str, fresh: Batch) -> Collection[int]:
        """Leave out messages whose producer's ID is known at the address (rule 4); returns their indices."""
        if present := self._setting.options.already_present(fresh):
            indices = {index for index, position in enumerate(columns.positions) if position in present}
            columns.drop(indices)
            return indices  # a replay's messages, whose IDs are not checked
        ids = self._ids_to_check(fresh.block, fresh.stream)
        if not ids:
            return ()
        known = self._change.accept_ids(address, [value for _, value in ids])
        rejected = {ids[index][0] for index in known}
        if rejected:
            columns.drop(rejected)
        return rejected

    def _append(self, delivery: Delivery, columns: Columns, rules: TopicRules) -> None:
        """Append the messages to the record batches of their partitions. Raises: _PlanAgain, _Doubtful."""
        identity = delivery.opened.stream.identity
        if stored := self._setting.stored.of(identity):
            columns.drop({index for index, position in enumerate(columns.positions) if position in stored})
        pieces = self._pieces(identity, columns, rules)
        if pieces and not self.is_probe and self._setting.options.transactions:
            raise _Doubtful
        headers = headers_of(columns.messages, columns.ids, columns.hops)
        doubts = self._setting.doubts[rules.name]
        for start, stop, alone in pieces if self.is_probe else in_order(pieces, len(columns.positions)):
            positions, messages = columns.positions[start:stop], columns.messages[start:stop]
            for partition, indices in self._partitions(identity, messages, rules).items():
                what = Appended(identity, positions, messages, headers[start:stop])
                what = what if indices is None else what.chosen(indices)
                try:
                    self.batches.append(rules, partition, what, alone=alone, most_bytes=doubts.most_bytes)
                except TooLarge as error:
                    for index, size in error.sizes.items():
                        delivery.too_large[what.positions[index]] = rules.too_large(size)
        if delivery.too_large:
            raise _PlanAgain

    def _pieces(self, identity: str, columns: Columns, rules: TopicRules) -> Sequence[tuple[int, int, bool]]:
        """The messages that the broker must judge first: (start, stop, whether in a record batch alone)."""
        doubts, isolation = self._setting.doubts[rules.name], self._setting.isolation
        found = [(start, stop, True) for start, stop in isolation.pieces(identity, columns.positions)]
        unjudged = isolation.unjudged(
            identity, columns.positions, doubts.of(rules, columns.messages, self._now_ms)
        )
        found += [(index, index + 1, doubts.is_large(columns.messages[index])) for index in unjudged]
        return found

    def _partitions(
        self, identity: str, messages: Sequence[Message], rules: TopicRules
    ) -> Mapping[int, Sequence[int] | None]:
        """By target partition, the indices of its messages; None: all."""
        source = partition_of(identity)
        if source is not None and self._setting.options.preserve_partitions:
            return {source: None} if messages else {}
        return partitioned([message.key for message in messages], identity, rules.partitions)

    def _append_letters(self, fresh: Batch) -> None:
        """Append the dead letters of positions that are covered empty. Raises: _PlanAgain."""
        stored = self._setting.stored.of(fresh.stream, letters=True)
        for letter in self._setting.letters.of(fresh.stream, fresh.refused):
            if letter.position in stored:
                continue
            rules = self._setting.topics[self._setting.options.dead_letter_address]
            message = letter.record(rules, self._now_ms)
            headers = headers_of([message], [letter.duplicate_id], [letter.hops])
            (partition,) = partitioned([message.key], fresh.stream, rules.partitions)
            what = Appended(fresh.stream, [letter.position], [message], headers, is_letter=True)
            try:
                # They share record batches: thousands of record batches would take longer than one
                # transaction may, at every attempt.
                self.batches.append(rules, partition, what, alone=letter.is_suspect)
            except TooLarge as error:
                self._setting.letters.reduce(fresh.stream, letter.position, rules.too_large(error.sizes[0]))
                raise _PlanAgain from error

    # -- what is remembered ----------------------------------------------------------------------------

    def _cover(self, opened: OpenStream, fresh: Batch, rejected: Collection[int]) -> None:
        covered = self.covered.get(fresh.stream)
        if covered is None:
            covered = Covered(opened.stream, fresh.from_, unchecked=not self._checks_ids(fresh.stream))
            self.covered[fresh.stream] = covered
        covered.add(fresh, rejected)
        self._change.cover(fresh.stream, self._stream_record(covered))

    def _stream_record(self, covered: Covered, where: Where = ((), ""), line: str = "") -> StreamRecord:
        stream = covered.stream
        return StreamRecord(
            next=covered.upto,
            run=stream.run,
            checksum=covered.checksum,
            address=stream.address,
            offsets=where[0],
            target_id=where[1],
            line=line,
        )

    def records(self, offsets: Offsets, now_ms: int) -> list[Record]:
        """The journal's records, once the offsets of the data are known."""
        written_to = last_offsets(offsets)
        for identity, covered in self.covered.items():
            where = self._where(covered.stream, written_to.get(identity))
            carried = ""
            if self._setting.line_writer is not None:
                written, carried = received_lines(
                    covered, self._setting.line_writer, now_ms, self._state.most_bytes
                )
                self.lines += written
            self._change.cover(identity, self._stream_record(covered, where, carried))
        return self._change.records()

    def _where(self, stream: Stream, written: tuple[tuple[str, int, int], ...] | None) -> Where:
        """The offsets that this transaction wrote; if it wrote none, those of the last one that did."""
        if written:
            rules = self._setting.topics.get(stream.target_address)
            return written, rules.id if rules is not None else ""
        past = self._state.stream(stream.identity)
        return (past.offsets, past.target_id) if past is not None else ((), "")

    def committed(self) -> None:
        """Update the state in memory: the transaction is durable."""
        self._change.commit()
        for identity, covered in self.covered.items():
            self._setting.letters.stored(identity, covered.refused)
            self._setting.isolation.covered(identity, covered.upto)
            self._setting.stored.covered(identity, covered.upto)
        self.answered()

    def answered(self) -> None:
        """Mark the answers as sent: streams that were not taken stay blocked until they are opened again."""
        for opened in self._blocked:
            opened.blocked = True
