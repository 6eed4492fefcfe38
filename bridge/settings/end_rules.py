"""The settings' rules for a kind of end: its URLs, keys and combinations, and its abilities.

The other part of a kind is `bridge.end_kind.EndKind`: it makes ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.runtime.proxies import Proxy
from bridge.runtime.tls import Role, TlsFiles
from bridge.settings.paths import KeyPath
from bridge.settings.problems import Finding

if TYPE_CHECKING:
    from bridge.settings.bridges import Bridge
    from bridge.settings.connectors import Connector
    from bridge.settings.model import Settings


@dataclass(frozen=True, slots=True)
class TlsTable:
    """Certificates and keys that a connector names."""

    files: TlsFiles
    #: The key of each file.
    keys: Mapping[Role, str]
    #: The table of those keys, below the connector's.
    path: KeyPath = ()
    #: Whether the node follows these files while it runs, and gives the end a TLS context.
    followed: bool = False


@dataclass(frozen=True, slots=True)
class UsedKeys:
    """Keys that one kind of end uses and other kinds do not, by their attributes."""

    #: Keys of a connector, `url` aside.
    connector: frozenset[str] = field(default_factory=frozenset)
    #: Keys of a bridge that reads there.
    source: frozenset[str] = field(default_factory=frozenset)
    #: Keys of a bridge that delivers there.
    target: frozenset[str] = field(default_factory=frozenset)


class EndRules:
    """The settings' part of a kind of end. A kind overrides the attributes that differ."""

    #: Whether it is this node itself: no other process can read or write there.
    is_own = False
    #: The reason why no bridge can read there, as a rule of `source-connector`; empty: bridges can.
    no_source = ""
    #: The reason why no bridge can deliver there, as a rule of `static-connectors`; empty: bridges can.
    no_target = ""
    #: Whether a node is there, with which the nodes of a cluster can link.
    is_node = False
    #: Whether a source is cut into lanes (`concurrency`).
    has_lanes = False
    #: Whether the delivery log can be copied there.
    takes_log = False
    #: Whether its ends can be made in a worker process, without the node's journal.
    stands_alone = False

    def used_keys(self, connector: Connector | None) -> UsedKeys:
        """The keys that are used here; `connector` is None where the end is this node."""
        del connector
        return UsedKeys()

    def check_url(self, url: str) -> None:
        """Check a URL of its scheme. Raises: ValueError: the rule that it breaks."""

    def check_connector(self, path: KeyPath, connector: Connector) -> Iterator[Finding]:
        """The problems of a connector besides its URL and its unused keys."""
        del path, connector
        return iter(())

    def tls(self, connector: Connector) -> Sequence[TlsTable]:
        """Certificates and keys that the connector names and uses."""
        del connector
        return ()

    def proxy(self, connector: Connector) -> Proxy | None:
        """The proxy on the way to the connector's URL; None: there is none."""
        del connector
        return None

    def check_bridge(self, path: KeyPath, bridge: Bridge, settings: Settings) -> Iterator[Finding]:
        """The problems of a bridge that has an end of this kind; called once for each bridge."""
        del path, bridge, settings
        return iter(())

    def check_bridges(self, settings: Settings) -> Iterator[Finding]:
        """The problems between bridges; called once, where any bridge has an end of this kind."""
        del settings
        return iter(())
