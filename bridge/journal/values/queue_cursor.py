"""A queue's cursor on an address: settled, leased and free positions. Pure.

Positions are half-open intervals here, ``[from, upto)``, because an address's messages are sparse in the
journal's one sequence: an interval may hold fewer messages than positions, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

Interval = tuple[int, int]


class Lease(msgspec.Struct, array_like=True):
    """Messages that one reader holds until `expires_ms`."""

    #: Disjoint, ascending.
    intervals: list[Interval]
    #: Messages in them.
    count: int
    #: Milliseconds since the epoch.
    expires_ms: int


class _Stored(msgspec.Struct, array_like=True):
    settled: list[Interval]
    leases: dict[str, Lease]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)


@dataclass(slots=True)
class Cursor:
    """One queue's state. A position below `next` is settled for good."""

    next: int
    #: Settled beyond `next`: disjoint, ascending, never touching `next`.
    settled: list[Interval] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)

    def pack(self) -> bytes | None:
        """Leases and intervals settled beyond `next`, packed for storing; None where there is neither."""
        if not self.settled and not self.leases:
            return None
        return _encoder.encode(_Stored(self.settled, self.leases))

    @classmethod
    def unpack(cls, next_position: int, packed: bytes | None) -> Cursor:
        """The cursor that `pack` packed. Raises msgspec.DecodeError where the bytes are damaged."""
        if packed is None:
            return cls(next_position)
        stored = _decoder.decode(packed)
        return cls(next_position, stored.settled, stored.leases)

    @property
    def leased(self) -> int:
        """Messages under a lease."""
        return sum(lease.count for lease in self.leases.values())

    @property
    def next_expiry_ms(self) -> int | None:
        """The time at which the first lease ends; None where there is none."""
        return min((lease.expires_ms for lease in self.leases.values()), default=None)

    @property
    def last_expiry_ms(self) -> int:
        """The time at which the last lease ends; 0 where there is none."""
        return max((lease.expires_ms for lease in self.leases.values()), default=0)

    def free(self, upto: int, reserved: Iterable[Interval] = ()) -> list[Interval]:
        """The intervals below `upto` that are neither settled, leased nor `reserved`, ascending."""
        leased = [interval for lease in self.leases.values() for interval in lease.intervals]
        taken = sorted([*self.settled, *leased, *reserved])
        gaps: list[Interval] = []
        start = self.next
        for from_, end in [*taken, (upto, upto)]:
            gap = (start, min(from_, upto))
            if gap[0] < gap[1]:
                gaps.append(gap)
            start = max(start, end)
        return gaps

    def take(self, lease_id: str, lease: Lease) -> None:
        """Hand out free intervals under a new lease, whose id no other lease has."""
        self.leases[lease_id] = lease

    def acknowledge(self, lease_id: str, upto: int | None) -> bool:
        """Settle the lease's messages up to position `upto` (inclusive; None: all); the rest is free again.

        False where there is no such lease (any more).
        """
        lease = self.leases.pop(lease_id, None)
        if lease is None:
            return False
        self.settle(*cut(lease.intervals, upto))
        return True

    def release(self, lease_id: str) -> bool:
        """End a lease with nothing settled; False where there is no such lease."""
        return self.leases.pop(lease_id, None) is not None

    def expire(self, now_ms: int) -> bool:
        """End the leases whose time is up; True where there were any."""
        ended = [lease_id for lease_id, lease in self.leases.items() if lease.expires_ms <= now_ms]
        for lease_id in ended:
            del self.leases[lease_id]
        return bool(ended)

    def at(self, now_ms: int) -> Cursor:
        """This cursor without the leases whose time is up; the same where there is none."""
        running = {name: lease for name, lease in self.leases.items() if lease.expires_ms > now_ms}
        return self if len(running) == len(self.leases) else Cursor(self.next, self.settled, running)

    def settle(self, *intervals: Interval) -> None:
        """Settle intervals that are not leased; `next` moves over every interval that is then contiguous."""
        new = [interval for interval in intervals if interval[1] > self.next]
        if not new:
            return
        joined: list[Interval] = []
        for from_, end in sorted([*self.settled, *new]):
            if from_ <= self.next:
                self.next = max(self.next, end)
            elif joined and from_ <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((from_, end))
        self.settled = joined

    def copy(self) -> Cursor:
        """The settled messages, without the leases."""
        return Cursor(self.next, list(self.settled))

    def follow(self, other: Cursor) -> None:
        """Settle what another cursor has settled."""
        self.settle((0, other.next), *other.settled)


def cut(intervals: Iterable[Interval], upto: int | None) -> list[Interval]:
    """The part of the intervals at positions <= `upto`; all where it is None."""
    if upto is None:
        return list(intervals)
    return [(from_, min(end, upto + 1)) for from_, end in intervals if from_ <= upto]


def intervals(ascending: Iterable[int]) -> list[Interval]:
    """Positions as the fewest intervals."""
    found: list[Interval] = []
    for position in ascending:
        if found and found[-1][1] == position:
            found[-1] = (found[-1][0], position + 1)
        else:
            found.append((position, position + 1))
    return found


def common(some: Iterable[Interval], others: Sequence[Interval]) -> list[Interval]:
    """The positions that are in both; each is disjoint and ascending."""
    found: list[Interval] = []
    at = 0
    for from_, end in some:
        while at < len(others) and others[at][1] <= from_:
            at += 1
        for other_from, other_end in others[at:]:
            if other_from >= end:
                break
            found.append((max(from_, other_from), min(end, other_end)))
    return found
