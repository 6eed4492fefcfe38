"""Members of a bridge's group, in this process and in others, and what tests wait for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.kafka.lanes.group_ownership import GroupOwnership
from bridge.kafka.lanes.groups import JournalTopicOwnership, SourceOwnership
from bridge.kafka.lanes.lane_holders import LaneHolders
from bridge.runtime.clock import SystemClock
from tests.kafka.lanes.worker import connection

ROOT = Path(__file__).parents[3]
#: Longest that anything here may take; on a machine under load.
LONGEST_S = 40
#: A clean stop gives its lanes away within this; what tests may count on (issue 4).
MOVED_WITHIN_S = 3.0


class Bridge:
    """The members of one bridge's group, in this process and in others."""

    def __init__(self, bootstrap: str, lanes: int = 4) -> None:
        self.bootstrap = bootstrap
        self.group = f"core-bridge.lanes-{uuid.uuid4().hex[:12]}"
        self.topic = f"{self.group}.journal"
        self.lanes = lanes
        self.members: list[GroupOwnership] = []
        self.workers: list[Worker] = []

    def member(self, *, lanes: int | None = None, name: str = "", **options: Any) -> JournalTopicOwnership:
        made = JournalTopicOwnership(
            connection(self.bootstrap, **options),
            group=self.group,
            topic=self.topic,
            lanes=lanes or self.lanes,
            name=name,
        )
        self.members.append(made)
        return made

    def holders(self) -> LaneHolders:
        """One that has asked nothing yet."""
        return LaneHolders(
            connection(self.bootstrap), group=self.group, lanes=self.lanes, side="target", clock=SystemClock()
        )

    def on_source(self) -> SourceOwnership:
        made = SourceOwnership(connection(self.bootstrap), group=self.group, lanes=self.lanes)
        self.members.append(made)
        return made

    async def joined(self, **options: Any) -> JournalTopicOwnership:
        member = self.member(**options)
        await member.open()
        return member

    async def worker(self) -> Worker:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.kafka.lanes.worker"),
            *(self.bootstrap, self.group, self.topic, str(self.lanes)),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.workers.append(Worker(process))
        return self.workers[-1]

    async def close(self) -> None:
        await asyncio.gather(*[member.close() for member in self.members])
        for worker in self.workers:
            await worker.end()


class Worker:
    """`tests.kafka.lanes.worker` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []

    async def says(self, **what: Any) -> None:
        """Wait until it says exactly this."""
        assert self.process.stdout is not None
        async with asyncio.timeout(LONGEST_S):
            while what not in self.said:
                line = await self.process.stdout.readline()
                assert line, f"it has ended; expected {what}, it said {self.said}"
                self.said.append(json.loads(line))
        self.said.clear()

    async def ask(self, lane: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"confirm %d\n" % lane)
        await self.process.stdin.drain()

    async def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(LONGEST_S):
            assert await self.process.wait() == 0

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    async def end(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        # Reads what is left, so that the pipes are closed with it.
        await self.process.communicate()


async def await_owned(member: GroupOwnership, holds: Callable[[frozenset[int]], bool]) -> float:
    """Wait until what the member owns is so; the seconds that it took."""
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(LONGEST_S):
        while not holds(member.owned):
            await member.changed(member.owned)
    return asyncio.get_running_loop().time() - began


async def owns(member: GroupOwnership, *lanes: int) -> float:
    return await await_owned(member, lambda owned: owned == frozenset(lanes))


async def divided(*members: GroupOwnership, lanes: int = 4) -> None:
    """Wait until every lane has exactly one of these owners, evenly."""
    each = lanes // len(members)
    for member in members:
        await await_owned(member, lambda owned: each <= len(owned) <= each + 1)
    async with asyncio.timeout(LONGEST_S):
        while sorted(lane for member in members for lane in member.owned) != [*range(lanes)]:
            changes = [asyncio.create_task(member.changed(member.owned)) for member in members]
            await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
            for change in changes:
                change.cancel()
            await asyncio.gather(*changes, return_exceptions=True)
