"""SIGKILL of both nodes while the bridge's transformer drops, refuses and fails, over a failing link."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.fault.rig import FaultyNode, rig
from tests.fault.test_crash import relay_traffic
from tests.fault.traffic import Sent, covered

_FAILING = 'transformer = "tests.harness.transformers:ByNumber"\nmax-delivery-attempts = 3\n'
#: Where the edge has called the transformer and has not settled what it made, or has stored a dead letter.
_POINTS = ("link.before-batch", "link.after-batch", "source.before-settle", "journal.after-commit")
_HUB_POINTS = ("link.before-receipt", "journal.before-commit", "link.after-receipt")


def made_of(body: str) -> str | None:
    """As `ByNumber`."""
    return None if body[-1] in "35" else f"{body} made"


def check_letters(edge: FaultyNode, sent: Sent) -> None:
    """Each message at which the transformer raises is one dead letter, as it was sent."""
    letters = edge.api.bodies("dead-letters")
    refused = [body for bodies in sent.bodies.values() for body in bodies if body[-1] == "5"]
    assert sorted(letters) == sorted(refused)


def check_lines(edge: FaultyNode, hub: FaultyNode, arrived: int) -> None:
    """Each message that arrived is in one received line, and nothing else is in a sent line."""
    received = covered(hub.lines_once(), "received")
    assert len(received) == arrived
    assert set(covered(edge.lines_once(), "sent")) <= set(received)


async def run_round(directory: Path, seed: int, crash_edge: str, crash_hub: str) -> None:
    print(f"seed {seed} edge {crash_edge} hub {crash_hub}")
    async with rig(directory, seed, edge=_FAILING) as it:
        sent = await relay_traffic(it, made_of, crash_edge=crash_edge, crash_hub=crash_hub)
        assert it.edge.kills >= 1, f"the edge never reached {crash_edge}"
        arrived = sum(map(len, sent.made(made_of).values()))
        await asyncio.to_thread(check_lines, it.edge, it.hub, arrived)
        await asyncio.to_thread(it.edge.start)
        await asyncio.to_thread(check_letters, it.edge, sent)


@pytest.mark.parametrize("seed", [1, 3])
async def test_killed_while_its_transformer_fails(tmp_path: Path, seed: int) -> None:
    """B6, B15, B16: none lost, none doubled, each dead letter once."""
    await run_round(tmp_path, 500 + seed, f"{_POINTS[seed]}:3", f"{_HUB_POINTS[seed % 3]}:2")


@pytest.mark.crash
@pytest.mark.parametrize("seed", range(int(os.environ.get("CRASH_ROUNDS", "200")) // 4))
async def test_long_run(tmp_path: Path, seed: int) -> None:
    """`make test-crash`."""
    edge, hub = _POINTS[seed % len(_POINTS)], _HUB_POINTS[seed % len(_HUB_POINTS)]
    await run_round(tmp_path, seed, f"{edge}:{1 + seed % 5}", f"{hub}:{1 + seed % 3}")
