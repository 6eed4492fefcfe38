"""The groups by which workers share a bridge's lanes: at the target, or on the source (design section 5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.lanes.group_ownership import GroupOwnership


class JournalTopicOwnership(GroupOwnership):
    """Kafka to Kafka: a group at the target, lane i being partition i of the journal topic.

    It never asks for the topic, so it cannot make it either; partitions beyond `lanes` belong to no member.
    `prepare` is awaited before each join: a process that cannot use the journal topic owns no lane.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        group: str,
        topic: str,
        lanes: int,
        name: str = "",
        prepare: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        super().__init__(connection, group=group, lanes=lanes, side="target", topic=topic, name=name)
        self._prepare = prepare

    async def open(self) -> None:
        """As `GroupOwnership.open`, once `prepare` has checked the journal topic."""
        if self._prepare is not None:
            await self._prepare()
        await super().open()


class SourceOwnership(GroupOwnership):
    """Kafka to node: a group at the source. Lanes are shared by number, independent of the topics."""

    def __init__(
        self, connection: KafkaConnection, *, group: str, lanes: int, bridge: str = "", name: str = ""
    ) -> None:
        super().__init__(connection, group=group, lanes=lanes, side="source", bridge=bridge, name=name)
