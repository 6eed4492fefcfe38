"""The circular ID cache of one address: the duplicate IDs that were accepted there.

First in, first out by acceptance: the n+1-th ID accepted overwrites the 0th (Artemis, chapter
"Duplicate Message Detection"). A rejected ID does not grow younger. Exact: IDs are compared byte
for byte, never by a fingerprint. A cache and its overlays belong to one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from dedup.ring import Key, Ring, restored_ids

#: IDs taken over at a time while a cache is filled.
LOAD_CHUNK = 4_096
#: IDs beyond the capacity that filling may hold before the oldest are let go.
LOAD_SURPLUS = 65_536


def repeated(ids: Sequence[bytes]) -> list[int]:
    """The indices of IDs that occurred before in the list: a command may carry each ID only once."""
    seen: set[bytes] = set()
    found = []
    if len(set(ids)) < len(ids):
        for index, value in enumerate(ids):
            if value in seen:
                found.append(index)
            seen.add(value)
    return found


class IdCache:
    """The IDs that an address accepted last, at most `capacity` of them; a capacity of 0 disables it.

    A cache that is off knows nothing, remembers nothing and so lets everything pass.
    """

    __slots__ = ("_ring",)

    def __init__(self, capacity: int) -> None:
        self._ring = Ring(_checked(capacity))

    @property
    def capacity(self) -> int:
        """Maximum number of IDs."""
        return self._ring.capacity

    @property
    def accepted(self) -> int:
        """Number of IDs ever accepted: the running number of the next one."""
        return self._ring.accepted

    @property
    def evicted(self) -> int:
        """Number of IDs overwritten by newer ones since this cache was created."""
        return self._ring.evicted

    def __len__(self) -> int:
        return len(self._ring.keys)

    def __contains__(self, duplicate_id: bytes) -> bool:
        return self._ring.keys_of((duplicate_id,))[0] in self._ring.entries

    def __iter__(self) -> Iterator[bytes]:
        """The IDs in the cache, oldest first."""
        return restored_ids(self._ring.aged(0, len(self)))

    def overlay(self) -> Overlay:
        """A view for one commit group: the IDs that its commands add join the cache with `Overlay.commit`."""
        return Overlay(self._ring)

    def check_and_add(self, ids: Sequence[bytes]) -> list[int]:
        """Accept each unknown ID, one after the other; returns the indices of the known ones.

        An ID that stands twice is accepted the first time and known the second.
        """
        ring = self._ring
        if not ring.capacity:
            return []
        keys = ring.keys_of(ids)
        fresh = set(keys)
        if len(fresh) == len(keys) <= ring.capacity and ring.entries.isdisjoint(fresh):
            ring.take(keys, fresh)
            return []
        if fresh <= ring.entries:
            return list(range(len(keys)))
        known = []
        for index, key in enumerate(keys):
            if key in ring.entries:
                known.append(index)
            else:
                ring.take((key,), {key})
        return known

    def load(self, ids: Iterable[bytes], accepted: int | None = None) -> None:
        """Fill an empty cache with accepted IDs, oldest first; the newest `capacity` of them stay.

        There may be more than that: a process that died between storing an ID and deleting the
        one overwritten leaves some. An ID that was accepted again after it had been overwritten
        may stand twice; it is as old as where it stands last.

        Args:
            ids: as they were accepted.
            accepted: IDs ever accepted; as many as `ids` has, unless told.

        Raises:
            ValueError: the cache is not empty, or `accepted` is less than what `ids` has.
        """
        ring = self._ring
        if ring.keys:
            raise ValueError(f"only an empty cache can be loaded; found {len(self)} IDs")
        keys: list[Key] = []
        count = 0
        rest = iter(ids)
        while chunk := list(islice(rest, LOAD_CHUNK)):
            count += len(chunk)
            keys += ring.keys_of(chunk)
            if len(keys) > ring.capacity + LOAD_SURPLUS:
                del keys[: len(keys) - ring.capacity]
        if accepted is not None and accepted < count:
            raise ValueError(f"accepted must be at least the {count} IDs loaded; found {accepted}")
        del keys[: max(0, len(keys) - ring.capacity)]
        ring.refill(ring.capacity, keys)
        if len(ring.entries) < len(keys):
            ring.refill(ring.capacity, list(dict.fromkeys(reversed(keys)))[::-1])
        ring.accepted = count if accepted is None else accepted

    def resize(self, capacity: int) -> int:
        """Change the capacity at once, keeping the newest IDs; returns the number of dropped IDs.

        Raises:
            ValueError: below 0.
        """
        return self._ring.resize(_checked(capacity))

    def clear(self) -> int:
        """Forget every ID; returns their number. Running numbers continue."""
        removed = len(self)
        self._ring.refill(self.capacity, [])
        return removed


class Overlay:
    """The IDs that the commands of an uncommitted group have added, on top of the cache.

    IDs commit with the effect (design rule 3): after the transaction is durable, `commit` adds them to the
    cache; when it failed the overlay is dropped, and nothing was remembered. While an overlay is in use
    nothing else may change the cache.
    """

    __slots__ = ("_added", "_changes", "_checked", "_evicted", "_keys", "_leaving", "_live", "_ring", "first")

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._changes = ring.changes
        #: Running number of the first ID added.
        self.first = ring.accepted
        self._added: list[bytes] = []
        #: The keys of those added, and the set of the newest `capacity` of them.
        self._keys: list[Key] = []
        self._live: set[Key] = set()
        #: The cache's oldest keys that those added overwrite, and how many they are.
        self._evicted: set[Key] = set()
        self._leaving = 0
        #: The unit last found unknown, its keys and the set of them: most are added next.
        self._checked: tuple[tuple[bytes, ...], Sequence[Key], set[Key]] = ((), (), set())

    @property
    def added(self) -> Sequence[bytes]:
        """The IDs added, in order: the journal stores them with the group."""
        return self._added

    def known(self, ids: Sequence[bytes]) -> list[int]:
        """The indices of the IDs known now, as if all that was added so far had been committed."""
        self._check_current()
        ring, live = self._ring, self._live
        unit = tuple(ids)
        keys = ring.keys_of(unit)
        fresh = set(keys)
        known = []
        if not (ring.entries.isdisjoint(fresh) and live.isdisjoint(fresh)):
            old = ((fresh & ring.entries) - self._evicted) | (fresh & live)
            known = [index for index, key in enumerate(keys) if key in old]
        if not known:
            self._checked = unit, keys, fresh
        return known

    def add(self, ids: Sequence[bytes]) -> None:
        """Add a command's IDs, in order. None may be known, and none may occur twice.

        Right after `known` was asked for the same IDs they are not looked up again.

        Raises:
            ValueError: one is known or stands twice; nothing was added.
        """
        ring = self._ring
        if not ring.capacity:
            return
        keys, fresh = self._unknown(ids)
        self._checked = (), (), set()
        held, total = len(self._keys), len(self._keys) + len(keys)
        self._added += ids
        self._keys += keys
        self._live |= fresh
        if total > ring.capacity:
            # The new IDs also overwrite IDs that this group added earlier.
            overwritten = self._keys[max(0, held - ring.capacity) : total - ring.capacity]
            self._live.difference_update(overwritten)
        leaving = min(len(ring.keys), max(0, len(ring.keys) + total - ring.capacity))
        if leaving > self._leaving:
            self._evicted.update(ring.aged(self._leaving, leaving))
            self._leaving = leaving

    def accept(self, ids: Sequence[bytes]) -> list[int]:
        """Add each unknown ID, each as a command of its own; returns the indices of the known ones.

        As `IdCache.check_and_add`: an ID that later ones have overwritten is unknown again behind them.
        """
        ring = self._ring
        if not ring.capacity:
            return []
        known = self.known(ids)
        if len(known) == len(ids):
            return known
        if len(ids) <= ring.capacity and self._keeps([ids[index] for index in known], len(ids)):
            left_out = {*known, *repeated(ids)}
            self.add([value for index, value in enumerate(ids) if index not in left_out])
            return sorted(left_out)
        known = []
        for index, value in enumerate(ids):
            if self.known((value,)):
                known.append(index)
            else:
                self.add((value,))
        return known

    def _keeps(self, ids: Sequence[bytes], count: int) -> bool:
        """Whether none of these is among those that the next `count` IDs would overwrite."""
        ring, held = self._ring, len(self._keys)
        beyond = held + count - ring.capacity
        leaving = min(len(ring.keys), max(self._leaving, len(ring.keys) + beyond))
        own = self._keys[max(0, held - ring.capacity) : max(0, beyond)]
        return {*ring.aged(self._leaving, leaving), *own}.isdisjoint(ring.keys_of(ids))

    def commit(self) -> None:
        """Move the added IDs to the cache. Call it once, after the group is durable."""
        self._check_current()
        ring, keys = self._ring, self._keys
        if len(keys) <= ring.capacity:
            ring.take(keys, self._live, self._evicted)
        else:
            for start in range(0, len(keys), ring.capacity):
                piece = keys[start : start + ring.capacity]
                ring.take(piece, set(piece))

    def _unknown(self, ids: Sequence[bytes]) -> tuple[Sequence[Key], set[Key]]:
        """The keys of a command that may be added, and the set of them."""
        self._check_current()
        if self._checked[0] != tuple(ids) and (found := self.known(ids)):
            raise ValueError(f"only unknown IDs can be added; found a known one at index {found[0]}")
        _, keys, fresh = self._checked
        if len(fresh) < len(keys):
            raise ValueError(f"an ID can be added only once; found it again at index {repeated(ids)[0]}")
        return keys, fresh

    def _check_current(self) -> None:
        if self._changes != self._ring.changes:
            raise RuntimeError("the cache changed under this overlay, or the overlay was committed before")


def _checked(capacity: int) -> int:
    if capacity < 0:
        raise ValueError(f"an ID cache's capacity must be at least 0; found {capacity}")
    return capacity
