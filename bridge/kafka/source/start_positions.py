"""Where reading a partition begins: the target's state checked against the present log. Pure.

The target's `next` decides; a stream that it has never seen begins at its mark, or at position 0 where it is
new to a bridge that has run before. Positions that the log no longer has are a gap; a log that ends before
`next`, or whose past is another than the one that was sent, has been cut back (an election outside the
in-sync replicas) or was replaced by a copy: to continue would lose or double messages, so the operator
decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from bridge.errors import SourceGap
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.positions import Runs
from bridge.relay.divergence import Diverged
from bridge.relay.ports import Stream, StreamState

GapPolicy = Literal["stop", "continue"]

#: The advice to the operator.
ADVICE: Final = "Nothing was sent. `core-bridge positions` says from where to go on"


@dataclass(frozen=True, slots=True)
class Log:
    """The state of a partition's log, as its leader has it."""

    #: First position that still exists.
    start: int
    #: One beyond the last, whether readable yet or not.
    end: int
    #: Leader epoch.
    epoch: int
    #: One beyond what was written up to the epoch that the target names; None: not known, or none named.
    run_end: int | None = None
    #: CRC-32 of the last message below the target's next; 0: not known.
    checksum: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """The position at which to continue reading."""

    at: int
    #: Coverage without messages that is sent before anything is read; None: none.
    coverage: Batch | None = None
    #: Number of positions that the log has no more, and that are covered by it.
    skipped: int = 0
    #: Those of them that no other store of the bridge has.
    gone: Runs = ()

    @property
    def begins(self) -> int:
        """The position where the coverage begins; `at` where nothing is gone."""
        return self.at - self.skipped


def run_epoch(state: StreamState) -> int | None:
    """The leader epoch under which the target's next was reached; None: not known."""
    return int(state.run) if state.next is not None and state.run.isdecimal() else None


def find_start(
    stream: Stream, number: int, state: StreamState, mark: int, log: Log, gap_policy: GapPolicy
) -> Start:
    """The position at which to begin reading.

    Args:
        stream: the partition.
        number: the partition's number.
        state: the target's state.
        mark: where a stream begins that the target has never seen: a partition that existed at the bridge's
            first start ever has a mark in the progress group; a later one begins at 0.
        log: the leader's state of the log.
        gap_policy: what to do where positions are gone.

    Raises:
        SourceGap: they are gone, or lie beyond the end. Diverged: the log's past is another.
    """
    name = f"topic {stream.address} partition {number}"
    known = state.next if state.next is not None else mark
    _check_end(name, stream, known, log)
    _check_past(name, stream, state, log)
    if known >= log.start:
        unseen = state.next is None
        return Start(known, Batch(stream.identity, known, known) if unseen else None)
    gone = run_arithmetic.without(((known, log.start - 1),), state.elsewhere)
    if gone and gap_policy == "stop":
        begins = f"next is {known}" if state.next is not None else f"the bridge has not read it yet ({known})"
        raise SourceGap(
            f"{name}: {begins} and the log now begins at {log.start}: {run_arithmetic.count(gone)} positions "
            f'are gone from the source (gap-policy = "stop"). {ADVICE}; gap-policy = "continue" goes on '
            "behind the gap",
            key=stream.identity,
            limit=log.start,
            found=known,
        )
    return Start(log.start, Batch(stream.identity, known, log.start), log.start - known, gone)


def _check_end(name: str, stream: Stream, known: int, log: Log) -> None:
    if known > log.end:
        raise SourceGap(
            f"{name}: next is {known} and the log ends at {log.end} (leader epoch {log.epoch}): it was cut "
            f"back, or is another one. {ADVICE}",
            key=stream.identity,
            limit=log.end,
            found=known,
        )


def _check_past(name: str, stream: Stream, state: StreamState, log: Log) -> None:
    """Check that the log below next is the one that the target has. Raises: Diverged."""
    if state.next is None:
        return
    epoch = run_epoch(state)
    if epoch is not None and epoch > log.epoch:
        raise Diverged(
            f"{name}: the target covers up to {state.next}, read under leader epoch {epoch}; the leader is "
            f"in epoch {log.epoch}: the log is another one, or was restored. {ADVICE}",
            key=stream.identity,
            limit=log.epoch,
            found=epoch,
        )
    if log.run_end is not None and log.run_end < state.next:
        raise Diverged(
            f"{name}: the target covers up to {state.next}, read under leader epoch {epoch}; that epoch now "
            f"ends at {log.run_end}: the log was cut back, {state.next - log.run_end} positions were "
            f"replaced. {ADVICE}",
            key=stream.identity,
            limit=log.run_end,
            found=state.next,
        )
    if state.checksum and log.checksum and state.checksum != log.checksum:
        raise Diverged(
            f"{name}: the target covers up to {state.next} and the last message below has checksum "
            f"{state.checksum:08x}; here it has {log.checksum:08x}: the log is another one. {ADVICE}",
            key=stream.identity,
            limit=f"{log.checksum:08x}",
            found=f"{state.checksum:08x}",
        )
