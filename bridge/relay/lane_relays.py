"""The relays of the lanes that this process owns: each begun and stopped by itself, seen as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import structlog

from bridge.relay.lifecycle import Command, State
from bridge.relay.pump import Counts
from bridge.relay.relay import Relay


@dataclass(frozen=True, slots=True)
class _Failed:
    """A lane that has FAILED here."""

    reason: str
    #: As `LaneRelays.lag`, of this lane when it failed.
    lag: tuple[int, int | None]


class LaneRelays:
    """Commands to one lane take effect in their order; no lane waits for another.

    A lane that is lost and gained again gets a new relay, which begins when the old one has stopped.
    """

    def __init__(self, bridge: str, make: Callable[[int], Relay], on_failed: Callable[[int], None]) -> None:
        """`on_failed` is called with each lane that has FAILED, once its ends are closed."""
        self._make = make
        self._on_failed = on_failed
        self._lanes: dict[int, Relay] = {}
        #: Lanes that have FAILED here, until `forgive`: also those that have been given up since.
        self._failed: dict[int, _Failed] = {}
        #: Relays of lanes that this process does not own any more, until they have stopped.
        self._leaving: list[Relay] = []
        #: The counts of relays that are gone.
        self._past = Counts()
        self._store = ""
        #: The last command to each lane, until it is done.
        self._orders: dict[int, asyncio.Task[None]] = {}
        self._log = structlog.get_logger().bind(bridge=bridge)

    # -- state -------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> Mapping[int, Relay]:
        """The relays by lane, in order."""
        return dict(sorted(self._lanes.items()))

    @property
    def state(self) -> State:
        """FAILED where a lane has FAILED, else RUNNING where all are, else CONNECTING."""
        states = {relay.state for relay in self._lanes.values()}
        if self._failed or State.FAILED in states:
            return State.FAILED
        return State.RUNNING if states <= {State.RUNNING} else State.CONNECTING

    @property
    def reason(self) -> str:
        """The reason why the first FAILED lane has failed, and the numbers of the others; empty: no lane
        has.
        """
        failing = {lane: relay.reason for lane, relay in self._lanes.items() if relay.reason}
        reasons = sorted(({lane: failed.reason for lane, failed in self._failed.items()} | failing).items())
        if not reasons:
            return ""
        (first, reason), others = reasons[0], [str(lane) for lane, _ in reasons[1:]]
        return f"lane {first}: {reason}" + (f" (FAILED too: lane {', '.join(others)})" if others else "")

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
            _add(total, relay.counts)
        parked = [(lane, text) for lane, relay in self.lanes.items() for text in relay.parked()]
        total.parked = len(parked)
        waits = [(lane, text) for lane, relay in self.lanes.items() for text in relay.waits()]
        troubles = [(lane, relay.counts.trouble) for lane, relay in self.lanes.items()] + parked + waits
        troubles += [(lane, relay.counts.throttled) for lane, relay in self.lanes.items()]
        total.trouble = next((f"lane {lane}: {trouble}" for lane, trouble in troubles if trouble), "")
        return total

    @property
    def in_flight(self) -> int:
        """Messages sent and not confirmed."""
        return sum(relay.in_flight for relay in self._all())

    @property
    def store(self) -> str:
        """Store identity of the target, once it has answered any lane."""
        self._store = next((relay.store for relay in self._all() if relay.store), self._store)
        return self._store

    @property
    def lag(self) -> tuple[int, int | None]:
        """Messages that wait in the lanes of this process, and when the oldest came; (0, None): none waits.

        The lag of a lane that was given up is the one at that time: perhaps no other worker moves it.
        """
        lags = [lag for relay in self._lanes.values() if (lag := relay.lag) is not None]
        lags += [failed.lag for lane, failed in self._failed.items() if lane not in self._lanes]
        oldest_ms = min((since_ms for _, since_ms in lags if since_ms is not None), default=None)
        return sum(messages for messages, _ in lags), oldest_ms

    def _all(self) -> Iterable[Relay]:
        return (*self._lanes.values(), *self._leaving)

    # -- commands ----------------------------------------------------------------------------------------

    def own(self, owned: frozenset[int], *, start: bool) -> None:
        """Have a relay for each of these lanes and no other. Begun here; `settled` waits until it is done.

        `start`: relays of gained lanes begin; otherwise they wait for an `order_all`.
        """
        gained, lost = sorted(owned - self._lanes.keys()), sorted(self._lanes.keys() - owned)
        if gained or lost:
            self._log.info("lanes", owned=sorted(owned), gained=gained, lost=lost)
        for lane in lost:
            relay = self._lanes.pop(lane)
            self._leaving.append(relay)
            self._order(lane, relay, Command.STOP)
        for lane in gained:
            self._lanes[lane] = relay = self._make(lane)
            relay.on_failed = partial(self._fail, lane, relay)
            if start:
                self._order(lane, relay, Command.START)

    def forgive(self) -> None:
        """Forget the lanes that have FAILED."""
        self._failed.clear()

    def _fail(self, lane: int, relay: Relay) -> None:
        if self._lanes.get(lane) is relay:
            self._failed[lane] = _Failed(relay.reason, relay.lag or (0, None))
            self._on_failed(lane)

    async def order_all(self, command: Command) -> None:
        """Command every lane of this process; returns when all have done so (start: begun)."""
        await asyncio.gather(*[self._order(lane, relay, command) for lane, relay in self._lanes.items()])

    async def settled(self) -> None:
        """Wait until every command is done."""
        await asyncio.gather(*self._orders.values())

    def _order(self, lane: int, relay: Relay, command: Command) -> asyncio.Task[None]:
        order = asyncio.create_task(self._obey(self._orders.get(lane), relay, command))
        self._orders[lane] = order
        order.add_done_callback(lambda done: self._forget(lane, done))
        return order

    def _forget(self, lane: int, order: asyncio.Task[None]) -> None:
        if self._orders.get(lane) is order:
            del self._orders[lane]

    async def _obey(self, before: asyncio.Task[None] | None, relay: Relay, command: Command) -> None:
        if before is not None:
            await asyncio.wait((before,))
        at_rest = relay.state in (State.STOPPED, State.FAILED)
        if not (at_rest and command is Command.PAUSE):  # a conflict for a single relay, not here
            await relay.command(command)
        if relay in self._leaving and command is Command.STOP:
            self._leaving.remove(relay)
            self._store = relay.store or self._store
            _add(self._past, relay.counts)


def _add(total: Counts, part: Counts) -> None:
    total.sent += part.sent
    total.acknowledged += part.acknowledged
    total.refused += part.refused
    total.replayed += part.replayed
    total.repeated += part.repeated
    total.resent += part.resent
    total.throttled_ms += part.throttled_ms
    total.reconnects += part.reconnects
    total.last_progress_ms = max(total.last_progress_ms, part.last_progress_ms)
