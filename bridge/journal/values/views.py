"""A journal's addresses and queues as its last commit left them, for readers in the event loop.

The writer decides by a state of its own, which is ahead of the file until COMMIT and is thrown away when a
commit fails. It publishes frozen views of the addresses and queues that a commit has changed. The event loop
merges them before the commit's commands are answered, so that a caller reads its own writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from bridge.journal.values.options import AddressPolicy
from bridge.messages.addresses import RoutingType
from bridge.messages.stream_names import journal_stream


class Intake(StrEnum):
    """From whom a journal takes messages."""

    OPEN = "open"
    #: Nothing from clients: it is being handed over to another node.
    NO_CLIENTS = "no-clients"
    #: Nothing, and no lease: it is handed over.
    CLOSED = "closed"


class QueueView(msgspec.Struct, frozen=True):
    """A queue after a commit."""

    name: str
    #: The bridge it belongs to; None: readers'.
    bridge: str | None
    #: First position that is not settled.
    next: int
    #: The condition of its filter; empty: it takes all messages.
    condition: str
    #: Messages that are addressed to it and not settled; None: it does not count them.
    messages: int | None
    #: Whether a reader made it, or it came with an address that was made by itself.
    automatic: bool
    #: Whether it ever had a reader, or a bridge has taken messages from it.
    used: bool
    #: When its last lease ends, by the clock of leases, ms; 0: it has none.
    leased_until_ms: int


class AddressView(msgspec.Struct, frozen=True):
    """An address after a commit, without its queues: only those that a commit changes are published."""

    address_id: int
    name: str
    policy: AddressPolicy
    routing_type: RoutingType
    #: The first position of its stream, and one beyond the last.
    first: int
    next: int
    #: Messages and bytes stored now.
    messages: int
    bytes: int
    #: Whether a message or a reader made it.
    automatic: bool
    #: Whether it ever had a readers' queue.
    used: bool
    #: IDs in its ID cache, the most there may be, and those that newer ones have overwritten.
    ids: int
    id_capacity: int
    ids_evicted: int

    @property
    def gives_copies(self) -> bool:
        """Whether each bridge that selects it gets all messages: those of an ANYCAST address are shared."""
        return self.routing_type != "ANYCAST"

    def stream(self, incarnation: str) -> str:
        """The identity of this address's stream."""
        return journal_stream(incarnation, self.name, self.first)


class Changes(msgspec.Struct, frozen=True):
    """The changes of one commit, in the order in which they are merged."""

    intake: Intake
    #: Whether these are all addresses and queues, so that nothing stays of what was known before.
    everything: bool = False
    #: The ids of addresses that are gone.
    dropped_addresses: Sequence[int] = ()
    #: Queues that are gone: the address's id, and the name.
    dropped_queues: Sequence[tuple[int, str]] = ()
    addresses: Sequence[AddressView] = ()
    #: With the ids of their addresses.
    queues: Sequence[tuple[int, QueueView]] = ()


class Views:
    """The newest view of every address and queue. Belongs to the event loop."""

    def __init__(self) -> None:
        self.intake = Intake.OPEN
        #: Grows when an address or a queue comes or goes, or a queue has another filter.
        self.names = 0
        self._addresses: dict[str, AddressView] = {}
        self._names: dict[int, str] = {}
        self._queues: dict[int, dict[str, QueueView]] = {}

    @property
    def addresses(self) -> list[AddressView]:
        """Every address."""
        return list(self._addresses.values())

    def address(self, name: str) -> AddressView | None:
        """An address; None: there is none of this name."""
        return self._addresses.get(name)

    def queues(self, address: str) -> list[QueueView]:
        """The queues of an address."""
        known = self._addresses.get(address)
        return [] if known is None else list(self._queues.get(known.address_id, {}).values())

    def queue(self, address: str, queue: str) -> QueueView | None:
        """A queue; None: there is none of this name."""
        known = self._addresses.get(address)
        return None if known is None else self._queues.get(known.address_id, {}).get(queue)

    def merge(self, changes: Changes) -> None:
        """Take the changes of the next commit."""
        self.intake = changes.intake
        if changes.everything:
            self._addresses, self._names, self._queues = {}, {}, {}
            self.names += 1
        for address_id in changes.dropped_addresses:
            self._drop(address_id)
        for address_id, name in changes.dropped_queues:
            if self._queues.get(address_id, {}).pop(name, None) is not None:
                self.names += 1
        for address in changes.addresses:
            known = self._addresses.get(address.name)
            self.names += known is None or known.routing_type != address.routing_type
            self._addresses[address.name] = address
            self._names[address.address_id] = address.name
        for address_id, queue in changes.queues:
            queues = self._queues.setdefault(address_id, {})
            before = queues.get(queue.name)
            self.names += before is None or before.condition != queue.condition
            queues[queue.name] = queue

    def _drop(self, address_id: int) -> None:
        name = self._names.pop(address_id, None)
        if name is not None:
            del self._addresses[name]
            self._queues.pop(address_id, None)
            self.names += 1
