"""The bridges that run in worker processes, by the settings that a node and its workers share."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.end_kind import kind_of
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings


def bridges_in_workers(settings: Settings) -> Sequence[Bridge]:
    """Bridges that need no journal of this node: from Kafka to Kafka (design section 5)."""

    def stands_alone(bridge: Bridge) -> bool:
        ends = (bridge.source_connector, *bridge.static_connectors)
        return all(kind_of(settings, connector).stands_alone for connector in ends)

    return [bridge for bridge in settings.bridges if stands_alone(bridge)]
