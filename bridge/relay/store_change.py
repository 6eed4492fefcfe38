"""A change of store: a bridge goes on at a target that is another store than the one that confirmed last.

The new store cannot know what the one before has. So a range is in doubt, and is logged before anything of it
is sent: from what both ends know to be covered, up to what may have been sent to the store before.

The target is told before the source. A crash in between leaves a target that covers what another store has
confirmed, and a source that changes the store again at its next opening.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.messages.batch import Batch
from bridge.relay.ports import Opened, Source, Stream, StreamState, Target
from bridge.relay.reposition import Decision, decision_of, set_at_target

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class OtherStore(Exception):
    """The target that has answered is another store than the one that confirmed last; nothing was changed.

    Its argument: the identity of that store.
    """


async def change_store(
    source: Source,
    target: Target,
    streams: Sequence[Stream],
    opened: Opened,
    *,
    sent_upto: Callable[[str], int | None],
    log: FilteringBoundLogger,
) -> Opened:
    """Go on with `streams` at max(the target's next, what the source knows as settled); returns the target's
    answer as it is then.

    Args:
        source: not read from now; it is closed, so that settlements on their way are counted.
        target: open.
        streams: those that another store has confirmed.
        opened: the target's answer.
        sent_upto: one beyond what may have been sent of a stream; None: anything that the source has.
        log: takes the ranges in doubt.

    Raises:
        TargetUnavailable, TargetRefused, and the errors of `Source.begin`.
    """
    await source.close()
    remembered, bounds = await source.remembered(), await source.bounds()
    states = dict(opened.streams)
    for stream in streams:
        identity = stream.identity
        known, there = remembered[identity], bounds[identity]
        decision = decision_of(stream, states[identity], known, there, opened.store, "group")
        sent = sent_upto(identity)
        upto = there.end if sent is None else sent
        if decision.at < upto:
            place = {"from": decision.at, "upto": upto, "before": known.store, "store": opened.store}
            log.warning("failover-in-doubt", stream=identity, **place)
        states[identity] = await _tell(target, decision, states[identity])
        assert decision.source_upto is not None, f"{identity}: the source takes {opened.store} for its target"
        await source.begin(identity, decision.source_upto, opened.store)
    return replace(opened, streams=states)


async def _tell(target: Target, decision: Decision, state: StreamState) -> StreamState:
    """The target's record of a stream, once it covers what the source knows as settled."""
    if not decision.tells_target:
        return state
    start = decision.at if state.next is None else state.next
    await set_at_target(target, Batch(decision.stream.identity, start, decision.at))
    return replace(state, next=decision.at, run=decision.stream.run, checksum=0)
