"""The context with which the ends of a node's bridges are made."""

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
    """The context of a process that has its node's journal open.

    Args:
        settings: the node's.
        clock: of everything that is made.
        journal: open.
        write_lines: writes lines that no outbox keeps into the delivery log's files.
        credentials: of the connectors, by their present values at each attempt to connect; None: those of
            `settings`.
    """
    credentials = credentials or Credentials(settings)
    return NodeContext(
        settings=settings,
        clock=clock,
        node_id=journal.identity.node_id,
        store=journal.store,
        journal=journal,
        read_chunk=journal.read_chunk,
        process=settings.node.name,
        write_lines=write_lines,
        token=credentials.token,
        tls=credentials.connector_context,
    )
