"""Whether a bridge may go on at the target it has found. Pure (design section 2, 'Change of mind')."""

from __future__ import annotations

from bridge.errors import TargetRefused
from bridge.ports import Opened, Remembered, Stream


def check(stream: Stream, remembered: Remembered | None, opened: Opened) -> None:
    """A bridge that has run does not begin again at a target that knows nothing of it.

    Args:
        stream: one that the target was asked for.
        remembered: what the source knows was confirmed; None: nothing ever was.
        opened: the target's answer.

    Raises:
        TargetRefused: it is another store than the one that confirmed, or has forgotten the stream.
    """
    if remembered is None:
        return
    if remembered.store != opened.store:
        raise TargetRefused(
            f"the target is another store than before: {opened.store}; {stream.identity} was confirmed up to "
            f'{remembered.upto} by {remembered.store}; failover = "refuse" (see core-bridge positions)',
            key="failover",
            limit=remembered.store,
            found=opened.store,
        )
    if opened.streams[stream.identity].next is None:
        raise TargetRefused(
            f"the target {opened.store} knows nothing of {stream.identity}, which was confirmed up to "
            f"{remembered.upto} by {remembered.store}: see core-bridge positions",
            key="positions",
            limit=remembered.upto,
        )
