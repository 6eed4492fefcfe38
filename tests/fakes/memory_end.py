"""A kind of end that a test adds by one registration: ``memory://NAME`` is a journal and a store in memory.

ends.register("memory", "tests.fakes.memory_end:KIND", "memory://name")
"""

from __future__ import annotations

from typing import Final

from bridge.end_kind import EndKind, EndsOf, Lane, NodeContext, NodeEnds, SourceEnd, TargetEnd
from tests.fakes.ends import FakeJournal, FakeSource, FakeStore, FakeTarget

#: Journals that bridges read and stores that they deliver to, by the name in the URL: they outlive every end.
JOURNALS: Final[dict[str, FakeJournal]] = {}
STORES: Final[dict[str, FakeStore]] = {}
#: What every source here says of messages that wait, and since when, ms since the epoch.
LAG: Final = (7, 1)


def _name(url: str) -> str:
    return url.removeprefix("memory://")


class MemoryKind(EndKind):
    readers = "read=from-memory"

    def check_url(self, url: str) -> None:
        if not _name(url).isalnum():
            raise ValueError("must be memory://name")

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:
        return MemoryEnds(node)


class MemoryEnds(NodeEnds):
    def __init__(self, node: NodeContext) -> None:
        self._connectors = node.settings.connectors

    def source(self, lane: Lane) -> SourceEnd:
        bridge = lane.bridge
        name = _name(self._connectors[bridge.source_connector].url)
        source = FakeSource(JOURNALS[name], bridge.name)
        source.forward = bridge.target_address
        return SourceEnd(source, store=lambda: f"memory:{name}", lag=lambda: LAG)

    def target(self, lane: Lane) -> TargetEnd:
        name = _name(self._connectors[lane.bridge.static_connectors[0]].url)
        return TargetEnd(FakeTarget(STORES[name], lane.name, lane.previous_name))


KIND: Final = MemoryKind()
