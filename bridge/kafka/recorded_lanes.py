"""The number of lanes that a bridge's journal topic records, for `core-bridge lanes`."""

from __future__ import annotations

from bridge.kafka.client.options import kafka_connection
from bridge.kafka.journal_topic.generations import present, set_lanes
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings


class JournalTopicLanes:
    """Implements `bridge.end_kind.RecordedLanes` for a bridge to Kafka."""

    def __init__(self, settings: Settings, bridge: Bridge) -> None:
        target = bridge.static_connectors[0]
        self._connection = kafka_connection(target, settings.connectors[target])
        self._bridge = bridge.name
        self.place = bridge.own_topic

    async def now(self) -> int | None:
        """The recorded number; None: none is recorded. Raises: TargetUnavailable, TargetRefused."""
        found = await present(self._connection, self.place)
        return None if found is None else found.lanes

    async def set(self, lanes: int) -> None:
        """As `set_lanes`. Raises: TargetUnavailable, TargetRefused."""
        await set_lanes(self._connection, bridge=self._bridge, topic=self.place, lanes=lanes)
