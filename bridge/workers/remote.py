"""A bridge whose lanes run in worker processes, as its operator sees it: one bridge.

The wanted state is kept here, so that a worker that starts late, or again, is told it first. Every change of
it is an order with a number; a worker's report names the last order it has carried out, so a report from
before an order is never taken for an answer to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bridge.errors import Conflict
from bridge.relay.counts import Counts
from bridge.relay.lag import Lag, PartitionStatus, total
from bridge.relay.lanes import STANDBY
from bridge.relay.lifecycle import Command, State, after
from bridge.relay.line import LineStatus
from bridge.workers.channel import Ask, Report, Rows, Want, Wanted

#: Longest that workers may take to send their partitions.
ANSWER_TIMEOUT_MS: Final = 2_000

_WANTED = {
    Command.START: Wanted.RUNNING,
    Command.RESUME: Wanted.RUNNING,
    Command.PAUSE: Wanted.PAUSED,
    Command.STAY_PAUSED: Wanted.PAUSED,
    Command.STOP: Wanted.STOPPED,
}
#: The state of a bridge that has not reached the wanted one, and its state once it has.
_UNDER_WAY = {Wanted.PAUSED: State.PAUSING, Wanted.STOPPED: State.STOPPING}
_ARRIVED = {Wanted.PAUSED: State.PAUSED, Wanted.STOPPED: State.STOPPED}


@dataclass(slots=True)
class _Question:
    """A question to all workers for their partitions."""

    #: The workers that have not answered, or not all of it.
    open: set[int]
    rows: list[PartitionStatus] = field(default_factory=list)


@dataclass(slots=True)
class _Seen:
    """A worker whose process runs."""

    #: The latest order when it started. A new process relays nothing before it has its orders, so this one
    #: needs no answer where it was to stop or to pause.
    since: int
    #: None: it has not reported yet.
    report: Report | None = None

    @property
    def order(self) -> int:
        return self.since if self.report is None else max(self.since, self.report.order)


class RemoteBridge:
    """Implements `bridge.relay.operated.Operated`; its supervisor reports workers and their reports to it."""

    def __init__(self, name: str, announce: Callable[[Want | Ask], None], order: int = 0) -> None:
        """`announce` hands an order or a question to every worker that lives; `order`: the orders count from
        there on.
        """
        self.name = name
        self._announce = announce
        self._wanted = Wanted.STOPPED
        self._order = order
        self._workers: dict[int, _Seen] = {}
        #: The counts of workers that are gone: a counter never goes back.
        self._gone = Counts()
        #: The lanes of such workers, until another worker has reported that it owns them.
        self._orphaned: frozenset[int] = frozenset()
        self._store = ""
        #: Questions that were asked, and those that wait for answers, by number.
        self._questions = 0
        self._asked: dict[int, _Question] = {}
        #: Set, and replaced, when a worker has reported or is gone.
        self._heard = asyncio.Event()

    # -- state, for operations and metrics ---------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state of the whole: RUNNING where every worker that has reported is, FAILED where one is."""
        if self._wanted is not Wanted.RUNNING:
            places = _ARRIVED if self._obeyed(self._order) else _UNDER_WAY
            return places[self._wanted]
        states = {report.state if report.order >= self._order else State.STARTING for report in self._known()}
        for state in (State.FAILED, State.CONNECTING, State.SCHEDULED, State.WAITING):
            if state in states:
                return state
        return State.RUNNING if states == {State.RUNNING} else State.STARTING

    @property
    def reason(self) -> str:
        """The reason why it is FAILED, by worker; empty otherwise."""
        if self.state is not State.FAILED:
            return ""
        return "; ".join(
            f"worker {worker}: {seen.report.reason}"
            for worker, seen in sorted(self._workers.items())
            if seen.report is not None and seen.report.state is State.FAILED
        )

    @property
    def counts(self) -> Counts:
        """The sum over all workers since the node started; the first trouble of any."""
        known = self._known()
        total = self._gone
        for report in known:
            total = _sum(total, report.counts)
        troubles = [report.counts.trouble for report in known]
        standby = STANDBY if troubles and set(troubles) == {STANDBY} else ""
        return replace(total, trouble=next((t for t in troubles if t not in ("", STANDBY)), standby))

    @property
    def in_flight(self) -> int:
        """Messages sent and not confirmed."""
        return sum(report.in_flight for report in self._known())

    @property
    def line(self) -> LineStatus | None:
        """Implements `bridge.relay.operated.Operated.line`: not known here."""
        return None

    @property
    def lag(self) -> Lag | None:
        """As `bridge.relay.operated.Operated.lag`: not known before every worker has reported it, and while
        no worker owns a lane of one that is gone.
        """
        reports = self._known()
        if not reports or len(reports) < len(self._workers) or self._orphaned:
            return None
        of_all = [report.lag for report in reports if not report.lanes_known and report.lag is not None]
        return of_all[0] if of_all else total([report.lag for report in reports])

    async def partitions(self) -> Sequence[PartitionStatus]:
        """As `bridge.relay.operated.Operated.partitions`, of all workers that answer in time."""
        self._questions += 1
        number = self._questions
        question = self._asked[number] = _Question({*self._workers})
        self._announce(Ask(self.name, number))
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_MS / 1000):
                while question.open & self._workers.keys():
                    await self._heard.wait()
        except TimeoutError:
            pass  # the others have answered
        finally:
            del self._asked[number]
        rows = {(row.topic, row.partition): row for row in question.rows}
        return [rows[place] for place in sorted(rows)]

    def answered(self, worker: int, rows: Rows) -> None:
        """Take a part of this worker's answer to `Ask`."""
        question = self._asked.get(rows.number)
        if question is not None:
            question.rows += rows.rows
            if not rows.more:
                question.open.discard(worker)
                self._change()

    @property
    def lanes_known(self) -> bool:
        """Whether every worker has known which lanes are its own."""
        return all(report.lanes_known for report in self._known())

    @property
    def owned_lanes(self) -> Sequence[int]:
        """The lanes that the workers have now, in order."""
        return sorted(lane for report in self._known() for lane in report.owned_lanes)

    @property
    def store(self) -> str:
        """Store identity of the target, once it has answered."""
        return self._store

    @property
    def connector(self) -> str:
        """Empty: the workers know it."""
        return ""

    @property
    def connected(self) -> bool:
        """Whether a session is on in every lane."""
        known = self._known()
        return bool(known) and all(report.connected for report in known)

    # -- commands --------------------------------------------------------------------------------------

    async def command(self, command: Command) -> None:
        """Carry the command out; returns when every worker has done so (start and resume: at once).

        A worker that dies meanwhile has stopped too; the process that replaces it gets the order first.

        Raises:
            Conflict: the state forbids it, or it is failback.
        """
        before = self.state
        wanted = after(before, command)
        if command is Command.FAILBACK:
            raise Conflict("a bridge in worker processes has one connector", key="connector")
        if wanted is not before:
            self._wanted = _WANTED[command]
            self._order += 1
            self._announce(self.want)
        if command in (Command.STOP, Command.PAUSE):
            order = self._order
            while not self._obeyed(order):
                await self._heard.wait()

    # -- for the supervisor ----------------------------------------------------------------------------

    @property
    def want(self) -> Want:
        """The latest order."""
        return Want(self.name, self._wanted, self._order)

    def attached(self, worker: int) -> None:
        """This worker's process has started."""
        self._workers[worker] = _Seen(self._order)
        self._change()

    def heard(self, worker: int, report: Report) -> None:
        """Take this worker's report."""
        self._workers[worker].report = report
        self._store = report.store or self._store
        self._orphaned -= {*report.owned_lanes}
        self._change()

    def detached(self, worker: int) -> None:
        """Remove a worker whose process has ended; its counts stay in the sum."""
        seen = self._workers.pop(worker)
        if seen.report is not None:
            self._gone = _sum(self._gone, replace(seen.report.counts, parked=0))
            self._orphaned |= {*seen.report.owned_lanes}
        self._change()

    def _known(self) -> list[Report]:
        return [seen.report for seen in self._workers.values() if seen.report is not None]

    def _obeyed(self, order: int) -> bool:
        """Whether every worker that lives has carried out this order or a later one."""
        return all(seen.order >= order for seen in self._workers.values())

    def _change(self) -> None:
        self._heard.set()
        self._heard = asyncio.Event()


def _sum(one: Counts, other: Counts) -> Counts:
    """The sum of two counts: numbers are added, the latest progress is kept, the troubles are dropped."""
    total = replace(one, parked=one.parked + other.parked, opening="", trouble="", throttled="", limited="")
    total.add(other)
    return total
