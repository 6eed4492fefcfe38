"""What every demo has: rows, a directory that is cleaned up, and processes that end with it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bridge.client.progress import Progress, warn
from bridge.demo.compare import Proof
from bridge.demo.nodes import NodeProcess
from bridge.demo.report import copy_logs, logs_in, reconcile
from bridge.demo.rows import Row

#: Duplicate IDs that are remembered: the default, or every ID of a larger input.
DEFAULT_ID_CACHE_SIZE: Final = 20_000
#: How long the backlog may stand still before a demo gives up, in seconds.
STILL_FOR_S: Final = 60.0


@dataclass(slots=True)
class Stage:
    """One run of a demo."""

    rows: Sequence[Row]
    progress: Progress
    keep: bool = False
    #: Where settings, journals and logs are; removed at the end unless `keep` is set or it went wrong.
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="core-bridge-demo-")))
    #: Whether the directory is still there after `play`.
    kept: bool = False
    #: Given the proof as soon as it is there: the report takes longer than all before it.
    on_proof: Callable[[Proof], None] = lambda _proof: None
    #: Where copies of the delivery logs go; None: none are made.
    logs: Path | None = None
    #: Where the delivery logs' report goes; None: the logs are not reconciled.
    report: Path | None = None
    #: How many duplicates were rejected and why they came, as the logs will count them; empty: not known.
    rejected: str = ""
    #: Whether the delivery logs account for every message, as far as that was asked and could be answered.
    accounted: bool = True

    async def play(self) -> Proof:
        """The whole of it, with everything cleaned up.

        Raises:
            DemoFailed: a node failed, or messages stood still for too long.
        """
        self.kept = True
        proof: Proof | None = None
        try:
            proof = await self.perform()
            self.progress.clear()
            self.on_proof(proof)
            await self._account()
        except asyncio.CancelledError:
            self.kept = self.keep
            raise
        else:
            self.kept = self.keep or not (proof.holds and self.accounted)
        finally:
            self.progress.clear()
            if not self.kept:
                await self.clean_up()
                shutil.rmtree(self.directory, ignore_errors=True)
        return proof

    async def _account(self) -> None:
        """Hand on or reconcile the delivery logs, as far as that was asked for."""
        if self.rejected and (self.logs is not None or self.report is not None):
            warn(self.rejected)
        if self.logs is not None:
            copy_logs(self.directory, self.logs)
        if self.report is not None:
            self.progress.update("reconciling the delivery logs")
            said = functools.partial(warn, progress=self.progress)
            self.accounted = await reconcile(logs_in(self.directory), self.report, said)

    async def perform(self) -> Proof:
        """What the demo is about. Raises: as `play`."""
        raise NotImplementedError

    async def clean_up(self) -> None:
        """Take away what is left elsewhere than in `directory`."""

    @property
    def remains(self) -> str:
        """What there is to look at afterwards where `kept` is set, and where."""
        return f"settings, journals and logs are in {self.directory}"

    @property
    def id_cache_size(self) -> int:
        """Room for the ID of every row."""
        return max(DEFAULT_ID_CACHE_SIZE, len(self.rows))


@contextlib.asynccontextmanager
async def ended(nodes: Sequence[NodeProcess]) -> AsyncIterator[None]:
    """Whatever happens inside, no node outlives it."""
    try:
        yield
    finally:
        for node in nodes:
            node.kill_now()
        for node in nodes:
            await node.gone()


async def together(*coroutines: Any) -> None:
    """Run side by side; the first failure ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as failures:
        raise _first(failures) from None


def _first(failure: BaseException) -> BaseException:
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure
