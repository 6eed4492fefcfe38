"""The position where a stopped bridge goes on when the operator decides: `core-bridge positions` (design
section 2).

A bridge refuses to begin at a target that knows nothing of what another store has confirmed, or of what it
has forgotten (`bridge.relay.divergence`). Here the operator says where it begins instead. Generic over the
two ports.

The source is changed before the target. Until the target knows the stream too, the bridge refuses to run: so
a crash in between neither sends nor skips anything, and the same command again completes what was begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.messages.batch import Batch
from bridge.relay.ports import Bounds, Source, Stream, StreamState, Target
from bridge.relay.stays import Remembered
from dedup.verdict import Verdict

#: The values of `--from`.
Start = Literal["target", "group", "earliest", "latest"]
STARTS: Final[Sequence[Start]] = ("target", "group", "earliest", "latest")


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one stream."""

    stream: Stream
    #: The target's first position not covered; None: it knows nothing of the stream.
    next: int | None
    #: The position where the bridge goes on.
    at: int
    #: The source's memory of the stream; None: it has none.
    remembered: Remembered | None
    bounds: Bounds
    #: Store identity of the target.
    store: str
    #: CRC-32 and run that the target holds below its next: kept where `at` is its next.
    checksum: int = 0

    @property
    def tells_target(self) -> bool:
        """Whether the target gets a position that it does not have."""
        return self.next is None or self.at > self.next

    @property
    def source_upto(self) -> int | None:
        """The position that the source has to remember as confirmed; None: its memory stays."""
        if self.tells_target:
            return self.at
        known = self.remembered
        if known is None or known.store == self.store:
            return None
        # Messages that the target covers beyond it are settled at the next opening, by the target's word.
        return min(self.at, known.upto)

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return self.tells_target or self.source_upto is not None

    def __str__(self) -> str:
        """The decision in words: ``orders (journal:...): unknown to the target; goes on at 120 ...``."""
        known = "unknown to the target" if self.next is None else f"covered by the target up to {self.next}"
        parts = [known, f"the source has {self.bounds.first} to {self.bounds.end}", *self._consequences()]
        return f"{self.stream.address} ({self.stream.identity}): {'; '.join(parts)}"

    def _consequences(self) -> list[str]:
        said = []
        if self.tells_target:
            said.append(f"goes on at {self.at}")
        elif self.changes:
            said.append(f"stays at {self.next}; the source takes {self.store} for its target")
        else:
            said.append(f"stays at {self.next}; nothing to do")
        before = self.next if self.next is not None else self._confirmed
        if self.at > before:
            said.append(f"positions {before} to {self.at - 1} are passed over and not delivered")
        if self.next is None and self.at < self._confirmed:
            to = min(self._confirmed, self.bounds.end) - 1
            said.append(f"positions {self.at} to {to} were confirmed before and are delivered again")
        if self.at < self.bounds.first:
            said.append(f"positions {self.at} to {self.bounds.first - 1} are gone (gap-policy)")
        return said

    @property
    def _confirmed(self) -> int:
        return self.remembered.confirmed if self.remembered is not None else self.bounds.first


async def plan(source: Source, target: Target, start: Start) -> list[Decision]:
    """The effect of `--from START` on each stream of a bridge that does not run. Changes nothing.

    Both ends are left as they are; the target's links of these streams are fenced by its `open`.

    Raises:
        The errors of `Source.streams`, `Source.bounds` and `Target.open`.
    """
    streams = await source.streams()
    opened = await target.open(streams)
    remembered, bounds = await source.remembered(), await source.bounds()
    return [
        decision_of(
            stream,
            opened.streams[stream.identity],
            remembered.get(stream.identity),
            bounds[stream.identity],
            opened.store,
            start,
        )
        for stream in streams
        if stream.identity in bounds
    ]


def decision_of(
    stream: Stream,
    state: StreamState,
    remembered: Remembered | None,
    bounds: Bounds,
    store: str,
    start: Start,
) -> Decision:
    """The effect of `start` on one stream, by what both ends know of it. Pure."""
    wanted = {
        "target": lambda: bounds.first if state.next is None else state.next,
        "group": lambda: remembered.confirmed if remembered is not None else bounds.first,
        "earliest": lambda: bounds.first,
        "latest": lambda: bounds.end,
    }[start]()
    # The target's covered positions stay covered: a stream is never moved back.
    at = wanted if state.next is None else max(wanted, state.next)
    return Decision(stream, state.next, at, remembered, bounds, store, state.checksum)


async def carry_out(source: Source, target: Target, decisions: Sequence[Decision]) -> None:
    """Carry out the decisions of `plan`; the target must still be open. A second call changes nothing more.

    Raises:
        TargetUnavailable, TargetRefused: the target did not take a position; the command again completes it.
        The errors of `Source.begin`.
    """
    for decision in decisions:
        upto = decision.source_upto
        if upto is not None:
            await source.begin(decision.stream.identity, upto, decision.store)
        if decision.tells_target:
            start = decision.at if decision.next is None else decision.next
            await set_at_target(target, Batch(decision.stream.identity, start, decision.at))


async def set_at_target(target: Target, batch: Batch) -> None:
    """Have an open target cover a batch without messages; of a stream never seen it tells the start.

    Raises: TargetUnavailable, TargetRefused: it did not take it.
    """
    (receipt,) = await target.deliver([batch])
    if receipt.verdict in (Verdict.STORED, Verdict.DUPLICATE):
        return
    kind = TargetRefused if receipt.verdict is Verdict.REFUSED else TargetUnavailable
    raise kind(f"{batch.stream}: the target did not take position {batch.upto}: {receipt.reason}")


async def decide(
    source: Source,
    target: Target,
    start: Start,
    approve: Callable[[Sequence[Decision]], bool] = lambda _: True,
) -> list[Decision]:
    """`plan`, then `carry_out` where `approve` says so; answers the plan. Closes both ends.

    Raises: as these do.
    """
    try:
        decisions = await plan(source, target, start)
        if approve(decisions):
            await carry_out(source, target, decisions)
        return decisions
    finally:
        await source.close()
        await target.close()
