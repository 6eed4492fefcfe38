"""The life of one lane: connect, relay, reconnect, stop or fail.

The pump moves messages while both ends are open; this module decides everything between two connections. What
an operator commands, and which lanes run here, is `bridge.relay.lanes`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

import structlog
import tenacity

from bridge.errors import (
    BridgeError,
    Conflict,
    DiskFull,
    JournalUnavailable,
    SourceUnavailable,
    TargetBusy,
    TargetUnavailable,
    TooBusy,
    described,
)
from bridge.relay.backoff import Backoff
from bridge.relay.connectors import Connector, Connectors
from bridge.relay.counts import Counts
from bridge.relay.dead_letters import DeadLetterSink
from bridge.relay.lag import Lag, PartitionStatus
from bridge.relay.lifecycle import State
from bridge.relay.line import Line, LineStatus
from bridge.relay.pacing import Pacer
from bridge.relay.ports import Source, Target
from bridge.relay.pump import Pump
from bridge.relay.session import BATCH_BYTES, DEFAULT_PRIORITY, Session
from bridge.relay.shared_lines import SharedLines
from bridge.relay.stages import Stage
from bridge.relay.transforming import Transforming
from bridge.relay.window import Window
from bridge.runtime.clock import Clock
from bridge.runtime.repeated_task import RepeatedTask
from bridge.runtime.schedule import Schedule

#: Errors of either end that pass by themselves.
TRANSIENT: Final = (TargetUnavailable, SourceUnavailable, JournalUnavailable, DiskFull, TooBusy)


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """A bridge's settings, as far as its life is concerned. Times in milliseconds, sizes in bytes."""

    name: str
    backoff: Backoff = field(default_factory=Backoff)
    _: KW_ONLY
    #: N means N + 1 tries, -1 endless.
    initial_connect_attempts: int = -1
    reconnect_attempts: int = -1
    #: Of these, how many go to the connector used last before the others are tried, too; -1 all.
    reconnect_attempts_same_node: int = 10
    #: Whether it returns to the first connector by itself, once that can be reached again.
    fail_back: bool = False
    #: Whether it goes on at another store than last time (`failover`).
    changes_store: bool = False
    confirmation_window_size: int = 10 * 1024 * 1024
    producer_window_size: int = BATCH_BYTES
    #: Of bridges over one connector the higher one goes first.
    priority: int = DEFAULT_PRIORITY
    #: -1: without limit.
    pending_ack_timeout_ms: int = 60_000
    #: The hours in which it sends; None: always.
    schedule: Schedule | None = None

    def retrying(
        self,
        *,
        lost: bool,
        before_wait: Callable[[BaseException | None, int], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> tenacity.AsyncRetrying:
        """Tries to connect as often as the settings say, while errors are `TRANSIENT`.

        Args:
            lost: True after the loss of a connection; False for the first one.
            before_wait: called before each wait with the error and the wait in milliseconds.
            sleep: waits so many seconds.
        """

        def announce(retry: tenacity.RetryCallState) -> None:
            error = retry.outcome.exception() if retry.outcome is not None else None
            delay_s = retry.next_action.sleep if retry.next_action is not None else 0
            before_wait(error, round(delay_s * 1000))

        attempts = self.reconnect_attempts if lost else self.initial_connect_attempts
        return tenacity.AsyncRetrying(
            stop=tenacity.stop_never if attempts < 0 else tenacity.stop_after_attempt(attempts + 1),
            wait=lambda retry: self._delay_ms(retry) / 1000,
            retry=tenacity.retry_if_exception_type(TRANSIENT),
            sleep=sleep,
            before_sleep=announce,
        )

    def _delay_ms(self, retry: tenacity.RetryCallState) -> int:
        """The wait after a try: as long as the target asks for, at least, where it asks."""
        delay_ms = self.backoff.delay_ms(retry.attempt_number + 1)
        error = None if retry.outcome is None else retry.outcome.exception()
        if isinstance(error, TargetBusy):
            delay_ms = max(delay_ms, self.backoff.asked_ms(error.retry_after_ms))
        return delay_ms

    def stays(self, attempt: int) -> bool:
        """Whether this attempt after the loss of a connection, from 1 on, goes to the same connector."""
        most = self.reconnect_attempts_same_node
        return most < 0 or attempt <= most


def gave_up(error: tenacity.RetryError) -> str:
    """The reason of a bridge that is FAILED because it has used up its attempts."""
    last = error.last_attempt
    return f"no connection after {last.attempt_number} attempts: {described(last.exception())}"


@dataclass(frozen=True, slots=True)
class LaneEnds:
    """The ends of one lane, not open, and the questions that its source answers for operators."""

    source: Source
    target: Target
    #: None: a message that the target refuses for good ends the bridge.
    dead_letters: DeadLetterSink | None = None
    #: Messages that wait at the source, and when the oldest came; None: the source does not know it.
    lag: Callable[[], Lag | None] = lambda: None
    #: The source's partitions that stand still while others go on, by topic and number, each with the reason.
    parked: Callable[[], Mapping[tuple[str, int], str]] = dict
    #: What the source waits for although the bridge has no trouble, one text each.
    waits: Callable[[], Sequence[str]] = tuple
    #: The source's partitions as they are read; none where it has none.
    partitions: Callable[[], Sequence[PartitionStatus]] = tuple
    #: Name of the target's connector; empty: it has none.
    connector: str = ""
    #: Further ways to a target, in the order in which they are tried.
    failovers: Sequence[Connector] = ()


class Relay:
    """One lane of a bridge, from its start to its stop or failure, as often as it is started."""

    def __init__(  # noqa: PLR0913 - the parts of one lane
        self,
        options: RelayOptions,
        ends: LaneEnds,
        *,
        clock: Clock,
        counts: Counts | None = None,
        stages: Sequence[Stage] = (),
        transforming: Transforming | None = None,
        pacer: Pacer | None = None,
        shared: SharedLines | None = None,
    ) -> None:
        """`counts` are the target's own, too, where it was made with them. `pacer`: of the bridge; None: it
        has no `max-rate`. `shared`: the lanes of the process that lines are shared with; None: it is alone.
        """
        shared = SharedLines() if shared is None else shared
        self.options = options
        self.session = Session(
            bridge=options.name,
            source=ends.source,
            target=ends.target,
            clock=clock,
            window=Window(options.confirmation_window_size),
            line=Line(options.producer_window_size),
            shared=shared,
            priority=options.priority,
            backoff=options.backoff,
            dead_letters=ends.dead_letters,
            changes_store=options.changes_store,
            records_start=options.changes_store or bool(ends.failovers),
            counts=Counts() if counts is None else counts,
            stages=stages,
            transforming=transforming,
            pacer=pacer,
        )
        first = Connector(ends.connector, ends.target, ends.dead_letters)
        self._connectors = Connectors(options.name, (first, *ends.failovers))
        #: The reason why it is FAILED; empty otherwise.
        self.reason = ""
        #: Called when it has FAILED, and its ends are closed.
        self.on_failed: Callable[[], None] = lambda: None
        #: As in `LaneEnds`.
        self.lag, self.parked, self.waits, self.partitions = (
            ends.lag,
            ends.parked,
            ends.waits,
            ends.partitions,
        )
        self._shared = shared
        self._state = State.STOPPED
        self._stop = asyncio.Event()
        #: Ends the connection, once what was sent is answered: to stop, or to fail back.
        self._end = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: The trouble that was logged last; the same is not logged again while it lasts.
        self._logged = ""
        self._log = structlog.get_logger().bind(bridge=options.name)

    @property
    def state(self) -> State:
        """STOPPED, STARTING, CONNECTING, RUNNING, WAITING, STOPPING or FAILED."""
        if self._state is State.RUNNING and self.session.stalled:
            return State.WAITING
        return self._state

    @property
    def connected(self) -> bool:
        """Whether both ends are open."""
        return self._state is State.RUNNING

    @property
    def counts(self) -> Counts:
        """The counts since it was made."""
        return self.session.counts

    @property
    def line_status(self) -> LineStatus:
        """Its line, as operators see it."""
        return self.session.line_status(asyncio.get_running_loop().time(), connected=self.connected)

    @property
    def connector(self) -> str:
        """Name of the connector in use, or used last; empty: it has none."""
        return self._connectors.name

    # -- start and stop --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin, unless it runs already. Not called while it stops."""
        if self._state not in (State.STOPPED, State.FAILED):
            return
        self.reason = ""
        self._state = State.STARTING
        await self._last_life()
        self._stop.clear()
        self._end.clear()
        self._task = asyncio.create_task(self._live(), name=f"relay-{self.options.name}")

    async def stop(self) -> None:
        """End; returns when the messages in flight are answered and both ends are closed. One that has FAILED
        stays so.
        """
        if self._state not in (State.STOPPED, State.FAILED):
            self._state = State.STOPPING
            self._stop.set()
            self._end.set()
        await self._last_life()
        if self._state is State.STOPPING:
            self._state = State.STOPPED

    def fail_back(self) -> None:
        """Go back to the first connector, once what was sent is answered; where that does not answer, the
        bridge goes on where it was.

        Raises: Conflict: there is no other.
        """
        if self._connectors.only:
            raise Conflict("the bridge has one connector: there is nowhere to go back to", "connector")
        if not self._connectors.at_first:
            self._connectors.returns = True
            self._end.set()

    async def _last_life(self) -> None:
        """Wait until no task of the last life is left."""
        if self._task is not None:
            await asyncio.wait((self._task,))
            self._task = None

    # -- one life, from start to stop ------------------------------------------------------------------

    async def _live(self) -> None:
        self._shared.join(self.session)
        try:
            await self._relay_until_stopped()
        except tenacity.RetryError as error:
            self._fail(gave_up(error))
        except BridgeError as error:
            self._fail(described(error))
        except Exception as error:  # noqa: BLE001 - a bug must not look like a healthy bridge
            self._fail(described(error), error)
        finally:
            self._shared.leave(self.session)
            try:
                await self.session.source.close()
            finally:
                await self.session.target.close()
        if self._state is State.FAILED:
            self.on_failed()

    def _fail(self, reason: str, bug: Exception | None = None) -> None:
        trace = {} if bug is None else {"exc_info": bug}
        self._log.error("bridge-failed", reason=reason, **trace)
        if not self._stop.is_set():
            self.reason = reason
            self._state = State.FAILED

    async def _relay_until_stopped(self) -> None:
        lost, delay_ms = False, 0
        while await self._connect(lost=lost, delay_ms=delay_ms):
            if not self._stop.is_set() and not self._connectors.returns:
                self._end.clear()
            self._show(State.RUNNING)
            delay_ms = self.options.backoff.delay_ms(1)
            try:
                await self._relay()
            except TRANSIENT as error:
                self._disconnected(error, delay_ms, self.session.at_target)
            if self._stop.is_set():
                return
            await self.session.target.close()
            lost = True

    async def _relay(self) -> None:
        """Relay on this connection until it is to end, or an end fails."""
        watching = self.options.fail_back and not self._connectors.at_first
        watch = RepeatedTask(f"fail-back-{self.options.name}", self._watch_first, until=self._end.is_set)
        if watching:
            watch.begin()
        try:
            await Pump(self.session).run(self._end, self.options.pending_ack_timeout_ms)
        finally:
            await watch.end()

    async def _watch_first(self) -> None:
        """Fail back when the first connector answers, with a store where the bridge may go on."""
        first = self._connectors.first.target
        await asyncio.sleep(self.options.backoff.max_retry_interval_ms / 1000)
        try:
            opened = await first.open([])
        except BridgeError:
            return  # it is away still; the bridge has another
        finally:
            await first.close()
        if self.options.changes_store or self.session.store in (opened.store, *opened.inherited):
            self.fail_back()

    async def _connect(self, *, lost: bool, delay_ms: int) -> bool:
        """Open both ends, as often as the settings say; False: asked to stop meanwhile.

        A first start tries at once; after the loss of a live link it waits `delay_ms` first, by
        `retry-interval`. From then on both wait alike (semantics.md R6).
        """
        self._show(State.CONNECTING)
        if lost and not self._connectors.returns:
            await self._wait(delay_ms / 1000)
        retrying = self.options.retrying(lost=lost, before_wait=self._disconnected, sleep=self._wait)
        async for attempt in retrying:
            with attempt:
                same = lost and self.options.stays(attempt.retry_state.attempt_number)
                if not await self._unless_stopped(self._connectors.connect(self.session, same=same)):
                    return False
        self.counts.reconnects += lost
        self._logged = ""
        where = {"connector": self.connector} if self.connector else {}
        self._log.info("bridge-connected", store=self.session.store, **where)
        return True

    # -- between connections ---------------------------------------------------------------------------

    def _show(self, state: State) -> None:
        """Change the state, unless it is asked to stop."""
        if not self._stop.is_set():
            self._state = state

    def _disconnected(
        self, error: BaseException | None, delay_ms: int, at: Callable[[str], str] = lambda reason: reason
    ) -> None:
        """Log the error, unless the same was logged last: a target that stays away is one line, not
        thousands. `at` adds the target's name where the error is the loss of a connection.
        """
        self.counts.trouble = (
            at(described(error)) if isinstance(error, TargetUnavailable) else described(error)
        )
        if self.counts.trouble != self._logged and not self._stop.is_set():
            self._logged = self.counts.trouble
            self._log.warning("bridge-disconnected", reason=self._logged, **{"retry-in-ms": delay_ms})

    async def _wait(self, delay_s: float) -> None:
        """Sleep; less where it is asked to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._stop.wait()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Finish `work`, or drop it and answer False when asked to stop."""
        if self._stop.is_set():
            work.close()
            return False
        working = asyncio.create_task(work)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if self._stop.is_set():
                return False
            await working
            return True
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
            del working, stopping  # their errors refer to this frame
