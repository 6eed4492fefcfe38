"""A change of store, and a store that was put back from a backup.

A bridge may go on at a target that is another store than the one that confirmed last. The new store cannot
know what the one before has. So a range is in doubt, and is logged before anything of it is sent: from what
both ends know to be covered, up to what may have been sent to the store before.

The target is told before the source. A crash in between leaves a target that covers what another store has
confirmed, and a source that changes the store again at its next opening.

A store that was put back lacks messages that it had confirmed (`bridge.relay.stays`). They are sent again,
as far as the source has them; what is gone is a gap. The source is moved back before: until the store has
them again, the bridge goes on at no store that would pass over them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bridge.errors import TargetUnavailable
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.positions import Runs
from bridge.relay.ports import LoggingSource, Opened, Source, Stream, StreamState, Target
from bridge.relay.reposition import Decision, decision_of, set_at_target
from bridge.relay.stays import Remembered

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class OtherStore(Exception):
    """The target that has answered is another store than the one that confirmed last; nothing was changed.

    Its argument: the identity of that store.
    """


@dataclass(frozen=True, slots=True)
class Changing:
    """What a bridge's streams are changed with: its ends, and the target's answer."""

    #: Not read from now; it is closed, so that settlements on their way are counted.
    source: Source
    #: Open.
    target: Target
    opened: Opened
    #: Takes what is in doubt, and what is missing.
    log: FilteringBoundLogger

    @property
    def stores(self) -> tuple[str, ...]:
        """The identity of the target, and of the stores that it answers for."""
        return (self.opened.store, *self.opened.inherited)


async def change_store(
    ends: Changing, streams: Sequence[Stream], *, sent_upto: Callable[[str], int | None]
) -> Opened:
    """Go on with `streams` at max(the target's next, what the source knows as settled), or at the target's
    next where the target lacks what it had confirmed; returns the target's answer as it is then.

    Args:
        ends: the bridge's.
        streams: those that another store has confirmed.
        sent_upto: one beyond what may have been sent of a stream; None: anything that the source has.

    Raises:
        TargetUnavailable, TargetRefused, and the errors of `Source.begin`.
    """
    source, opened, log = ends.source, ends.opened, ends.log
    await source.close()
    remembered, bounds = await source.remembered(), await source.bounds()
    states = dict(opened.streams)
    for stream in streams:
        identity = stream.identity
        known, there, next_ = remembered[identity], bounds[identity], states[identity].next
        _check_owed(stream, known, next_, opened.store)
        upto = Remembered(known.upto, known.store)  # of each message below, one of the stores has a copy
        decision = decision_of(stream, states[identity], upto, there, opened.store, "group")
        missing = next_ is not None and known.missing(ends.stores, next_)
        # What the target covers beyond it is settled at the opening, by the target's word.
        at = decision.at if decision.tells_target and not missing else min(next_ or 0, known.upto)
        stays = known.after_change(ends.stores, opened.store, decision.at if next_ is None else next_, at)
        sent = sent_upto(identity)
        first, end = max(decision.at, known.upto), there.end if sent is None else sent
        if first < end:
            place = {"from": first, "upto": end, "before": known.store, "store": opened.store}
            log.warning("failover-in-doubt", stream=identity, **place)
        if not missing:
            states[identity] = await _tell(ends.target, decision, states[identity])
        await source.begin(identity, at, opened.store, stays)
    return replace(opened, streams=states)


def _check_owed(stream: Stream, known: Remembered, next_: int | None, store: str) -> None:
    """Raises: TargetUnavailable: the target has passed what another store had confirmed and lost."""
    owed = run_arithmetic.below(known.owed(), next_ or 0)
    if owed:
        raise TargetUnavailable(
            f"{stream.identity}: {known.store} has lost positions {_shown(owed)} (it was put back from a"
            f" backup), and {store} has passed them: the bridge waits for {known.store}, which takes them"
            " again. To do without them, stop this node and run core-bridge positions"
        )


async def note_missing(
    ends: Changing, streams: Sequence[Stream], remembered: Mapping[str, Remembered], *, moves: bool
) -> bool:
    """Log the positions of each stream that the target had confirmed and does not cover any more; whether
    there are any.

    `moves`: have the source remember that, too, for streams of which this target was the last: the bridge may
    leave it before it has them again.

    Raises: the errors of `Source.begin` and `LoggingSource.log_missing`.
    """
    lacking = [stream.identity for stream in streams if _missing(stream.identity, ends, remembered)]
    if not lacking:
        return False
    await ends.source.close()
    remembered = await ends.source.remembered()
    for identity in lacking:
        runs = _missing(identity, ends, remembered)
        known, store, next_ = remembered[identity], ends.opened.store, ends.opened.streams[identity].next
        ends.log.warning("target-went-back", stream=identity, store=store, next=next_, missing=runs)
        if isinstance(ends.source, LoggingSource):
            await ends.source.log_missing(identity, runs, store)
        if moves and next_ is not None and known.store in ends.stores:
            stays = known.after_change(ends.stores, store, next_, next_)
            await ends.source.begin(identity, next_, store, stays)
    return True


def _missing(identity: str, ends: Changing, remembered: Mapping[str, Remembered]) -> Runs:
    known = remembered.get(identity)
    return () if known is None else known.missing(ends.stores, ends.opened.streams[identity].next or 0)


async def _tell(target: Target, decision: Decision, state: StreamState) -> StreamState:
    """The target's record of a stream, once it covers what the source knows as settled."""
    if not decision.tells_target:
        return state
    start = decision.at if state.next is None else state.next
    await set_at_target(target, Batch(decision.stream.identity, start, decision.at))
    return replace(state, next=decision.at, run=decision.stream.run, checksum=0)


def _shown(runs: Runs) -> str:
    return ", ".join(f"{first} to {last}" for first, last in runs)
