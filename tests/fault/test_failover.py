"""SIGKILL of the edge and of both of its hubs while it fails over between them.

Afterwards every message that was answered "stored" has arrived at one of the hubs, at each in order and once,
and at both only within the ranges that the edge has logged as in doubt.
"""

from __future__ import annotations

import asyncio
import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fault.rig import PATIENCE_S, Client, FaultyNode
from tests.fault.traffic import Sent, send_singles, send_transactions, until_confirmed
from tests.harness.eventually import LOOK_AGAIN_S, until
from tests.harness.stores import check_stores

SINGLES, TRANSACTIONS = 60, 6
KILLS = 6
#: Its queue keeps the messages at the edge, for their positions.
_ORDERS = '[addresses.orders]\nqueues = ["q"]\n'
_EDGE = (
    '[[bridges]]\nname = "to-hub"\nqueue-name = "orders"\nstatic-connectors = ["hub-a", "hub-b"]\n'
    'failover = "at-least-once"\nreconnect-attempts-same-node = 1\n'
    "retry-interval = 30\nmax-retry-interval = 30\n"
    'producer-window-size = "4KiB"\nconfirmation-window-size = "16KiB"\npending-ack-timeout = "2s"\n'
)


async def kill_at_random(edge: FaultyNode, hubs: list[FaultyNode], chance: random.Random) -> None:
    """Kill each hub until the bridge has left it; then any for a while, and sometimes the edge, too."""
    for hub, other in (hubs, hubs[::-1]):
        await hub.kill_now()
        await until(
            partial(edge.events, "bridge-connected", connector=other.name),
            "it is left",
            PATIENCE_S,
            LOOK_AGAIN_S,
        )
        hub.spawn()
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0.02, 0.4))
        if chance.random() < 0.3:
            await edge.kill_now()
            edge.spawn()
        hub = chance.choice(hubs)
        await hub.kill_now()
        await asyncio.sleep(chance.uniform(0.0, 0.6))
        hub.spawn()


async def stored(client: Client) -> dict[int, str]:
    """The body of each message at a node, by position."""
    found: dict[int, str] = {}
    while True:
        after = max(found, default=-1)
        path = f"/v1/addresses/orders/messages?after={after}&max=1000"
        status, page = await client.ask("GET", path)
        assert status in (200, 404), page
        if status == 404 or not page["messages"]:
            return found
        found.update({one["position"]: one["body"] for one in page["messages"]})


def check(at_edge: dict[int, str], hubs: list[dict[int, str]], in_doubt: list[dict[str, Any]]) -> None:
    """None lost; doubled only between the hubs, and within what was logged."""
    position_of = {body: position for position, body in at_edge.items()}
    check_stores(at_edge, [[position_of[body] for body in hub.values()] for hub in hubs], in_doubt)


async def run_round(directory: Path, seed: int) -> None:
    """One round."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    hubs = [FaultyNode(name, directory, _ORDERS) for name in ("hub-a", "hub-b")]
    connectors = "".join(f'[connectors.{hub.name}]\nurl = "{hub.url}"\n' for hub in hubs)
    edge = FaultyNode("edge", directory, connectors + _EDGE + _ORDERS)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    try:
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession(timeout=timeout) as session:
            for node in (edge, *hubs):
                node.spawn()
            client, sent = Client(edge, session), Sent()
            killing = asyncio.create_task(kill_at_random(edge, hubs, chance))
            await asyncio.gather(
                send_singles(client, sent, "a", SINGLES), send_transactions(client, sent, "t", TRANSACTIONS)
            )
            await killing
            await until_confirmed(client)
            at_edge, *at_hubs = [await stored(Client(node, session)) for node in (edge, *hubs)]
        assert sorted(at_edge.values()) == sorted(body for bodies in sent.bodies.values() for body in bodies)
        check(at_edge, at_hubs, edge.events("failover-in-doubt"))
    finally:
        for node in (edge, *hubs):
            node.destroy()


async def test_killed_at_random_instants(tmp_path: Path) -> None:
    """R22"""
    await run_round(tmp_path, 1)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(int(os.environ.get("CRASH_ROUNDS", "200")) // 4))
async def test_long_run(tmp_path: Path, seed: int) -> None:
    """`make test-crash`."""
    await run_round(tmp_path, 100 + seed)
