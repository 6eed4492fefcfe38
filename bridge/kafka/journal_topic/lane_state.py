"""A Kafka target's state for one lane: streams and duplicate IDs, changed transaction by transaction.

Pure: `journal_topic` reads and a target writes.

`LaneState` is the committed state. A `LaneChange` is what one transaction adds: reads see it on top of the
state, it makes the records that the transaction writes, and it joins the state when the transaction has been
committed. A change that was not committed is dropped, and nothing was remembered (design rules 1 and 3).

A delivery-log line is on disk before the next transaction that covers anything (design section 7). So that
transaction removes the line from the record of a stream that it does not touch: of all streams that ever
existed, only those of the last transaction carry lines, which may be long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from bridge.kafka.journal_topic.id_blocks import AddressIds, block_ids
from bridge.kafka.journal_topic.options import StateOptions
from bridge.kafka.journal_topic.participants import Mark, marked
from bridge.kafka.journal_topic.records import (
    DEFAULT_BATCH_BYTES,
    RESERVED_BYTES,
    LaneRecord,
    Record,
    Snapshot,
    StreamRecord,
    id_record,
    lane_record,
    stream_record,
)
from dedup.cache import IdCache, Overlay

__all__ = ["LaneChange", "LaneState", "StreamRecord", "ids_in_block"]


def ids_in_block(most_bytes: int) -> int:
    """The duplicate IDs that a record holds where the journal topic takes record batches of so many bytes."""
    return block_ids(most_bytes - RESERVED_BYTES)


class LaneState:
    """The committed state of one lane."""

    def __init__(
        self,
        lane: LaneRecord,
        options: StateOptions,
        *,
        streams: Mapping[str, StreamRecord] | None = None,
        ids: Mapping[str, AddressIds] | None = None,
        initialised: bool = False,
        most_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> None:
        """Create a lane's state; `rebuilt` makes one from records.

        Args:
            lane: the identity under which it is initialised.
            options: the settings of the state.
            streams: the record of each stream, by identity.
            ids: by target address.
            initialised: whether the partition holds all this. If not, the first change writes it.
            most_bytes: of a record batch that the journal topic takes: records are limited to it.
        """
        #: Most bytes of a record batch that the journal topic takes.
        self.most_bytes = most_bytes
        #: Offset up to which its partition was read: later records have this offset or a greater one.
        self.end = 0
        #: Participants of the lane's last transaction when its partition was read; None: there is none.
        self.last: Mark | None = None
        self._lane = lane
        self._options = options
        self._owner = options.owner
        self._streams = dict(streams or {})
        #: The streams whose records carry lines: those of the last transaction that covered anything.
        self._lined = {identity for identity, record in self._streams.items() if record.line}
        self._ids = dict(ids or {})
        self._initialised = initialised
        self._current: LaneChange | None = None

    @classmethod
    def rebuilt(
        cls,
        lane: LaneRecord,
        snapshot: Snapshot,
        options: StateOptions,
        *,
        memory: Mapping[str, IdCache] | None = None,
        most_bytes: int = DEFAULT_BATCH_BYTES,
    ) -> LaneState:
        """Rebuild the state from the records of the lane's partition.

        Args:
            lane: the identity that it was initialised under; if there is no such record it is written.
            snapshot: the committed records of the partition.
            options: the settings of the state.
            memory: caches of this process that are not stored, by address.
            most_bytes: of a record batch that the journal topic takes.

        Raises:
            TargetRefused: a record is damaged or of a newer version.
        """
        owner, persist = options.owner, options.persist_ids
        stored = snapshot.ids(owner)
        kept = {} if persist else dict(memory or {})
        ids = {}
        for address in sorted(stored.keys() | kept.keys()):
            cache = kept[address] if address in kept else IdCache(options.id_cache_size(address))
            ids[address] = AddressIds(
                cache, persist=persist, stored=stored.get(address), per_block=ids_in_block(most_bytes)
            )
        made = cls(
            lane,
            options,
            streams=snapshot.streams(owner),
            ids=ids,
            initialised=snapshot.lane(owner) == lane,
            most_bytes=most_bytes,
        )
        mark = snapshot.mark(owner)
        made.last = None if mark is None else marked(mark)
        return made

    @property
    def streams(self) -> Mapping[str, StreamRecord]:
        """The record of each stream, by identity."""
        return self._streams

    @property
    def unwritten(self) -> bool:
        """Whether there is something to write although nothing has been covered yet.

        That is the initialisation of the lane, the state it took over, ID blocks of another size, blocks to
        delete (D17, D23). The first change writes it; a target that commits one as it takes the lane need not
        wait for messages.
        """
        return not self._initialised or any(ids.unwritten for ids in self._ids.values())

    @property
    def caches(self) -> Mapping[str, IdCache]:
        """The ID caches by address: for a state rebuilt in this process where they are not stored."""
        return {address: ids.cache for address, ids in self._ids.items()}

    def stream(self, identity: str) -> StreamRecord | None:
        """The record of a stream; None: the stream was never seen."""
        return self._streams.get(identity)

    def id_entries(self, address: str) -> tuple[int, int]:
        """The number of IDs remembered at a target address, and the capacity."""
        ids = self._ids.get(address)
        return (len(ids.cache), ids.cache.capacity) if ids else (0, self._options.id_cache_size(address))

    def change(self) -> LaneChange:
        """Begin the next transaction. The one before is over: committed, or dropped by this call."""
        self._current = LaneChange(self)
        return self._current

    def ids_at(self, address: str) -> AddressIds:
        """The IDs of a target address; empty at the first call."""
        ids = self._ids.get(address)
        if ids is None:
            cache = IdCache(self._options.id_cache_size(address))
            per_block = ids_in_block(self.most_bytes)
            ids = self._ids[address] = AddressIds(
                cache, persist=self._options.persist_ids, per_block=per_block
            )
        return ids

    def writes(self, streams: Mapping[str, StreamRecord], overlays: Mapping[str, Overlay]) -> list[Record]:
        """The records of a transaction that makes these changes."""
        records = [] if self._initialised else [lane_record(self._owner, self._lane)]
        records += [
            stream_record(self._owner, identity, record, self.most_bytes)
            for identity, record in self._written(streams).items()
        ]
        for address, ids in self._ids.items():
            overlay = overlays.get(address)
            if overlay is not None or ids.unwritten:
                records += [
                    id_record(self._owner, address, slot, block) for slot, block in ids.writes(overlay)
                ]
        return records

    def committed(
        self, change: LaneChange, streams: Mapping[str, StreamRecord], overlays: Mapping[str, Overlay]
    ) -> None:
        """Apply `change`; with it, everything that was unwritten has been written.

        Raises:
            RuntimeError: it was committed before, or another change has been begun since.
        """
        if change is not self._current:
            raise RuntimeError("only the last change of a lane can be committed, and only once")
        self._current = None
        written = self._written(streams)
        if written:
            self._streams.update(written)
            self._lined = {identity for identity, record in written.items() if record.line}
        for address, ids in self._ids.items():
            overlay = overlays.get(address)
            if overlay is not None or ids.unwritten:
                ids.commit(overlay)
        self._initialised = True

    def _written(self, streams: Mapping[str, StreamRecord]) -> Mapping[str, StreamRecord]:
        """The records of streams that a transaction with these changes writes.

        The transaction that initialises the lane writes all records, as they are. A later one removes the
        lines of the one before. One that covers nothing, for ID blocks alone, keeps them: they may not be on
        disk yet.
        """
        if not self._initialised:
            return {**self._streams, **streams}
        if not streams:
            return {}
        spent = sorted(self._lined - streams.keys())
        bare = {identity: msgspec.structs.replace(self._streams[identity], line="") for identity in spent}
        return {**bare, **streams}


class LaneChange:
    """The changes of one transaction, on top of a lane's committed state."""

    def __init__(self, state: LaneState) -> None:
        self._state = state
        self._streams: dict[str, StreamRecord] = {}
        self._overlays: dict[str, Overlay] = {}

    def next(self, identity: str) -> int | None:
        """A stream's next as if this change had been committed; None: never seen."""
        record = self._streams.get(identity) or self._state.stream(identity)
        return None if record is None else record.next

    def known(self, address: str, ids: Sequence[bytes]) -> list[int]:
        """The indices of the IDs that are known at a target address, including those of this transaction."""
        return self._overlay(address).known(ids)

    def add_ids(self, address: str, ids: Sequence[bytes]) -> None:
        """Remember IDs whose messages this transaction stores at a target address, in order.

        Raises:
            ValueError: an ID is known or occurs twice; nothing was added.
        """
        self._overlay(address).add(ids)

    def accept_ids(self, address: str, ids: Sequence[bytes]) -> list[int]:
        """Remember the unknown IDs of these, in order; returns the indices of the known ones (D6)."""
        return self._overlay(address).accept(ids)

    def cover(self, identity: str, record: StreamRecord) -> None:
        """Set the record of a stream, in place of an earlier one of this transaction."""
        self._streams[identity] = record

    def records(self) -> list[Record]:
        """The records that the transaction must write to the lane's partition: key and value.

        A value of None is a tombstone. Includes what was `unwritten`.
        """
        return self._state.writes(self._streams, self._overlays)

    def commit(self) -> None:
        """Apply the change to the lane's state: after the transaction has been committed, and only then."""
        self._state.committed(self, self._streams, self._overlays)

    def _overlay(self, address: str) -> Overlay:
        overlay = self._overlays.get(address)
        if overlay is None:
            overlay = self._overlays[address] = self._state.ids_at(address).cache.overlay()
        return overlay
