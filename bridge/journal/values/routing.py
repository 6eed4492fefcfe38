"""Where messages are stored: destinations, and the hook that decides them in the transaction that stores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from bridge.journal.values.routes import QueueSet
from bridge.messages.addresses import WantedType
from bridge.messages.message import Message


class Destination(msgspec.Struct, frozen=True, gc=False):
    """The address at which messages are stored, and the queues that they are for there."""

    address: str
    #: The bridge that alone reads it: its queue is made with the address, which may always be made. None: an
    #: address as clients name it.
    bridge: str | None = None
    #: Names of the only queues that they are for; empty: every queue, now and later.
    only: tuple[str, ...] = ()
    #: Names of queues that they are not for, because they are placed elsewhere or were taken from them; only
    #: without `only`.
    besides: tuple[str, ...] = ()

    @property
    def queues(self) -> QueueSet:
        """The queues that they are for."""
        return QueueSet("only", self.only) if self.only else QueueSet("except", self.besides)


class Placement(NamedTuple):
    """Messages of one transaction at one destination."""

    destination: Destination
    #: Indices of the messages, ascending.
    indices: Sequence[int]


#: Calls that take back changes, the last first.
Undo = list[Callable[[], object]]


@dataclass(frozen=True, slots=True)
class Routing:
    """The messages of a client's transaction for one address, as a router is asked about them."""

    #: The address that the client named.
    address: str
    #: Indices of its messages in the transaction, without those that are left out as duplicates; ascending.
    indices: Sequence[int]
    #: The message at an index, for rules that look at keys and headers.
    message: Callable[[int], Message]
    #: Whether an address takes messages now: it is below its limit.
    has_room: Callable[[str], bool]
    #: Names of the queues that the address has here, or gets when it is made, those of bridges included.
    queues: Collection[str] = ()
    #: Where a router puts the calls that take back what it changes in its own memory, should the transaction
    #: be refused, blocked, or not stored.
    undo: Undo = field(default_factory=list)


class Router(Protocol):
    """Decides where messages are stored that clients send, or that another node has placed here.

    It is called in the writer's thread for every transaction, so it must not wait: it decides by a snapshot
    that it has in memory. A transaction that is blocked for want of room is decided again.
    """

    def __call__(self, routing: Routing) -> Sequence[Placement] | None:
        """The placements of all of these messages, each at one destination or at several; None: all of them
        are stored at the address that the client named.
        """

    @property
    def taken_over_at(self) -> str:
        """URL of the node to which this one has handed its messages over; empty: there is none."""

    def made_as(self, address: str) -> WantedType:
        """The type that an address gets which is made now; empty: as the settings say."""

    def queue_here(self, name: str) -> str | None:
        """The queue of this node that a name in another node's placement means; None: a place elsewhere."""

    def onward(self, address: str, name: str, undo: Undo) -> Destination | str:
        """The destination of a copy that came for `name`, which is a place elsewhere or a queue that is gone;
        `undo` as in `Routing`.

        A text is the reason why there is none: the message becomes a dead letter.
        """
