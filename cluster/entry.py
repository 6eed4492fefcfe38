"""The entry point: makes the extension of a node whose settings have cluster connections."""

from __future__ import annotations

from bridge.node.extension import Extension
from bridge.settings.model import Settings


def extension(settings: Settings) -> Extension | None:
    """The cluster's extension; None: the settings name no cluster connection. Loads the rest where needed."""
    if not settings.cluster_connections:
        return None
    from cluster.extension import ClusterExtension

    return ClusterExtension(settings)
