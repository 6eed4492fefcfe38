"""The ring behind an ID cache: keys in the order they were accepted, and a set of the same keys.

How an ID becomes a key, and how slices go in and out, is all there is to the cache's memory and speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

#: Caches of this capacity and above keep 16-byte IDs as integers: 48 bytes of memory each instead
#: of 64, for 0.15 µs more a check. Smaller caches are read faster and have no memory to save.
COMPACT_CAPACITY = 131_072

_COMPACT_SIZE = 16
_COMPACT_BITS = 8 * _COMPACT_SIZE
_COMPACT_MASK = (1 << _COMPACT_BITS) - 1
_SALT_MASK = 0xFFFF_FFFF

#: An ID as the ring holds it. Integers and bytes are never equal, and each stands for one ID only.
Key = bytes | int


def compact_keys(ids: Iterable[bytes]) -> list[Key]:
    """The keys of a large cache: an integer for an ID of 16 bytes, the ID itself for any other.

    An integer's hash is its value modulo 2**61 - 1, which a producer could aim at to make every
    look-up walk over all its IDs. So above the ID stand 32 bits of the bytes' own hash, which is
    SipHash with a key of this process. Two IDs never give one key: the ID is in it, whole.
    """
    from_bytes = int.from_bytes
    return [
        from_bytes(value, "little") ^ (hash(value) & _SALT_MASK) << _COMPACT_BITS
        if len(value) == _COMPACT_SIZE
        else value
        for value in ids
    ]


def restored_ids(keys: Iterable[Key]) -> Iterator[bytes]:
    """The IDs of these keys, in either form."""
    for key in keys:
        yield key if isinstance(key, bytes) else (key & _COMPACT_MASK).to_bytes(_COMPACT_SIZE, "little")


class Ring:
    """The keys in the order they were accepted, and the set of them."""

    __slots__ = ("accepted", "capacity", "changes", "entries", "evicted", "keys", "oldest")

    def __init__(self, capacity: int) -> None:
        self.accepted = 0
        self.evicted = 0
        #: Grows with every change, so that an overlay notices one that it does not know of.
        self.changes = 0
        self.refill(capacity, [])

    def refill(self, capacity: int, keys: list[Key]) -> None:
        """Hold exactly these keys: oldest first, no two alike, at most `capacity`."""
        self.capacity = capacity
        self.keys = keys
        self.entries = set(keys)
        #: Where in `keys` the oldest is; 0 until the ring is full.
        self.oldest = 0
        self.changes += 1

    def resize(self, capacity: int) -> int:
        """Change the capacity, keeping the newest keys; returns the number of dropped keys."""
        dropped = max(0, len(self.keys) - capacity)
        kept = self.aged(dropped, len(self.keys))
        if (capacity >= COMPACT_CAPACITY) != (self.capacity >= COMPACT_CAPACITY):
            ids = list(restored_ids(kept))
            kept = compact_keys(ids) if capacity >= COMPACT_CAPACITY else list[Key](ids)
        self.refill(capacity, kept)
        return dropped

    def keys_of(self, ids: Sequence[bytes]) -> Sequence[Key]:
        """The IDs as keys of a ring of this capacity."""
        return compact_keys(ids) if self.capacity >= COMPACT_CAPACITY else ids

    def aged(self, first: int, last: int) -> list[Key]:
        """The keys of age ``first..last - 1``, where 0 is the oldest."""
        size = len(self.keys)
        begin, end = self.oldest + first, self.oldest + last
        if begin >= size:
            return self.keys[begin - size : end - size]
        return self.keys[begin:end] + self.keys[: max(0, end - size)]

    def take(self, keys: Sequence[Key], fresh: set[Key], overwritten: set[Key] | None = None) -> None:
        """Accept at most `capacity` keys, none of them known once those that they overwrite are gone.

        `fresh` is the set of `keys`, `overwritten` that of the oldest which have to go, where the
        caller has it. Sets carry the hashes along, and whole slices go in and out:
        a million entries do not fit the processor's caches, so each look-up spared is 0.1 µs.
        """
        filling = min(len(keys), self.capacity - len(self.keys))
        leaving = len(keys) - filling
        if leaving:
            self.entries.difference_update(self.aged(0, leaving) if overwritten is None else overwritten)
        self.entries |= fresh
        if not leaving:
            self.keys += keys
        else:
            self.keys += keys[:filling]
            end = self.oldest + leaving
            straight = min(end, self.capacity) - self.oldest
            self.keys[self.oldest : self.oldest + straight] = keys[filling : filling + straight]
            self.keys[: leaving - straight] = keys[filling + straight :]
            self.oldest = end % self.capacity
        self.accepted += len(keys)
        self.evicted += leaving
        self.changes += 1
