"""This node's journal as a kind of end: the connector that settings call ``journal``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bridge.end_kind import AuditTarget, EndKind, EndsOf, NodeContext, NodeEnds
from bridge.ends import JOURNAL
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath
from bridge.settings.problems import Finding
from bridge.settings.selectors import ADDRESS_PLACE


class JournalKind(EndKind):
    """The journal of the node that runs the bridge."""

    is_own = True
    takes_chunks = True
    audit_reader = "node"

    def check_bridge(self, path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:  # noqa: ARG002
        """Check that a bridge that reads this journal does not get its own messages back, and that one that
        delivers here has no other target.
        """
        if JOURNAL in bridge.static_connectors and len(bridge.static_connectors) > 1:
            place = (*path, "static-connectors", bridge.static_connectors.index(JOURNAL))
            yield Finding(place, "must be the only one, or a node: bridges fail over between nodes")
        if not bridge.reads_journal:
            return
        if JOURNAL in bridge.static_connectors:
            yield from _not_to_itself(path, bridge)
        if bridge.dead_letter_address in _read_addresses(bridge):
            leans_on = ((*path, "queue-name"), (*path, "source-connector"))
            rule = "must not be an address that the bridge reads"
            yield Finding((*path, "dead-letter-address"), rule, leans_on=leans_on)

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:  # noqa: ARG002 - it needs no other
        """Ends of the open journal."""
        from bridge.journal.node_ends import JournalEnds

        return JournalEnds(node)

    def audited(self, settings: Settings, connector: str, bridge: Bridge | None = None) -> object:  # noqa: ARG002 - it is no source
        """The node. Raises: BridgeError: it does not listen."""
        from bridge.journal.audited import own_node

        return own_node(settings)

    def audit_target(self, settings: Settings, connector: str) -> AuditTarget:  # noqa: ARG002 - there is but one
        """Its addresses. Raises: BridgeError: it does not listen."""
        from bridge.journal.audited import JournalAuditTarget, own_node

        return JournalAuditTarget(own_node(settings))


def _read_addresses(bridge: Bridge) -> list[str]:
    """The addresses that `queue-name` names, with and without a queue."""
    return [*bridge.plain_addresses, *(name.address for name in bridge.shared_queues)]


def _not_to_itself(path: KeyPath, bridge: Bridge) -> Iterator[Finding]:
    """Refuse a bridge that delivers to an address that it reads: the address would feed itself without
    end.
    """
    unchanged = bridge.forwarding_address in ("", ADDRESS_PLACE)
    if unchanged or any(bridge.target_address(name) == name for name in _read_addresses(bridge)):
        rule = "must name another address, because source and target are both this node's journal"
        leans_on = tuple((*path, key) for key in ("source-connector", "static-connectors", "queue-name"))
        yield Finding((*path, "forwarding-address"), rule, leans_on=leans_on)


KIND: Final = JournalKind()
