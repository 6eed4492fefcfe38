"""A Kafka cluster as a kind of end: connectors with ``kafka://``. Bridges read and deliver there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from bridge import ends
from bridge.end_kind import (
    AuditSource,
    AuditTarget,
    EndKind,
    EndsOf,
    LogCopier,
    NodeContext,
    NodeEnds,
    RecordedLanes,
)
from bridge.kafka import checks
from bridge.runtime.tls import Role, TlsFiles
from bridge.settings import urls
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import Connector
from bridge.settings.end_rules import TlsTable, UsedKeys
from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath
from bridge.settings.problems import Finding

if TYPE_CHECKING:
    from bridge.delivery_log import SegmentWriter

_USED: Final = UsedKeys(
    connector=frozenset(("identity", "kafka")),
    source=frozenset(("start_position", "group_id", "open_transaction_warn_after_ms", "add_partitions")),
    target=frozenset(
        (
            "preserve_partitions",
            "create_topics",
            "add_partitions",
            "topic_replication_factor",
            "journal_topic",
            "journal_replication_factor",
        )
    ),
)
#: Keys of `[connectors.NAME.kafka]` that name the files of TLS.
_TLS_FILES: Final[Mapping[Role, str]] = {
    "authorities": "ssl-cafile",
    "certificate": "ssl-certfile",
    "key": "ssl-keyfile",
}


class KafkaKind(EndKind):
    """A cluster; aiokafka is loaded only where an end is made."""

    has_lanes = True
    takes_log = True
    stands_alone = True
    has_transactions = True
    #: A consumer that reads uncommitted also reads what was aborted and sent again.
    readers = "isolation.level=read_committed"
    audit_reader = "kafka"

    def used_keys(self, connector: Connector | None) -> UsedKeys:
        """All keys that begin with Kafka in the reference of the settings."""
        del connector
        return _USED

    def check_url(self, url: str) -> None:
        """Check the URL. Raises: ValueError: the rule that it breaks."""
        if not url.startswith(urls.KAFKA_SCHEME):
            raise ValueError(ends.url_rule())
        urls.brokers(url)

    def check_connector(self, path: KeyPath, connector: Connector) -> Iterator[Finding]:
        """Yield the errors in `[connectors.NAME.kafka]`."""
        if connector.kafka is not None:
            yield from checks.check_kafka((*path, "kafka"), connector.kafka)

    def tls(self, connector: Connector) -> Sequence[TlsTable]:
        """The TLS table of clients that speak TLS; each client reads its files when it connects."""
        kafka = connector.kafka
        if kafka is None or not kafka.security_protocol.endswith("SSL"):
            return ()
        files = TlsFiles(kafka.ssl_certfile, kafka.ssl_keyfile, kafka.ssl_cafile, kafka.ssl_password)
        return (TlsTable(files, _TLS_FILES, path=("kafka",)),)

    def check_bridge(self, path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:
        """Check names that Kafka takes, fail-overs, and topics that would feed themselves."""
        return checks.check_bridge(path, bridge, settings)

    def check_bridges(self, settings: Settings) -> Iterator[Finding]:
        """Check for names that two bridges have, and journal topics that others read or write."""
        return checks.check_bridges(settings)

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:
        """The sources and targets at clusters."""
        from bridge.kafka.node_ends import KafkaEnds

        return KafkaEnds(node, others)

    def audited(self, settings: Settings, connector: str, bridge: Bridge | None = None) -> object:
        """The cluster. Raises: SecurityUnusable: a certificate or key cannot be used."""
        from bridge.kafka.audited import FilteredEnd, KafkaEnd
        from bridge.kafka.client.options import kafka_connection

        connection = kafka_connection(connector, settings.connectors[connector])
        return KafkaEnd(connection) if bridge is None else FilteredEnd.of(connection, bridge, settings)

    def audit_source(self, settings: Settings, connector: str) -> AuditSource:
        """The cluster's topics as an audit's source. Raises: SecurityUnusable."""
        from bridge.kafka.audited import KafkaAuditSource

        return KafkaAuditSource(connector, settings.connectors[connector])

    def audit_target(self, settings: Settings, connector: str) -> AuditTarget:
        """The cluster's topics as an audit's target. Raises: SecurityUnusable."""
        from bridge.kafka.audited import KafkaAuditTarget

        return KafkaAuditTarget(connector, settings.connectors[connector])

    def recorded_lanes(self, settings: Settings, bridge: Bridge) -> RecordedLanes:
        """The number of lanes that the bridge's journal topic records."""
        from bridge.kafka.recorded_lanes import JournalTopicLanes

        return JournalTopicLanes(settings, bridge)

    def log_copier(
        self, settings: Settings, connector: str, topic: str, segments: SegmentWriter
    ) -> LogCopier:
        """Makes the task that copies the delivery log's files to a topic."""
        from bridge.kafka.client.options import kafka_connection
        from bridge.kafka.log_copy import LogCopy

        connection = kafka_connection(connector, settings.connectors[connector])
        return LogCopy(connection, topic, segments, node=settings.node.name)


KIND: Final = KafkaKind()
