"""The facts about a bridge that logs and status show and that do not change while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bridge.relay.ownership import AskDivision


@dataclass(frozen=True, slots=True)
class BridgeSummary:
    """The facts about a bridge that the log shows when it starts, and the call that asks for its lanes."""

    source: str
    target: str
    guarantee: str
    check_producer_ids: bool
    id_cache_size: int
    #: Its filter's condition; empty: it has none.
    filter: str = ""
    #: Its transformer's dotted path; empty: it has none.
    transformer: str = ""
    #: What its `concurrency` means, in words; empty: it has lanes, or 1.
    concurrency: str = ""
    #: The setting that readers of the target need for the guarantee to hold; empty: none.
    readers: str = ""
    #: Asks for the owner of each of its lanes; None: it shares lanes with no other process.
    division: AskDivision | None = None
    #: Whether it reads this node's journal, and settles there.
    from_journal: bool = False
    #: The proxy on the way to its target, by the name of the target's connector; without the password.
    proxies: Mapping[str, str] = field(default_factory=dict)

    def proxy(self, connector: str) -> str:
        """The proxy on the way to the target of this connector; empty: none. An empty name: the only one."""
        if connector or len(self.proxies) != 1:
            return self.proxies.get(connector, "")
        return next(iter(self.proxies.values()))
