"""SIGKILL at every crash point of the journal: what was answered is there, once; nothing is there by half."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.journal.journal import Journal
from bridge.runtime import fault_injection
from tests.integration.journal.crash_driver import NEWS, ROUNDS, names
from tests.integration.journal.helpers import (
    PATIENCE_S,
    ManualClock,
    browsed,
    check_file,
    consume,
    open_stream,
    opened,
    rows,
    send,
    target,
)

ROOT = Path(__file__).parents[3]
POINTS = [name for name in fault_injection.NAMES if name.startswith("journal.")]
#: Which time the place is reached kills the first process, and the second.
TIMES = {"journal.before-trim": (3, 2)}
#: Later than the end of every lease of the driver.
LATER_MS = 10**13


async def run_driver(directory: Path, crash_at: str) -> list[dict[str, Any]]:
    """What the driver was answered until it died."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.journal.crash_driver", str(directory),
        cwd=ROOT, env=os.environ | {"CORE_BRIDGE_CRASH_AT": crash_at},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    assert process.returncode == -signal.SIGKILL, (output.decode()[-200:], errors.decode())
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.processes
@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_loses_nothing_that_was_answered_and_doubles_nothing(tmp_path: Path, point: str) -> None:
    """D24, D42, R27: twice in a row, and everything is sent again in between."""
    first, second = TIMES.get(point, (9, 5))
    answers = await run_driver(tmp_path, f"{point}:{first}")
    answers += await run_driver(tmp_path, f"{point}:{second}")
    check_file(tmp_path)
    assert rows(tmp_path, "SELECT * FROM bodies LIMIT 1") != [], "logs share what they got"
    check_lines(tmp_path)
    clock = ManualClock()
    clock.now_ms = LATER_MS
    async with opened(tmp_path, clock) as journal:
        left = names(await consume(journal))
        check_queue(answers, left)
        await check_bridged(journal, answers)
        await check_moved(journal, answers)
        await check_news(journal, answers)
        for body in answered(answers, "sent"):
            assert not (await send(journal, "again", body)).stored
    check_file(tmp_path)


def answered(answers: list[dict[str, Any]], *kinds: str) -> list[str]:
    return [body for answer in answers if answer["kind"] in kinds for body in answer["bodies"]]


def check_queue(answers: list[dict[str, Any]], left: list[str]) -> None:
    """What was sent is left in the queue or was acknowledged, each once, in order, pairs together."""
    settled = answered(answers, "acknowledged")
    assert len(set(left)) == len(left)
    assert not set(left) & set(settled)
    # An acknowledgement that was not answered was done whole or not at all.
    unsure = {body for body in answered(answers, "leased") if body not in settled}
    assert unsure & set(left) in (set(), unsure)
    there = set(left) | set(settled) | unsure
    assert set(answered(answers, "sent", "pair")) <= there
    for place in range(2 * ROUNDS):
        assert (f"pair-{place}-a" in there) == (f"pair-{place}-b" in there)
    for kind in ("single-", "pair-"):
        places = [int(body.split("-")[1]) for body in left if body.startswith(kind)]
        assert places == sorted(places)


async def check_bridged(journal: Journal, answers: list[dict[str, Any]]) -> None:
    """The target's next and its messages are of one commit."""
    covered = (await open_stream(target(journal), address="bridged")).next or 0
    assert covered >= max((answer["next"] for answer in answers if answer["kind"] == "delivered"), default=0)
    stored = await browsed(journal, "bridged") if covered else []
    assert stored == [f"bridged-{place}" for place in range(covered)]


async def check_moved(journal: Journal, answers: list[dict[str, Any]]) -> None:
    """What was parked waits there or was moved, each once, in order; what was moved is no longer parked."""
    moved = names(await browsed(journal, "moved")) if await exists(journal, "moved") else []
    parked = names(await consume(journal, "parked"))
    assert len(moved) >= sum(answer["count"] for answer in answers if answer["kind"] == "moved")
    there = [*moved, *parked]
    assert len(set(there)) == len(there)
    assert there == sorted(there, key=lambda body: int(body.split("-")[1]))
    assert set(answered(answers, "parked")) <= set(there)


async def check_news(journal: Journal, answers: list[dict[str, Any]]) -> None:
    """Each of its logs has what was sent, each once, in order, but what was read there."""
    sent = set(answered(answers, "news"))
    for log in NEWS:
        left = names(await consume(journal, log))
        assert left == sorted(set(left), key=lambda body: int(body.split("-")[1]))
        assert sent - set(answered(answers, f"reads {log}")) <= set(left)


async def exists(journal: Journal, address: str) -> bool:
    return any(status.address == address for status in await journal.addresses())


def check_lines(directory: Path) -> None:
    """The delivery log's lines of clients' sends to an address chain, and name each stored message once."""
    lines = [json.loads(line) for (line,) in rows(directory, "SELECT line FROM outbox ORDER BY line_id")]
    sends = [line for line in lines if line["address"] == "orders" and "verdict" not in line]
    assert all(before["upto"] == after["from"] for before, after in itertools.pairwise(sends))
    ((total,),) = rows(directory, "SELECT total FROM addresses WHERE name = 'orders'") or [(0,)]
    assert sum(line["count"] for line in sends) == total
