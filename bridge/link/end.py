"""Another node as a kind of end: connectors with ``ws://`` and ``wss://``. Bridges deliver there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from bridge.end_kind import AuditTarget, EndKind, EndsOf, NodeContext, NodeEnds
from bridge.ends import JOURNAL
from bridge.runtime.proxies import Proxy
from bridge.runtime.tls import Role, TlsFiles
from bridge.settings import urls
from bridge.settings.bridges import Bridge
from bridge.settings.connectors import Connector
from bridge.settings.end_rules import TlsTable, UsedKeys
from bridge.settings.model import Settings

#: Keys of a bridge that concern its link.
_LINK: Final = frozenset(("check_period_ms", "connection_ttl_ms", "call_timeout_ms"))
#: Keys of a connector that name the files of TLS.
_TLS_FILES: Final[Mapping[Role, str]] = {"authorities": "ca", "certificate": "certificate", "key": "key"}


class LinkKind(EndKind):
    """A node at the other end of a link."""

    no_source = f'must be "{JOURNAL}" or a kafka:// connector; bridges of a node push'
    audit_reader = "node"
    is_node = True
    takes_chunks = True

    def used_keys(self, connector: Connector | None) -> UsedKeys:
        """The token, the proxy, compression, the keys of TLS, and those of a bridge's link."""
        tls = ("ca", "certificate", "key", "server_name") if _has_tls(connector) else ()
        return UsedKeys(connector=frozenset(("token", "proxy", "compression", *tls)), target=_LINK)

    def check_url(self, url: str) -> None:
        """Check a connector's URL. Raises: ValueError: the rule that it breaks."""
        urls.reaching(url)

    def tls(self, connector: Connector) -> Sequence[TlsTable]:
        """The TLS files of a connector whose link uses TLS."""
        if not _has_tls(connector):
            return ()
        files = TlsFiles(connector.certificate, connector.key, connector.ca)
        return (TlsTable(files, _TLS_FILES, followed=True),)

    def proxy(self, connector: Connector) -> Proxy | None:
        """The proxy of the setting, or of the environment."""
        return connector.proxy_to(connector.url)

    def in_process(self, node: NodeContext, others: EndsOf) -> NodeEnds:  # noqa: ARG002 - it needs no other
        """Targets at the other end of links."""
        from bridge.link.node_ends import LinkEnds

        return LinkEnds(node)

    def audited(self, settings: Settings, connector: str, bridge: Bridge | None = None) -> object:  # noqa: ARG002 - it is no source
        """The node."""
        from bridge.link.audited import node_at

        return node_at(connector, settings.connectors[connector])

    def audit_target(self, settings: Settings, connector: str) -> AuditTarget:
        """Its addresses."""
        from bridge.link.audited import LinkAuditTarget, node_at

        return LinkAuditTarget(node_at(connector, settings.connectors[connector]))


def _has_tls(connector: Connector | None) -> bool:
    return connector is not None and connector.endpoint.scheme == "wss"


KIND: Final = LinkKind()
