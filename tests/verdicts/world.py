"""A bridge between a source and a target, as it really is: what was sent, stored, lost, doubled, taken back.

`World` is told what happens (`produce`, `relay`, `restore_target`, ...) and keeps the truth: how often each
source message is at the target, and at which places. On the way it notes the delivery-log lines that the
product writes. The truth never comes from these lines. Nothing here is shared with `dedup.reconcile`, so
that a mistake there is not repeated. Pure: the caller brings every chance.

After a history, ask for `truths()` (by source position), `source_records()` and `target_records()` (the
tables of both ends, for an audit), `next()` and `dead_letters()` (what the bridge has confirmed), `lines`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from bridge.messages.stream_names import plan_stream
from dedup.ids import Stamp
from tests.verdicts.messages import Copy, Fate, Line, Message, Record, Shape, Stream, Truth


@dataclass(slots=True)
class Target:
    """What a target keeps in one store, and loses together when that is restored from an earlier state."""

    copies: list[Copy] = field(default_factory=list)
    #: By stream: the first position that is not covered.
    next: dict[str, int] = field(default_factory=dict)
    #: Producers' IDs, newest last.
    ids: list[bytes] = field(default_factory=list)
    #: Covered positions that were rejected, refused, or had expired at the source: (stream, position).
    rejected: set[tuple[str, int]] = field(default_factory=set)
    refused: set[tuple[str, int]] = field(default_factory=set)
    expired: set[tuple[str, int]] = field(default_factory=set)
    #: By partition: the next offset.
    ends: dict[int, int] = field(default_factory=dict)
    #: The opening of the journal that wrote line `number`, the newest; and what that opening went on from.
    session: str = "s0"
    number: int = 0
    after: tuple[str, int] | None = None
    #: The received lines of its log, by `Line.order`.
    log: list[int] = field(default_factory=list)


class World:
    """One bridge, its source and its target."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        #: All streams there ever were; the last one of a partition is the one that is read.
        self.streams: list[Stream] = []
        self.target = Target()
        #: The target's former lives, each as it was when it was replaced by a backup.
        self.former: list[Target] = []
        self.lines: list[Line] = []
        self._sessions = 0
        for partition in range(shape.partitions):
            self._add_stream(partition, first=0)

    # -- the source ----------------------------------------------------------------------------------------

    def current(self, partition: int) -> Stream:
        """The stream that the bridge reads of a partition."""
        return [stream for stream in self.streams if stream.partition == partition][-1]

    def _add_stream(self, partition: int, first: int) -> Stream:
        generation = sum(stream.partition == partition for stream in self.streams)
        number, address = self.shape.number, self.shape.address
        identity = (
            f"kafka:src-{number}:t-{number}:{partition}"
            if self.shape.is_kafka_source
            else f"journal:{number:x}.{generation}:{address}:0"
        )
        stream = Stream(identity, partition, first, end=first, confirmed=first)
        self.streams.append(stream)
        return stream

    def hole(self, partition: int, width: int) -> None:
        """Positions without a message: markers, or what was compacted away."""
        self.current(partition).end += width

    def produce(
        self,
        partition: int,
        duplicate_id: bytes | None = None,
        *,
        is_stamp: bool = False,
        is_refused: bool = False,
    ) -> None:
        """One message more."""
        stream = self.current(partition)
        position = stream.end
        stamp = Stamp(stream.identity).text(position).encode()
        stream.messages[position] = Message(
            position, duplicate_id, is_stamp, duplicate_id or stamp, is_refused
        )
        stream.end += 1

    def expire_source(self, partition: int, below: int) -> None:
        """Retention takes what lies below a position, read or not."""
        self.recover(partition)
        for message in self.current(partition).messages.values():
            message.is_gone |= message.position < below

    def source_snapshot(self) -> list[Stream]:
        """For `restore_source`."""
        return copy.deepcopy(self.streams)

    def can_restore_source(self, snapshot: Sequence[Stream]) -> bool:
        """A journal whose target has all that was ever confirmed: no position means two things."""
        known = {stream.identity for stream in snapshot}
        return not self.shape.is_kafka_source and all(
            stream.identity in known and self.next(stream) >= stream.confirmed for stream in self.streams
        )

    def restore_source(self, snapshot: Sequence[Stream]) -> None:
        """The source's journal is set back. Where the target is beyond its end, it gets a new incarnation."""
        assert self.can_restore_source(snapshot)
        for old in snapshot:
            stream = next(each for each in self.streams if each.identity == old.identity)
            sent = {p: replace(m, is_gone=True) for p, m in stream.messages.items() if m.was_sent}
            kept = {p: replace(stream.messages[p], is_gone=m.is_gone) for p, m in old.messages.items()}
            stream.messages = sent | kept
            if self.next(stream) > old.end:
                stream.is_stopped = True
                if stream is self.current(stream.partition):
                    self._add_stream(stream.partition, first=stream.end)
            else:
                stream.end, stream.confirmed = old.end, old.confirmed

    # -- the bridge ----------------------------------------------------------------------------------------

    def next(self, stream: Stream) -> int:
        """The first position of the stream that the target has not covered."""
        return self.target.next.get(stream.identity, stream.first)

    def relay(
        self,
        partition: int,
        count: int,
        *,
        lost: Collection[int] = (),
        cuts: Iterable[int] = (),
        receipt: bool = True,
    ) -> None:
        """The bridge sends the next `count` positions, and the target covers them in one transaction.

        Args:
            partition: of the source.
            count: positions, fewer where the stream ends before.
            lost: how many-th of them the target confirms without storing them, and remembers nothing of.
            cuts: where the sender cuts what it says was confirmed: offsets from the first position.
            receipt: False: it is lost on the way, and `recover` learns of it later.
        """
        stream = self.current(partition)
        from_ = self.next(stream)
        upto = min(from_ + count, stream.end)
        if stream.is_stopped or from_ >= upto or self._stops_at_gap(stream, from_, upto):
            return
        if stream.confirmed < from_:
            self.recover(partition)
        sent = self._readable(stream, from_, upto)
        self._cover(stream, from_, upto, {from_ + nth for nth in lost})
        if receipt:
            edges = sorted({from_, upto, *(from_ + cut for cut in cuts if 0 < cut < upto - from_)})
            for start, stop in pairwise(edges):
                self._sent(stream, start, stop, sent)
            stream.confirmed = max(stream.confirmed, upto)

    def _stops_at_gap(self, stream: Stream, from_: int, upto: int) -> bool:
        """A journal no longer has what a restored target asks for: the bridge stops, and names it."""
        gone = any(stream.messages[p].is_gone for p in range(from_, upto) if p in stream.messages)
        stream.is_stopped |= gone and not self.shape.is_kafka_source
        return stream.is_stopped

    def _readable(self, stream: Stream, from_: int, upto: int) -> list[Message]:
        found = (stream.messages.get(position) for position in range(from_, upto))
        return [message for message in found if message is not None and not message.is_gone]

    def recover(self, partition: int) -> None:
        """At an opening the target's word confirms more than the source's log says."""
        stream, upto = self.current(partition), self.next(self.current(partition))
        if stream.confirmed < upto:
            sent = self._readable(stream, stream.confirmed, upto)
            self._sent(stream, stream.confirmed, upto, sent, recovered=True)
            stream.confirmed = upto

    def _sent(
        self, stream: Stream, from_: int, upto: int, messages: Iterable[Message], *, recovered: bool = False
    ) -> None:
        here = [message for message in messages if from_ <= message.position < upto]
        refused = [message.position for message in here if message.is_refused]
        carried = [message.position for message in here if not message.is_refused]
        self._write("sent", stream.identity, from_, upto, carried, refused=refused, recovered=recovered)

    def _cover(self, stream: Stream, from_: int, upto: int, lost: Collection[int]) -> None:
        target = self.target
        accepted: list[tuple[int | None, bytes]] = []
        known: list[Message] = []
        carried, refused = [], []
        for position in range(from_, upto):
            message = stream.messages.get(position)
            key = (stream.identity, position)
            if message is None:
                continue
            if message.is_gone:
                if not message.was_sent:
                    target.expired.add(key)
                continue
            message.was_sent = True
            if message.is_refused:
                target.refused.add(key)
                refused.append(position)
            elif position not in lost:
                carried.append(position)
                if self._is_known(message):
                    known.append(message)
                    target.rejected.add(key)
                    continue
                self._store(stream, message)
                if message.id is not None and not message.is_stamp:
                    accepted.append((position, message.id))
                    self._remember(message.id)
        target.next[stream.identity] = upto
        self._received(stream, (from_, upto), carried, refused, accepted, known)

    def _is_known(self, message: Message) -> bool:
        is_asked = self.shape.checks_ids and not message.is_stamp
        return is_asked and message.id is not None and message.id in self.target.ids

    def _remember(self, duplicate_id: bytes) -> None:
        if self.shape.checks_ids:
            self.target.ids = [*self.target.ids, duplicate_id][-self.shape.cache :]

    def _store(self, stream: Stream, message: Message) -> None:
        target, partition = self.target, stream.partition
        offset = target.ends.get(partition, 0)
        target.ends[partition] = offset + 1
        is_stamp = message.is_stamp or message.id is None
        target.copies.append(
            Copy(partition, offset, stream.identity, message.position, message.carried, is_stamp)
        )

    def _received(
        self, stream: Stream, span: tuple[int, int], carried: Sequence[int], refused: Sequence[int],
        accepted: Sequence[tuple[int | None, bytes]], known: Sequence[Message],
    ) -> None:  # fmt: skip
        self._write(
            "received", stream.identity, *span, carried, refused=refused, ids=accepted, duplicates=len(known),
            unchecked=bool(accepted) and not self.shape.checks_ids,
            known=[message.position for message in known],
        )  # fmt: skip
        if known:
            named = [(None, message.id or b"") for message in known]
            if self.shape.is_kafka_target:
                self._write(
                    "received", stream.identity, *span, ids=named, duplicates=len(known), verdict="duplicate"
                )
            else:
                own = f"journal:1f:{self.shape.address}:0"
                self._write(
                    "received", own, 0, 0, ids=named, duplicates=len(known), verdict="duplicate", bridge=None
                )

    # -- what goes wrong at the target -----------------------------------------------------------------------

    def send_again(self, partition: int, count: int) -> None:
        """A zombie sends what is covered: the target knows the batch, and says so."""
        stream = self.current(partition)
        upto = self.next(stream)
        from_ = max(upto - count, stream.first)
        carried = [
            message.position for message in self._readable(stream, from_, upto) if not message.is_refused
        ]
        if carried and not self.shape.is_kafka_target:
            self._write(
                "received",
                stream.identity,
                from_,
                upto,
                carried,
                duplicates=len(carried),
                verdict="duplicate",
            )

    def forget(self, partition: int, position: int) -> None:
        """The target's memory of a stream is set back, its messages stay: what comes again is doubled.

        On Kafka the journal topic is gone, and the IDs with it; at a node a person has set the position.
        """
        stream = self.current(partition)
        self.target.next[stream.identity] = min(self.next(stream), max(position, stream.first))
        if self.shape.is_kafka_target:
            self.target.ids = []

    def expire_target(self, partition: int, below: int) -> None:
        """Retention takes what lies below an offset, or readers have taken it."""
        for each in self.target.copies:
            each.is_gone |= each.partition == partition and each.offset < below

    def reopen_target(self) -> None:
        """The target's node is started again."""
        self._sessions += 1
        target = self.target
        # An opening that wrote nothing hands on what it went on from.
        if target.after is None or target.number > target.after[1]:
            target.after = (target.session, target.number) if target.number else None
        target.session = f"s{self._sessions}"

    def target_snapshot(self) -> Target:
        """For `restore_target`."""
        return copy.deepcopy(self.target)

    def restore_target(self, snapshot: Target) -> None:
        """The target is set back, messages and memory together: what came since is gone, or comes again."""
        self.former.append(self.target)
        self.target = copy.deepcopy(snapshot)
        self.reopen_target()

    # -- replay plans ----------------------------------------------------------------------------------------

    def plan(self, partition: int, positions: Iterable[int], name: str, *, force: bool = False) -> None:
        """A plan sends these positions again, those that the target has only if it is forced.

        As it should be done: what the target has is told message by message, not by an ID that others share.
        """
        stream = self.current(partition)
        wanted = sorted(set(positions))
        if not wanted:
            return
        readable = {
            message.position: message for message in self._readable(stream, wanted[0], wanted[-1] + 1)
        }
        sent = [readable[p] for p in wanted if p in readable and not readable[p].is_refused]
        present = {
            each.position
            for each in self.target.copies
            if each.stream == stream.identity and not each.is_gone
        }
        known = 0 if force else sum(message.position in present for message in sent)
        for message in sent:
            if force or message.position not in present:
                self._store(stream, message)
        identity = plan_stream(stream.identity, f"{int(name, 16):016x}", force=force)
        ids = [(m.position, m.id) for m in sent if m.id is not None and not m.is_stamp]
        self._write(
            "received", identity, wanted[0], wanted[-1] + 1, [m.position for m in sent],
            ids=ids, duplicates=known, unchecked=bool(ids),
        )  # fmt: skip

    # -- lines -----------------------------------------------------------------------------------------------

    def _write(
        self, side: str, stream: str, from_: int, upto: int, messages: Sequence[int] = (), *,
        refused: Sequence[int] = (), ids: Sequence[tuple[int | None, bytes]] = (), duplicates: int = 0,
        verdict: str | None = None, recovered: bool = False, unchecked: bool = False, bridge: str | None = "",
        known: Sequence[int] = (),
    ) -> None:  # fmt: skip
        line = Line(
            order=len(self.lines), life=len(self.former), side=side,
            bridge=self.shape.bridge if bridge == "" else bridge, stream=stream, from_=from_, upto=upto,
            messages=tuple(messages), refused=tuple(refused), ids=tuple(ids), duplicates=duplicates,
            verdict=verdict, recovered=recovered, unchecked=unchecked, known=tuple(known),
        )  # fmt: skip
        if side == "received" and not self.shape.is_kafka_target:
            target = self.target
            target.number += 1
            line = replace(line, session=target.session, number=target.number, after=target.after)
        if side == "received":
            self.target.log.append(line.order)
        self.lines.append(line)

    # -- the truth -------------------------------------------------------------------------------------------

    def truths(self, target: Target | None = None) -> Mapping[tuple[str, int], Truth]:
        """By stream and position, of every message that there is or that was ever sent.

        `target`: another of its lives than the present one.
        """
        target = target or self.target
        copies: dict[tuple[str, int], list[Copy]] = {}
        for each in target.copies:
            copies.setdefault((each.stream, each.position), []).append(each)
        found = {}
        for stream in self.streams:
            for position, message in stream.messages.items():
                key = (stream.identity, position)
                there = copies.get(key, [])
                found[key] = Truth(
                    _fate(target, stream, message, bool(there)),
                    len(there),
                    tuple((each.partition, each.offset) for each in there if not each.is_gone),
                    message.is_gone,
                )
        return found

    def lost(self, partition: int) -> list[int]:
        """Positions of the current stream that are lost."""
        identity = self.current(partition).identity
        return [
            p
            for (stream, p), truth in self.truths().items()
            if stream == identity and truth.fate is Fate.LOST
        ]

    def dead_letters(self) -> set[tuple[str, int]]:
        """(stream, position) of what was refused."""
        return set(self.target.refused)

    def source_records(self) -> list[Record]:
        """What a reader of the source finds; of each partition the stream that is read."""
        return [
            Record(partition, message.position, message.id, message.is_stamp)
            for partition in range(self.shape.partitions)
            for message in self.current(partition).messages.values()
            if not message.is_gone
        ]

    def target_records(self) -> list[Record]:
        """What a reader of the target finds."""
        return [
            Record(each.partition, each.offset, each.id, each.is_stamp)
            for each in self.target.copies
            if not each.is_gone
        ]

    def target_begins(self, partition: int) -> int:
        """The first offset of a target partition that retention has left."""
        gone = (each.offset for each in self.target.copies if each.partition == partition and each.is_gone)
        return max(gone, default=-1) + 1


def _fate(target: Target, stream: Stream, message: Message, is_stored: bool) -> Fate:
    key = (stream.identity, message.position)
    if is_stored:
        return Fate.STORED
    if message.position >= target.next.get(stream.identity, stream.first):
        return Fate.OPEN
    if key in target.refused:
        return Fate.REFUSED
    if key in target.rejected:
        return Fate.REJECTED
    return Fate.EXPIRED if key in target.expired else Fate.LOST
