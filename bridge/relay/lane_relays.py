"""The relays of the lanes that this process owns: each begun and stopped by itself, seen as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce

import structlog

from bridge.errors import listed
from bridge.relay.counts import Counts
from bridge.relay.lag import Lag, PartitionStatus
from bridge.relay.lifecycle import State
from bridge.relay.line import LineStatus
from bridge.relay.relay import Relay


class LaneRelays:
    """Commands to one lane take effect in their order; no lane waits for another.

    A lane that is lost and gained again gets a new relay, which begins when the old one has stopped.
    """

    def __init__(
        self, bridge: str, make: Callable[[int], Relay], on_failed: Callable[[int], None], *, numbered: bool
    ) -> None:
        """`on_failed` is called with each lane that has FAILED, once its ends are closed. `numbered`: texts
        name the lane.
        """
        self._make = make
        self._numbered = numbered
        self._on_failed = on_failed
        self._lanes: dict[int, Relay] = {}
        #: Why lanes have FAILED here, until `forgive`: also those that have been given up since.
        self._failed: dict[int, str] = {}
        #: Relays of lanes that this process does not own any more, until they have stopped.
        self._leaving: list[Relay] = []
        #: The counts of relays that are gone.
        self._past = Counts()
        self._store = ""
        self._connector = ""
        #: The last command to each lane, until it is done.
        self._orders: dict[int, asyncio.Task[None]] = {}
        self._log = structlog.get_logger().bind(bridge=bridge)

    # -- state -------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> Mapping[int, Relay]:
        """The relays by lane, in order."""
        return dict(sorted(self._lanes.items()))

    @property
    def owned_lanes(self) -> Sequence[int] | None:
        """Implements `bridge.relay.operated.Operated.owned_lanes`."""
        return [*self.lanes] if self._numbered else None

    @property
    def state(self) -> State:
        """FAILED where a lane has; RUNNING where all are; WAITING where the others wait; else CONNECTING."""
        states = {relay.state for relay in self._lanes.values()}
        if self._failed or State.FAILED in states:
            return State.FAILED
        if states <= {State.RUNNING}:
            return State.RUNNING
        return State.WAITING if states <= {State.RUNNING, State.WAITING} else State.CONNECTING

    @property
    def reason(self) -> str:
        """The reason why the first FAILED lane has failed, and the numbers of the others; empty: no lane
        has.
        """
        failing = {lane: relay.reason for lane, relay in self._lanes.items() if relay.reason}
        reasons = sorted((self._failed | failing).items())
        if not reasons:
            return ""
        (first, reason), others = reasons[0], [str(lane) for lane, _ in reasons[1:]]
        return self._of(first, reason) + (f" (FAILED too: lane {listed(others)})" if others else "")

    @property
    def given_up(self) -> bool:
        """Whether a lane has FAILED and none is left."""
        return bool(self._failed) and not self._lanes

    @property
    def counts(self) -> Counts:
        """The sum over all relays that ever were; `trouble` is that of the first lane that has one.

        Where no lane has, it says what the first lane has parked, or waits for at the source.
        """
        total = replace(self._past)
        for relay in self._all():
            total.add(relay.counts)
        parked = [(lane, text) for lane, relay in self.lanes.items() for text in relay.parked().values()]
        total.parked = len(parked)
        waits = [(lane, text) for lane, relay in self.lanes.items() for text in relay.waits()]
        troubles = [(lane, relay.counts.opening) for lane, relay in self.lanes.items()]
        troubles += [(lane, relay.counts.trouble) for lane, relay in self.lanes.items()] + parked + waits
        troubles += [(lane, relay.counts.throttled) for lane, relay in self.lanes.items()]
        troubles += [(lane, relay.counts.limited) for lane, relay in self.lanes.items()]
        total.trouble = next((self._of(lane, trouble) for lane, trouble in troubles if trouble), "")
        return total

    def _of(self, lane: int, text: str) -> str:
        return f"lane {lane}: {text}" if self._numbered else text

    @property
    def in_flight(self) -> int:
        """Messages sent and not confirmed."""
        return sum(relay.session.window.messages for relay in self._all())

    @property
    def line(self) -> LineStatus | None:
        """The lines of the lanes together; None: there is no lane."""
        lines = [relay.line_status for relay in self._lanes.values()]
        return reduce(LineStatus.beside, lines) if lines else None

    @property
    def store(self) -> str:
        """Store identity of the target, once it has answered any lane."""
        self._store = next((store for relay in self._all() if (store := relay.session.store)), self._store)
        return self._store

    @property
    def connector(self) -> str:
        """Name of the connector that the first lane uses, or used last; empty: it has none."""
        self._connector = next((relay.connector for relay in self._all()), self._connector)
        return self._connector

    @property
    def failed(self) -> frozenset[int]:
        """The lanes that have FAILED here, also those that were given up since: perhaps nobody moves them."""
        return frozenset(self._failed)

    def lags(self, *, connected: bool) -> Mapping[int, Lag]:
        """The lag of each lane of which its source says it; `connected`: of lanes that are, no others."""
        said = {lane: relay.lag() for lane, relay in self._lanes.items() if relay.connected or not connected}
        return {lane: lag for lane, lag in said.items() if lag is not None}

    def partitions(self) -> Mapping[int, Sequence[PartitionStatus]]:
        """By lane that is connected, its source's partitions."""
        found: dict[int, Sequence[PartitionStatus]] = {}
        for lane, relay in self._lanes.items():
            if relay.connected:
                parked = relay.parked()
                found[lane] = [
                    replace(row, reason=parked.get((row.topic, row.partition), ""))
                    for row in relay.partitions()
                ]
        return found

    def _all(self) -> Iterable[Relay]:
        return (*self._lanes.values(), *self._leaving)

    # -- commands ----------------------------------------------------------------------------------------

    def own(self, owned: frozenset[int], *, start: bool) -> None:
        """Have a relay for each of these lanes and no other. Begun here; `settled` waits until it is done.

        `start`: relays of gained lanes begin; otherwise they wait for `start_all`.
        """
        gained, lost = sorted(owned - self._lanes.keys()), sorted(self._lanes.keys() - owned)
        if (gained or lost) and self._numbered:
            self._log.info("lanes", owned=sorted(owned), gained=gained, lost=lost)
        for lane in lost:
            relay = self._lanes.pop(lane)
            self._leaving.append(relay)
            self._order(lane, partial(self._leave, relay))
        for lane in gained:
            self._lanes[lane] = relay = self._make(lane)
            relay.on_failed = partial(self._fail, lane, relay)
            if start:
                self._order(lane, relay.start)

    def forgive(self) -> None:
        """Forget the lanes that have FAILED."""
        self._failed.clear()

    def _fail(self, lane: int, relay: Relay) -> None:
        if self._lanes.get(lane) is relay:
            self._failed[lane] = relay.reason
            self._on_failed(lane)

    async def start_all(self) -> None:
        """Start every lane of this process; returns when all have begun."""
        await asyncio.gather(*[self._order(lane, relay.start) for lane, relay in self._lanes.items()])

    async def stop_all(self) -> None:
        """Stop every lane of this process and keep them; returns when all have stopped."""
        await asyncio.gather(*[self._order(lane, relay.stop) for lane, relay in self._lanes.items()])

    def fail_back(self) -> None:
        """As `Relay.fail_back`, in every lane of this process. Raises: Conflict."""
        for relay in self._lanes.values():
            relay.fail_back()

    async def settled(self) -> None:
        """Wait until every command is done; where this is cancelled, they go on."""
        if orders := [*self._orders.values()]:
            await asyncio.wait(orders)
            for order in orders:
                order.result()

    def _order(self, lane: int, command: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        order = asyncio.create_task(_after(self._orders.get(lane), command))
        self._orders[lane] = order
        order.add_done_callback(lambda done: self._forget(lane, done))
        return order

    def _forget(self, lane: int, order: asyncio.Task[None]) -> None:
        if self._orders.get(lane) is order:
            del self._orders[lane]

    async def _leave(self, relay: Relay) -> None:
        await relay.stop()
        self._leaving.remove(relay)
        self._store = relay.session.store or self._store
        self._past.add(relay.counts)


async def _after(before: asyncio.Task[None] | None, command: Callable[[], Awaitable[None]]) -> None:
    if before is not None:
        await asyncio.wait((before,))
    await command()
