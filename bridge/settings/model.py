"""The whole of `settings.toml` as frozen values: times in ms, sizes in bytes, paths resolved.

Keys are written in kebab-case without units (``retry-interval``); attributes in snake_case with units
(``retry_interval_ms``). Names and defaults are Artemis's where Artemis has the option.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bridge import ends
from bridge.ends import JOURNAL
from bridge.settings.addresses import Address, AddressSettings, AddressSettingsTable, resolve
from bridge.settings.bridges import Bridge
from bridge.settings.clusters import ClusterConnection
from bridge.settings.connectors import Connector
from bridge.settings.end_rules import EndRules
from bridge.settings.fields import (
    CountOrNone,
    DirectoryPath,
    Flag,
    Name,
    OptionalPath,
    PositiveTimeOrNeverMs,
    SizeBytes,
    Table,
    TimeMs,
    Workers,
    setting,
)
from bridge.settings.listeners import Acceptor, Operations


class Node(Table):
    """The settings of this node."""

    name: Name = setting(
        "Label in logs, metrics and delivery logs; default: the host name.",
        json_schema_extra={"default": "the host name"},
    )
    data_directory: DirectoryPath = setting(
        "Holds journal.sqlite and delivery-log/; on a local disk. Relative to this file.", "data"
    )
    workers: Workers = setting("Processes that serve Kafka to Kafka bridges.", 1)
    shutdown_timeout_ms: TimeMs = setting(
        "Bounds the drain after SIGTERM; what is unconfirmed stays queued.", "20s"
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "debug, info, warning or error.", "info"
    )
    log_format: Literal["auto", "console", "json"] = setting(
        "auto (console on a terminal, else json), console or json.", "auto"
    )
    watch_settings: Flag = setting(
        "Whether the node [reloads](operations.md#changing-settings-while-it-runs) this file if it changes.",
        False,
    )


class DuplicateDetection(Table):
    """The cache of duplicate IDs."""

    id_cache_size: CountOrNone = setting(
        "Duplicate IDs remembered per address; 0 turns the check off.", 20_000
    )
    persist_id_cache: Flag = setting("Whether they outlive a restart.", True)


class DeliveryLog(Table):
    """The log that `reconcile` reads."""

    enabled: Flag = setting("Whether it is written.", True)
    directory: OptionalPath = setting(
        "Where to; default: delivery-log in the data directory. Relative to this file.",
        "",
        json_schema_extra={"default": "<data-directory>/delivery-log"},
    )
    roll_interval_ms: PositiveTimeOrNeverMs = setting("A new segment after this long; -1 never.", "60s")
    roll_size_bytes: SizeBytes = setting("A new segment from this size on.", "64MiB")
    retention_time_ms: PositiveTimeOrNeverMs = setting(
        "Segments older than this are deleted; -1 never.", "7d"
    )
    retention_size_bytes: SizeBytes = setting(
        "The oldest segments are deleted above this size in all.", "10GiB"
    )
    kafka_connector: str = setting(
        "Connector of a Kafka cluster that gets a copy of every line; empty: none. The files remain.", ""
    )
    kafka_topic: Name = setting("The topic of the copy, which must be there.", "core-bridge.delivery-log")


class Settings(Table):
    """All settings of one file."""

    node: Node = setting("This node.")
    acceptor: Acceptor | None = setting(
        "Where messages come in. Absent: nothing listens for messages; empty: these defaults.", None
    )
    operations: Operations | None = setting(
        "Probes, metrics and management. Absent: not opened; empty: these defaults.", None
    )
    duplicate_detection: DuplicateDetection = setting(
        "What is remembered of duplicate IDs, so that a message sent again is rejected.", {}
    )
    delivery_log: DeliveryLog = setting(
        "One line per batch on both sides of a bridge; `reconcile` reads them.", {}
    )
    address_settings: dict[str, AddressSettingsTable] = setting(
        "Limits of the addresses that a pattern means. '.' separates words, '*' is one word, '#' "
        "any number; key by key an exact name counts before '*', and '*' before '#'. Patterns are "
        "quoted.",
        {},
    )
    addresses: dict[str, Address] = setting(
        'Addresses made at start. Names with dots are quoted: [addresses."orders.eu"].', {}
    )
    connectors: dict[str, Connector] = setting(
        "How to reach other nodes and Kafka clusters, by a name that bridges refer to.", {}
    )
    bridges: tuple[Bridge, ...] = setting("What is read where and where it goes; any number.", ())
    cluster_connections: tuple[ClusterConnection, ...] = setting(
        "Clusters that this node belongs to; any number.", ()
    )

    @property
    def delivery_log_directory(self) -> Path:
        """The directory of delivery logs."""
        return self.delivery_log.directory or self.node.data_directory / "delivery-log"

    def has_end(self, name: str) -> bool:
        """Whether a bridge can name it as an end: a connector, or this node's journal."""
        return name == JOURNAL or name in self.connectors

    def end_rules(self, connector: str) -> EndRules:
        """The rules of the end that a bridge names: a connector, or this node's journal."""
        if connector != JOURNAL:
            return self.connectors[connector].end_rules
        own: EndRules = ends.kind(JOURNAL)
        return own

    def for_address(self, name: str) -> AddressSettings:
        """The settings of one address, key by key: exact over '*' over '#'."""
        return resolve(self.address_settings, name, id_cache_size=self.duplicate_detection.id_cache_size)
