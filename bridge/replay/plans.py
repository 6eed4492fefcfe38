"""Replay plans as their operator sees them: shows what would be sent again, and sends it (design rule 4).

Works beside the running bridges: the ends are made for one call and one stream, and closed behind it. A
bridge and a plan deliver different streams, so neither holds up or fences the other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from bridge.errors import NotFound, TargetRefused, TargetUnavailable, described
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.stream_names import plan_stream
from bridge.relay.ports import Stream, Target
from bridge.relay.stages import Stage
from bridge.relay.transforming import Transforming
from bridge.replay.copies import Judged
from bridge.replay.sending import (
    PlanSource,
    PlanState,
    Presence,
    Resending,
    Resent,
    Wanted,
    less,
    without,
)
from bridge.runtime import logs

#: Longest time for which one call sends; the next call goes on where it ended.
CALL_S: Final = 20.0
#: Most positions of one call.
POSITIONS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class Ends:
    """Both ends of a bridge, for one call."""

    source: PlanSource
    target: Target
    presence: Presence
    #: What the bridge does to each batch between read and send.
    stages: Sequence[Stage] = ()
    #: The bridge's transformer; None: it has none.
    transforming: Transforming | None = None


class Route(Protocol):
    """Makes the ends of one bridge by one of its connectors, not open; unless `force`, the target takes no
    messages that it already has.
    """

    def __call__(self, *, force: bool) -> Ends:
        """Make the ends for one call."""


class ReplayService:
    """The replay service: sends the messages of plans again, for the bridges of one node. One call at a
    time.
    """

    def __init__(self, routes: Mapping[str, Sequence[Route]], *, call_s: float = CALL_S) -> None:
        """`routes`: by the bridge's name, one for each of its connectors."""
        #: A call goes by the routes that there are when it begins.
        self.routes = routes
        self._call_s = call_s
        self._turn = asyncio.Lock()
        self._log = logs.get()

    async def send(self, wanted: Wanted) -> Resent:
        """Send again the messages that are not there yet, for `CALL_S` at most. A repeated call sends those
        that are left.

        Raises:
            NotFound: the bridge is not one of this node's, or its source does not have the stream.
            Conflict: the bridge delivers to another store than the plan was made for; a bridge with several
                connectors: to none of that identity.
            TargetUnavailable, TargetRefused, SourceUnavailable, SourceRefused, JournalUnavailable: messages
                that were sent before that stay sent.
        """
        async with self._turn, self._ends(await self._route(wanted), wanted) as (ends, stream):
            deadline_s = self._deadline_s()
            presence = None if wanted.force else ends.presence
            resending = Resending(
                ends.source,
                ends.target,
                wanted,
                deadline_s=deadline_s,
                presence=presence,
                stages=ends.stages,
                transforming=ends.transforming,
            )
            outcome = await resending.run(stream)
        self._log.info(
            "replayed", bridge=wanted.bridge, stream=wanted.stream, plan=wanted.plan, count=outcome.sent,
            known=outcome.known, unknown=run_arithmetic.count(outcome.unknown),
            filtered=run_arithmetic.count(outcome.filtered), gone=run_arithmetic.count(outcome.gone),
            refused=len(outcome.refused),
        )  # fmt: skip
        return outcome

    async def look(self, wanted: Wanted) -> Resent:
        """The outcome that `send` would have: `sent` counts the messages that it would send. Changes nothing,
        at neither end.

        Raises: as `send`.
        """
        async with self._turn, self._ends(await self._route(wanted), wanted) as (ends, stream):
            return await self._look(ends, stream, wanted)

    async def _look(self, ends: Ends, stream: Stream, wanted: Wanted) -> Resent:
        looked = Resent()
        deadline_s = self._deadline_s()
        state = await _plan_state(ends, stream, wanted)
        if state.store != wanted.store:
            raise wanted.other_store(state.store)
        next_position = state.next or 0
        left = run_arithmetic.from_position(wanted.positions, next_position)
        looked.earlier = run_arithmetic.count(wanted.positions) - run_arithmetic.count(left)
        while left:
            read = await ends.source.read(stream, left)
            part = await read.passed(ends.stages, ends.transforming, stream.address)
            if not (wanted.force or await ends.presence.prepare(stream, part, deadline_s)):
                looked.rest = left[0][0]
                break
            for batch in part.batches:
                _look_at(batch, None if wanted.force else ends.presence, looked)
            looked.filtered += part.filtered
            rest = without(run_arithmetic.below(left, part.upto), part.runs)
            looked.gone += without(rest, part.filtered)
            left = run_arithmetic.from_position(left, part.upto)
            if left and asyncio.get_running_loop().time() >= deadline_s:
                looked.rest = left[0][0]
                break
        return looked

    def _deadline_s(self) -> float:
        return asyncio.get_running_loop().time() + self._call_s

    async def _route(self, wanted: Wanted) -> Route:
        """The route to the store that the plan was made for: of several connectors each is asked in turn.

        Raises: as `send`.
        """
        routes = self.routes.get(wanted.bridge)
        if routes is None:
            raise NotFound(
                f"the bridge {wanted.bridge} is not one of this node's", key="bridge", found=wanted.bridge
            )
        if len(routes) == 1:
            return routes[0]  # whether it leads there shows when it is used
        stores: list[str] = []
        silent: list[str] = []
        for route in routes:
            try:
                async with self._ends(route, wanted) as (ends, stream):
                    store = (await _plan_state(ends, stream, wanted)).store
            except (TargetUnavailable, TargetRefused) as error:
                silent.append(described(error))
                continue
            if store == wanted.store:
                return route
            stores.append(store)
        if silent:
            raise TargetUnavailable(
                f"the plan was made for the store {wanted.store}, and no connector of bridge {wanted.bridge}"
                f" that answers leads there; without an answer: {'; '.join(silent)}",
                key="store",
                limit=wanted.store,
            )
        raise wanted.other_store(" or ".join(stores))

    @contextlib.asynccontextmanager
    async def _ends(self, route: Route, wanted: Wanted) -> AsyncIterator[tuple[Ends, Stream]]:
        """Both ends, and the stream that its source has."""
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


async def _plan_state(ends: Ends, stream: Stream, wanted: Wanted) -> PlanState:
    """The state of the plan's stream at the target, which is not changed."""
    identity = plan_stream(stream.identity, wanted.plan, force=wanted.force)
    return await ends.presence.plan_state(replace(stream, identity=identity))


def _look_at(batch: Batch, presence: Presence | None, looked: Resent) -> None:
    """Add the outcome that a batch would have."""
    looked.refused += batch.refusals
    fresh = less(batch, [position for position, _ in batch.refusals])
    judged = presence.judge(fresh) if presence else Judged()
    if presence:
        presence.stored(fresh, judged)
    looked.known += len(judged.known)
    looked.unknown += run_arithmetic.join((place, place) for place in judged.unknown)
    looked.sent += fresh.count - len(judged.known) - len(judged.unknown)
