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
#: Lower ports often belong to well-known services.
LOWEST: Final = 20_000
#: The first port that the kernel uses for outgoing connections, unless it says otherwise.
FIRST_EPHEMERAL: Final = 32_768
_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def first_ephemeral() -> int:
    """The lowest port that the kernel gives to outgoing connections."""
    return int(_RANGE.read_text().split()[0]) if _RANGE.exists() else FIRST_EPHEMERAL


class Ports:
    """Hands out each port of its share once before it hands out any again.

    So no other caller gets a port that was given and waits for its server. Processes with shares of their own
    never get the same; others begin at a random port, and seldom do.
    """

    def __init__(self, share: int = 0, of: int = 1) -> None:
        """`share` is a number below `of`, the number of processes that divide the ports."""
        above = first_ephemeral()
        ports = range(LOWEST, above)[share::of] if above > LOWEST + of else range(1)
        begin = random.SystemRandom().randrange(len(ports))
        self._next: Iterator[int] = itertools.cycle([*ports[begin:], *ports[:begin]])

    def free(self, number: int) -> list[int]:
        """Ports without a listener now, below those of outgoing connections.

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
    """Limit this process to its share of the ports: one of `of` processes that run side by side."""
    _PORTS[0] = Ports(share, of)


def free_ports(number: int) -> list[int]:
    """As `Ports.free`, of this process's ports."""
    return _PORTS[0].free(number)
