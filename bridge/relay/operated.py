"""A bridge as its operator sees it, whatever stands behind: a relay, lanes, or worker processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bridge.relay.lifecycle import Command, State
from bridge.relay.pump import Counts


class Operated(Protocol):
    """What operations, metrics and the node need of a bridge."""

    @property
    def state(self) -> State:
        """Of the whole."""

    @property
    def reason(self) -> str:
        """Why it is FAILED; empty otherwise."""

    @property
    def counts(self) -> Counts:
        """In sum, since the node started."""

    @property
    def in_flight(self) -> int:
        """Messages sent and not confirmed."""

    @property
    def store(self) -> str:
        """Store identity of the target, once it has answered."""

    @property
    def connected(self) -> bool:
        """Whether a session is on."""

    @property
    def lag(self) -> tuple[int, int | None] | None:
        """Messages that wait at the source, and when the oldest came, ms since the epoch (None: none waits).

        None where this node's journal is the source: the journal knows.
        """

    @property
    def held(self) -> Sequence[int] | None:
        """The lanes that this node has now, in order; None where the bridge has no lanes."""

    async def command(self, command: Command) -> None:
        """Do as asked; returns when it is done (start and resume: begun).

        Raises:
            Conflict: the state forbids it.
        """
