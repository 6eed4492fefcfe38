"""The journal: a node's embedded store, as the event loop sees it.

Every change goes as a command to the writer's thread and is answered after COMMIT; every read runs in a
reader's thread. Implements `bridge.journal.values.store.Store`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from bridge.errors import (
    AddressNotFound,
    NotFound,
    Stopping,
    TooBusy,
    described,
)
from bridge.filters import parse
from bridge.journal import measures
from bridge.journal.counts import Counts
from bridge.journal.notices import Notices
from bridge.journal.presence import Presence
from bridge.journal.rules.commands import (
    CacheCommand,
    CommitCommand,
    CommittedEvents,
    DeleteAddressCommand,
    EndLeaseCommand,
    ForgetLinesCommand,
    Grant,
    LeaseCommand,
    QueueCommand,
    WriteCommand,
)
from bridge.journal.sqlite import reader
from bridge.journal.sqlite.damage import FoundDamage
from bridge.journal.sqlite.database import FILE_NAME, CannotGrow, DirectoryLock
from bridge.journal.sqlite.large_bodies import read_chunk
from bridge.journal.sqlite.outbox_lines import read_lines
from bridge.journal.sqlite.pages import PageSize, check_count
from bridge.journal.sqlite.reading_threads import Readers, readable
from bridge.journal.sqlite.shared_names import bridge_lags
from bridge.journal.unfinished import UnfinishedBodies
from bridge.journal.uploads import BodyUpload, Uploads
from bridge.journal.values.options import INBOX_BYTES, JournalOptions
from bridge.journal.values.store import (
    Acknowledgement,
    AddressStatus,
    Committed,
    Delivered,
    Page,
    Transaction,
    held_bytes,
)
from bridge.journal.values.stored_block import END
from bridge.journal.values.views import Views
from bridge.journal.writer.disk_full import Room
from bridge.journal.writer.opening import Identity, prepare
from bridge.journal.writer.publishing import everything
from bridge.journal.writer.writer import Writer
from bridge.messages.block import KeptBody
from bridge.runtime.clock import Clock, SystemClock

U = TypeVar("U", bound=WriteCommand)
P = ParamSpec("P")
T = TypeVar("T")


class Journal:
    """Open with `Journal.open`; close with `close`."""

    def __init__(self, options: JournalOptions, lock: DirectoryLock, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.notices = Notices()
        #: The identity of this journal; set by `open`.
        self.identity: Identity
        #: Messages that came to each address since the node started.
        self.counts = Counts()
        #: Addresses and queues as the last commit left them.
        self.views = Views()
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._waiting_bytes = 0
        #: The readers of queues.
        self.presence = Presence(clock)
        self._damage = FoundDamage()
        self._readers = Readers(options.directory / FILE_NAME, self._damage)
        self._writer: Writer
        self._uploads: Uploads
        #: Large bodies that bridges bring.
        self.unfinished: UnfinishedBodies
        self.read = self._readers.run

    @classmethod
    async def open(cls, options: JournalOptions, clock: Clock | None = None) -> Journal:
        """Open or make the journal in `options.directory`; takes as long with 10 GB as with 10 MB.

        Raises:
            JournalFailed: damaged, locked by another process, of a later version, not writable, no room.
        """
        lock = DirectoryLock(options.directory)
        try:
            journal = cls(options, lock, clock or SystemClock())
            await asyncio.to_thread(journal._prepare)
        except BaseException:
            lock.release()
            raise
        journal._writer.start()
        return journal

    def _prepare(self) -> None:
        """Read the file before the journal takes work; in a thread, because a million IDs take a second."""
        path = self.options.directory / FILE_NAME
        room = Room(path, self.clock)
        try:
            prepared = prepare(path, self.options, self.clock)
        except CannotGrow:
            if not room.give_up():
                raise
            prepared = prepare(path, self.options, self.clock)
        self.identity = prepared.identity
        self.views.merge(everything(prepared.state))
        self._uploads = Uploads(self.send, prepared.next_large_id)
        self.unfinished = UnfinishedBodies(self._uploads, self.clock)
        self._writer = Writer(
            prepared, self.options, self.clock, room, self._readers.let_end, self._damage, self._notify
        )

    def let_go(self) -> None:
        """Answer the clients whose transactions are blocked for want of room now: the node is going down."""
        self._writer.let_go()

    async def close(self) -> None:
        """Commit the commands that wait, answer those that are blocked with STOPPING, release the files."""
        if self._closed:
            return
        self._closed = True
        self.unfinished.close()
        await asyncio.to_thread(self._writer.stop)
        await asyncio.to_thread(
            self._readers.close
        )  # so that the writer copies the log, and no other connection
        await asyncio.to_thread(self._writer.close)
        await asyncio.sleep(0)  # the last answers are on their way through the loop
        self._lock.release()
        self.notices.close()

    @property
    def store(self) -> str:
        """This store's identity: node UUID and incarnation."""
        return self.identity.store

    @property
    def disk_full(self) -> bool:
        """Whether the last attempt to write found no room."""
        return self._writer.condition.is_full

    @property
    def broken(self) -> str:
        """The reason why nothing can be stored now; empty: the journal can store."""
        return self._writer.condition.broken

    @property
    def damaged(self) -> Sequence[str]:
        """The damaged places of the file that were found since it was opened."""
        return self._damage.places

    @property
    def standstill(self) -> str:
        """The reason why not even commands without messages can be stored now; empty: they can."""
        full = self._writer.condition.standstill
        return "" if full is None else described(full)

    @property
    def commits(self) -> int:
        """Commit groups since the node started."""
        return self._writer.commits

    @property
    def lease_now_ms(self) -> int:
        """The time now by the clock that ends leases."""
        return self._writer.lease_now_ms

    # -- commands -------------------------------------------------------------------------------------

    async def submit(self, make: Callable[..., U], **fields: Any) -> Any:
        """Hand a command to the writer and wait for its answer."""
        return await self.send(make, **fields).future

    def send(self, make: Callable[..., U], **fields: Any) -> U:
        """Hand a command to the writer; its `future` is answered after COMMIT."""
        if self._closed:
            raise Stopping("the node is stopping")
        command = make(future=self._loop.create_future(), **fields)
        if isinstance(command, CommitCommand):  # a bridge's messages are bounded by its link's credit
            self._waiting_bytes += command.size
        self._writer.submit(command)
        return command

    def _notify(self, events: CommittedEvents) -> None:
        """Called in the writer's thread."""
        self._loop.call_soon_threadsafe(self._answer, events)

    def _answer(self, events: CommittedEvents) -> None:
        if events.views is not None:  # first: a caller that is answered reads its own writes
            self.views.merge(events.views)
        for command in events.answered:
            if isinstance(command, CommitCommand):
                self._waiting_bytes -= command.size
            self.counts.count(command)
            if command.future.done():
                self._take_back(command)
                continue
            if command.error is not None:
                command.future.set_exception(command.error)
            else:
                command.future.set_result(command.result)
        self.counts.count_unrouted(events.unrouted)
        self.counts.count_not_evaluated(events.not_evaluated)
        self.notices.notify(events)

    def _take_back(self, command: WriteCommand) -> None:
        """Release a lease whose caller has gone: a lease that no caller knows of must not hold messages until
        it ends.
        """
        if isinstance(command, LeaseCommand) and isinstance(command.result, Grant) and not self._closed:
            self.give_back(command.address, command.queue, command.result.lease)

    def give_back(self, address: str, queue: str, lease: str) -> asyncio.Future[None]:
        """Release a lease, or end a reservation; done once its messages are free. An error need not be looked
        at: there is no such lease any more.
        """
        returned = self.send(
            EndLeaseCommand, acknowledgement=Acknowledgement(address, queue, lease), settle=False
        )
        returned.future.add_done_callback(lambda future: future.cancelled() or future.exception())
        return returned.future

    def deadline_ms(self) -> int:
        """The time until which a command that begins now may be blocked, monotonic ms."""
        return self.clock.monotonic_ms() + self.options.call_timeout_ms

    # -- bridge.journal.values.store.Store ---------------------------------------------------------

    async def commit(self, transaction: Transaction) -> Committed:
        """Store a transaction (see `bridge.journal.values.store.Store.commit`)."""
        size = held_bytes(transaction.sent)
        waiting = self._waiting_bytes - self._writer.blocked_bytes
        if waiting > 0 and waiting + size > INBOX_BYTES:
            raise TooBusy(f"{waiting} bytes wait for a commit", limit=INBOX_BYTES, found=waiting + size)
        # Bound to no name: an error refers to this frame, and the command and its future refer to the error.
        committed: Committed = await self.send(
            CommitCommand, transaction=transaction, size=size, deadline_ms=self.deadline_ms()
        ).future
        return committed

    def upload(self, address: str, whole_size: int) -> BodyUpload:
        """A large body on its way in (see `bridge.journal.values.store.Store.upload`)."""
        known = address if self.options.router is None else ""
        return self._uploads.begin(known, whole_size, self.deadline_ms)

    def upload_of_bridge(self, address: str, whole_size: int, longest_wait_ms: int) -> BodyUpload:
        """The same for a bridge, each of whose chunks waits for room so long at most. `address` is empty
        where its messages say what they are for.
        """
        deadline_ms = lambda: min(self.deadline_ms(), self.clock.monotonic_ms() + longest_wait_ms)  # noqa: E731
        return self._uploads.begin(address, whole_size, deadline_ms, from_client=False)

    async def read_chunk(self, kept: KeptBody, number: int) -> bytes:
        """One chunk of a large body (see `bridge.journal.values.store.Store.read_chunk`)."""
        return await self.look(read_chunk, kept.body_id, number)

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
        """True if it is new (see `bridge.journal.values.store.Store.create_queue`)."""
        filter_ = await asyncio.to_thread(parse, condition) if condition else None
        how: dict[str, Any] = {"start": start, "filter": filter_, "keeps_filter": condition is None}
        how |= {"may_change_filter": may_change_filter}
        command = self.send(QueueCommand, action="create", address=address, queue=queue, **how)
        made: bool = await command.future
        if command.replaced is not None:
            self.counts.filter_changed(address, queue, user, command.replaced, condition or "")
        return made

    async def delete_queue(self, address: str, queue: str) -> None:
        """Raises: AddressNotFound, QueueNotFound."""
        await self.submit(QueueCommand, action="delete", address=address, queue=queue)
        self.presence.forget(address, queue)
        self.counts.forget_queue(address, queue)

    async def lease(
        self, address: str, queue: str, *, most: int, wait_ms: int, lease_ms: int, most_bytes: int
    ) -> Page:
        """The next messages that no reader has leased (see `bridge.journal.values.store.Store.lease`)."""
        until_ms = self.clock.monotonic_ms() + wait_ms
        # There from here on: the queue does not go while its reader's command is on the way.
        with self.presence.waiting(address, queue):
            while True:
                changed = self.notices.changed(address)
                command = self.send(
                    LeaseCommand,
                    address=address,
                    queue=queue,
                    lease=uuid.uuid4().hex,
                    most=most,
                    most_bytes=most_bytes,
                    lease_ms=lease_ms,
                )
                grant: Grant | None = await command.future
                self.presence.seen(address, queue)
                if grant is not None:
                    page = await self._page(address, queue, grant, PageSize(most, END))
                    if page.lease is None:
                        most = len(page.messages)  # those behind them cannot be read
                        continue
                    return page
                if command.retry_ms == 0:
                    continue
                left_ms = until_ms - self.clock.monotonic_ms()
                if left_ms <= 0:
                    return Page(None)
                if command.retry_ms is not None:
                    left_ms = min(left_ms, max(command.retry_ms, 1))
                await asyncio.wait([changed], timeout=left_ms / 1000)

    async def _page(self, address: str, queue: str, grant: Grant, most: PageSize) -> Page:
        """The messages of a lease. Without a lease: only these can be read, and the lease was released."""
        try:
            row = await self._row(address)
            messages = await self._readers.page(row.address_id, grant.intervals, most)
            if 0 < len(messages) < grant.count:
                await asyncio.wait([self.give_back(address, queue, grant.lease)])
                return Page(None, messages)
            check_count(address, len(messages), grant.count)
        except BaseException:
            if not self._closed:
                self.give_back(address, queue, grant.lease)
            raise
        return Page(grant.lease, messages)

    async def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Raises: StaleLease, QueueNotFound, AddressNotFound."""
        await self.submit(EndLeaseCommand, acknowledgement=acknowledgement, settle=True)
        self.presence.seen(acknowledgement.address, acknowledgement.queue)

    async def release(self, acknowledgement: Acknowledgement) -> None:
        """Raises: StaleLease, QueueNotFound, AddressNotFound."""
        await self.submit(EndLeaseCommand, acknowledgement=acknowledgement, settle=False)
        self.presence.seen(acknowledgement.address, acknowledgement.queue)

    async def browse(self, address: str, *, after: int, most: int, most_bytes: int) -> Sequence[Delivered]:
        """Messages at positions > `after`. Raises: AddressNotFound."""
        row = await self._row(address)
        page = PageSize(most, most_bytes)
        return await self._readers.page(row.address_id, [(after + 1, row.next)], page)

    async def message(self, address: str, position: int) -> Delivered:
        """One message. Raises: AddressNotFound, NotFound."""
        found = await self.browse(address, after=position - 1, most=1, most_bytes=1)
        if not found or found[0].position != position:
            raise NotFound(f"{address} has no message at {position}", key="position", found=position)
        return found[0]

    async def addresses(self) -> Sequence[AddressStatus]:
        """Every address, by name."""
        return [
            self._described(*entry)
            for entry in await self.look(reader.describe_addresses, None, self.clock.wall_ms())
        ]

    async def address(self, address: str) -> AddressStatus:
        """Raises: AddressNotFound."""
        described = await self.look(reader.describe_addresses, address, self.clock.wall_ms())
        if not described:
            raise AddressNotFound(f"no address {address}", key="address", found=address)
        return self._described(*described[0])

    def _described(self, status: AddressStatus, queues: list[tuple[Any, str | None]]) -> AddressStatus:
        known = self.views.address(status.address)
        policy = known.policy if known is not None else self.options.policy(status.address)
        return measures.described(status, queues, known, policy, self.presence, self.counts)

    async def delete_address(self, address: str) -> None:
        """Raises: AddressNotFound, Conflict."""
        await self.submit(DeleteAddressCommand, address=address)
        self.counts.forget(address)
        self.presence.forget(address)

    async def clear_id_cache(self, address: str) -> int:
        """Returns the number of IDs that were removed."""
        removed: int = await self.submit(CacheCommand, address=address)
        return removed

    async def resize_id_cache(self, address: str, size: int) -> int:
        """Returns the number of IDs that were dropped."""
        dropped: int = await self.submit(CacheCommand, address=address, capacity=size)
        return dropped

    # -- for the ends and the delivery log ----------------------------------------------------------

    async def look(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """`read` for clients, who get an error that says what is wrong with a damaged file."""
        with readable():
            return await self.read(function, *args, **kwargs)

    async def _row(self, address: str) -> reader.AddressRow:
        row = await self.look(reader.find_address, address)
        if row is None:
            raise AddressNotFound(f"no address {address}", key="address", found=address)
        return row

    async def lines(self, after: int, most: int, most_bytes: int = END) -> Sequence[tuple[int, bytes]]:
        """Delivery-log lines behind line id `after`. Raises: JournalUnavailable."""
        return await self.look(read_lines, after, most, most_bytes)

    async def forget_lines(self, upto: int) -> None:
        """Lines up to this one are on disk in their segment."""
        await self.submit(ForgetLinesCommand, upto=upto)

    async def bridge_lags(self) -> Sequence[reader.BridgeLag]:
        """The messages that wait for each bridge on each address."""
        return await self.look(bridge_lags, self._writer.bridges)

    async def id_caches(self) -> Sequence[measures.IdCacheStatus]:
        """Every address's ID cache as it is now."""
        oldest_ms = await self.look(reader.oldest_ids)
        return measures.id_caches(self.views, oldest_ms, self.clock.wall_ms())

    def full_addresses(self) -> Mapping[str, measures.FullAddress]:
        """Addresses that take no messages now because they are at their limit, by name."""
        return measures.full_addresses(self.views)

    async def orphans(self) -> Sequence[reader.Orphan]:
        """Bridges' queues that no configured bridge reads any more."""
        return await self.read(reader.read_orphans, self._writer.bridges)
