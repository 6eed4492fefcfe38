"""A bridge between two Kafka clusters, made of settings as a node makes it, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bridge.assembly.bridges import Assembly
from bridge.assembly.context import node_context
from bridge.journal.journal import Journal
from bridge.node.wiring import journal_options
from bridge.relay.lanes import LanedRelay
from bridge.relay.lifecycle import Command, State
from bridge.relay.operated import Operated
from bridge.runtime.clock import SystemClock
from bridge.settings import load
from bridge.settings.model import Settings
from tests.harness.eventually import until
from tests.kafka.cluster.reachable import Reachable

WITHIN_S = 30.0


@asynccontextmanager
async def started(
    path: Path, name: str, source: Reachable, target: Reachable | None, more: str = ""
) -> AsyncIterator[Operated]:
    """It relays ``<name>.orders`` to ``to.<name>.orders`` on two lanes; `more`: further settings.

    Without a target it relays into its node's own journal.
    """
    settings = await asyncio.to_thread(_settings, path, name, source, target, more)
    journal = await Journal.open(journal_options(settings))
    try:
        made = Assembly(node_context(settings, SystemClock(), journal)).operated(settings.bridges[0])
        await made.command(Command.START)
        try:
            yield made
        finally:
            await made.command(Command.STOP)
    finally:
        await journal.close()


def _settings(path: Path, name: str, source: Reachable, target: Reachable | None, more: str) -> Settings:
    path.write_text(f"""
        [node]
        data-directory = "{path}.data"
        [connectors.here]
        url = "kafka://{source.bootstrap}"
        [connectors.there]
        url = "kafka://{(target or source).bootstrap}"
        [[bridges]]
        name = "{name}"
        source-connector = "here"
        queue-name = "{name}.orders"
        forwarding-address = "to.{{address}}"
        static-connectors = ["{"journal" if target is None else "there"}"]
        concurrency = 2
        retry-interval = 100
        max-retry-interval = 100
        {more}
    """)
    return load(path, {})


async def reached(made: Operated, state: State) -> None:
    """Wait for it."""
    await until(lambda: made.state is state, f"the bridge is {state}", WITHIN_S)


async def recorded(made: Operated) -> None:
    """Wait until the target has the record of the bridge's first start."""
    assert isinstance(made, LanedRelay)
    await until(
        lambda: made.lanes[0].session.source._first_start.is_recorded,  # type: ignore[attr-defined]
        "the first start is recorded",
        WITHIN_S,
    )


async def acknowledged(made: Operated, count: int) -> int:
    """Messages that the target has confirmed, once there are so many."""
    await until(lambda: made.counts.acknowledged >= count, f"{count} are acknowledged", WITHIN_S)
    return made.counts.acknowledged
