"""The divergence check: whether the target that a bridge finds, and its own source, are the same as before.

Pure. `check` compares the target's identity with what the source remembers (design section 2, 'Change of
mind'); `check_past` compares what the target remembers with the source's past (section 3, 'Copies and
backups').
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bridge.errors import BridgeError, TargetRefused
from bridge.relay.ports import Opened, Stream, StreamState
from bridge.relay.stays import Remembered

#: Advice to the operator about a source that is not the one it was.
ADVICE: Final = (
    "This journal was restored from a backup, or is a copy. Nothing was sent or settled. Run the journal "
    "that the target knows; if that one is lost, stop this node and run core-bridge journal new-incarnation, "
    "or start it with an empty data directory (docs/operations.md, Backup)"
)


class Diverged(BridgeError):
    """The target covers what another copy of this source sent: going on would lose messages."""

    code = "DIVERGED"


def check(
    stream: Stream,
    remembered: Remembered | None,
    opened: Opened,
    bridge: str = "BRIDGE",
    connector: str = "",
) -> None:
    """Refuse to begin again at a target that knows nothing of a bridge that has run.

    Args:
        stream: one that the target was asked for.
        remembered: the position that the source knows was confirmed; None: none ever was.
        opened: the target's answer.
        bridge: the name for the command that decides where to go on.
        connector: the target's, where the bridge has several; empty: it has one.

    Raises:
        TargetRefused: it is another store than the one that confirmed, or has forgotten the stream.
    """
    if remembered is None:
        return
    if is_another_store(remembered, opened):
        raise TargetRefused(
            f"the target is another store than before: {opened.store}; {stream.identity} was confirmed up to "
            f'{remembered.upto} by {remembered.store}; failover = "refuse". {_advice(bridge, connector)}',
            key="failover",
            limit=remembered.store,
            found=opened.store,
        )
    if opened.streams[stream.identity].next is None:
        raise _forgotten(stream, remembered.confirmed, opened, bridge, connector)


def check_not_forgotten(
    stream: Stream, remembered: Remembered, opened: Opened, bridge: str, connector: str
) -> None:
    """Check that a store that the bridge comes back to knows the stream. Arguments: as of `check`.

    Raises: TargetRefused: it knows nothing of it, and had confirmed a part.
    """
    had = remembered.missing((opened.store, *opened.inherited), 0)
    if opened.streams[stream.identity].next is None and had:
        raise _forgotten(stream, had[-1][1] + 1, opened, bridge, connector)


def _forgotten(stream: Stream, upto: int, opened: Opened, bridge: str, connector: str) -> TargetRefused:
    return TargetRefused(
        f"the target {opened.store} knows nothing of {stream.identity}, which it had confirmed up to {upto}. "
        f"{_advice(bridge, connector)}",
        key="positions",
        limit=upto,
    )


def is_another_store(remembered: Remembered | None, opened: Opened) -> bool:
    """Whether the target that has answered is another store than the one that confirmed."""
    return remembered is not None and remembered.store not in (opened.store, *opened.inherited)


def _advice(bridge: str, connector: str) -> str:
    """The command by which the operator decides; its choices are explained in docs/operations.md,
    'Positions'.
    """
    command = f"positions {bridge} --connector {connector}" if connector else f"positions {bridge}"
    return (
        f"To go on there, stop this node and run: core-bridge {command} --from group (what was "
        "confirmed counts as delivered), earliest (all that is left is sent), latest (none of it) or target"
    )


@dataclass(frozen=True, slots=True)
class Past:
    """A source's knowledge of its own past, as far as the target's word on one stream refers to it."""

    #: The source's run now.
    run: str
    #: Whether the target's run was ever one of this source's.
    run_known: bool
    #: The target's run stored nothing at or above this; None: it is the present run, or not known.
    run_end: int | None
    #: One beyond the stream's last message.
    end: int
    #: CRC-32 of the last message below the target's next, however it was settled; 0: no longer known.
    checksum: int


def check_past(identity: str, state: StreamState, past: Past) -> None:
    """Check that the target covers only messages that this very source has sent it.

    A run is one opening of a source; a copy, and a source restored from a backup, opens as a run of its own.
    So a run that is not known belongs to another copy, and one that was known when the copy was made has
    ended, here, at the next run's beginning. The checksum detects a divergence that runs do not show: a
    machine that was set back together with its memory.

    A run that began above next is no divergence: it found a backlog, and sent a part of it.

    Args:
        identity: of the stream.
        state: the target's word. Where it names no run, or no checksum, that one is not compared.
        past: the source's.

    Raises:
        Diverged: it covers other messages.
    """
    if state.next is None:
        return
    if state.run and not past.run_known:
        raise _diverged(identity, state, past, "this journal has never been in that run", past.run, state.run)
    if past.run_end is not None and state.next > past.run_end:
        why = f"that run ended at {past.run_end} in this journal"
        raise _diverged(identity, state, past, why, past.run_end, state.next)
    if state.checksum and past.checksum and state.checksum != past.checksum:
        why = "this journal has another message there"
        raise _diverged(identity, state, past, why, _hex(past.checksum), _hex(state.checksum))


def _diverged(
    identity: str, state: StreamState, past: Past, why: str, limit: int | str, found: int | str
) -> Diverged:
    """The error with the numbers of both sides."""
    detail = (
        f"{identity}: the target covers up to {state.next} (run {state.run or 'unknown'}, checksum "
        f"{_hex(state.checksum)}), and {why} (now run {past.run}, checksum there {_hex(past.checksum)}, ends "
        f"at {past.end}). {ADVICE}"
    )
    return Diverged(detail, key=identity, limit=limit, found=found)


def _hex(checksum: int) -> str:
    return f"{checksum:08x}" if checksum else "unknown"
