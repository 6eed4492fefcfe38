"""Many nodes that have nothing to do: what knowing each other costs in traffic, memory and computing.

`make test-cluster-long`; ``CLUSTER_NODES`` (20) and ``CLUSTER_IDLE_S`` (60) say how many and how long.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.mesh import Mesh, mesh

pytestmark = [pytest.mark.processes, pytest.mark.cluster_long]

NODES: Final = int(os.environ.get("CLUSTER_NODES", "20"))
IDLE_S: Final = float(os.environ.get("CLUSTER_IDLE_S", "60"))
#: Queues of each node.
QUEUES: Final = 20
#: As users have them.
_CONNECTION: Final = {"notification-interval": "1000", "check-period": "30000", "connection-ttl": "60000"}
#: What an idle node may send to all others in a second, for each of them, in bytes: a KNOWN, pings, and more.
_BYTES_A_LINK: Final = 200 + 120 * NODES
_RESIDENT_BYTES: Final = 300 * 1024 * 1024


def _computed_s(it: Mesh) -> list[float]:
    """Seconds of computing of each node so far."""
    found = []
    for node in it.nodes:
        assert node.process is not None
        stat = Path(f"/proc/{node.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        found.append((int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"))
    return found


async def test_many_nodes_that_have_nothing_to_do(tmp_path: Path) -> None:
    queues = ", ".join(f'"q{number}"' for number in range(QUEUES))
    rest = f"[addresses.news]\nqueues = [{queues}]\n"
    async with mesh(tmp_path, 0, NODES, rest, keys=_CONNECTION) as it:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for first in range(0, NODES, 4):  # a few at a time: starting computes
            for node in it.nodes[first : first + 4]:
                node.spawn()
            await it.settled(*range(min(first + 4, NODES)))
        known = loop.time() - begun
        before, sent = _computed_s(it), it.sent_bytes
        began = loop.time()
        await asyncio.sleep(IDLE_S)  # the measure itself: nothing happens
        lasted = loop.time() - began
        computed = [after - first for after, first in zip(_computed_s(it), before, strict=True)]
        bytes_a_link = (it.sent_bytes - sent) / lasted / len(it.proxies)
        resident = [node.resident for node in it.nodes]
        await it.settled()
        print(
            f"{NODES} nodes know each other after {known:.1f} s; idle for {lasted:.0f} s:"
            f" {sum(computed) / lasted / NODES:.2%} of a core a node (most {max(computed) / lasted:.2%}),"
            f" {sum(resident) / NODES / 2**20:.0f} MiB resident (most {max(resident) / 2**20:.0f}),"
            f" {bytes_a_link:.0f} B/s a link, {bytes_a_link * (NODES - 1):.0f} B/s a node"
        )
        assert bytes_a_link < _BYTES_A_LINK
        assert max(resident) < _RESIDENT_BYTES
        await it.stop()
        it.check_logs()
