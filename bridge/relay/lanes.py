"""The life of a bridge: one relay for each lane that this process owns, shown and operated as one bridge.

`Ownership` decides which process owns which lane; here lanes that are gained get a relay, and lanes that are
lost are stopped, each by itself, while the others go on undisturbed. A bridge whose source has no lanes has
one, which operators do not see.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

import structlog
import tenacity

from bridge.errors import BridgeError, described
from bridge.relay.counts import Counts
from bridge.relay.filtering import FilterRecord
from bridge.relay.hours import Hours
from bridge.relay.lag import MEASURE_INTERVAL_MS, Lag, LagProbe, LaneLags, PartitionStatus, total
from bridge.relay.lane_relays import LaneRelays
from bridge.relay.lifecycle import Command, State, after
from bridge.relay.line import LineStatus
from bridge.relay.ownership import Ownership
from bridge.relay.relay import TRANSIENT, Relay, RelayOptions, gave_up
from bridge.runtime.clock import Clock, SystemClock
from bridge.runtime.repeated_task import RepeatedTask

#: The text of `counts.trouble` for a worker that stands by in case another one fails.
STANDBY = "standby: no lane is mine"


class LanedRelay:
    """`bridge.relay.operated.Operated` over the relays of the lanes that this process owns.

    A lane that FAILED makes the bridge show FAILED with the lane's number and reason, and is given up: the
    cause may lie in this node (a right, a certificate, a setting), and another process moves the lane. Where
    the cause lies in the lane's streams (a gap, a divergence), it fails on each worker in turn, and no worker
    owns it in the end. The other lanes go on here. When none is left, the bridge ends and leaves the group.
    `start` forgets the failed lanes and takes part again. A process that shares with no other keeps its
    lanes.

    `pause` stops the lanes and keeps their ownership: lanes that the operator paused do not go on in another
    worker (but a worker that joins gets its share, here as ever). `stop` gives the lanes back, and other
    workers take them. Outside the hours of the bridge's schedule it has no lane and no connection, as if it
    were stopped: what costs by the byte or by the minute is silent.
    """

    def __init__(
        self,
        options: RelayOptions,
        ownership: Ownership,
        make: Callable[[int], Relay],
        *,
        numbered: bool = True,
        record: FilterRecord | None = None,
        clock: Clock | None = None,
        probe: LagProbe | None = None,
    ) -> None:
        """`make` makes the relay of a lane; `numbered`: operators see the lanes; `record`: of its filter.

        `probe` asks the source what waits in lanes that are not connected; None: a relay's source says it.
        """
        self.options = options
        self._ownership = ownership
        self._record = record or FilterRecord()
        self._relays = LaneRelays(options.name, make, self._give_up, numbered=numbered)
        #: STARTING stands for every active state: the exact one follows from `_reached` and the lanes.
        self._asked = State.STOPPED
        #: The state that the ownership has reached: STARTING, CONNECTING, RUNNING; SCHEDULED: it is closed.
        self._reached = State.STARTING
        self._reason = ""
        #: The reason why the ownership cannot be opened, or is not; empty: it is open.
        self._trouble = ""
        #: How often it was lost and opened again.
        self._regained = 0
        self._life: asyncio.Task[None] | None = None
        self._ending = False
        self._clock = SystemClock() if clock is None else clock
        self._probe = probe
        self._hours = None if options.schedule is None else Hours(options.schedule, self._clock)
        self._lags = LaneLags()
        #: The lanes whose lag is shown: those that were this process's when that was known last; None: it
        #: never was.
        self._counted: frozenset[int] | None = None
        #: The source's last answer, by lane.
        self._probed_rows: Mapping[int, Sequence[PartitionStatus]] = {}
        self._measuring: RepeatedTask | None = None
        self._log = structlog.get_logger().bind(bridge=options.name)

    # -- state -------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> Mapping[int, Relay]:
        """The relays of the lanes that this process owns, by lane."""
        return self._relays.lanes

    @property
    def owned_lanes(self) -> Sequence[int] | None:
        """Implements `bridge.relay.operated.Operated.owned_lanes`."""
        return self._relays.owned_lanes

    @property
    def state(self) -> State:
        """RUNNING where every lane of this process is; also where it owns none and the ownership is known."""
        if self._asked is not State.STARTING:
            return self._asked
        if self._reached is State.SCHEDULED and self._relays.failed:
            return State.FAILED
        return self._relays.state if self._reached is State.RUNNING else self._reached

    @property
    def reason(self) -> str:
        """The reason why it is FAILED; empty otherwise."""
        return self._reason or self._relays.reason

    @property
    def counts(self) -> Counts:
        """The sum over all lanes that this process owns or owned; the first trouble of any."""
        total = self._relays.counts
        total.reconnects += self._regained
        record = self._record
        total.examined, total.taken, total.missing = record.examined, record.taken, record.shown_missing()
        total.trouble = self._trouble or total.trouble
        if not total.trouble and not self.lanes and self.state is State.RUNNING:
            total.trouble = STANDBY
        return total

    @property
    def in_flight(self) -> int:
        """Messages sent and not confirmed."""
        return self._relays.in_flight

    @property
    def line(self) -> LineStatus | None:
        """Implements `bridge.relay.operated.Operated.line`."""
        return self._relays.line

    @property
    def store(self) -> str:
        """Store identity of the target, once it has answered any lane."""
        return self._relays.store

    @property
    def connector(self) -> str:
        """Implements `bridge.relay.operated.Operated.connector`."""
        return self._relays.connector

    @property
    def connected(self) -> bool:
        """Whether a session is on in every lane of this process."""
        return self.state in (State.RUNNING, State.WAITING)

    @property
    def lag(self) -> Lag | None:
        """As `bridge.relay.operated.Operated.lag`, of the lanes that this process owns; of all lanes while it
        was never known which those are; and while it is not known, of those that it owned last.
        """
        self._look_at_lags()
        lanes = self._lags.lanes() if self._counted is None else self._counted
        if self._counted is None and not lanes:
            return None
        now_ms = self._clock.wall_ms()
        return total([self._lags.of(lane, now_ms) for lane in lanes])

    async def partitions(self) -> Sequence[PartitionStatus]:
        """As `bridge.relay.operated.Operated.partitions`: where a lane is not connected, as it was measured
        last.
        """
        connected = self._relays.partitions()
        lanes = self._probed_rows.keys() if self._counted is None else self._counted
        measured = [self._probed_rows.get(lane, ()) for lane in lanes if lane not in connected]
        return sorted(
            (row for rows in (*connected.values(), *measured) for row in rows),
            key=lambda row: (row.topic, row.partition),
        )

    @property
    def lanes_known(self) -> bool:
        """Implements `bridge.relay.operated.Operated.lanes_known`."""
        return self._counted is not None

    def _look_at_lags(self) -> None:
        """Keep what the lanes' own sources say: without a probe always, else while they are connected."""
        now_ms = self._clock.wall_ms()
        for lane, lag in self._relays.lags(connected=self._probe is not None).items():
            self._lags.measured(lane, lag, now_ms)

    async def _measure(self, probe: LagProbe) -> None:
        """Measure once what waits in lanes that are not connected, and pause."""
        self._look_at_lags()
        seeing = self._relays.lags(connected=True).keys()
        if self._counted is not None and self._counted <= seeing:
            await probe.close()
        else:
            await self._probed(probe, seeing)
        await asyncio.sleep(MEASURE_INTERVAL_MS / 1000)

    async def _probed(self, probe: LagProbe, seeing: Collection[int]) -> None:
        try:
            found = await probe.measure()
        except BridgeError:  # the bridge has the same trouble, and logs it
            await probe.close()
            return
        now_ms = self._clock.wall_ms()
        self._probed_rows = found
        for lane, rows in found.items():
            if lane not in seeing:
                self._lags.measured(lane, (sum(row.lag for row in rows), None), now_ms)

    # -- commands --------------------------------------------------------------------------------------

    async def command(self, command: Command) -> None:
        """Carry the command out; returns when it is done (start, resume and failback: begun).

        Raises:
            Conflict: the state forbids it.
        """
        before, target = self.state, after(self.state, command)
        if command is Command.FAILBACK:
            self._relays.fail_back()
            return
        match target:
            case State.STARTING if before is not State.STARTING:
                self._asked = target
                await self._begin()
            case State.PAUSING:
                self._asked = target
                await self._relays.stop_all()
                if self._asked is target:
                    self._asked = State.PAUSED
            case State.STOPPING | State.STOPPED:
                self._asked = target
                await self._end()
                if self._asked is State.STOPPING:
                    self._asked = State.STOPPED

    async def _begin(self) -> None:
        self._reason = ""
        self._relays.forgive()
        if self._life is not None and not self._ending:
            if self._reached is State.SCHEDULED:
                self._relays.own(frozenset(), start=False)  # those that had FAILED, too, begin at the opening
                return
            self._ownership.take_again()
            await self._relays.start_all()
            return
        await self._last_life()
        # Another command may have come while the last life was still giving back its lanes.
        if self._asked is State.STARTING and self._life is None:
            self._reached, self._ending = State.STARTING, False
            if self._probe is not None and self._measuring is None:
                self._measuring = RepeatedTask(
                    f"lag-{self.options.name}", partial(self._measure, self._probe)
                )
                self._measuring.begin()
            self._life = asyncio.create_task(self._live(), name=f"lanes-{self.options.name}")

    async def _end(self) -> None:
        self._reason = self._trouble = ""
        self._relays.forgive()
        if self._life is not None and not self._ending:
            self._ending = True
            self._life.cancel()
        await self._last_life()
        measuring, self._measuring = self._measuring, None
        if measuring is not None and self._probe is not None:
            await measuring.end()
            await self._probe.close()

    async def _last_life(self) -> None:
        """Wait until no task of the last life is left."""
        life = self._life
        if life is not None:
            await asyncio.wait((life,))
            if self._life is life:
                self._life = None

    # -- one life, from start to stop; ended by cancelling it ------------------------------------------

    async def _live(self) -> None:
        try:
            if self._hours is None:
                await self._own_lanes()
            else:
                await self._own_lanes_in(self._hours)
            self._fail(self._relays.reason)
        except tenacity.RetryError as error:
            self._fail(gave_up(error))
        except BridgeError as error:
            self._fail(described(error))
        except Exception as error:  # noqa: BLE001 - a bug must not look like a healthy bridge
            self._fail(described(error), error)
        finally:
            self._look_at_lags()
            self._ending = True
            try:
                self._relays.own(frozenset(), start=False)
                await self._relays.settled()
            finally:
                await self._ownership.close()

    def _fail(self, reason: str, bug: Exception | None = None) -> None:
        trace = {} if bug is None else {"exc_info": bug}
        self._log.error("bridge-failed", reason=reason, **trace)
        if not self._ending:
            self._ending = True
            self._reason, self._trouble = reason, ""
            self._asked = State.FAILED

    def _give_up(self, lane: int) -> None:
        self._look_at_lags()
        self._ownership.give_up(lane)
        owned = self._ownership.owned
        if lane not in owned:
            self._log.warning("lane-given-up", lane=lane, owned=sorted(owned))

    async def _own_lanes_in(self, hours: Hours) -> None:
        """As `_own_lanes`, in these hours alone. When they end, batches in flight are settled, and lanes and
        connections are given back.
        """
        while True:
            if not hours.are_on:
                await self._rest_until(hours)
            owning = asyncio.create_task(self._own_lanes())
            closing = asyncio.create_task(hours.closed())
            try:
                await asyncio.wait((owning, closing), return_when=asyncio.FIRST_COMPLETED)
                if owning.done():
                    return owning.result()
                closing.result()
            finally:
                owning.cancel()
                closing.cancel()
                await asyncio.gather(owning, closing, return_exceptions=True)
                del owning, closing  # their errors refer to this frame
            self._look_at_lags()
            self._rests(hours)
            failed = self._relays.failed & self._relays.lanes.keys()  # an operator has to look at these
            self._relays.own(failed, start=False)
            await self._relays.settled()
            await self._ownership.close()

    def _rests(self, hours: Hours) -> None:
        """Show that the bridge waits for its hours."""
        if self._reached is not State.SCHEDULED and not hours.are_on:
            self._reached, self._trouble = State.SCHEDULED, hours.waits_for
            self._log.info("bridge-outside-hours", reason=self._trouble)

    async def _rest_until(self, hours: Hours) -> None:
        """Wait for the opening, and a moment more by chance: others may have the same hours."""
        self._rests(hours)
        await hours.opened()
        await asyncio.sleep(self.options.backoff.spread_ms() / 1000)
        self._trouble = ""

    async def _own_lanes(self) -> None:
        """Relay the lanes of this process; returns when all of them have FAILED."""
        lost, delay_ms = False, 0
        while True:
            await self._connect(lost=lost, delay_ms=delay_ms)
            for lane in self._relays.failed:  # closed and opened again, the ownership has forgotten them
                self._ownership.give_up(lane)
            owned = self._ownership.owned
            try:
                while True:
                    self._relays.own(owned, start=self._asked is State.STARTING)
                    self._counted = owned | self._relays.failed
                    self._reached = State.RUNNING
                    if self._relays.given_up:
                        return
                    owned = await self._ownership.changed(owned)
            except TRANSIENT as error:
                delay_ms = self.options.backoff.delay_ms(1)
                self._disconnected(error, delay_ms)
                self._look_at_lags()
                self._relays.own(frozenset(), start=False)
            lost = True

    async def _connect(self, *, lost: bool, delay_ms: int) -> None:
        """Open the ownership as often as the settings say, waiting as a `Relay` does for its ends."""
        self._reached = State.CONNECTING
        if lost:
            await asyncio.sleep(delay_ms / 1000)
        retrying = self.options.retrying(lost=lost, before_wait=self._disconnected)
        await retrying(self._ownership.open)
        self._regained += lost
        self._trouble = ""

    def _disconnected(self, error: BaseException | None, delay_ms: int) -> None:
        """Log the error, unless the same was logged last."""
        trouble, self._trouble = self._trouble, described(error)
        if self._trouble != trouble:
            self._log.warning("bridge-disconnected", reason=self._trouble, **{"retry-in-ms": delay_ms})
