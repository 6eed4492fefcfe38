"""A bridge as its operator sees it, whether a relay, lanes, or worker processes implement it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bridge.relay.counts import Counts
from bridge.relay.lag import Lag, PartitionStatus
from bridge.relay.lifecycle import Command, State
from bridge.relay.line import LineStatus


class Operated(Protocol):
    """The view of a bridge that operations, metrics and the node need."""

    @property
    def state(self) -> State:
        """The state of the whole bridge."""

    @property
    def reason(self) -> str:
        """The reason why it is FAILED; empty otherwise."""

    @property
    def counts(self) -> Counts:
        """The sum of its counts since the node started."""

    @property
    def in_flight(self) -> int:
        """Messages sent and not confirmed."""

    @property
    def line(self) -> LineStatus | None:
        """The lines of its lanes together; None: it has none now, or other processes have them."""

    @property
    def store(self) -> str:
        """Store identity of the target, once it has answered."""

    @property
    def connector(self) -> str:
        """Name of the target's connector in use, or used last; empty: it is not known here."""

    @property
    def connected(self) -> bool:
        """Whether a session is on."""

    @property
    def lag(self) -> Lag | None:
        """Messages that wait at the source, and when the oldest came, ms since the epoch (None: none waits).

        None: it is not known. Where this node's journal is the source, that has the lag, and this is None.
        """

    async def partitions(self) -> Sequence[PartitionStatus]:
        """The partitions of a Kafka source that this process reads, in order; none where it has none."""

    @property
    def lanes_known(self) -> bool:
        """Whether it was ever known which lanes are this process's; `lag` is that of all lanes until then."""

    @property
    def owned_lanes(self) -> Sequence[int] | None:
        """The lanes that this node has now, in order; None where the bridge has no lanes."""

    async def command(self, command: Command) -> None:
        """Carry the command out; returns when it is done (start, resume and failback: begun).

        Raises:
            Conflict: the state forbids it, or failback has nowhere to go.
        """
