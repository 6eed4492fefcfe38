"""The parts common to all demos: rows, a directory that is cleaned up, and processes that end with it."""

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
#: Longest time without progress of the backlog before a demo gives up, in seconds.
STILL_FOR_S: Final = 60.0


@dataclass(slots=True)
class Stage:
    """One run of a demo."""

    rows: Sequence[Row]
    progress: Progress
    keep: bool = False
    #: Directory of settings, journals and logs; removed at the end unless `keep` is set or the demo failed.
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="core-bridge-demo-")))
    #: Whether the directory still exists after `play`.
    kept: bool = False
    #: Called with the proof as soon as it exists: the report takes longer than everything before.
    on_proof: Callable[[Proof], None] = lambda _proof: None
    #: Directory for copies of the delivery logs; None: none are made.
    logs: Path | None = None
    #: Directory of the delivery logs' report; None: the logs are not reconciled.
    report: Path | None = None
    #: A text on the rejected duplicates and their causes, as the logs will count them; empty: unknown.
    rejected: str = ""
    #: Whether the delivery logs account for every message, if that was asked for and could be answered.
    accounted: bool = True

    async def play(self) -> Proof:
        """Run the whole demo, and clean up.

        Raises:
            DemoFailed: a node failed, or there was no progress for too long.
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
        """Copy or reconcile the delivery logs, if that was asked for."""
        if self.rejected and (self.logs is not None or self.report is not None):
            warn(self.rejected)
        if self.logs is not None:
            copy_logs(self.directory, self.logs)
        if self.report is not None:
            self.progress.update("reconciling the delivery logs")
            said = functools.partial(warn, progress=self.progress)
            self.accounted = await reconcile(logs_in(self.directory), self.report, said)

    async def perform(self) -> Proof:
        """Run the demo's own part. Raises: as `play`."""
        raise NotImplementedError

    async def clean_up(self) -> None:
        """Remove what is left elsewhere than in `directory`."""

    @property
    def remains(self) -> str:
        """A text on the remaining files where `kept` is set, with their place."""
        return f"settings, journals and logs are in {self.directory}"

    @property
    def id_cache_size(self) -> int:
        """Capacity for the ID of every row."""
        return max(DEFAULT_ID_CACHE_SIZE, len(self.rows))


@contextlib.asynccontextmanager
async def ended(nodes: Sequence[NodeProcess]) -> AsyncIterator[None]:
    """End all nodes on exit, also after an error."""
    try:
        yield
    finally:
        for node in nodes:
            node.kill_now()
        for node in nodes:
            await node.gone()


async def together(*coroutines: Any) -> None:
    """Run side by side; the first failure cancels the others and is raised as it is."""
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
