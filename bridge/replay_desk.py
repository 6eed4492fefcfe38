"""Replay plans as their operator sees them: what would be sent again, and sending it (design rule 4).

Works beside the running bridges: the ends are made for one call and one stream, and closed behind it. A
bridge and a plan deliver different streams, so neither holds up or fences the other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from bridge import logs
from bridge import runs as run_arithmetic
from bridge.batch import Batch
from bridge.errors import NotFound
from bridge.ports import Stream, Target
from bridge.replays import plan_stream
from bridge.resending import Part, PlanSource, Resending, Resent, Wanted, without

#: Longest that one call sends; the next call goes on where it ended.
CALL_S: Final = 20.0
#: Most positions of one call.
POSITIONS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Known:
    """What a target says about messages before they are sent again."""

    #: Its store identity.
    store: str
    #: The plan's `next` of the stream; None: it has not been begun.
    next: int | None
    #: Positions of messages that it has.
    held: frozenset[int] = frozenset()


#: Asks the target of (plan stream, batches of it) what it has of them; changes nothing there.
Ask = Callable[[Stream, list[Batch]], Awaitable[Known]]
#: Given the stream, its first part, and a deadline (loop clock, seconds): makes the target able to say what
#: it has. False: not done by then, and the next call goes on with it.
Ready = Callable[[Stream, Part, float], Awaitable[bool]]


async def _at_once(_stream: Stream, _part: Part, _deadline_s: float) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Ends:
    """Both ends of a bridge, for one call."""

    source: PlanSource
    target: Target
    ask: Ask
    ready: Ready = _at_once


class Route(Protocol):
    """Makes the ends of one bridge, not open; the target does not bring what it holds unless `force`."""

    def __call__(self, *, force: bool) -> Ends:
        """Made for one call."""


class ReplayDesk:
    """Sends again what plans name, for the bridges of one node. One call at a time."""

    def __init__(self, routes: Mapping[str, Route], *, call_s: float = CALL_S) -> None:
        """`routes`: by the bridge's name."""
        self._routes = routes
        self._call_s = call_s
        self._turn = asyncio.Lock()
        self._log = logs.get()

    async def send(self, wanted: Wanted) -> Resent:
        """Send again what is not there yet, for `CALL_S` at most. Asked again, it sends what is left.

        Raises:
            NotFound: the bridge is not one of this node's, or its source does not have the stream.
            Conflict: the bridge delivers to another store than the plan was made for.
            TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused, JournalUnavailable: what was
                sent before that stays sent.
        """
        async with self._turn, self._ends(wanted) as (ends, stream):
            deadline_s = self._deadline_s()
            if not await self._is_ready(ends, stream, wanted, deadline_s):
                return Resent(rest=wanted.positions[0][0])
            outcome = await Resending(ends.source, ends.target, wanted, deadline_s=deadline_s).run(stream)
        self._log.info(
            "replayed", bridge=wanted.bridge, stream=wanted.stream, plan=wanted.plan, count=outcome.sent,
            known=outcome.known, gone=run_arithmetic.count(outcome.gone), refused=len(outcome.refused),
        )  # fmt: skip
        return outcome

    async def look(self, wanted: Wanted) -> Resent:
        """What `send` would do: `sent` is what it would send. Changes nothing, at neither end.

        Raises: as `send`.
        """
        async with self._turn, self._ends(wanted) as (ends, stream):
            return await self._look(ends, stream, wanted)

    async def _look(self, ends: Ends, stream: Stream, wanted: Wanted) -> Resent:
        looked = Resent()
        deadline_s = self._deadline_s()
        if not await self._is_ready(ends, stream, wanted, deadline_s):
            return Resent(rest=wanted.positions[0][0])
        planned = plan_stream(stream.identity, wanted.plan, force=wanted.force)
        left = wanted.positions
        while left:
            part = await ends.source.read(stream, left)
            known = await ends.ask(replace(stream, identity=planned), list(part.batches))
            if known.store != wanted.store:
                raise wanted.other_store(known.store)
            next_position = known.next or 0
            found = tuple(run for batch in part.batches for run in batch.runs)
            looked_at = run_arithmetic.below(left, part.upto)
            looked.earlier += run_arithmetic.count(run_arithmetic.below(looked_at, next_position))
            fresh = run_arithmetic.from_position(found, next_position)
            refused = [one for batch in part.batches for one in batch.refusals if one[0] >= next_position]
            held = set() if wanted.force else {p for p in known.held if run_arithmetic.index(fresh, p) >= 0}
            held -= {position for position, _ in refused}
            looked.refused += refused
            looked.known += len(held)
            looked.sent += run_arithmetic.count(fresh) - len(held) - len(refused)
            looked.gone += run_arithmetic.from_position(without(looked_at, found), next_position)
            left = run_arithmetic.from_position(left, part.upto)
            if left and asyncio.get_running_loop().time() >= deadline_s:
                looked.rest = left[0][0]
                break
        return looked

    async def _is_ready(self, ends: Ends, stream: Stream, wanted: Wanted, deadline_s: float) -> bool:
        if ends.ready is _at_once or wanted.force:
            return True
        left = wanted.positions
        while left:
            part = await ends.source.read(stream, left)
            if part.batches:
                return await ends.ready(stream, part, deadline_s)
            left = run_arithmetic.from_position(left, part.upto)
        return True

    def _deadline_s(self) -> float:
        return asyncio.get_running_loop().time() + self._call_s

    @contextlib.asynccontextmanager
    async def _ends(self, wanted: Wanted) -> AsyncIterator[tuple[Ends, Stream]]:
        """Both ends, and the stream that its source has."""
        route = self._routes.get(wanted.bridge)
        if route is None:
            raise NotFound(
                f"the bridge {wanted.bridge} is not one of this node's", key="bridge", found=wanted.bridge
            )
        ends = route(force=wanted.force)
        try:
            stream = await ends.source.stream(wanted.stream)
            if stream is None:
                raise NotFound(
                    f"the source of bridge {wanted.bridge} has no stream {wanted.stream}: it is another"
                    " node's, or of a journal, topic or cluster that is not there any more",
                    key="stream",
                    found=wanted.stream,
                )
            yield ends, stream
        finally:
            await ends.target.close()
            await ends.source.close()
