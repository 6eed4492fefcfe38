"""A bridge's life: connect, relay, reconnect; start, stop, pause, resume, fail.

The pump moves messages while both ends are open; this module decides everything between two sessions, always
from the target's word.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
import tenacity

from bridge.errors import (
    BridgeError,
    DiskFull,
    JournalUnavailable,
    SourceUnavailable,
    TargetRefused,
    TargetUnavailable,
    TooBusy,
    described,
)
from bridge.messages.batch import Batch
from bridge.relay import divergence
from bridge.relay.backoff import Backoff
from bridge.relay.dead_letters import Burier, DeadLetterFailed
from bridge.relay.lifecycle import Command, State, after
from bridge.relay.ports import Receipt, Source, Stream, Target
from bridge.relay.pump import Counts, Memory, Pump
from bridge.relay.window import Window
from bridge.runtime.clock import Clock

#: Errors of either end that pass by themselves.
TRANSIENT: Final = (TargetUnavailable, SourceUnavailable, JournalUnavailable, DiskFull, TooBusy)


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """A bridge's settings, as far as its life is concerned. Times in milliseconds, sizes in bytes."""

    name: str
    backoff: Backoff = field(default_factory=Backoff)
    #: N means N + 1 tries, -1 endless.
    initial_connect_attempts: int = -1
    reconnect_attempts: int = -1
    confirmation_window_size: int = 10 * 1024 * 1024
    #: -1: without limit.
    pending_ack_timeout_ms: int = 60_000

    def retrying(
        self,
        *,
        lost: bool,
        told: Callable[[BaseException | None, int], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> tenacity.AsyncRetrying:
        """Tries to connect as often as the settings say, while errors are `TRANSIENT`.

        Args:
            lost: True after the loss of a connection; False for the first one.
            told: called before each wait with the error and the wait in milliseconds.
            sleep: waits so many seconds.
        """

        def tell(retry: tenacity.RetryCallState) -> None:
            error = retry.outcome.exception() if retry.outcome is not None else None
            delay_s = retry.next_action.sleep if retry.next_action is not None else 0
            told(error, round(delay_s * 1000))

        attempts = self.reconnect_attempts if lost else self.initial_connect_attempts
        return tenacity.AsyncRetrying(
            stop=tenacity.stop_never if attempts < 0 else tenacity.stop_after_attempt(attempts + 1),
            wait=lambda retry: self.backoff.delay_ms(retry.attempt_number + 1) / 1000,
            retry=tenacity.retry_if_exception_type(TRANSIENT),
            sleep=sleep,
            before_sleep=tell,
        )


def gave_up(error: tenacity.RetryError) -> str:
    """The reason of a bridge that is FAILED because it has used up its attempts."""
    last = error.last_attempt
    return f"no connection after {last.attempt_number} attempts: {described(last.exception())}"


class Relay:
    """One bridge. Commands may come at any time; `state` is what operations show."""

    def __init__(  # noqa: PLR0913 - its ends, and what is seen of a source, by name
        self,
        options: RelayOptions,
        source: Source,
        target: Target,
        *,
        clock: Clock,
        dead_letters: Burier | None,
        lag: Callable[[], tuple[int, int | None]] | None = None,
        parked: Callable[[], Sequence[str]] = tuple,
        waits: Callable[[], Sequence[str]] = tuple,
        counts: Counts | None = None,
    ) -> None:
        self.options = options
        self.state = State.STOPPED
        #: The target's own, too, where it was made with them.
        self.counts = Counts() if counts is None else counts
        self.window = Window(options.confirmation_window_size)
        #: The reason why it is FAILED; empty otherwise.
        self.reason = ""
        #: Called when it has FAILED, and its ends are closed.
        self.on_failed: Callable[[], None] = lambda: None
        #: Store identity of the target, once it has answered.
        self.store = ""
        self._source = source
        self._target = target
        self._clock = clock
        self._dead_letters = dead_letters
        self._lag = lag
        #: Where the source is parked, and why, one text for each partition.
        self.parked = parked
        #: What the source waits for although the bridge has no trouble, one text each.
        self.waits = waits
        self._streams: dict[str, Stream] = {}
        #: Identities of the streams that the source had when it was last asked.
        self._there: frozenset[str] = frozenset()
        self._memory = Memory()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        #: The trouble that was logged last; the same is not logged again while it lasts.
        self._logged = ""
        #: Rules by which the target took no more of a stream and that were logged on this connection.
        self._rules_logged: set[str] = set()
        self._log = structlog.get_logger().bind(bridge=options.name)

    @property
    def connected(self) -> bool:
        """Whether a session is on."""
        return self.state is State.RUNNING

    @property
    def in_flight(self) -> int:
        """Messages sent and not confirmed."""
        return self.window.messages

    @property
    def lag(self) -> tuple[int, int | None] | None:
        """Implements `bridge.relay.operated.Operated.lag`."""
        return None if self._lag is None else self._lag()

    @property
    def held(self) -> None:
        """Implements `bridge.relay.operated.Operated.held`: it is one lane at most, and does not know
        which.
        """

    # -- commands --------------------------------------------------------------------------------------

    async def command(self, command: Command) -> None:
        """Carry the command out; returns when it is done (start and resume: begun).

        Raises:
            Conflict: the state forbids it.
        """
        before, target = self.state, after(self.state, command)
        self.state = target
        match target:
            case State.STARTING if before is not State.STARTING:
                await self._begin()
            case State.STOPPING:
                await self._end(target, State.STOPPED)
            case State.PAUSING:
                await self._end(target, State.PAUSED)
            case State.STOPPED:
                self.reason = ""
                await self._last_life()

    async def _begin(self) -> None:
        self.reason = ""
        await self._last_life()
        # Another command may have come while the last life was still closing its ends.
        if self.state is State.STARTING and self._task is None:
            self._stop.clear()
            self._task = asyncio.create_task(self._live(), name=f"relay-{self.options.name}")

    async def _end(self, ending: State, ended: State) -> None:
        self._stop.set()
        await self._last_life()
        if self.state is ending:
            self.state = ended

    async def _last_life(self) -> None:
        """Wait until no task of the last life is left."""
        task = self._task
        if task is not None:
            await asyncio.wait((task,))
            if self._task is task:
                self._task = None

    # -- one life, from start to stop ------------------------------------------------------------------

    async def _live(self) -> None:
        try:
            await self._relay_until_stopped()
        except tenacity.RetryError as error:
            self._fail(gave_up(error))
        except BridgeError as error:
            self._fail(described(error))
        except Exception as error:  # noqa: BLE001 - a bug must not look like a healthy bridge
            self._fail(described(error), error)
        finally:
            try:
                await self._source.close()
            finally:
                await self._target.close()
        if self.state is State.FAILED:
            self.on_failed()

    def _fail(self, reason: str, bug: Exception | None = None) -> None:
        trace = {} if bug is None else {"exc_info": bug}
        self._log.error("bridge-failed", reason=reason, **trace)
        if not self._stop.is_set():
            self.reason = reason
            self.state = State.FAILED

    async def _relay_until_stopped(self) -> None:
        lost = False
        while await self._connect(lost=lost):
            try:
                await self._session()
                return
            except TRANSIENT as error:
                self._disconnected(error, self.options.backoff.delay_ms(1))
                await self._target.close()
            lost = True

    async def _connect(self, *, lost: bool) -> bool:
        """Open both ends, as often as the settings say; False: asked to stop meanwhile.

        A first start tries at once; after the loss of a live link it waits `retry-interval` first. From then
        on both wait alike (semantics.md R6).
        """
        self._show(State.CONNECTING)
        if lost:
            await self._wait(self.options.backoff.delay_ms(1) / 1000)
        retrying = self.options.retrying(lost=lost, told=self._disconnected, sleep=self._wait)
        async for attempt in retrying:
            with attempt:
                if not await self._unless_stopped(self._open_ends()):
                    return False
        self.counts.reconnects += lost
        self.counts.trouble = self._logged = ""
        self._rules_logged.clear()
        self._log.info("bridge-connected", store=self.store)
        return True

    async def _session(self) -> None:
        """One session on one connection; returns when stopped."""
        self._show(State.RUNNING)
        pump = Pump(
            source=self._source,
            target=self._target,
            window=self.window,
            counts=self.counts,
            clock=self._clock,
            memory=self._memory,
            bury=self._bury,
            open_new_streams=self._open_new_streams,
            open_again=self._open_again,
            backoff=self.options.backoff,
            show_waiting=self._show_waiting,
            log_wait=self._log_wait,
        )
        await pump.run(self._stop, self.options.pending_ack_timeout_ms)

    def _show_waiting(self, waiting: Collection[str]) -> None:
        """Show CONNECTING while no stream can go on, and RUNNING otherwise."""
        self._show(State.CONNECTING if waiting and self._there <= set(waiting) else State.RUNNING)

    def _log_wait(self, reason: str, delay_ms: int) -> None:
        """Log why a stream waits: each rule once on a connection."""
        rule, _, _ = reason.partition(":")  # its numbers differ each time
        if rule not in self._rules_logged:
            self._rules_logged.add(rule)
            self._log.warning("bridge-waits", reason=reason, **{"retry-in-ms": delay_ms})

    # -- between sessions ------------------------------------------------------------------------------

    def _show(self, state: State) -> None:
        """Change the state, unless a command has already."""
        if not self._stop.is_set():
            self.state = state

    def _disconnected(self, error: BaseException | None, delay_ms: int) -> None:
        """Log the error, unless the same was logged last: a target that stays away is one line, not
        thousands.
        """
        self.counts.trouble = described(error)
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

    # -- opening ---------------------------------------------------------------------------------------

    async def _look(self) -> Sequence[Stream]:
        """Every stream that the source has now."""
        streams = await self._source.streams()
        self._there = frozenset(stream.identity for stream in streams if not stream.empty)
        return streams

    async def _open_ends(self) -> None:
        await self._open(await self._look())

    async def _open_new_streams(self) -> None:
        await self._open([s for s in await self._look() if s.identity not in self._streams])

    async def _open_again(self, identities: Collection[str]) -> Collection[str]:
        """Open again streams of which a batch was not taken; answers which of them the source has."""
        wanted = [stream for stream in await self._look() if stream.identity in identities]
        if wanted:
            await self._open(wanted)
        return {stream.identity for stream in wanted}

    async def _open(self, streams: Sequence[Stream]) -> None:
        """Open streams: ask for the target's record, run the divergence check, and move the source to the
        target's next.
        """
        opened = await self._target.open(streams)
        remembered = await self._source.remembered()
        for stream in streams:
            divergence.check(stream, remembered.get(stream.identity), opened, self.options.name)
        self.store = opened.store
        resume = {stream.identity: opened.streams[stream.identity] for stream in streams}
        await self._source.open(resume, opened.store)
        for stream in streams:
            self._streams[stream.identity] = stream
            self._memory.count_unconfirmed(stream.identity, resume[stream.identity].next, self.counts)
            if resume[stream.identity].next is None:
                self._memory.unseen.add(stream.identity)
            else:
                self._memory.unseen.discard(stream.identity)

    async def _bury(self, batch: Batch, receipt: Receipt) -> None:
        """Store a refused message's dead letter.

        Raises: DeadLetterFailed: there is no room for it now. TargetRefused, TargetUnavailable.
        """
        where = f"{batch.stream} position {receipt.position}"
        if self._dead_letters is None:
            raise TargetRefused(
                f"{where} was refused ({receipt.reason}), and dead-letter-address is empty",
                key="dead-letter-address",
                found=receipt.position,
            )
        try:
            await self._dead_letters.bury(batch, receipt, self._streams[batch.stream].address)
        except DeadLetterFailed as error:
            detail = f"the dead letter of {where} ({receipt.reason}) was not stored: {error}"
            if error.for_good:
                raise TargetRefused(detail) from error
            raise DeadLetterFailed(detail, for_good=False) from error
        self._log.warning(
            "dead-letter", stream=batch.stream, position=receipt.position, reason=receipt.reason
        )
