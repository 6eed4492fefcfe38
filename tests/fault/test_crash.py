"""SIGKILL of either side at every named crash point and at random instants, over a link that fails too.

Every round: clients send (with IDs, retried until answered) and a reader acknowledges while something dies;
afterwards every answer "stored" has arrived once, in order, by content, and the delivery logs agree.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.runtime.fault_injection import NAMES
from tests.fault.rig import PATIENCE_S, Rig, rig
from tests.fault.traffic import (
    TRANSACTION,
    Received,
    Sent,
    check_delivery_logs,
    check_order,
    read_until,
    send_singles,
    send_transactions,
    until_confirmed,
)

SINGLES = 60
TRANSACTIONS = 12

#: Crash points that only the named side reaches.
_ONLY = {
    "link.before-open": "edge",
    "link.before-batch": "edge",
    "link.after-batch": "edge",
    "link.before-receipt": "hub",
    "link.after-receipt": "hub",
    "source.before-settle": "edge",
    "source.after-settle": "edge",
    "http.before-answer": "edge",
}
#: Those of bridges between nodes; the others are Kafka's (tests/kafka/exactly_once, tests/kafka/target), the
#: cluster's (tests/cluster), and those in the middle of large bodies (tests/fault/test_large_messages.py).
_POINTS = [name for name in NAMES if not name.startswith(("kafka", "cluster")) and "chunk" not in name]
#: Reached once or a few times a round: a link is opened, a file completed. The first time is taken.
_SELDOM = {"link.before-open", *(name for name in NAMES if name.startswith("delivery-log."))}
#: Reached too rarely in a short round to be waited for: tried where they happen to come.
_RARE = {"journal.before-checkpoint", "journal.after-checkpoint", "journal.before-trim"}


def _as_sent(body: str) -> str:
    return body


async def relay_traffic(
    it: Rig, made_of: Callable[[str], str | None] = _as_sent, *, crash_edge: str = "", crash_hub: str = ""
) -> Sent:
    """Send, relay and read while nodes and the link fail; returns what was sent, once it arrived in order.

    `made_of`: what arrives of a body that is sent; None: nothing. `crash_*` name a crash point and its time,
    chance does the rest.
    """
    async with asyncio.timeout(PATIENCE_S):
        it.edge.spawn(CORE_BRIDGE_CRASH_AT=crash_edge)
        it.hub.spawn(CORE_BRIDGE_CRASH_AT=crash_hub)
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(node.keep_alive()) for node in (it.edge, it.hub)]
            chaos = group.create_task(it.fail_at_random())
            sent, received = Sent(), Received()
            wanted: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            reading = group.create_task(read_until(it.client(it.hub), received, wanted))
            edge = it.client(it.edge)
            await asyncio.gather(
                send_singles(edge, sent, "a", SINGLES),
                send_singles(edge, sent, "b", SINGLES),
                send_transactions(edge, sent, "t", TRANSACTIONS),
            )
            chaos.cancel()
            it.proxy.heal()
            arriving = sent.made(made_of)
            wanted.set_result(sum(map(len, arriving.values())))
            await reading
            await until_confirmed(edge)
            for keeper in keepers:
                keeper.cancel()
        for node in (it.edge, it.hub):
            assert await node.stop_cleanly(it.client(node)) == 0, node.log_tail()
    check_order(arriving, received)
    return sent


async def run_round(directory: Path, seed: int, *, crash_edge: str = "", crash_hub: str = "") -> Rig:
    """One round; `crash_*` as `relay_traffic`."""
    print(f"seed {seed} edge {crash_edge or '-'} hub {crash_hub or '-'}")
    async with rig(directory, seed) as it:
        sent = await relay_traffic(it, crash_edge=crash_edge, crash_hub=crash_hub)
        messages = sum(map(len, sent.bodies.values()))
        assert messages == 2 * SINGLES + TRANSACTIONS * TRANSACTION
        await asyncio.to_thread(check_delivery_logs, it.edge, it.hub, messages)
        return it


def _sides(point: str) -> list[str]:
    return [_ONLY[point]] if point in _ONLY else ["edge", "hub"]


@pytest.mark.parametrize("point", [name for name in _POINTS if name not in _RARE])
async def test_killed_at_a_named_point(tmp_path: Path, point: str) -> None:
    """R12, R27, D35, D42, P10: the process dies exactly there, on each side that gets there."""
    sides = _sides(point)
    seed = NAMES.index(point) * 10
    first, second = (f"{point}:{1 if point in _SELDOM else 1 + (seed + side) % 3}" for side in range(2))
    crashes = {"crash_edge": first if "edge" in sides else "", "crash_hub": second if "hub" in sides else ""}
    it = await run_round(tmp_path, seed, **crashes)
    for side in sides:
        assert (it.edge if side == "edge" else it.hub).kills >= 1, f"{side} never reached {point}"


@pytest.mark.parametrize("seed", range(4))
async def test_killed_at_random_instants(tmp_path: Path, seed: int) -> None:
    await run_round(tmp_path, 1000 + seed)


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(int(os.environ.get("CRASH_ROUNDS", "200"))))
async def test_long_run(tmp_path: Path, seed: int) -> None:
    """`make test-crash`: named points and chance together."""
    points = [*_POINTS, ""]
    edge = points[seed % len(points)]
    hub = points[(seed * 7 + 3) % len(points)]
    times = 1 + seed % 5
    await run_round(
        tmp_path,
        seed,
        crash_edge=f"{edge}:{times}" if edge else "",
        crash_hub=f"{hub}:{times}" if hub else "",
    )
