"""Routers of a node that is in no cluster: only where clients' messages are stored is theirs to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from bridge.journal.values.routing import Destination, Placement, Routing, Undo
from bridge.messages.addresses import WantedType

Rule: TypeAlias = Callable[[Routing], Sequence[Placement] | None]


class Alone:
    """What a router says that has no other nodes; `__call__` is its subclass's."""

    taken_over_at = ""

    def made_as(self, _address: str) -> WantedType:
        return ""

    def queue_here(self, name: str) -> str | None:
        return name

    def onward(self, address: str, name: str, _undo: Undo) -> Destination | str:
        return f"QUEUE_GONE: {address}::{name}"


class Routed(Alone):
    """Messages are stored where a function says."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def __call__(self, routing: Routing) -> Sequence[Placement] | None:
        return self._rule(routing)
