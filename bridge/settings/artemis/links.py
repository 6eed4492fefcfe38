"""Artemis's connectors, acceptors, `<bridge>`, `<cluster-connection>` and `<divert>`. Pure."""

from __future__ import annotations

from typing import Final

from bridge.settings.artemis.keys import ArtemisKey, Form, Rows, answered, carried, idle, table

_TOKEN: Final = "token of [connectors.NAME] says who the bridge is at the other node"  # noqa: S105 - an answer
_HA: Final = "nodes have no backups: static-connectors lists where the bridge may deliver"
_TRANSFORMER: Final = (
    'a transformer is a Python callable, transformer = "module:callable"; Java\'s cannot be loaded'
)
_CONCURRENCY: Final = (
    "one link carries all in order; so many calls of the transformer run at a time, in order for each key"
)
_CLIENT_ID: Final = "the other node's log and status name a link by its bridge and node"
_DISCOVERY: Final = (
    'static-connectors names the target; only clusters discover, by discovery = "dns://name:port"'
)
_CALL_FAILOVER: Final = "call-timeout bounds the handshake; there is no fail-over during a call"

BRIDGE: Final[Rows] = table(
    [
        ArtemisKey("name", "name", Form.TEXT),
        ArtemisKey("queue-name", "queue-name"),
        ArtemisKey("filter", "filter"),
        ArtemisKey("static-connectors", "static-connectors"),
        ArtemisKey("transformer-class-name", "transformer", answer=_TRANSFORMER),
        ArtemisKey("transformer", "transformer", answer=_TRANSFORMER),
        ArtemisKey("concurrency", "concurrency", Form.COUNT, answer=_CONCURRENCY),
    ],
    carried(Form.TEXT, "forwarding-address", "routing-type"),
    carried(Form.FLAG, "use-duplicate-detection"),
    carried(Form.SIZE, "min-large-message-size confirmation-window-size producer-window-size"),
    carried(
        Form.TIME,
        "check-period connection-ttl retry-interval max-retry-interval pending-ack-timeout",
    ),
    carried(Form.NUMBER, "retry-interval-multiplier"),
    carried(Form.COUNT, "initial-connect-attempts reconnect-attempts reconnect-attempts-same-node"),
    answered(_HA, "ha", same="false"),
    answered(_TOKEN, "user", "password"),
    answered(_CLIENT_ID, "client-id"),
    answered(_DISCOVERY, "discovery-group-ref"),
    idle("Artemis itself ignores it", "failover-on-server-shutdown"),
)

CLUSTER_CONNECTION: Final[Rows] = table(
    [
        ArtemisKey("name", "name", Form.TEXT),
        ArtemisKey("static-connectors", "static-connectors"),
        ArtemisKey("allow-direct-connections-only", "allow-direct-connections-only", Form.FLAG),
        ArtemisKey(
            "discovery-group-ref",
            "discovery",
            answer='discovery = "dns://name:port" finds the other nodes: there is no multicast',
        ),
        ArtemisKey(
            "forward-when-no-consumers",
            "message-load-balancing",
            answer="true is message-load-balancing STRICT, false ON_DEMAND",
        ),
    ],
    carried(Form.TEXT, "address", "connector-ref", "message-load-balancing"),
    carried(Form.FLAG, "use-duplicate-detection"),
    carried(Form.SIZE, "min-large-message-size confirmation-window-size producer-window-size"),
    carried(
        Form.TIME,
        "check-period connection-ttl call-timeout retry-interval max-retry-interval",
        "notification-interval",
    ),
    carried(Form.NUMBER, "retry-interval-multiplier"),
    carried(Form.COUNT, "initial-connect-attempts reconnect-attempts max-hops notification-attempts"),
    answered(_CALL_FAILOVER, "call-failover-timeout", same="-1"),
    answered("core-bridge drain --to NODE hands a node's messages over", "scale-down-connector"),
    answered(_CLIENT_ID, "client-id"),
    answered("its keys are written one by one", "uri"),
    idle("nodes tell each other of themselves until each knows all", "topology-scanner-attempts"),
)

DIVERT: Final[Rows] = table(
    [
        ArtemisKey("name", "name", answer="with divert- in front"),
        ArtemisKey("address", "queue-name"),
        ArtemisKey("forwarding-address", "forwarding-address"),
        ArtemisKey("filter", "filter"),
        ArtemisKey("routing-type", "routing-type", Form.TEXT),
        ArtemisKey("transformer-class-name", "transformer", answer=_TRANSFORMER),
        ArtemisKey("transformer", "transformer", answer=_TRANSFORMER),
        ArtemisKey(
            "exclusive",
            answer="a bridge copies: the queues of the address get the messages, too",
            same=frozenset({"false"}),
        ),
    ],
    idle("bridges are told apart by their names", "routing-name"),
)

_PEM: Final = "certificates and keys are PEM files: certificate, key, ca"
_CIPHERS: Final = "TLS 1.2 and newer with the ciphers of the system's OpenSSL"
#: Any further parameter of a URL.
TUNING: Final = ArtemisKey("", answer="tunes Artemis's own connections", idle=True)

#: The parameter that alone turns TLS on.
SSL_ENABLED: Final = "sslEnabled"
_STORES: Final = (
    "keyStorePath keyStorePassword keyStoreType keyStoreProvider keyStoreAlias "
    "trustStorePath trustStorePassword trustStoreType trustStoreProvider crlPath sslContext sslProvider "
    "trustManagerFactoryPlugin crcOptions "
    "ocspResponderURL sslAutoReload kerb5Config forceSSLParameters passwordCodec"
)

_SSL: Final = ArtemisKey(SSL_ENABLED, "url", answer="wss:// in place of ws://", same=frozenset({"false"}))

CONNECTOR: Final[Rows] = table(
    [_SSL],
    answered(_PEM, _STORES),
    answered(_CIPHERS, "enabledCipherSuites enabledProtocols defaultSslContext useDefaultSslContext"),
    answered(
        "the certificate must bear the URL's host, or server-name", "verifyHost", "sniHost", same="true"
    ),
    answered(
        'a link is a WebSocket of its own; a proxy is proxy = "http://..." or "socks5://..."',
        "httpEnabled httpClientIdleTime httpUpgradeEnabled httpUpgradeEndpoint socksEnabled socksHost",
        "socksPort socksVersion socksUsername socksPassword socksRemoteDNS proxyEnabled proxyHost",
        "proxyPort proxyUsername proxyPassword proxyRemoteDNS proxyVersion",
        same="false",
    ),
)

ACCEPTOR: Final[Rows] = table(
    [
        _SSL,
        ArtemisKey("connectionsAllowed", "max-connections", Form.COUNT),
        ArtemisKey("protocols", answer="clients speak HTTP, and nodes the link: no other protocol is served"),
    ],
    answered(_PEM, _STORES),
    answered(_CIPHERS, "enabledCipherSuites enabledProtocols sniHost"),
    answered("client-ca asks for certificates of clients", "needClientAuth", "wantClientAuth", same="false"),
    answered(
        "addresses are written in full",
        "anycastPrefix multicastPrefix",
    ),
    answered(
        "tokens and [[acceptor.users]] say who a caller is",
        "securityDomain saslMechanisms saslLoginConfigScope autoCreateQueues redirect-to router",
    ),
)

_VERIFIED: Final = "verifyHost sniHost needClientAuth wantClientAuth enabledCipherSuites enabledProtocols"
_TLS: Final = frozenset(f"{_STORES} {_VERIFIED}".lower().split())


def is_about_tls(parameter: str) -> bool:
    """Whether a parameter of a URL concerns TLS, in whatever letters and perhaps mistyped."""
    name = parameter.lower()
    return name in _TLS or any(part in name for part in ("ssl", "tls", "keystore", "truststore"))
