"""Clients' requests to a node's journal: the values, and the port that the acceptor depends on.

`bridge.journal.Journal` implements it. Every coroutine returns only after what it says is durable (design
section 3: verdicts leave only after COMMIT returned).

The values that each message or request has are msgspec's structs: a frozen dataclass takes some ten times as
long to make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import msgspec

from bridge.messages.block import KeptBody, decode_message, encode_to_hold
from bridge.messages.message import Message
from bridge.relay.ports import Upload

#: Bytes that a message takes in memory while it waits, besides its encoding and its ID, about.
SENT_OVERHEAD_BYTES: Final = 96


class Sent(msgspec.Struct, frozen=True, gc=False):
    """One message of a client, for one address. It is held in this form alone while it waits."""

    address: str
    #: As `encode_to_hold` made it.
    encoded: bytes
    #: The producer's duplicate ID; None: none.
    duplicate_id: bytes | None = None

    @classmethod
    def of(cls, address: str, message: Message, duplicate_id: bytes | None = None) -> Sent:
        """The message, encoded."""
        return cls(address, encode_to_hold(message), duplicate_id)

    @property
    def message(self) -> Message:
        """The message, decoded anew each time."""
        return decode_message(self.encoded)


def held_bytes(sent: Sequence[Sent]) -> int:
    """Bytes that the messages take in memory, about."""
    ids = sum([len(one.duplicate_id) for one in sent if one.duplicate_id is not None])
    return sum([len(one.encoded) for one in sent]) + ids + SENT_OVERHEAD_BYTES * len(sent)


class Acknowledgement(msgspec.Struct, frozen=True):
    """Messages of a lease to be settled within a transaction."""

    address: str
    queue: str
    lease: str
    #: Inclusive; None: the whole lease.
    upto: int | None = None


class Transaction(msgspec.Struct, frozen=True):
    """A transaction: all of it is stored, or nothing. A plain send is a transaction of one message."""

    sent: Sequence[Sent]
    #: The transaction's own ID: enters the cache of every address touched.
    duplicate_id: bytes | None = None
    #: Effect of a known single ID: the transaction fails, or the message is left out.
    on_duplicate: Literal["reject", "skip"] = "reject"
    acknowledgements: Sequence[Acknowledgement] = ()
    #: A plain send: a known single ID makes the whole a duplicate, which is a success.
    plain: bool = False
    #: The body of its only message, which is large and has been uploaded (`Store.upload`); None: every
    #: message has its body.
    large: KeptBody | None = None


class Committed(msgspec.Struct, frozen=True):
    """A transaction's verdict."""

    #: False: duplicate, nothing of it was stored now.
    stored: bool
    #: First and last position by address (empty for a duplicate).
    positions: Mapping[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    #: Indices that were left out because their IDs were known (`on_duplicate` skip).
    skipped: Sequence[int] = ()
    #: Messages by address, where a router stored some of them at others only: there are no positions for it.
    elsewhere: Mapping[str, int] = msgspec.field(default_factory=dict)


class Delivered(msgspec.Struct, frozen=True):
    """A message as a reader gets it."""

    position: int
    message: Message
    #: The producer's ID, or the stamped one as 36 bytes of text; None at the entry node.
    duplicate_id: bytes | None
    #: Where the body is, of a message whose body is not in it; None: it is.
    large: KeptBody | None = None


class Page(msgspec.Struct, frozen=True):
    """Messages under a lease; None and empty where no message is free."""

    lease: str | None
    messages: Sequence[Delivered] = ()


@dataclass(frozen=True, slots=True)
class QueueStatus:
    name: str
    #: First position not settled.
    next: int
    #: Messages not settled, leased ones included.
    lag: int
    #: Messages under a lease now.
    leased: int
    #: Milliseconds since a reader last asked or settled; -1: never since the node started.
    idle_ms: int
    #: The condition on what arrives for it; empty: everything does.
    filter: str = ""


@dataclass(frozen=True, slots=True)
class AddressStatus:
    address: str
    routing_type: str
    #: Messages and bytes stored now.
    messages: int
    bytes: int
    max_bytes: int
    #: First position still stored (= next where there is none), and the first position beyond the end.
    first: int
    next: int
    id_cache_entries: int
    id_cache_capacity: int
    #: Readers' queues.
    queues: Sequence[QueueStatus] = ()
    #: The queues that bridges read, each by its bridge's name.
    bridges: Sequence[QueueStatus] = ()
    #: Messages stored since the node started that no queue took.
    unrouted: int = 0


class Store(Protocol):
    """The port. Errors are those of `bridge.errors`; any call may raise Stopping, DiskFull,
    TooBusy or JournalUnavailable besides those named."""

    async def commit(self, transaction: Transaction) -> Committed:
        """Store a transaction.

        With BLOCK, waits for room up to the `call_timeout_ms` that the journal was opened with.

        Raises: AddressNotFound, AddressFull, MessageTooLarge, DuplicateIdRejected (never for a
            plain send), StaleLease, QueueNotFound.
        """

    def upload(self, address: str, whole_size: int) -> Upload:
        """A large body on its way to `address`; `whole_size`: the bytes that are known to come, 0: not
        known.
        """

    async def read_chunk(self, kept: KeptBody, number: int) -> bytes:
        """One chunk of the body of a message that is stored, from 0. Raises: NotFound: it is gone."""

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
        """Make a queue from a position on; True if it is new, False if it was there already.

        `condition` is the filter of what arrives from now on, also of a queue that was there; empty: none.
        None: a queue that was there keeps its own.
        `user` is the caller, for the log.
        Raises: FilterRefused, Conflict; Forbidden: it is there with another filter, and the caller may not
            change that.
        """

    async def delete_queue(self, address: str, queue: str) -> None:
        """Raises: AddressNotFound, QueueNotFound."""

    async def lease(
        self, address: str, queue: str, *, most: int, wait_ms: int, lease_ms: int, most_bytes: int
    ) -> Page:
        """The next messages that no reader has leased, waiting up to `wait_ms` for the first.

        At least one message even where it alone is above `most_bytes`.
        Raises: AddressNotFound, QueueNotFound.
        """

    async def acknowledge(self, acknowledgement: Acknowledgement) -> None:
        """Settle the lease's messages; those beyond `upto` are free again. Raises: StaleLease,
        QueueNotFound.
        """

    async def release(self, acknowledgement: Acknowledgement) -> None:
        """Return the lease's messages up to `upto` (None: all) unsettled, and end the lease."""

    async def browse(self, address: str, *, after: int, most: int, most_bytes: int) -> Sequence[Delivered]:
        """Messages at positions > `after`, changing nothing. Raises: AddressNotFound."""

    async def addresses(self) -> Sequence[AddressStatus]:
        """Every address, by name."""

    async def address(self, address: str) -> AddressStatus:
        """Raises: AddressNotFound."""

    async def delete_address(self, address: str) -> None:
        """Delete an address with its messages, queues and ID cache. Raises: AddressNotFound, Conflict (a
        bridge reads it).
        """

    async def clear_id_cache(self, address: str) -> int:
        """Returns the number of IDs removed, from memory and disk. Raises: AddressNotFound."""

    async def resize_id_cache(self, address: str, size: int) -> int:
        """Returns the number of IDs dropped; the size is remembered. Raises: AddressNotFound."""
