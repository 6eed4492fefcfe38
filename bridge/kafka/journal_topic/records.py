"""The records of a bridge's journal topic on Kafka: keys, values, and snapshots of partitions. Pure.

The topic is compacted: of records with one key the newest counts, and a null value deletes the key. Keys are
text, for people to read; values are JSON, those of ID blocks msgpack; each carries a version.

==================================  ==================  ==================================================
key                                 value               says
==================================  ==================  ==================================================
``generation``                      `GenerationRecord`  how the bridge is cut into lanes, in all partitions
``[<owner>/]lanes``                 `LaneRecord`        this lane's whole state is here, for a generation
``[<owner>/]stream:<identity>``     `StreamRecord`      next, and what came with it
``[<owner>/]ids:<address>:<slot>``  `IdBlock`           duplicate IDs accepted at a target address
==================================  ==================  ==================================================

Where nodes share a partition (journal sources), each writes its node UUID before its keys as the owner.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import msgspec

from bridge.errors import TargetRefused
from bridge.kafka.records.identity import LANE_HASH

#: Bytes of a record batch of journal records, unless one record is larger.
JOURNAL_BATCH_BYTES: Final = 256 * 1024

#: Version of the records written here.
VERSION: Final = 1
GENERATION_KEY: Final = b"generation"

#: A record to write: key, and value or None to delete the key.
Record = tuple[bytes, bytes | None]

#: Bytes of a record batch that brokers take by default.
DEFAULT_BATCH_BYTES: Final = 1024 * 1024
#: The share of them reserved for all but a delivery-log line and IDs: keys, frames, the offsets of a stream,
#: and the mark of the transaction (`participants`), which names each partition that it wrote to.
RESERVED_BYTES: Final = 16 * 1024
#: The least limit on record batches that a journal topic may have.
LEAST_BATCH_BYTES: Final = 2 * RESERVED_BYTES
#: Most bytes of them for the offsets of a stream; longer ones are left out.
_MOST_OFFSETS_BYTES: Final = 4 * 1024
#: Bytes of one offset, besides the topic's name.
_OFFSET_BYTES: Final = 32


class Past(msgspec.Struct, frozen=True):
    """An earlier generation, with state that may not have been taken over yet."""

    topic: str
    generation: int
    lanes: int


class GenerationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The present lanes of the bridge. The same in all partitions, written in one transaction."""

    #: The bridge's name: no other may use this topic.
    bridge: str
    #: Where its messages come from (`origin`): no other source may use it. Empty: an older version wrote
    #: this.
    source: str = ""
    #: From 1; grows with every repartitioning.
    generation: int
    lanes: int
    #: The hash that assigns a stream to its lane.
    hash: str = LANE_HASH
    #: Oldest first: the taker of a lane that is not initialised fences these and takes over what they hold.
    past: tuple[Past, ...] = ()
    #: Journal topics of former names whose state has been adopted.
    adopted: tuple[str, ...] = ()
    #: The journal topic that has adopted this one; no bridge runs under this one's name any more.
    moved: str = ""
    v: int = VERSION


class LaneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Says that the lane's state in this partition is whole for a generation."""

    bridge: str
    generation: int
    lanes: int
    hash: str = LANE_HASH
    v: int = VERSION


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The target's state of one stream: written in the transaction that moved `next`."""

    #: First position not covered.
    next: int
    #: The session of the sender that moved next last: a journal's session id, a source partition's leader
    #: epoch.
    run: str = ""
    #: Checksum of the last source message below next; 0: none known.
    checksum: int = 0
    #: The stream's name at the source. With the partition in the identity it decides the lane.
    address: str = ""
    #: (topic, partition, last offset written), of the last transaction that wrote messages.
    offsets: tuple[tuple[str, int, int], ...] = ()
    #: Id of the topic that `offsets` are in; empty: an older version wrote this, or none was known.
    target_id: str = ""
    #: The delivery-log line of the transaction, as JSON; empty: none, or it is on disk (`lane_state`).
    line: str = ""
    v: int = VERSION


class IdBlock(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """Consecutive duplicate IDs that an address accepted; the slot is in the key."""

    v: int = VERSION
    #: Slots in the ring and IDs that count, as of the time of writing.
    slots: int
    capacity: int
    #: Running number of the first ID: IDs accepted at the address before it.
    first: int
    ids: list[bytes]
    #: IDs that fill a block, as of the time of writing.
    per_block: int = 128

    @property
    def end(self) -> int:
        """Running number of the first ID after this block."""
        return self.first + len(self.ids)


_json = msgspec.json.Encoder().encode
_msgpack = msgspec.msgpack.Encoder().encode
_generation = msgspec.json.Decoder(GenerationRecord)
_lane = msgspec.json.Decoder(LaneRecord)
_stream = msgspec.json.Decoder(StreamRecord)
_id_block = msgspec.msgpack.Decoder(IdBlock)

_Value = TypeVar("_Value", GenerationRecord, LaneRecord, StreamRecord, IdBlock)
_Decoder = msgspec.json.Decoder[_Value] | msgspec.msgpack.Decoder[_Value]


def generation_record(record: GenerationRecord) -> Record:
    """The record with the bridge's present lanes."""
    return GENERATION_KEY, _json(record)


def lane_record(owner: str, record: LaneRecord) -> Record:
    """The record that says that a lane is initialised."""
    return _prefix(owner) + b"lanes", _json(record)


def stream_record(
    owner: str, identity: str, record: StreamRecord, most_bytes: int = DEFAULT_BATCH_BYTES
) -> Record:
    """The record of one stream, limited to a record batch of so many bytes.

    What does not fit is left out: the line, which the log lacks if the process dies before it is written, and
    the offsets, by which the target's loss of confirmed messages is noticed.
    """
    if sum(len(topic) + _OFFSET_BYTES for topic, _, _ in record.offsets) > _MOST_OFFSETS_BYTES:
        record = msgspec.structs.replace(record, offsets=(), target_id="")
    value = _json(record)
    if record.line and len(value) > most_bytes - RESERVED_BYTES // 2:
        value = _json(msgspec.structs.replace(record, line=""))
    return b"%sstream:%s" % (_prefix(owner), identity.encode()), value


def id_record(owner: str, address: str, slot: int, block: IdBlock | None) -> Record:
    """The record of one slot of an address's ring; None empties it."""
    key = b"%sids:%s:%d" % (_prefix(owner), address.encode(), slot)
    return key, None if block is None else _msgpack(block)


def _prefix(owner: str) -> bytes:
    return b"%s/" % owner.encode() if owner else b""


def _owner(key: bytes) -> str:
    """The owner in a key. A stream's name may hold slashes, but stands behind a colon."""
    owner, stroke, _ = key.partition(b"/")
    return owner.decode(errors="replace") if stroke and b":" not in owner else ""


class _Stored(NamedTuple):
    """A record's value, and its location."""

    value: bytes
    #: Topic, partition and offset, for people.
    where: str


def foreign(key: bytes) -> str:
    """The reason why no bridge can have written a record with this key although it looks so; empty: one can.

    Other keys do not concern the bridge, and are not examined.
    """
    owner, stroke, rest = key.partition(b"/")
    own = rest if stroke and b":" not in owner else key
    kind, colon, name = own.partition(b":")
    if kind not in (b"stream", b"ids") or not colon:
        return ""
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        return f"its key is not UTF-8: {error.reason}"
    if kind == b"ids" and not text.rpartition(":")[2].isdecimal():
        return "its key names no slot of an ID cache"
    return ""


class Snapshot:
    """The content of one partition: the newest value of every key, however far the partition is compacted."""

    __slots__ = ("_latest", "_marks", "end")

    def __init__(self, records: Iterable[tuple[bytes | None, bytes | None]] = ()) -> None:
        self._latest: dict[bytes, _Stored] = {}
        #: By owner, the mark of its last transaction: a key that compaction removes has a later record, with
        #: a mark.
        self._marks: dict[str, bytes] = {}
        #: Offset up to which the partition was read.
        self.end = 0
        for key, value in records:
            self.apply(key, value)

    def apply(
        self, key: bytes | None, value: bytes | None, mark: bytes | None = None, *, where: str = ""
    ) -> None:
        """Apply the next committed record, in the order of the offsets, with the mark that it carries.

        `where`: its location, for errors. Pass no record that is `foreign`.
        """
        if key is None:
            return
        if mark is not None:
            self._marks[_owner(key)] = mark
        if value is None:
            self._latest.pop(key, None)
        else:
            self._latest[key] = _Stored(value, where)

    @property
    def generation(self) -> GenerationRecord | None:
        """The generation in this partition. Raises: TargetRefused, as all of these methods do."""
        value = self._latest.get(GENERATION_KEY)
        return None if value is None else _decoded(GENERATION_KEY, value, _generation)

    def lane(self, owner: str) -> LaneRecord | None:
        """The generation for which this lane's state is whole; None: for none."""
        key = _prefix(owner) + b"lanes"
        value = self._latest.get(key)
        return None if value is None else _decoded(key, value, _lane)

    @property
    def is_initialised(self) -> bool:
        """Whether any lane, of any owner, has been initialised here."""
        return b"lanes" in self._latest or self.owned

    @property
    def owned(self) -> bool:
        """Whether nodes have used the partition, each with a state of its own."""
        return any(key.endswith(b"/lanes") for key in self._latest)

    def mark(self, owner: str) -> bytes | None:
        """The participants of the owner's last transaction (`participants.marked`); None: not recorded."""
        return self._marks.get(owner)

    def has_streams(self, owner: str) -> bool:
        """Whether the owner has any streams."""
        prefix = _prefix(owner) + b"stream:"
        return any(key.startswith(prefix) for key in self._latest)

    def streams(self, owner: str) -> dict[str, StreamRecord]:
        """The owner's stream records, by identity."""
        prefix = _prefix(owner) + b"stream:"
        return {
            key[len(prefix) :].decode(): _decoded(key, value, _stream)
            for key, value in self._latest.items()
            if key.startswith(prefix)
        }

    def ids(self, owner: str) -> dict[str, dict[int, IdBlock]]:
        """The owner's ID blocks, by target address and slot."""
        prefix = _prefix(owner) + b"ids:"
        found: dict[str, dict[int, IdBlock]] = {}
        for key, value in self._latest.items():
            if key.startswith(prefix):
                address, _, slot = key[len(prefix) :].decode().rpartition(":")
                found.setdefault(address, {})[int(slot)] = _decoded(key, value, _id_block)
        return found


def _decoded(key: bytes, stored: _Stored, decoder: _Decoder[_Value]) -> _Value:
    """Decode a value under a key of the bridge.

    Raises:
        TargetRefused: damaged, or written by a newer version: to continue would forget its content.
    """
    name = key.decode(errors="replace")
    try:
        record = decoder.decode(stored.value)
    except msgspec.DecodeError as error:
        where = f" ({stored.where})" if stored.where else ""
        detail = f"the journal topic's record {name}{where} cannot be read: {error}"
        raise TargetRefused(detail, key=name) from error
    if record.v > VERSION:
        raise TargetRefused(
            f"the journal topic's record {name} was written by a newer core bridge: its version is"
            f" {record.v}, this one reads up to {VERSION}",
            key=name,
            limit=VERSION,
            found=record.v,
        )
    return record


@dataclass(frozen=True, slots=True)
class JournalPartition:
    """The partition for the records of a target's state."""

    topic: str
    partition: int
    #: Most bytes of a record batch that it takes.
    most_bytes: int = JOURNAL_BATCH_BYTES
    #: The next record there has this offset or a greater one.
    end: int = 0
