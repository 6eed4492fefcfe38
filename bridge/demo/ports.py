"""Loopback ports that servers can keep over a restart."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
#: Ports below belong to well-known services too often.
LOWEST: Final = 20_000
#: Where the kernel takes the ports of outgoing connections, unless it says otherwise.
FIRST_EPHEMERAL: Final = 32_768
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CHANCE: Final = random.SystemRandom()


def first_ephemeral() -> int:
    """The lowest port that the kernel gives to outgoing connections."""
    return int(_RANGE.read_text().split()[0]) if _RANGE.exists() else FIRST_EPHEMERAL


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on now, below those of outgoing connections.

    A port from ``bind(0)`` could be taken by any client while its server is down for a restart; a client
    that keeps trying to reach it can even be connected to itself (RFC 9293, simultaneous open).
    """
    above = first_ephemeral()
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < number:
            port = _CHANCE.randrange(LOWEST, above) if above > LOWEST else 0
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                found.append(probe.getsockname()[1])
    return found
