"""Loopback ports that servers can keep over a restart."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
#: Ports below belong to well-known services too often.
LOWEST: Final = 20_000
#: Where the kernel takes the ports of outgoing connections, unless it says otherwise.
FIRST_EPHEMERAL: Final = 32_768
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def first_ephemeral() -> int:
    """The lowest port that the kernel gives to outgoing connections."""
    return int(_RANGE.read_text().split()[0]) if _RANGE.exists() else FIRST_EPHEMERAL


class Ports:
    """Hands out each port of its share once before any comes again.

    So what was given and waits for its server is nobody else's. Processes with shares of their own never
    meet; others begin anywhere, and seldom do.
    """

    def __init__(self, share: int = 0, of: int = 1) -> None:
        """`share` is a number below `of`, how many processes divide the ports."""
        above = first_ephemeral()
        ports = range(LOWEST, above)[share::of] if above > LOWEST + of else range(1)
        begin = random.SystemRandom().randrange(len(ports))
        self._next: Iterator[int] = itertools.cycle([*ports[begin:], *ports[:begin]])

    def free(self, number: int) -> list[int]:
        """Ports that nobody listens on now, below those of outgoing connections.

        A port from ``bind(0)`` could be taken by any client while its server is down for a restart; a client
        that keeps trying to reach it can even be connected to itself (RFC 9293, simultaneous open).
        """
        found: list[int] = []
        with contextlib.ExitStack() as held:
            while len(found) < number:
                probe = held.enter_context(socket.socket())
                with contextlib.suppress(OSError):
                    probe.bind((HOST, next(self._next)))
                    found.append(probe.getsockname()[1])
        return found


_PORTS: Final = [Ports()]


def share_out(share: int, of: int) -> None:
    """From now on this process takes its share only: one of `of` processes that run side by side."""
    _PORTS[0] = Ports(share, of)


def free_ports(number: int) -> list[int]:
    """As `Ports.free`, of this process's ports."""
    return _PORTS[0].free(number)
