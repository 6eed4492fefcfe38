"""Holds what a report says of a bridge that fails over against what happened."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tests.verdicts.failover import FailoverWorld, Hub
from tests.verdicts.messages import Line

Place = tuple[str, int]


class FailoverJudge:
    """Of one history: `tests.verdicts.test_reconcile.Judge` says the same of bridges with one store."""

    def __init__(self, world: FailoverWorld, missing: Collection[int], said: Mapping[str, Collection[Place]]):
        """`missing`: lines that no file has; `said`: by kind of finding the places that were named."""
        self.world = world
        self.lines = [line for line in world.lines if line.order not in missing]
        self.unseen = {
            position
            for line in world.lines
            if line.order in missing and line.side == "received"
            for position in line.messages
        }
        self.is_whole = not missing
        self.said = {kind: {position for _, position in places} for kind, places in said.items()}
        self.copies = world.copies()

    def complaints(self) -> Iterator[str]:
        """What was said that is not so; nothing where no line shows that a store was put back."""
        yield from self._better()
        for position in self._named("lost") - self.unseen:
            if self.copies[position]:
                yield f"worse than the truth: {position} is said to be lost"
        for position in self._named("doubled"):
            if all(hub.disk.copies[position] < 2 for hub in self.world.hubs):
                yield f"worse than the truth: {position} is said to be doubled"
        if self.is_whole and not self.world.is_troubled:
            yield from self._not_exact()

    def _better(self) -> Iterator[str]:
        doubt = self._named("unknown") | self._named("unsent")
        for position in sorted(self._sent() - doubt - self._named("lost")):
            is_open = position in self._named("open") and not self._is_left_behind(position)
            comes_again = self._comes_again(position) or is_open
            if not self.copies[position] and not comes_again and self._shows(position):
                yield f"better than the truth: {position} is at no store, and is not sent again"
        for position, times in self.copies.items():
            if times > 1 and self.is_whole and position not in doubt | self._named("doubled"):
                yield f"better than the truth: {position} is there {times} times"

    def _not_exact(self) -> Iterator[str]:
        for kind in ("lost", "doubled", "unknown", "unsent"):
            if self._named(kind):
                yield f"not exact: {kind} {sorted(self._named(kind))[:5]}, and nothing was wrong"

    def _named(self, kind: str) -> set[int]:
        return self.said.get(kind, set())

    def _sent(self) -> set[int]:
        """What a store had confirmed, by the lines."""
        sent = (line for line in self.lines if line.side == "sent" and line.verdict is None)
        return {position for line in sent for position in line.messages}

    def _comes_again(self, position: int) -> bool:
        world = self.world
        return position not in world.gone and not world.is_stopped and position >= (world.at.disk.next or 0)

    def _is_left_behind(self, position: int) -> bool:
        """Whether a line shows that the bridge has gone on elsewhere since it sent the message, or has found
        it missing, or that it was at a store before. Else it may stand in a line that is not written down
        yet.
        """
        sent = [line for line in self.lines if line.side == "sent"]
        stores = {line.hub for line in sent if position in line.messages}
        return (
            any(line.upto > position and {line.hub} != stores for line in self.lines if not line.verdict)
            or any(line.from_ <= position < line.upto for line in sent if line.verdict)
            or any(position in line.messages for line in self._received())
        )

    def _shows(self, position: int) -> bool:
        """Whether no store's lines say that it has the message although it was put back: as long as it writes
        none, and the bridge does not come to it, nothing tells.
        """
        had = {line.hub for line in self._received() if position in line.messages}
        return not any(hub.life and hub.name in had and not self._tells(hub) for hub in self.world.hubs)

    def _tells(self, hub: Hub) -> bool:
        """Whether a line shows that the store is as it is now."""
        return any(line.hub == hub.name and line.life == hub.life for line in self._received())

    def _received(self) -> Iterator[Line]:
        return (line for line in self.lines if line.side == "received")
