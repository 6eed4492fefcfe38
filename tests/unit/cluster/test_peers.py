"""The link to another node has the keys of its cluster's connection."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from bridge.relay.backoff import no_chance
from bridge.settings.clusters import ClusterConnection
from bridge.settings.connectors import Connector
from cluster.peers import Peer, Peers
from tests.unit.cluster.rig import A, B

KEYS = {
    "name": "main",
    "connector-ref": "own",
    "use-duplicate-detection": False,
    "retry-interval": 11,
    "retry-interval-multiplier": 1.5,
    "max-retry-interval": 12,
    "initial-connect-attempts": 13,
    "reconnect-attempts": 14,
    "check-period": 15,
    "connection-ttl": 16,
    "confirmation-window-size": 17,
    "producer-window-size": 18,
}


def test_a_link_greets_and_tries_again_as_its_connection_says() -> None:
    journal = SimpleNamespace(identity=SimpleNamespace(node_id=A), store="store")
    services: Any = SimpleNamespace(
        journal=journal, clock=None, settings=SimpleNamespace(node=SimpleNamespace(name="a"))
    )
    peers = Peers(services, "dead-letters")
    connection = ClusterConnection.model_validate(KEYS)
    hello = peers.hello("to-b", connection)
    assert not hello.use_duplicate_detection
    assert (hello.check_period_ms, hello.connection_ttl_ms, hello.producer_window) == (15, 16, 18)
    relay: Any = peers._relay(Peer(B, "b", "ws://b:1", "own"), connection, cast(Any, None))
    options = relay.options
    assert options.backoff.chance is random.random
    backoff = replace(options.backoff, chance=no_chance)
    assert [backoff.delay_ms(failures) for failures in (1, 2)] == [11, 12]
    assert (options.initial_connect_attempts, options.reconnect_attempts) == (13, 14)
    assert options.confirmation_window_size == hello.window == 17
    assert options.producer_window_size == 18


def test_calls_and_links_to_a_peer_go_through_the_proxy_of_its_connector() -> None:
    """Wherever the peer is: its URL is its own."""
    connector = Connector.model_validate({"url": "ws://own:1", "proxy": "socks5://me:secret@proxy:1080"})
    services: Any = SimpleNamespace(
        settings=SimpleNamespace(
            connectors={"own": connector}, duplicate_detection=SimpleNamespace(id_cache_size=1)
        ),
        token=lambda _: "",
        tls=lambda _: None,
    )
    peers = Peers(services, "dead-letters")
    found = peers.endpoint("own", "ws://b:1/relay").proxy
    assert found is not None
    assert (str(found), found.password) == ("socks5://proxy:1080 (proxy)", "secret")
    summary = peers._summary(Peer(B, "b", "ws://b:1", "own"), ClusterConnection.model_validate(KEYS))
    assert summary.proxy("own") == "socks5://proxy:1080 (proxy)"
