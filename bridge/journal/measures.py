"""Measures of a journal for an operator: its ID caches, the addresses that are full, and its disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bridge.journal.counts import Counts
from bridge.journal.presence import Presence
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.sqlite.reserve import disk_bytes, free_bytes
from bridge.journal.values.options import AddressPolicy
from bridge.journal.values.store import AddressStatus, QueueStatus
from bridge.journal.values.views import AddressView, QueueView, Views


class IdCacheStatus(NamedTuple):
    """The ID cache of one address."""

    address: str
    entries: int
    capacity: int
    evicted: int
    #: Age of the oldest ID; None: there is none, or its time is not known.
    oldest_seconds: float | None


class FullAddress(NamedTuple):
    """An address at its limit, and the queue that keeps it there."""

    bytes: int
    max_bytes: int
    #: The queue that needs the oldest message, or whose bridge does; empty: there is no queue.
    slowest_queue: str


class Sizes(NamedTuple):
    """Sizes of a journal's files, and of their disk, in bytes."""

    file: int
    write_ahead_log: int
    disk_free: int
    disk: int


def id_caches(views: Views, oldest_ms: Mapping[str, int | None], now_ms: int) -> list[IdCacheStatus]:
    """The ID cache of every address; `oldest_ms` says when its oldest row was stored (wall clock)."""
    return [
        IdCacheStatus(
            address.name,
            address.ids,
            address.id_capacity,
            address.ids_evicted,
            max(now_ms - stored_ms, 0) / 1000
            if address.ids and (stored_ms := oldest_ms.get(address.name))
            else None,
        )
        for address in views.addresses
    ]


def described(
    status: AddressStatus,
    queues: Iterable[tuple[QueueStatus, str | None]],
    known: AddressView | None,
    policy: AddressPolicy,
    presence: Presence,
    counts: Counts,
) -> AddressStatus:
    """An address's status with its queues, those of bridges under their bridges' names.

    `known`: the address after the last commit; None: it was deleted meanwhile.
    """
    return replace(
        status,
        unrouted=counts.unrouted(status.address),
        max_bytes=policy.max_size_bytes,
        queues=[
            replace(queue, idle_ms=presence.idle_ms(status.address, queue.name))
            for queue, bridge in queues
            if bridge is None
        ],
        bridges=[replace(queue, name=bridge) for queue, bridge in queues if bridge is not None],
        id_cache_entries=0 if known is None else known.ids,
        id_cache_capacity=policy.id_cache_size if known is None else known.id_capacity,
    )


def full_addresses(views: Views) -> dict[str, FullAddress]:
    """Addresses that take no messages now because they are at their limit, by name."""
    return {
        address.name: FullAddress(
            address.bytes, address.policy.max_size_bytes, _slowest_queue(views.queues(address.name))
        )
        for address in views.addresses
        if address.bytes >= address.policy.max_size_bytes
    }


def _slowest_queue(queues: Sequence[QueueView]) -> str:
    slowest = min(queues, key=lambda queue: queue.next, default=None)
    return "" if slowest is None else slowest.bridge or slowest.name


def read_queues(views: Views, presence: Presence, lease_now_ms: int, within_ms: int) -> set[tuple[str, str]]:
    """The queues that have a reader, by address and name: one waits for messages, has a lease, or was there
    within `within_ms`.
    """
    found = presence.recent(within_ms)
    for key in presence.known() - found:
        queue = views.queue(*key)
        if queue is not None and queue.leased_until_ms > lease_now_ms:
            found.add(key)
    return found


def sizes(directory: Path) -> Sizes:
    """The sizes of the journal in `directory`."""
    path = directory / FILE_NAME
    log = path.with_name(f"{FILE_NAME}-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    return Sizes(path.stat().st_size, log_bytes, free_bytes(directory), disk_bytes(directory))
