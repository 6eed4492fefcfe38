"""What the ends of a node's bridges are made with."""

from __future__ import annotations

from bridge.assembly.credentials import Credentials
from bridge.delivery_log import WriteLines
from bridge.end_kind import NodeContext
from bridge.journal.journal import Journal
from bridge.runtime.clock import Clock
from bridge.settings.model import Settings


def node_context(
    settings: Settings,
    clock: Clock,
    journal: Journal,
    write_lines: WriteLines | None = None,
    credentials: Credentials | None = None,
) -> NodeContext:
    """Of a process that has its node's journal open.

    Args:
        settings: the node's.
        clock: of everything that is made.
        journal: open.
        write_lines: into the delivery log's files, what no outbox keeps.
        credentials: of the connectors, as they are at each attempt to connect; None: as `settings` has them.
    """
    credentials = credentials or Credentials(settings)
    return NodeContext(
        settings=settings,
        clock=clock,
        node_id=journal.identity.node_id,
        store=journal.store,
        journal=journal,
        process=settings.node.name,
        write_lines=write_lines,
        token=credentials.token,
        tls=credentials.connector_context,
    )
