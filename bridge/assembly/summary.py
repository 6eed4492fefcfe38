"""What is known of a bridge besides its life: what logs and status say of it."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.relay.ownership import AskDivision


@dataclass(frozen=True, slots=True)
class BridgeSummary:
    """What is known of a bridge besides its life: what the log says when it starts, and whom to ask."""

    source: str
    target: str
    guarantee: str
    check_producer_ids: bool
    id_cache_size: int
    #: What readers of the target must set for the guarantee to hold; empty: nothing.
    readers: str = ""
    #: Asks who has which of its lanes; None: it shares lanes with no other process.
    division: AskDivision | None = None
    #: Whether it reads this node's journal, and settles there.
    from_journal: bool = False
