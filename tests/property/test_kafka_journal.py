"""Any interleaving of commits, crashes, take-overs, new lanes, renames, resizes and compaction of the journal
topic rebuilds exactly what was committed.

The records go to logs in memory that behave as Kafka does: a transaction is seen whole or not at all, a
transactional id that was started again is fenced, and compaction takes any superseded records it likes.
Beside them runs a plain model: next by stream, lists of IDs, and the delivery log. A worker writes the lines
of a transaction to the log before its next one, and what a taken lane holds before its first.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bridge.kafka.journal_topic import id_blocks
from bridge.kafka.journal_topic.lane_state import LaneChange, LaneState
from bridge.kafka.journal_topic.options import StateOptions
from bridge.kafka.journal_topic.records import (
    GenerationRecord,
    Record,
    Snapshot,
    StreamRecord,
    generation_record,
)
from bridge.kafka.journal_topic.repartitioning import (
    adopted,
    lane_identity,
    next_generation,
    superseded,
    taken_over,
)
from bridge.kafka.records.identity import lane_of, transactional_id

#: Small blocks, so that rings of a few IDs come round.
BLOCK_IDS = 4
STREAMS = [
    (f"kafka:cluster:topic-{topic}:{number}", f"t{topic}") for topic in range(3) for number in range(3)
]
ADDRESSES = ["x", "y:z"]
Ids = dict[str, list[bytes]]
seeds = st.integers(0, 2**32)
outcomes = st.sampled_from(["commit", "commit", "commit", "commit", "abort", "crash"])


@dataclass
class Partition:
    """Committed records, with gaps where compaction was."""

    log: list[Record] = field(default_factory=list)
    #: The model: IDs by address as the last commit left them.
    ids: Ids = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        return Snapshot(self.log)

    def compact(self, chance: random.Random) -> None:
        last = {key: index for index, (key, _) in enumerate(self.log)}
        kept: list[Record] = []
        for index, (key, value) in enumerate(self.log):
            superseded_record = last[key] != index
            lone_tombstone = value is None and not any(before == key for before, _ in kept)
            if not ((superseded_record or lone_tombstone) and chance.random() < 0.5):
                kept.append((key, value))
        self.log = kept


@dataclass
class Worker:
    """Somebody who holds, or believes to hold, a lane."""

    topic: str
    generation: int
    lanes: int
    lane: int
    epoch: int
    state: LaneState | None = None
    #: The model of its IDs.
    ids: Ids = field(default_factory=dict)
    #: Lines that it has still to write to the delivery log.
    unlogged: set[str] = field(default_factory=set)


def streams_of(lane: int, lanes: int) -> list[tuple[str, str]]:
    return [each for each in STREAMS if lane_of(each[1], int(each[0][-1]), lanes) == lane]


def topics_of(topic: str, record: GenerationRecord) -> list[str]:
    return list(dict.fromkeys((topic, *(past.topic for past in record.past))))


def options(capacity: int) -> StateOptions:
    return StateOptions(id_cache_size=lambda _: capacity, persist_ids=True)


def lines_of(state: LaneState) -> set[str]:
    return {record.line for record in state.streams.values() if record.line}


def plain_merge(lists: list[list[bytes]], capacity: int) -> list[bytes]:
    """The newest of each list, then the second newest of each, until there are `capacity`."""
    aged = sorted(
        (age, number, value) for number, ids in enumerate(lists) for age, value in enumerate(reversed(ids))
    )
    found: list[bytes] = []
    for _, _, value in aged:
        if value not in found and len(found) < capacity:
            found.append(value)
    return found[::-1]


class JournalMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = mock.patch.object(id_blocks, "BLOCK_IDS", BLOCK_IDS)
        self.patch.start()
        self.topics: dict[str, list[Partition]] = {}
        self.epochs: dict[str, int] = defaultdict(int)
        self.workers: list[Worker] = []
        self.next: dict[str, int] = {}
        #: Delivery-log lines of committed transactions, and those in the log.
        self.lines: set[str] = set()
        self.logged: set[str] = set()
        self.names = ["a"]
        self.capacity = 5
        self.made = 0

    def teardown(self) -> None:
        self.patch.stop()

    @property
    def topic(self) -> str:
        return self.names[-1]

    @property
    def partitions(self) -> list[Partition]:
        return self.topics[self.topic]

    def present(self, topic: str) -> GenerationRecord:
        record = self.topics[topic][0].snapshot().generation
        assert record is not None
        return record

    def snapshots(self, topic: str) -> list[Snapshot]:
        return [partition.snapshot() for partition in self.topics[topic]]

    def write_everywhere(self, topic: str, record: GenerationRecord) -> None:
        for partition in self.topics[topic]:
            partition.log.append(generation_record(record))

    @initialize(lanes=st.integers(1, 4), capacity=st.integers(0, 12))
    def first_start(self, lanes: int, capacity: int) -> None:
        self.capacity = capacity
        self.topics["a"] = [Partition() for _ in range(lanes)]
        self.write_everywhere("a", GenerationRecord(bridge="a", generation=1, lanes=lanes))

    @rule(lanes=st.integers(1, 4))
    def set_lanes(self, lanes: int) -> None:
        """A decision alone: old owners keep on until somebody takes a lane of the new generation."""
        record = self.present(self.topic)
        missing = max(0, lanes - len(self.partitions))
        past = superseded(self.topic, record, self.snapshots(self.topic))
        self.partitions.extend(Partition() for _ in range(missing))
        self.write_everywhere(self.topic, next_generation(record, past, lanes=lanes))

    @precondition(lambda self: len(self.names) < 4)
    @rule(lanes=st.integers(1, 4), back=st.booleans())
    def rename(self, lanes: int, back: bool) -> None:
        previous = self.topic
        new_name = self.names[-2] if back and len(self.names) > 1 else f"name-{len(self.names)}"
        own = self.topics.setdefault(new_name, [])
        own.extend(Partition() for _ in range(max(0, lanes - len(own))))
        record, gone = adopted(
            new_name,
            self.snapshots(new_name),
            previous,
            self.snapshots(previous),
            bridge=new_name,
            lanes=lanes,
        )
        assert gone is not None
        self.write_everywhere(new_name, record)
        self.write_everywhere(previous, gone)
        self.names.append(new_name)

    def begin(self, lane: int) -> Worker:
        """Prepare, and start the producer."""
        record = self.present(self.topic)
        lane %= record.lanes
        name = transactional_id(self.topic, record.generation, lane)
        self.epochs[name] += 1
        worker = Worker(self.topic, record.generation, record.lanes, lane, epoch=self.epochs[name])
        self.workers.append(worker)
        return worker

    def finish(self, worker: Worker) -> None:
        """Read, and take over where the lane is not initialised."""
        partition = self.topics[worker.topic][worker.lane]
        own, capacity = partition.snapshot(), self.capacity
        record = own.generation
        assert record is not None
        if record.moved or record.generation != worker.generation:
            self.workers.remove(worker)
            return
        expected = lane_identity(record)
        if own.lane("") == expected or not record.past:
            worker.state = LaneState.rebuilt(expected, own, options(capacity))
            worker.unlogged = lines_of(worker.state)
            worker.ids = {
                address: ids[max(0, len(ids) - capacity) :] for address, ids in partition.ids.items()
            }
            return
        for past in record.past:
            for lane in range(past.lanes):
                self.epochs[transactional_id(past.topic, past.generation, lane)] += 1
        worker.state = self.taken_over(worker.lane, record, capacity)
        worker.unlogged = lines_of(worker.state)
        found = [each.ids for topic in topics_of(worker.topic, record) for each in self.topics[topic]]
        worker.ids = {
            address: plain_merge([ids.get(address, []) for ids in found], capacity)
            for address in {address for ids in found for address in ids}
        }

    def taken_over(self, lane: int, record: GenerationRecord, capacity: int) -> LaneState:
        topics = topics_of(self.topic, record)
        return taken_over(
            lane_identity(record),
            lane,
            self.topics[topics[0]][lane].snapshot(),
            [snapshot for topic in topics for snapshot in self.snapshots(topic)],
            options(capacity),
        )

    def is_owner(self, worker: Worker) -> bool:
        """Whether its producer may still commit."""
        name = transactional_id(worker.topic, worker.generation, worker.lane)
        return self.epochs[name] == worker.epoch

    def transact(self, worker: Worker, chance: random.Random, outcome: str) -> None:
        state = worker.state
        assert state is not None
        self.logged |= worker.unlogged
        change = state.change()
        brought: dict[str, int] = {}
        lines: dict[str, str] = {}
        mine = streams_of(worker.lane, worker.lanes)
        for identity, address in chance.choices(mine, k=chance.randint(0, 3)) if mine else []:
            before = change.next(identity) or 0
            upto = before + chance.randint(0, 3)
            if upto > before:  # otherwise there is nothing to log
                self.made += 1
                lines[identity] = f"{identity}: line {self.made}"
            line = lines.get(identity, "")
            record = StreamRecord(next=upto, run="7", checksum=upto, address=address, line=line)
            change.cover(identity, record)
            brought[identity] = upto
            assert change.next(identity) == upto
        ids = self.add_ids(worker, change, chance)
        records = change.records()
        if outcome == "crash":
            self.workers.remove(worker)
        elif outcome == "commit" and not self.is_owner(worker):
            self.workers.remove(worker)  # a zombie: ProducerFenced
        elif outcome == "commit":
            for identity in brought:
                past = state.stream(identity)
                assert (past.next if past else None) == self.next.get(identity)
            partition = self.topics[worker.topic][worker.lane]
            partition.log += records
            change.commit()
            assert not state.unwritten
            self.next |= brought
            worker.unlogged = set(lines.values())
            self.lines |= worker.unlogged
            worker.ids = ids
            partition.ids = {address: list(held) for address, held in ids.items()}

    def add_ids(self, worker: Worker, change: LaneChange, chance: random.Random) -> Ids:
        """Some IDs for each address, new ones and old ones; what the model's lists are then."""
        assert worker.state is not None
        ids = {address: list(held) for address, held in worker.ids.items()}
        for address in chance.choices(ADDRESSES, k=chance.randint(0, 3)):
            capacity = worker.state.id_entries(address)[1]
            held = ids.setdefault(address, []) if capacity else []
            count = chance.choice([0, 1, 2, 3, 9, 40])
            again = {b"id-%d" % chance.randrange(max(1, self.made)) for _ in range(chance.randint(0, 4))}
            fresh = [b"id-%d" % (self.made + number) for number in range(count)]
            self.made += count
            asked = list(dict.fromkeys([*sorted(again), *fresh]))
            known = change.known(address, asked)
            assert known == [index for index, value in enumerate(asked) if value in held]
            unknown = [value for index, value in enumerate(asked) if index not in known]
            change.add_ids(address, unknown)
            if capacity:
                held += unknown
                del held[: max(0, len(held) - capacity)]
        return ids

    @rule(lane=st.integers(0, 3))
    def begin_taking(self, lane: int) -> None:
        self.begin(lane)

    @rule(seed=seeds)
    def finish_taking(self, seed: int) -> None:
        waiting = [worker for worker in self.workers if worker.state is None]
        if waiting:
            self.finish(random.Random(seed).choice(waiting))

    @rule(lane=st.integers(0, 3), seed=seeds, outcomes=st.lists(outcomes, min_size=1, max_size=5))
    def relay(self, lane: int, seed: int, outcomes: list[str]) -> None:
        """Whoever has the lane goes on; if nobody has, somebody takes it."""
        chance = random.Random(seed)
        lane %= self.present(self.topic).lanes
        owners = [each for each in self.workers if each.lane == lane and each.state and self.is_owner(each)]
        worker = chance.choice(owners) if owners else self.begin(lane)
        if worker.state is None:
            self.finish(worker)
        for outcome in outcomes:
            if worker in self.workers:
                self.transact(worker, chance, outcome)

    @rule(seed=seeds, outcome=outcomes)
    def anybody_goes_on(self, seed: int, outcome: str) -> None:
        """Also one who was fenced, or has an old generation and has not noticed."""
        chance = random.Random(seed)
        running = [worker for worker in self.workers if worker.state is not None]
        if running:
            self.transact(chance.choice(running), chance, outcome)

    @rule(capacity=st.integers(0, 12))
    def resize(self, capacity: int) -> None:
        """`id-cache-size` of whoever takes a lane from now on."""
        self.capacity = capacity

    @rule(seed=seeds)
    def compact(self, seed: int) -> None:
        chance = random.Random(seed)
        for partitions in self.topics.values():
            for partition in partitions:
                partition.compact(chance)

    @invariant()
    def former_names_are_refused(self) -> None:
        for name in set(self.names[:-1]) - {self.topic}:
            assert self.present(name).moved

    @invariant()
    def states_are_the_model(self) -> None:
        for worker in self.workers:
            if worker.state is not None and self.is_owner(worker):
                for address, held in worker.ids.items():
                    assert list(worker.state.caches.get(address, ())) == held
                self.check_streams(worker.state, worker.lane, worker.lanes)

    @invariant()
    def whoever_takes_a_lane_now_finds_what_was_committed(self) -> None:
        if not self.topics:
            return
        record = self.present(self.topic)
        lines: set[str] = set()
        for lane in range(record.lanes):
            own = self.topics[self.topic][lane].snapshot()
            expected = lane_identity(record)
            if own.lane("") == expected or not record.past:
                state = LaneState.rebuilt(expected, own, options(3))
            else:
                state = self.taken_over(lane, record, 3)
            self.check_streams(state, lane, record.lanes)
            lines |= lines_of(state)
        assert self.lines <= self.logged | lines

    def check_streams(self, state: LaneState, lane: int, lanes: int) -> None:
        for identity, _ in streams_of(lane, lanes):
            found = state.stream(identity)
            assert (found.next if found else None) == self.next.get(identity)


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(stateful_step_count=40)
