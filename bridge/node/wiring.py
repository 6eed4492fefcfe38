"""Makes a running node from the settings. With `bridge.assembly`, the only place that wires."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from bridge.assembly.bridges import Assembly
from bridge.assembly.context import node_context
from bridge.assembly.credentials import Credentials
from bridge.assembly.summary import BridgeSummary
from bridge.delivery_log import GatheringWriter, LogThread, SegmentLimits, SegmentWriter, WriteLines
from bridge.end_kind import LogCopier, kind_of
from bridge.http.acceptor import Acceptor, AcceptorOptions
from bridge.http.authentication import Principal
from bridge.http.limits import Limits
from bridge.http.links import LinkService
from bridge.http.operations import NodeControl
from bridge.journal.dead_letters import DeadLetterService, Route
from bridge.journal.journal import Journal
from bridge.journal.node_ends import bridge_queue, present_here
from bridge.journal.rules.owners import EVERY_RIGHT, Caller
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import AddressPolicy, JournalOptions, UnusedPolicy
from bridge.link.correspondent import LinkEnd
from bridge.link.frames import Hello
from bridge.link.receiving import NodeIdentity
from bridge.messages.message import WHOLE_BODY_BYTES
from bridge.node.bridge_set import BridgeSet
from bridge.node.extension import Extension, NodeServices, installed
from bridge.node.node import Node, NodeParts
from bridge.node.operations import Control
from bridge.node.reload import Reloads
from bridge.node.replays import Replays
from bridge.relay.operated import Operated
from bridge.relay.shared_lines import SharedLines
from bridge.relay.transforming import Transformers
from bridge.runtime import logs, memory
from bridge.runtime.clock import Clock, SystemClock
from bridge.settings import SettingsFile
from bridge.settings.bridges import Bridge
from bridge.settings.listeners import Acceptor as AcceptorSettings
from bridge.settings.model import Settings
from bridge.workers.process import Launcher
from bridge.workers.shared import bridges_in_workers
from bridge.workers.supervisor import Supervisor


def run_node(path: Path) -> int:
    """Run the node that the file at `path` describes until SIGTERM or SIGINT; returns 0 when drained, 1 when
    it died.

    Raises:
        SettingsInvalid: with every problem.
        BridgeError, OSError: it could not start.
    """
    file = SettingsFile(path, os.environ)
    settings = file.settings(transformers=True)
    logs.configure(settings.node.log_level, settings.node.log_format, settings.node.name)
    node = made_node(settings, file, Credentials(settings, file))
    memory.tune()
    return node.run()


def made_node(
    settings: Settings, file: SettingsFile, credentials: Credentials, extensions: Sequence[Extension] = ()
) -> Node:
    """The node that the settings of the file describe, not started; `extensions` are further ones."""
    parts = _Parts(settings, file, credentials, [*installed(settings), *extensions])
    return Node(parts)


def journal_options(settings: Settings) -> JournalOptions:
    """The options for opening the journal, by the settings."""

    def policy(address: str) -> AddressPolicy:
        resolved = settings.for_address(address)
        declared = settings.addresses.get(address)
        return AddressPolicy(
            resolved.max_size_bytes,
            resolved.address_full_policy,
            resolved.id_cache_size,
            resolved.auto_create_addresses,
            resolved.retain_time_ms,
            "MULTICAST" if declared is None else declared.routing_type,
            UnusedPolicy(
                resolved.auto_create_queues,
                resolved.auto_delete_queues,
                resolved.auto_delete_queues_delay_ms,
                resolved.auto_delete_queues_message_count,
                resolved.auto_delete_queues_skip_usage_check,
                resolved.auto_delete_created_queues,
                resolved.auto_delete_addresses,
                resolved.auto_delete_addresses_delay_ms,
                resolved.auto_delete_addresses_skip_usage_check,
            ),
        )

    acceptor = settings.acceptor or AcceptorSettings()
    return JournalOptions(
        directory=settings.node.data_directory,
        node=settings.node.name,
        policy=policy,
        persist_id_cache=settings.duplicate_detection.persist_id_cache,
        addresses={
            name: [queue.name for queue in address.queues] for name, address in settings.addresses.items()
        },
        queue_filters={
            name: {queue.name: queue.filter for queue in address.queues}
            for name, address in settings.addresses.items()
        },
        bridges=[
            bridge_queue(bridge, settings)
            for bridge in settings.bridges
            if kind_of(settings, bridge.source_connector).is_own
        ],
        max_message_bytes=acceptor.max_message_size_bytes,
        # The other half of the slots is for sends that are not held.
        max_held_requests=max(min(acceptor.max_held_requests, acceptor.max_requests // 2), 1),
        max_held_bytes=acceptor.max_held_size_bytes,
        max_id_bytes=acceptor.max_duplicate_id_size_bytes,
        call_timeout_ms=acceptor.call_timeout_ms,
        max_addresses=acceptor.max_addresses,
        max_queues=acceptor.max_queues,
        dead_letter_address=DEAD_LETTERS,
        deletes_unused=any(
            table.auto_delete_queues or table.auto_delete_addresses
            for table in settings.address_settings.values()
        ),
        delivery_log=settings.delivery_log.enabled,
    )


#: Default of `dead-letter-address`; bridges of other nodes store their dead letters here, too.
DEAD_LETTERS: Final = "dead-letters"


#: File in the data directory with the number of the delivery log's newest file.
_LAST_NUMBER: Final = "delivery-log.number"


class _Parts(NodeParts):
    """Makes the node's parts from its settings."""

    def __init__(
        self,
        settings: Settings,
        file: SettingsFile,
        credentials: Credentials,
        extensions: Sequence[Extension],
    ) -> None:
        self.settings = settings
        self.path = file.path
        #: Of the open node; None: it is not open.
        self._services: NodeServices | None = None
        self._transformers = Transformers()
        self._shared_lines = SharedLines()
        self.credentials = credentials
        self.clock: Clock = SystemClock()
        self.persist_id_cache = settings.duplicate_detection.persist_id_cache
        self.extensions: list[Extension] = [Replays(), *extensions]
        operations = settings.operations
        self.operations = None if operations is None else operations.url
        self.partition_metrics = operations is not None and operations.partition_metrics
        self._segments = self._make_segments()
        #: Writes the lines of all bridges together that no outbox keeps.
        self._log_files = None if self._segments is None else LogThread(self._segments)
        self._write_lines = None if self._log_files is None else GatheringWriter(self._log_files).write
        self.supervisor = _supervisor(settings, file, self.clock, self._write_lines)

    @property
    def shutdown_timeout_ms(self) -> int:
        """``shutdown-timeout``."""
        return self.settings.node.shutdown_timeout_ms

    def reloads(self, node: Node) -> Reloads:
        """The reloads of the node's settings while it runs."""
        return Reloads(node, self)

    def options_by(self, settings: Settings) -> JournalOptions:
        """The options of the journal by these settings."""
        return journal_options(settings)

    def adopt(self, settings: Settings, text: str, anew: Sequence[str]) -> None:
        """Make everything by these settings from now on (`bridge.node.reload.ReloadedParts.adopt`)."""
        services = self._services
        assert services is not None, "the node has started"
        if _logged_otherwise(self.settings, settings):
            logs.configure(settings.node.log_level, settings.node.log_format, settings.node.name)
        self.settings = services.settings = settings
        services.assembly = self._assembly(services.journal)
        if self.supervisor is not None:
            names = [bridge.name for bridge in bridges_in_workers(settings)]
            self.supervisor.renew(text, names, anew, self.shutdown_timeout_ms)

    def journal_options(self) -> JournalOptions:
        """The options for opening the journal, by the settings; the first router of an extension counts."""
        routers = (extension.router() for extension in self.extensions)
        return replace(journal_options(self.settings), router=next(filter(None, routers), None))

    def log_files(self) -> LogThread | None:
        """The delivery log's files; None where it is off."""
        return self._log_files

    def log_copy(self) -> LogCopier | None:
        """Copies the delivery log to a topic; None where none is wanted."""
        name = self.settings.delivery_log.kafka_connector
        if not name or self._segments is None:
            return None
        topic = self.settings.delivery_log.kafka_topic
        return kind_of(self.settings, name).log_copier(self.settings, name, topic, self._segments)

    def _make_segments(self) -> SegmentWriter | None:
        log = self.settings.delivery_log
        if not log.enabled:
            return None
        return SegmentWriter(
            self.settings.delivery_log_directory,
            self.settings.node.name,
            SegmentLimits(
                roll_interval_ms=log.roll_interval_ms,
                roll_size=log.roll_size_bytes,
                retention_time_ms=log.retention_time_ms,
                retention_size=log.retention_size_bytes,
            ),
            last_number=self.settings.node.data_directory / _LAST_NUMBER,
            clock=self.clock,
        )

    def control(self, node: Node) -> NodeControl:
        """The node's interface for its operator."""
        return Control(node)

    def letters(self, journal: Journal) -> DeadLetterService:
        """The dead letters that a bridge of this node, or one to it, has stored here."""
        bridges = self.settings.bridges
        addresses = [bridge.dead_letter_address for bridge in bridges if bridge.dead_letter_address]
        return DeadLetterService(journal, [DEAD_LETTERS, *addresses], _letter_routes(self.settings))

    def services(self, journal: Journal, bridges: BridgeSet) -> NodeServices:
        """The parts of the node that its extensions work with."""
        self._services = NodeServices(
            self.settings,
            self.clock,
            journal,
            self._assembly(journal),
            bridges,
            self.credentials.token,
            self.credentials.connector_context,
        )
        return self._services

    def _assembly(self, journal: Journal) -> Assembly:
        context = node_context(self.settings, self.clock, journal, self._write_lines, self.credentials)
        return Assembly(context, self._transformers, self._shared_lines)

    def links(self, journal: Journal) -> LinkService:
        """The receiving end of node links."""
        options, acceptor = journal.options, self.settings.acceptor or AcceptorSettings()
        identity = NodeIdentity(
            node_id=journal.identity.node_id,
            node_name=options.node,
            store=journal.store,
            max_message_size=min(options.max_message_bytes, WHOLE_BODY_BYTES),
            max_body_size=options.max_message_bytes,
            takes_compressed=acceptor.compression != "off",
            inherited=lambda: tuple(
                store for extension in self.extensions for store in extension.inherited_stores()
            ),
        )
        return LinkService(
            partial(self._link_end, journal),
            identity,
            call_timeout_ms=options.call_timeout_ms,
            clock=self.clock,
            answer=present_here(journal),
            max_link_bytes=acceptor.max_link_size_bytes,
        )

    def _link_end(self, journal: Journal, hello: Hello, principal: Principal) -> LinkEnd:
        """This node's end of a link that another node opens: an extension's, or the journal."""
        for extension in self.extensions:
            end = extension.link_end(hello, principal)
            if end is not None:
                return end
        return LinkEnd(
            JournalTarget(
                journal,
                hello.bridge,
                check_producer_ids=hello.check_producer_ids,
                previous=hello.previous,
                caller=Caller(
                    f"user:{principal.name}" if principal.is_user else EVERY_RIGHT,
                    hello.node_id,
                    principal.check_deliver,
                ),
            )
        )

    def acceptor(self, node: Node, journal: Journal, links: LinkService) -> Acceptor | None:
        """The acceptor; None where the settings have none."""
        settings = self.settings.acceptor
        if settings is None:
            return None
        for user in settings.users:
            if user.link and user.send is None:
                logs.get().warning("link-unlimited", user=user.name, advice="give it a send")
        return Acceptor(
            journal,
            AcceptorOptions(
                url=settings.url,
                tokens=self.credentials.tokens,
                users=self.credentials.users,
                allowed_origins=settings.allowed_origins,
                ssl_context=self.credentials.context("acceptor"),
                call_timeout_ms=settings.call_timeout_ms,
                limits=Limits(
                    max_message_size=settings.max_message_size_bytes,
                    min_large_message_size=settings.min_large_message_size_bytes,
                    max_headers_size=settings.max_headers_size_bytes,
                    max_duplicate_id_size=settings.max_duplicate_id_size_bytes,
                    max_requests=settings.max_requests,
                    max_connections=settings.max_connections,
                    max_transit_size=settings.max_transit_size_bytes,
                ),
            ),
            links=links,
            bridge_state=node.bridges.state,
            meter=node.metering.acceptor,
            additions=[one for extension in self.extensions for one in extension.acceptor_routes()],
        )

    def bridges(self, journal: Journal) -> Mapping[str, tuple[Operated, BridgeSummary]]:
        """Every bridge of the settings."""
        assembly = self._assembly(journal)
        return {bridge.name: self._made(bridge, assembly) for bridge in self.settings.bridges}

    def bridge(self, bridge: Bridge) -> tuple[Operated, BridgeSummary]:
        """One bridge, by the settings in effect."""
        assert self._services is not None, "the node has started"
        return self._made(bridge, self._services.assembly)

    def _made(self, bridge: Bridge, assembly: Assembly) -> tuple[Operated, BridgeSummary]:
        remote: Mapping[str, Operated] = {} if self.supervisor is None else self.supervisor.bridges
        return remote.get(bridge.name) or assembly.operated(bridge), assembly.summary(bridge)


def _logged_otherwise(before: Settings, after: Settings) -> bool:
    one, other = before.node, after.node
    return (one.log_level, one.log_format) != (other.log_level, other.log_format)


def _supervisor(
    settings: Settings, file: SettingsFile, clock: Clock, write_lines: WriteLines | None
) -> Supervisor | None:
    """The supervisor of the worker processes; None with one process."""
    if settings.node.workers == 1:
        return None
    names = [bridge.name for bridge in bridges_in_workers(settings)]
    return Supervisor(
        Launcher((sys.executable, "-m", "bridge.workers", "--settings", str(file.path.absolute()))),
        names,
        workers=settings.node.workers,
        settings=file.text,
        shutdown_timeout_ms=settings.node.shutdown_timeout_ms,
        clock=clock,
        write_lines=write_lines,
    )


def _letter_routes(settings: Settings) -> dict[str, Route]:
    """The routes by which dead letters of each bridge are sent again, also those from before it was
    renamed.
    """
    routes: dict[str, Route] = {}
    for bridge in settings.bridges:
        if kind_of(settings, bridge.source_connector).is_own:
            route = Route(bridge.name)
        elif kind_of(settings, bridge.static_connectors[0]).is_own:
            route = Route(bridge.name, bridge.target_address, transforms=bool(bridge.transformer))
        else:
            continue
        routes[bridge.name] = route
        if bridge.previous_name:
            routes.setdefault(bridge.previous_name, route)
    return routes
