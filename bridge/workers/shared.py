"""Settings that a node and its workers must agree on: the settings file, and the bridges that run in
workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from bridge.end_kind import kind_of
from bridge.errors import BridgeError
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings


class SettingsChanged(BridgeError):
    """The settings file is not the one that the node runs by: one node must not relay by two settings."""

    code = "SETTINGS_CHANGED"


def bridges_in_workers(settings: Settings) -> Sequence[Bridge]:
    """Bridges that need no journal of this node: from Kafka to Kafka (design section 5)."""

    def stands_alone(bridge: Bridge) -> bool:
        ends = (bridge.source_connector, *bridge.static_connectors)
        return all(kind_of(settings, connector).stands_alone for connector in ends)

    return [bridge for bridge in settings.bridges if stands_alone(bridge)]


def settings_digest(path: Path) -> str:
    """SHA-256 of the file at `path`, in hex.

    Raises:
        OSError: it cannot be read.
    """
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_settings(path: Path, expected: str) -> None:
    """Compare the file with the digest of the node's.

    Raises:
        SettingsChanged: it is another one.
        OSError: it cannot be read.
    """
    found = settings_digest(path)
    if found != expected:
        raise SettingsChanged(
            f"{path} has changed since the node read it: let the node reload it, or put back what it was",
            key="settings",
            limit=expected,
            found=found,
        )
