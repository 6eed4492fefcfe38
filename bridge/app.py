"""The only place that wires: settings in, a running node out."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

from bridge import logs
from bridge.backoff import Backoff
from bridge.clock import Clock, SystemClock
from bridge.dead_letters import DeadLetters
from bridge.delivery_log import SegmentWriter
from bridge.http.acceptor import Acceptor
from bridge.http.guard import User
from bridge.http.limits import Limits
from bridge.http.links import LinkService
from bridge.journal.journal import Journal
from bridge.journal.options import AddressPolicy, BridgeQueue, JournalOptions
from bridge.journal.source import JournalSource
from bridge.journal.target import JournalTarget
from bridge.link.frames import Hello
from bridge.link.limits import VERSION
from bridge.link.node_target import NodeTarget
from bridge.link.receiving import NodeIdentity
from bridge.link.socket import Endpoint
from bridge.node import BridgeSummary, Node, NodeParts
from bridge.ports import Target
from bridge.relay import Relay, RelayOptions
from bridge.settings import load
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import JOURNAL, Connector
from bridge.settings.listeners import Acceptor as AcceptorSettings
from bridge.settings.model import Settings


def run_node(path: Path) -> int:
    """Run what the file at `path` describes until SIGTERM or SIGINT; 0 drained, 1 died.

    Raises:
        SettingsInvalid: with every problem.
        BridgeError, OSError: it could not start.
    """
    settings = load(path, os.environ)
    logs.configure(settings.node.log_level, settings.node.log_format, settings.node.name)
    node = Node(_Parts(settings), shutdown_timeout_ms=settings.node.shutdown_timeout_ms)
    return node.run()


class _Parts(NodeParts):
    """Makes the node's parts from its settings."""

    def __init__(self, settings: Settings, clock: Clock | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.persist_id_cache = settings.duplicate_detection.persist_id_cache
        operations = settings.operations
        self.operations = None if operations is None else (operations.url, operations.tokens)

    def journal_options(self) -> JournalOptions:
        """As the settings say."""
        settings = self.settings

        def policy(address: str) -> AddressPolicy:
            resolved = settings.for_address(address)
            return AddressPolicy(
                resolved.max_size_bytes,
                resolved.address_full_policy,
                resolved.id_cache_size,
                resolved.auto_create_addresses,
            )

        acceptor = settings.acceptor or AcceptorSettings()
        return JournalOptions(
            directory=settings.node.data_directory,
            node=settings.node.name,
            policy=policy,
            persist_id_cache=settings.duplicate_detection.persist_id_cache,
            addresses={name: address.queues for name, address in settings.addresses.items()},
            bridges=[
                BridgeQueue(bridge.name, bridge.plain_addresses, bridge.selects)
                for bridge in settings.bridges
                if bridge.source_connector == JOURNAL
            ],
            max_message_bytes=acceptor.max_message_size_bytes,
            delivery_log=settings.delivery_log.enabled,
        )

    def segments(self) -> SegmentWriter | None:
        """The delivery log's files; None where it is off."""
        log = self.settings.delivery_log
        if not log.enabled:
            return None
        return SegmentWriter(
            self.settings.delivery_log_directory,
            self.settings.node.name,
            roll_interval_ms=log.roll_interval_ms,
            roll_size=log.roll_size_bytes,
            retention_time_ms=log.retention_time_ms,
            retention_size=log.retention_size_bytes,
            clock=self.clock,
        )

    def links(self, journal: Journal) -> LinkService:
        """The receiving end of node links."""
        options = journal.options
        identity = NodeIdentity(
            node_id=journal.identity.node_id,
            node_name=options.node,
            store=journal.store,
            max_message_size=options.max_message_bytes,
        )
        return LinkService(
            lambda hello: JournalTarget(journal, hello.bridge, check_producer_ids=hello.check_producer_ids),
            identity,
            call_timeout_ms=options.call_timeout_ms,
            clock=self.clock,
        )

    def acceptor(self, node: Node, journal: Journal, links: LinkService) -> Acceptor | None:
        """The acceptor; None where there is none."""
        settings = self.settings.acceptor
        if settings is None:
            return None
        return Acceptor(
            journal,
            url=settings.url,
            tokens=settings.tokens,
            users=[
                User(user.name, user.token, user.certificate_name, user.send, user.receive, user.link)
                for user in settings.users
            ],
            allowed_origins=settings.allowed_origins,
            ssl_context=_server_context(settings),
            limits=Limits(
                max_message_size=settings.max_message_size_bytes,
                max_headers_size=settings.max_headers_size_bytes,
                max_duplicate_id_size=settings.max_duplicate_id_size_bytes,
                max_requests=settings.max_requests,
                max_connections=settings.max_connections,
            ),
            link=links.serve,
            bridge_state=node.bridge_state,
        )

    def bridges(self, journal: Journal) -> Mapping[str, tuple[Relay, BridgeSummary]]:
        """A relay for each bridge."""
        return {
            bridge.name: (self._relay(bridge, journal), self._summary(bridge))
            for bridge in self.settings.bridges
        }

    def _summary(self, bridge: Bridge) -> BridgeSummary:
        sizes = [self.settings.for_address(address).id_cache_size for address in bridge.plain_addresses]
        return BridgeSummary(
            source=f"{bridge.source_connector}:{','.join(bridge.queue_names)}",
            target=",".join(bridge.static_connectors),
            guarantee=bridge.guarantee,
            check_producer_ids=bridge.checks_producer_ids,
            id_cache_size=min(sizes, default=self.settings.duplicate_detection.id_cache_size),
        )

    def _relay(self, bridge: Bridge, journal: Journal) -> Relay:
        source = JournalSource(
            journal,
            bridge.name,
            selects=bridge.selects,
            forward=bridge.target_address,
            stamp=bridge.use_duplicate_detection,
            batch_bytes=bridge.producer_window_size_bytes,
            large_bytes=bridge.min_large_message_size_bytes,
            target_name=bridge.static_connectors[0],
        )
        dead_letters = None
        if bridge.dead_letter_address:
            dead_letters = DeadLetters(
                bridge.name,
                bridge.dead_letter_address,
                lambda name: JournalTarget(journal, name, check_producer_ids=False),
            )
        options = RelayOptions(
            bridge.name,
            Backoff(bridge.retry_interval_ms, bridge.retry_interval_multiplier, bridge.max_retry_interval_ms),
            bridge.initial_connect_attempts,
            bridge.reconnect_attempts,
            bridge.confirmation_window_size_bytes,
            bridge.pending_ack_timeout_ms,
        )
        target = self._target(bridge, journal)
        return Relay(options, source, target, clock=self.clock, dead_letters=dead_letters)

    def _target(self, bridge: Bridge, journal: Journal) -> Target:
        name = bridge.static_connectors[0]
        if name == JOURNAL:
            return JournalTarget(journal, bridge.name, check_producer_ids=bridge.checks_producer_ids)
        connector = self.settings.connectors[name]
        hello = Hello(
            version=VERSION,
            node_id=journal.identity.node_id,
            node_name=self.settings.node.name,
            store=journal.store,
            bridge=bridge.name,
            check_producer_ids=bridge.checks_producer_ids,
            use_duplicate_detection=bridge.use_duplicate_detection,
            producer_window=bridge.producer_window_size_bytes,
            check_period_ms=bridge.check_period_ms,
            connection_ttl_ms=bridge.connection_ttl_ms,
        )
        endpoint = Endpoint(
            connector.url, connector.token, _client_context(connector), connector.server_name or None
        )
        return NodeTarget(endpoint, hello, call_timeout_ms=bridge.call_timeout_ms, clock=self.clock)


def _server_context(settings: AcceptorSettings) -> ssl.SSLContext | None:
    if settings.certificate is None or settings.key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(settings.certificate, settings.key)
    if settings.client_ca is not None:
        context.load_verify_locations(settings.client_ca)
        # A token serves as well, so a certificate is asked for but not required.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _client_context(connector: Connector) -> ssl.SSLContext | None:
    if not connector.url.startswith("wss"):
        return None
    context = ssl.create_default_context(cafile=connector.ca)
    if connector.certificate is not None:
        context.load_cert_chain(connector.certificate, connector.key)
    return context
