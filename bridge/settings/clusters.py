"""`[[cluster-connections]]`: how this node finds the other nodes and shares its queues with them."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from bridge.settings.bridges import LongestRetryMs
from bridge.settings.fields import (
    Attempts,
    BlockSizeBytes,
    Count,
    CountOrNone,
    Flag,
    Multiplier,
    PositiveTimeMs,
    PositiveTimeOrNeverMs,
    SizeBytes,
    Table,
    UserName,
    setting,
)
from bridge.settings.prefixes import Prefixes

_DISCOVERY: Final = re.compile(r"dns://[A-Za-z0-9._-]+:[1-9][0-9]{0,4}")


def _discovery(value: str) -> str:
    if value and not _DISCOVERY.fullmatch(value):
        raise ValueError("must be dns://name:port, or empty")
    return value


def _prefixes(value: str) -> str:
    Prefixes.of(value)
    return value


class ClusterConnection(Table):
    """One cluster that this node belongs to."""

    name: UserName = setting("Unique; what logs and status call the cluster.")
    address: Annotated[str, AfterValidator(_prefixes)] = setting(
        "Prefixes of shared addresses, comma separated, '!' excludes; empty: all.", ""
    )
    connector_ref: str = setting(
        "Connector by which the others reach this node; its token, ca and certificate serve for "
        "discovered peers."
    )
    static_connectors: tuple[str, ...] = setting(
        "First contacts, or Kafka targets to fan out to; required unless discovery is set.", ()
    )
    discovery: Annotated[str, AfterValidator(_discovery)] = setting(
        '"dns://name:port", asked again every check-period.', ""
    )
    allow_direct_connections_only: Flag = setting(
        "Links to the nodes of static-connectors only, not to those that these know.", False
    )
    use_duplicate_detection: Flag = setting("As for bridges: false is at least once, nothing more.", True)
    message_load_balancing: Literal["OFF", "STRICT", "ON_DEMAND", "OFF_WITH_REDISTRIBUTION"] = setting(
        "Where messages go that several nodes have the queue for: OFF (they stay), STRICT (to all "
        "in turn), ON_DEMAND (to nodes with readers), OFF_WITH_REDISTRIBUTION.",
        "ON_DEMAND",
    )
    max_hops: CountOrNone = setting("Most nodes that a message may pass.", 1)
    reader_timeout_ms: PositiveTimeMs = setting(
        "A queue has a reader for this long after it was asked for messages.", "10s"
    )
    retry_interval_ms: PositiveTimeMs = setting("Wait before connecting again.", 500)
    retry_interval_multiplier: Multiplier = setting("Each further wait is this much longer.", 1.0)
    max_retry_interval_ms: LongestRetryMs = setting("Longest wait; never below retry-interval.", 2000)
    initial_connect_attempts: Attempts = setting(
        "Attempts to reach a node for the first time; -1 no end.", -1
    )
    reconnect_attempts: Attempts = setting("Attempts to reach it again; -1 no end.", -1)
    check_period_ms: PositiveTimeOrNeverMs = setting(
        "A ping goes out after this long without a whole frame; -1 never.", 30_000
    )
    connection_ttl_ms: PositiveTimeOrNeverMs = setting(
        "A link is dead after this long without a byte; longer than check-period; -1 never. A frame that "
        "has begun has to come at 100 bytes a second at least.",
        60_000,
    )
    call_timeout_ms: PositiveTimeMs = setting("Longest wait for the handshake.", 30_000)
    notification_interval_ms: PositiveTimeMs = setting(
        "Between attempts to tell the others of this node.", 1000
    )
    notification_attempts: Count = setting("How often the others are told.", 2)
    confirmation_window_size_bytes: SizeBytes = setting("Most bytes sent and not yet confirmed.", "10MiB")
    producer_window_size_bytes: BlockSizeBytes = setting(
        "Largest batch, and the step in which a receiver grants credit.", "1MiB"
    )
    min_large_message_size_bytes: SizeBytes = setting(
        "From here on a message travels in a frame of its own.", "100KiB"
    )
