"""The addresses that a name of `discovery` has."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.contacts import Address, Contacts


async def test_a_discovered_node_is_reached_as_its_connector_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the scheme and the path of the connector's URL: a reverse proxy is in front of each."""
    kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    found = [(socket.AF_INET, *kind, ("10.0.0.1", 5)), (socket.AF_INET6, *kind, ("fd00::1", 5, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    contacts: Any = SimpleNamespace(connection=SimpleNamespace(discovery="dns://hubs:5"), _logged={})
    addresses = await Contacts._discover(contacts, Address("wss://own:443/relay", "own"))
    assert addresses == [Address("wss://10.0.0.1:5/relay", "own"), Address("wss://[fd00::1]:5/relay", "own")]
