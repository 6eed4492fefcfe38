"""The duplicate IDs of one target address in a lane, and the blocks in which Kafka keeps them. Pure.

The cache of an address with room for n IDs is stored as a ring of ``ceil(n / b) + 1`` slots, with b IDs to a
block. The ID with running number r stands in the block ``r // b``, which is in slot ``block % slots``. A
transaction writes the block being filled anew, and a full one never again until its slot is reused: so
what is written grows with the IDs added, and what is read at a start with n, whatever was compacted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from bridge.kafka.journal_topic.records import IdBlock
from dedup.cache import IdCache, Overlay

#: IDs in a block, where the journal topic takes so many of maximum length. A transaction that adds one ID
#: rewrites half of this on average: some 2.5 KB.
BLOCK_IDS: Final = 128
#: Length of the longest ID that is remembered, in bytes.
MOST_ID_BYTES: Final = 8_000
#: Bytes that msgpack adds to an ID of that length.
_ID_FRAME_BYTES: Final = 8


def block_ids(record_bytes: int) -> int:
    """IDs in a block where a record may have so many bytes, besides key and frame: all may be the longest."""
    return max(1, min(BLOCK_IDS, record_bytes // (MOST_ID_BYTES + _ID_FRAME_BYTES)))


def slots_of(capacity: int, per_block: int) -> int:
    """Slots of a ring for `capacity` IDs: one more than they fill, as the newest block is rarely full."""
    return -(-capacity // per_block) + 1 if capacity else 0


def stored_ids(blocks: Mapping[int, IdBlock]) -> tuple[list[bytes], int]:
    """The IDs in an address's slots, oldest first, and the running number after the newest.

    Only IDs that counted when the newest block was written: slots may still hold blocks of the round before.
    """
    if not blocks:
        return [], 0
    newest = max(blocks.values(), key=lambda block: block.end)
    oldest = newest.end - newest.capacity
    ids: list[bytes] = []
    for block in sorted(blocks.values(), key=lambda block: block.first):
        ids += block.ids[max(0, oldest - block.first) :]
    return ids, newest.end


def merged(lists: Sequence[Sequence[bytes]], capacity: int) -> list[bytes]:
    """Merge several lanes' IDs of one address into one list: the newest, oldest first, each ID once.

    The age of one lane's ID relative to another's is not recorded. So the newest of each come first, then the
    second newest of each, and so on until `capacity` are found: every lane keeps the same share, as far as it
    has so many. IDs left out are forgotten, as if they had been overwritten.
    """
    newest_first: dict[bytes, None] = {}
    for same_age in zip_longest(*(reversed(ids) for ids in lists)):
        for value in same_age:
            if len(newest_first) == capacity:
                break
            if value is not None:
                newest_first.setdefault(value)
    return list(newest_first)[::-1]


class AddressIds:
    """The ID cache of one address, and the state of its blocks in the partition.

    Every change goes through one `Overlay` at a time: `writes` returns what its transaction has to write,
    `commit` applies it here once the transaction is committed.
    """

    __slots__ = ("_filling", "_per_block", "_rewrites", "_slots", "_stored", "_written", "cache")

    def __init__(
        self,
        cache: IdCache,
        *,
        persist: bool,
        stored: Mapping[int, IdBlock] | None = None,
        per_block: int | None = None,
    ) -> None:
        """Create an address with these slots in the partition.

        Args:
            cache: an empty one, to be filled with what is stored; or one that has been filled otherwise, and
                is to replace what is stored.
            persist: whether IDs are stored at all. If not, those stored are deleted, never loaded (D17).
            stored: what the address's slots hold.
            per_block: IDs in a block; None: `BLOCK_IDS`.
        """
        stored = stored or {}
        self.cache = cache
        self._written = persist and cache.capacity > 0
        self._per_block = per_block or BLOCK_IDS
        self._slots = slots_of(cache.capacity, self._per_block)
        #: Slots that hold a block.
        self._stored = set(stored)
        #: IDs of the block being filled, which ends with the newest ID.
        self._filling: list[bytes] = []
        #: Whether all blocks have to be written anew: ring, blocks or cache had another size.
        self._rewrites = False
        if not self._written:
            self._rewrites = bool(stored)
        elif len(cache):
            self._rewrites = True
        elif stored:
            self._load(stored)

    def _load(self, stored: Mapping[int, IdBlock]) -> None:
        ids, end = stored_ids(stored)
        self.cache.load(ids, accepted=end)
        newest = max(stored.values(), key=lambda block: block.end)
        found = (newest.slots, newest.capacity, newest.per_block)
        self._rewrites = found != (self._slots, self.cache.capacity, self._per_block)
        if not self._rewrites and end % self._per_block:
            self._filling = list(newest.ids)

    @property
    def unwritten(self) -> bool:
        """Whether the next transaction has to write or delete blocks here, even if it adds nothing."""
        return self._rewrites

    def writes(self, overlay: Overlay | None) -> list[tuple[int, IdBlock | None]]:
        """Returns what a transaction has to write: slots, each with its block or None to empty it."""
        first, ids = self._touched(overlay)
        blocks: dict[int, IdBlock | None] = dict(self._blocks(first, ids))
        if self._rewrites:
            blocks.update(dict.fromkeys(sorted(self._stored - blocks.keys())))
        return list(blocks.items())

    def commit(self, overlay: Overlay | None) -> None:
        """Apply these writes: their transaction has been committed. Call it once."""
        first, ids = self._touched(overlay)
        slots = {slot for slot, _ in self._blocks(first, ids)}
        self._stored = slots if self._rewrites else self._stored | slots
        if self._written:
            end = first + len(ids)
            self._filling = ids[max(0, end - end % self._per_block - first) :]
        self._rewrites = False
        if overlay is not None:
            overlay.commit()

    def _touched(self, overlay: Overlay | None) -> tuple[int, list[bytes]]:
        """The IDs of the blocks that a transaction touches, and the running number of the first."""
        before = list(self.cache) if self._rewrites else self._filling
        added = overlay.added if overlay is not None else ()
        return self.cache.accepted - len(before), [*before, *added]

    def _blocks(self, first: int, ids: list[bytes]) -> Iterator[tuple[int, IdBlock]]:
        """The blocks that these IDs fill, without those that they overwrite themselves."""
        if not self._written or not (self._rewrites or len(ids) > len(self._filling)):
            return
        end, capacity, per_block = first + len(ids), self.cache.capacity, self._per_block
        start = max(first, end - capacity) if self._rewrites else first
        while start < end:
            number = start // per_block
            upto = min(end, (number + 1) * per_block)
            if upto > end - capacity:
                block = IdBlock(
                    slots=self._slots,
                    capacity=capacity,
                    first=start,
                    ids=ids[start - first : upto - first],
                    per_block=per_block,
                )
                yield number % self._slots, block
            start = upto
