"""A `bridge.journal.values.store.Store` in memory: small, obviously right, and able to fail on purpose."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal

from msgspec import structs

from bridge.errors import (
    AddressNotFound,
    BridgeError,
    Conflict,
    DuplicateIdRejected,
    Forbidden,
    QueueNotFound,
    StaleLease,
)
from bridge.filters import Filter, parse
from bridge.journal.values.store import (
    Acknowledgement,
    AddressStatus,
    Committed,
    Delivered,
    Page,
    QueueStatus,
    Transaction,
)
from bridge.messages.block import KeptBody, encode_message
from bridge.messages.message import DIGEST_BYTES, LargeBody, Message


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


@dataclass
class _Lease:
    positions: list[int]
    ends_ms: int


@dataclass
class _Queue:
    start: int
    filter: Filter | None = None
    #: What its filter did not take is among them.
    settled: set[int] = field(default_factory=set)
    leases: dict[str, _Lease] = field(default_factory=dict)
    #: When a reader last asked or settled.
    used_ms: int | None = None

    def end_leases(self, now_ms: int) -> None:
        for name in [name for name, lease in self.leases.items() if lease.ends_ms <= now_ms]:
            del self.leases[name]

    def leased(self) -> set[int]:
        return {position for lease in self.leases.values() for position in lease.positions}


@dataclass
class _Address:
    first: int
    messages: dict[int, Delivered] = field(default_factory=dict)
    queues: dict[str, _Queue] = field(default_factory=dict)
    #: IDs, oldest first.
    ids: dict[bytes, None] = field(default_factory=dict)
    id_cache_size: int = 20_000


class MemoryUpload:
    """A large body, which this store keeps whole."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.given_up = False

    @property
    def kept(self) -> KeptBody:
        body = b"".join(self.chunks)
        return KeptBody(0, LargeBody(len(body), blake2b(body, digest_size=DIGEST_BYTES).digest()))

    async def add(self, chunk: bytes) -> None:
        self.chunks.append(chunk)

    def abandon(self) -> None:
        pass

    def give_up(self) -> None:
        self.given_up = True


class MemoryStore:
    """Nothing is durable and nothing is ever full, except where a test says so."""

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        #: Addresses where each message goes to one reader; they have the queue of their name.
        self.anycast: set[str] = set()
        #: Whether an address that is not there is made by what is sent to it.
        self.auto_create = True
        #: Raised by the next call of `commit`, again and again until it is None.
        self.fails_with: BridgeError | None = None
        #: Cleared: commits wait here, as with BLOCK.
        self.room = asyncio.Event()
        self.room.set()
        #: Readers that wait for messages now.
        self.polls = 0
        #: Commits that wait for room now.
        self.held = 0
        #: Leases released, in order.
        self.released: list[str] = []
        self.uploads: list[MemoryUpload] = []
        self._now_ms = now_ms
        self._addresses: dict[str, _Address] = {}
        self._next = 0
        self._lease_numbers = itertools.count(1)
        self._changed = asyncio.Condition()

    def _settled_at(self, transaction: Transaction) -> dict[str, _Address]:
        names = {acknowledgement.address for acknowledgement in transaction.acknowledgements}
        return {name: self._addresses[name] for name in names if name in self._addresses}

    # -- writing

    def upload(self, address: str, whole_size: int) -> MemoryUpload:
        self.uploads.append(MemoryUpload())
        return self.uploads[-1]

    async def read_chunk(self, kept: KeptBody, number: int) -> bytes:
        raise AssertionError("its messages are whole")

    def _whole(self, message: Message) -> Message:
        if not isinstance(message.body, LargeBody):
            return message
        upload = next(one for one in self.uploads if not one.given_up and one.kept.body == message.body)
        return structs.replace(message, body=b"".join(upload.chunks))

    async def commit(self, transaction: Transaction) -> Committed:
        if not self.room.is_set():
            self.held += 1
            try:
                await self.room.wait()
            finally:
                self.held -= 1
        if self.fails_with is not None:
            raise self.fails_with
        sent = transaction.sent
        addresses = {submission.address: self._to_send(submission.address) for submission in sent}
        addresses = addresses or self._settled_at(transaction)
        own = transaction.duplicate_id
        if own is not None and any(own in address.ids for address in addresses.values()):
            return Committed(stored=False)
        for acknowledgement in transaction.acknowledgements:
            self._lease(acknowledgement)
        known = self._known(transaction)
        if known and transaction.plain:
            return Committed(stored=False)
        if known and transaction.on_duplicate == "reject":
            rejected = tuple((index, sent[index].address, sent[index].duplicate_id or b"") for index in known)
            raise DuplicateIdRejected("known IDs", duplicates=rejected)
        positions = self._store(transaction, set(known))
        if own is not None:
            for address in addresses.values():
                self._remember(address, own)
        for acknowledgement in transaction.acknowledgements:
            self._settle(acknowledgement)
        await self._tell_readers()
        return Committed(True, positions, known)

    def _known(self, transaction: Transaction) -> list[int]:
        """Indices whose ID is in the cache, or came earlier in the same transaction."""
        seen: set[tuple[str, bytes]] = set()
        known = []
        for index, submission in enumerate(transaction.sent):
            if submission.duplicate_id is None:
                continue
            place = (submission.address, submission.duplicate_id)
            if place in seen or submission.duplicate_id in self._addresses[submission.address].ids:
                known.append(index)
            seen.add(place)
        return known

    def _store(self, transaction: Transaction, left_out: set[int]) -> dict[str, tuple[int, int]]:
        by_address: dict[str, list[int]] = {}
        for index, submission in enumerate(transaction.sent):
            if index not in left_out:
                by_address.setdefault(submission.address, []).append(index)
        positions = {}
        for name, indices in by_address.items():
            address = self._addresses[name]
            first = self._next
            for index in indices:
                submission = transaction.sent[index]
                delivered = Delivered(self._next, self._whole(submission.message), submission.duplicate_id)
                address.messages[self._next] = delivered
                for queue in address.queues.values():
                    if queue.filter and not queue.filter.takes(
                        submission.message, name, delivered.duplicate_id
                    ):
                        queue.settled.add(self._next)
                self._next += 1
                if submission.duplicate_id is not None:
                    self._remember(address, submission.duplicate_id)
            positions[name] = (first, self._next - 1)
        return positions

    def _remember(self, address: _Address, duplicate_id: bytes) -> None:
        if address.id_cache_size:
            address.ids[duplicate_id] = None
        while len(address.ids) > address.id_cache_size:
            del address.ids[next(iter(address.ids))]

    def _to_send(self, name: str) -> _Address:
        if name not in self._addresses and self.auto_create:
            self._make(name)
        return self._known_address(name)

    def _make(self, name: str) -> _Address:
        address = self._addresses[name] = _Address(self._next)
        if name in self.anycast:
            address.queues[name] = _Queue(self._next)
        return address

    async def _tell_readers(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # -- queues

    async def create_queue(
        self,
        address: str,
        queue: str,
        start: Literal["earliest", "latest"] | int,
        condition: str | None = None,
        *,
        user: str = "",
        may_change_filter: bool = True,
    ) -> bool:
        filter_ = parse(condition or "")
        place = self._to_send(address)
        if queue in place.queues:
            if condition is not None and condition != getattr(place.queues[queue].filter, "text", ""):
                if not may_change_filter:
                    raise Forbidden(f"{user} may not change the filter of {queue}", "filter", found=condition)
                place.queues[queue].filter = filter_
            return False
        if address in self.anycast:
            raise Conflict(f"{address} is ANYCAST: it has the queue of its name", "queue", address, queue)
        earliest = min(place.messages, default=self._next)
        place.queues[queue] = _Queue(
            {"earliest": earliest, "latest": self._next}.get(str(start), -1), filter_
        )
        if isinstance(start, int):
            place.queues[queue].start = start
        return True

    async def delete_queue(self, address: str, queue: str) -> None:
        self._known_queue(address, queue)
        del self._addresses[address].queues[queue]

    async def lease(
        self, address: str, queue: str, *, most: int, wait_ms: int, lease_ms: int, most_bytes: int
    ) -> Page:
        until_ms = self._now_ms() + wait_ms
        while True:
            messages = self._free(address, queue, most, most_bytes)
            if messages:
                name = f"lease-{next(self._lease_numbers)}"
                positions = [delivered.position for delivered in messages]
                self._known_queue(address, queue).leases[name] = _Lease(positions, self._now_ms() + lease_ms)
                return Page(name, messages)
            left_ms = until_ms - self._now_ms()
            if left_ms <= 0:
                return Page(None)
            async with self._changed:
                self.polls += 1
                try:
                    async with asyncio.timeout(self._until_lease_ends_ms(address, queue, left_ms) / 1000):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                finally:
                    self.polls -= 1

    def _until_lease_ends_ms(self, address: str, queue: str, at_most_ms: int) -> int:
        ends = [lease.ends_ms - self._now_ms() for lease in self._known_queue(address, queue).leases.values()]
        return max(min([at_most_ms, *ends]), 1)

    def _free(self, address: str, queue: str, most: int, most_bytes: int) -> list[Delivered]:
        of = self._known_queue(address, queue)
        of.used_ms = self._now_ms()
        of.end_leases(of.used_ms)
        taken = of.settled | of.leased()
        free = [
            delivered
            for position, delivered in self._addresses[address].messages.items()
            if position >= of.start and position not in taken
        ]
        return _page(free, most, most_bytes)

    async def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        self._lease(acknowledgement)
        self._settle(acknowledgement)
        await self._tell_readers()

    async def release(self, acknowledgement: Acknowledgement) -> None:
        self._lease(acknowledgement)
        queue = self._known_queue(acknowledgement.address, acknowledgement.queue)
        del queue.leases[acknowledgement.lease]
        self.released.append(acknowledgement.lease)
        await self._tell_readers()

    def _lease(self, acknowledgement: Acknowledgement) -> _Lease:
        queue = self._known_queue(acknowledgement.address, acknowledgement.queue)
        queue.used_ms = self._now_ms()
        queue.end_leases(queue.used_ms)
        if acknowledgement.lease not in queue.leases:
            raise StaleLease("the lease has ended", "lease", found=acknowledgement.lease)
        return queue.leases[acknowledgement.lease]

    def _settle(self, acknowledgement: Acknowledgement) -> None:
        queue = self._known_queue(acknowledgement.address, acknowledgement.queue)
        lease = queue.leases.pop(acknowledgement.lease)
        upto = acknowledgement.upto
        queue.settled.update(position for position in lease.positions if upto is None or position <= upto)

    # -- looking

    async def browse(self, address: str, *, after: int, most: int, most_bytes: int) -> Sequence[Delivered]:
        messages = self._known_address(address).messages
        return _page([messages[position] for position in messages if position > after], most, most_bytes)

    async def addresses(self) -> Sequence[AddressStatus]:
        return [await self.address(name) for name in sorted(self._addresses)]

    async def address(self, address: str) -> AddressStatus:
        of = self._known_address(address)
        size = sum(len(encode_message(delivered.message)) for delivered in of.messages.values())
        return AddressStatus(
            address,
            "ANYCAST" if address in self.anycast else "MULTICAST",
            len(of.messages),
            size,
            1 << 30,
            min(of.messages, default=self._next),
            self._next,
            len(of.ids),
            of.id_cache_size,
            [self._queue_status(name, queue, of) for name, queue in of.queues.items()],
        )

    def _queue_status(self, name: str, queue: _Queue, address: _Address) -> QueueStatus:
        now_ms = self._now_ms()
        queue.end_leases(now_ms)
        unsettled = [p for p in address.messages if p >= queue.start and p not in queue.settled]
        idle_ms = -1 if queue.used_ms is None else now_ms - queue.used_ms
        first = min(unsettled, default=self._next)
        condition = queue.filter.text if queue.filter else ""
        return QueueStatus(name, first, len(unsettled), len(queue.leased()), idle_ms, condition)

    # -- managing

    async def delete_address(self, address: str) -> None:
        self._known_address(address)
        if self.fails_with is not None:
            raise self.fails_with
        del self._addresses[address]

    async def clear_id_cache(self, address: str) -> int:
        ids = self._known_address(address).ids
        removed = len(ids)
        ids.clear()
        return removed

    async def resize_id_cache(self, address: str, size: int) -> int:
        of = self._known_address(address)
        of.id_cache_size = size
        oldest = list(of.ids)[: max(len(of.ids) - size, 0)]
        for duplicate_id in oldest:
            del of.ids[duplicate_id]
        return len(oldest)

    def _known_address(self, name: str) -> _Address:
        if name not in self._addresses:
            raise AddressNotFound(f"no address {name}", "address", found=name)
        return self._addresses[name]

    def _known_queue(self, address: str, queue: str) -> _Queue:
        queues = self._known_address(address).queues
        if queue not in queues:
            raise QueueNotFound(f"{address} has no queue {queue}", "queue", found=queue)
        return queues[queue]


def _page(messages: Sequence[Delivered], most: int, most_bytes: int) -> list[Delivered]:
    """The first of them, within both limits, and at least one."""
    page: list[Delivered] = []
    size = 0
    for delivered in messages[:most]:
        size += len(encode_message(delivered.message))
        if page and size > most_bytes:
            break
        page.append(delivered)
    return page
