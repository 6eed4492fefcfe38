"""The parts that sources, targets and replays of one process share: connections and journal topics."""

from __future__ import annotations

from functools import partial

from bridge.end_kind import EndsOf, NodeContext, kind_of
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.options import kafka_connection
from bridge.kafka.journal_topic.journal_topic import JournalTopic
from bridge.kafka.journal_topic.options import JournalOptions, StateOptions
from bridge.kafka.journal_topic.origin import Origin, journal_origin
from bridge.kafka.source.options import TopicSelection
from bridge.kafka.target.options import SourceConfigs
from bridge.kafka.target.source_configs import source_configs
from bridge.kafka.target.target import KafkaTargetOptions
from bridge.settings import kafka_names, urls
from bridge.settings.bridges import Bridge
from bridge.settings.selectors import ADDRESS_PLACE


class KafkaParts:
    """Makes the parts as the settings say."""

    def __init__(self, node: NodeContext, others: EndsOf) -> None:
        self.node = node
        self._others = others
        #: The warnings about journal topics that were logged: one set for all lanes.
        self._warned: set[str] = set()

    def connection(self, name: str) -> KafkaConnection:
        """The connection to the cluster that a connector names."""
        return kafka_connection(name, self.node.settings.connectors[name])

    def topics(self, bridge: Bridge) -> TopicSelection:
        """The topics that a bridge reads."""
        return TopicSelection(
            selects=bridge.selects_topic,
            forward=bridge.target_address,
            names=bridge.plain_addresses,
            names_only=bridge.names_only,
            routing_type=bridge.target_routing_type(""),
        )

    def target_options(self, bridge: Bridge) -> KafkaTargetOptions:
        """The bridge's settings that concern its target."""
        return KafkaTargetOptions(
            stamp=bridge.use_duplicate_detection,
            check_producer_ids=bridge.checks_producer_ids,
            transactions=bridge.use_duplicate_detection,
            preserve_partitions=bridge.preserve_partitions,
            create_topics=bridge.create_topics,
            source_configs=self._source_configs(bridge),
            add_partitions=bridge.add_partitions,
            topic_replication_factor=bridge.topic_replication_factor,
            dead_letter_address=bridge.dead_letter_address,
            bridge=bridge.name,
            node=self.node.settings.node.name,
            node_id=self.node.node_id,
            target_name=bridge.static_connectors[0],
        )

    def _source_configs(self, bridge: Bridge) -> SourceConfigs | None:
        """Reads the configuration of source topics, where each has a target topic of its own."""
        connector = self.node.settings.connectors.get(bridge.source_connector)
        if connector is None or not connector.url.startswith(urls.KAFKA_SCHEME):
            return None
        is_one = bridge.names_only and len(bridge.plain_addresses) == 1
        if not is_one and bridge.forwarding_address and ADDRESS_PLACE not in bridge.forwarding_address:
            return None
        return partial(source_configs, self.connection(bridge.source_connector))

    def journal_topic(self, bridge: Bridge) -> JournalTopic:
        """The journal topic in which a bridge to Kafka keeps what its target covers."""
        settings = self.node.settings
        has_lanes = kind_of(settings, bridge.source_connector).has_lanes
        options = JournalOptions(
            bridge=bridge.name,
            topic=bridge.own_topic,
            lanes=bridge.concurrency if has_lanes else 1,
            replication_factor=bridge.journal_replication_factor,
            previous_topic=kafka_names.journal_topic(bridge.previous_name) if bridge.previous_name else "",
            state=StateOptions(
                owner=self.owner(bridge),
                id_cache_size=lambda address: settings.for_address(address).id_cache_size,
                persist_ids=settings.duplicate_detection.persist_id_cache,
            ),
        )
        connection = self.connection(bridge.static_connectors[0])
        return JournalTopic(connection, options, origin=self._origin(bridge), warned=self._warned)

    def replays_topic(self, bridge: Bridge) -> JournalTopic:
        """The journal topic in which a bridge to Kafka keeps what replay plans have covered."""
        options = JournalOptions(
            bridge=bridge.name,
            topic=kafka_names.replays_topic(bridge.name),
            lanes=1,
            replication_factor=bridge.journal_replication_factor,
            state=StateOptions(owner=self.owner(bridge), id_cache_size=lambda _address: 0, persist_ids=False),
        )
        connection = self.connection(bridge.static_connectors[0])
        return JournalTopic(connection, options, origin=self._origin(bridge))

    def owner(self, bridge: Bridge) -> str:
        """The owner of the journal records: the node's id where the source is the node itself, else empty."""
        is_own = kind_of(self.node.settings, bridge.source_connector).is_own
        return self.node.node_id if is_own else ""

    def _origin(self, bridge: Bridge) -> Origin:
        """The function that says where the bridge's messages come from."""
        if kind_of(self.node.settings, bridge.source_connector).is_own:
            return journal_origin
        return partial(self._others(bridge.source_connector).origin, bridge.source_connector)
