"""The connectors of a bridge, of which it uses one.

It tries them in their order and stays where it is, for each change of store leaves a range in doubt
(`bridge.relay.store_change`). So of the connectors that answer it takes the one that leads to the store where
it was last, also after a restart; the first of the others where none does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from bridge.errors import TargetRefused, TargetStopping, TargetUnavailable, described
from bridge.relay.dead_letters import DeadLetterSink
from bridge.relay.ports import Target
from bridge.relay.session import Session
from bridge.relay.store_change import OtherStore

#: Why another store is not gone on with.
_REFUSES: Final = ' (failover = "refuse")'


@dataclass(frozen=True, slots=True)
class Connector:
    """One way to a target, not open."""

    #: The connector's name.
    name: str
    target: Target
    #: None: a message that the target refuses for good ends the bridge.
    dead_letters: DeadLetterSink | None = None
    #: The source's partitions that the target cannot take as it is, each with the reason.
    parked: Callable[[], Mapping[tuple[str, int], str]] = dict


class Connectors:
    """Connects a session by one of them."""

    def __init__(self, bridge: str, connectors: Sequence[Connector]) -> None:
        """`connectors`: at least one, in the order in which they are tried."""
        self._all = connectors
        #: The one by which the session was connected last.
        self._last = 0
        #: Whether the next try begins with the first, whatever store it leads to.
        self.returns = False
        self._log = structlog.get_logger().bind(bridge=bridge)

    @property
    def name(self) -> str:
        """Name of the connector in use, or used last; the first's before."""
        return self._all[self._last].name

    @property
    def first(self) -> Connector:
        """The one that fail-back goes to."""
        return self._all[0]

    @property
    def only(self) -> bool:
        """Whether there is one."""
        return len(self._all) == 1

    @property
    def at_first(self) -> bool:
        """Whether the first is the one in use, or used last."""
        return self._last == 0

    async def connect(self, session: Session, *, same: bool) -> None:
        """Connect once; the session's target is then the connector's.

        `same`: only by the connector used last. Otherwise each is tried, without a wait in between.

        Raises: TargetUnavailable: none answered. The other errors of `Session.connect`.
        """
        if self.returns:
            self.returns = False
            try:
                return await self._by(session, 0)
            except (TargetUnavailable, TargetRefused) as error:
                self._log.warning("failback-failed", connector=self.first.name, reason=described(error))
        if same or self.only:
            return await self._by(session, self._last)
        return await self._by_any(session)

    async def _by_any(self, session: Session) -> None:
        """Connect by the first that leads to the store where the bridge was last; else by the first.

        To no other store while a node is stopping: it may hand its messages over to one of the others, which
        does not answer for it yet. Nor, where the bridge may not change its store, while a connector does not
        answer: it may lead there.
        """
        others: list[int] = []
        errors: list[str] = []
        stopping = False
        for index in range(len(self._all)):
            try:
                return await self._by(session, index, may_change=False)
            except OtherStore as other:
                others.append(index)
                why = "" if session.changes_store else _REFUSES
                errors.append(f"{self._all[index].name}: another store than before, {other}{why}")
            except TargetUnavailable as error:
                errors.append(f"{self._all[index].name}: {described(error)}")
                stopping |= isinstance(error, TargetStopping)
        if stopping or (len(others) < len(self._all) and not session.changes_store):
            await session.target.close()
            raise TargetUnavailable("; ".join(errors))
        for index in others:
            try:
                return await self._by(session, index)
            except TargetUnavailable as error:
                errors.append(f"{self._all[index].name}: {described(error)}")
        raise TargetUnavailable("; ".join(errors))

    async def _by(self, session: Session, index: int, *, may_change: bool = True) -> None:
        connector = self._all[index]
        if session.target is not connector.target:
            await session.target.close()
            session.target, session.dead_letters = connector.target, connector.dead_letters
        session.target_name = connector.name
        session.connector = "" if self.only else connector.name
        await session.connect(may_change=may_change)
        self._last = index
        if self.at_first:  # reached, whether or not it was asked for meanwhile
            self.returns = False
