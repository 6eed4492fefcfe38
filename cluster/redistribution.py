"""Redistribution: messages of queues without readers go to nodes where the queue has some.

A queue has had no reader here for `redistribution-delay`, and a node that can be reached has readers: its
free messages move into the forward log of that node, in order, by one command of one commit group each. What
is leased stays. A message moves at most once in a delay, also between two nodes whose records are stale: what
arrives at a node begins the delay anew there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog

from bridge.errors import AddressFull, AddressNotFound, DiskFull, QueueNotFound
from bridge.filters import Filter
from bridge.journal.measures import read_queues
from bridge.journal.rules.commands import MoveCommand
from bridge.journal.rules.moves import Choice, Movable, read_movable
from bridge.journal.values.options import REPLAYED_QUEUE
from bridge.journal.values.routing import Destination
from bridge.journal.values.views import AddressView, QueueView
from bridge.messages.addresses import is_own
from bridge.messages.stream_names import forward_log
from bridge.node.extension import NodeServices
from bridge.runtime.fault_injection import crash_point
from cluster.connections import Connections
from cluster.routing import ClusterRouter, Place, PlaceName, bridge_to

#: Interval of the looks at queues, in seconds: so much later than its delay a queue begins to move.
LOOK_S: Final = 0.25
#: Commands for one queue in a row, before the others have their turn.
COMMANDS_AT_ONCE: Final = 16
#: Values of `message-load-balancing` with which messages are moved.
MODES: Final = frozenset({"ON_DEMAND", "OFF_WITH_REDISTRIBUTION"})

#: (address, queue).
Key = tuple[str, str]

_log: Final = structlog.get_logger(__name__)


class Redistribution:
    """Moves the messages of one node."""

    def __init__(
        self,
        services: NodeServices,
        connections: Connections,
        router: ClusterRouter,
        held: Callable[[], bool] = lambda: False,
    ) -> None:
        """`held` answers whether nothing is moved now, because all goes to an heir."""
        self._services = services
        self._connections = connections
        self._router = router
        self._held = held
        #: By queue, since when it has had no reader (monotonic, ms).
        self._since_ms: dict[Key, int] = {}
        #: By queue and node, what a filter there has been asked about.
        self._choices: dict[tuple[Key, str], Choice] = {}
        #: Whose turn is last, by queue.
        self._last: dict[Key, str] = {}
        #: Messages that were moved, by node.
        self.moved: Counter[str] = Counter()

    async def turn(self) -> None:
        """Look once more."""
        await asyncio.sleep(LOOK_S)
        await self.look()

    def arrived(self, address: str) -> None:
        """Copies have come from another node: the delays of the address's queues begin anew."""
        now_ms = self._services.clock.monotonic_ms()
        for key in self._since_ms:
            if key[0] == address:
                self._since_ms[key] = now_ms

    async def look(self) -> None:
        """Move what is due."""
        if self._held():
            return
        for address, queue in self._due():
            await self._move_some((address, queue))

    # -- when --------------------------------------------------------------------------------------------

    def _due(self) -> list[Key]:
        now_ms = self._services.clock.monotonic_ms()
        since_ms: dict[Key, int] = {}
        due: list[Key] = []
        for key, delay_ms in self._without_readers():
            since_ms[key] = self._since_ms.get(key, now_ms - self._idle_ms(key))
            if now_ms - since_ms[key] >= delay_ms:
                due.append(key)
        self._since_ms = since_ms
        self._choices = {one: choice for one, choice in self._choices.items() if one[0] in since_ms}
        return due

    def _idle_ms(self, key: Key) -> int:
        """How long ago a reader was there; 0: none was since the node started."""
        return max(self._services.journal.presence.idle_ms(*key), 0)

    def _without_readers(self) -> Iterator[tuple[Key, int]]:
        """The queues with messages that may be moved and have no reader here, and their delays in ms."""
        read: dict[int, set[Key]] = {}
        journal = self._services.journal
        for address in journal.views.addresses:
            if is_own(address.name) or not address.messages:
                continue
            connection = self._connections.of(address.name)
            if connection is None or connection.message_load_balancing not in MODES:
                continue
            delay_ms = self._services.settings.for_address(address.name).redistribution_delay_ms
            if delay_ms < 0:
                continue
            timeout_ms = connection.reader_timeout_ms
            if timeout_ms not in read:
                read[timeout_ms] = read_queues(
                    journal.views, journal.presence, journal.lease_now_ms, timeout_ms
                )
            for queue in journal.views.queues(address.name):
                key = (address.name, queue.name)
                if _may_move(address, queue) and key not in read[timeout_ms]:
                    yield key, delay_ms

    # -- where to ----------------------------------------------------------------------------------------

    def _targets(self, key: Key) -> Sequence[Place]:
        """The places of the queue's name with readers that can be reached, the next one on turn first."""
        shared = self._router.table.addresses.get(key[0])
        places = () if shared is None else shared.queues.get(key[1], ())
        found = [place for place in places if not place.here and place.readers and place.reachable]
        nodes = [place.node for place in found]
        last = self._last.get(key)
        start = nodes.index(last) + 1 if last in nodes else 0
        return [*found[start:], *found[:start]]

    async def _move_some(self, key: Key) -> None:
        """Move messages of one queue while it has no reader, and others have."""
        moved: Counter[str] = Counter()
        for _ in range(COMMANDS_AT_ONCE):
            if not any(one == key for one, _ in self._without_readers()):
                break
            node, count = await self._move_once(key)
            if not count:
                break
            moved[node] += count
        for node, count in moved.items():
            self.moved[node] += count
            _log.info("redistribution", address=key[0], queue=key[1], peer_id=node, count=count)

    async def _move_once(self, key: Key) -> tuple[str, int]:
        """The node that gets messages, and how many; 0: there is none that takes any now."""
        for place in self._targets(key):
            try:
                count = await self._move(key, place)
            except (AddressNotFound, QueueNotFound, AddressFull, DiskFull) as error:
                _log.debug("redistribution-waits", address=key[0], queue=key[1], reason=error.detail)
                continue
            if count:
                self._last[key] = place.node
                return place.node, count
        return "", 0

    async def _move(self, key: Key, place: Place) -> int:
        journal = self._services.journal
        name = key[1] if place.next_hop == place.node else str(PlaceName(key[1], place.node, 1))
        to = Destination(forward_log(place.next_hop, key[0]), bridge_to(place.next_hop), only=(name,))
        while True:
            movable: Movable = await journal.look(
                read_movable,
                key,
                to,
                journal.identity.incarnation,
                lease_now_ms=journal.lease_now_ms,
                choice=self._choice(key, place),
            )
            if movable.messages or not movable.has_more:
                break
        if not movable.messages:
            return 0
        crash_point("cluster.before-move")
        moved: Sequence[int] = await journal.submit(
            MoveCommand,
            address=key[0],
            queue=key[1],
            messages=movable.messages,
            size=sum(one.block.size for one in movable.messages),
        )
        crash_point("cluster.after-move")
        taken = set(moved)
        return sum(one.block.count for one in movable.messages if one.first in taken)

    def _choice(self, key: Key, place: Place) -> Choice | None:
        condition: Filter | None = place.filter
        if condition is None:
            return None
        known = self._choices.get((key, place.node))
        if known is None or known.condition is not condition:
            known = self._choices[key, place.node] = Choice(condition)
        return known


def _may_move(address: AddressView, queue: QueueView) -> bool:
    """Whether the queue is readers', and may have free messages."""
    if queue.bridge is not None or queue.name == REPLAYED_QUEUE:
        return False
    return queue.messages != 0 if queue.messages is not None else queue.next < address.next
