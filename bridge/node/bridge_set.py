"""The bridges of a running node: they can come and go while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from bridge.assembly.summary import BridgeSummary
from bridge.errors import Conflict, NotFound
from bridge.relay.lifecycle import Command, State
from bridge.relay.operated import Operated
from bridge.runtime import logs


class NodeBridge(NamedTuple):
    """One bridge of a node."""

    relay: Operated
    summary: BridgeSummary


class BridgeSet(Mapping[str, NodeBridge]):
    """The bridges by name, in the order in which they were added. Status, metrics and commands see them
    all.
    """

    def __init__(self) -> None:
        self._bridges: dict[str, NodeBridge] = {}
        #: What an operator has told a bridge before the node started; None: nothing.
        self.held: Callable[[str], Command | None] = lambda _: None

    def __getitem__(self, name: str) -> NodeBridge:
        return self._bridges[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._bridges))  # one may come or go while a caller awaits something

    def __len__(self) -> int:
        return len(self._bridges)

    def add(self, name: str, relay: Operated, summary: BridgeSummary) -> None:
        """Add a bridge, stopped. Raises: Conflict: there is one of this name."""
        if name in self._bridges:
            raise Conflict(f"there is a bridge {name} already", key="bridge", found=name)
        self._bridges[name] = NodeBridge(relay, summary)

    def put(self, name: str, relay: Operated, summary: BridgeSummary) -> None:
        """Add a bridge, stopped, in place of one of its name, if there is one, which is stopped."""
        assert name not in self._bridges or self._bridges[name].relay.state is State.STOPPED, f"{name} runs"
        self._bridges[name] = NodeBridge(relay, summary)

    async def start(self, name: str) -> None:
        """Log the facts about the bridge, and start it; returns when it has begun. One that an operator has
        stopped or paused stays so, and that is logged. Raises: NotFound.
        """
        relay, summary = self.known(name)
        logs.get(bridge=name).info(
            "bridge-started",
            source=summary.source,
            target=summary.target,
            guarantee=summary.guarantee,
            check_producer_ids=summary.check_producer_ids,
            id_cache_size=summary.id_cache_size,
            **({"filter": summary.filter} if summary.filter else {}),
            **({"transformer": summary.transformer} if summary.transformer else {}),
            **({"concurrency": summary.concurrency} if summary.concurrency else {}),
            **({"readers": summary.readers} if summary.readers else {}),
            **({"proxy": ", ".join(dict.fromkeys(summary.proxies.values()))} if summary.proxies else {}),
        )
        match self.held(name):
            case None:
                await relay.command(Command.START)
            case held:
                logs.get(bridge=name).warning("bridge-held", command=held.value)
                if held is Command.PAUSE:
                    await relay.command(Command.STAY_PAUSED)

    async def remove(self, name: str) -> None:
        """Stop the bridge, and show it no more when it has stopped. What waits for it stays where it is.

        Raises: NotFound.
        """
        relay, _ = self.known(name)
        await relay.command(Command.STOP)
        self._bridges.pop(name, None)

    def known(self, name: str) -> NodeBridge:
        """The bridge. Raises: NotFound."""
        if name not in self._bridges:
            raise NotFound(f"no bridge {name}", key="bridge", found=name)
        return self._bridges[name]

    def state(self, name: str) -> tuple[str, int]:
        """A bridge's state and its messages in flight; the leftovers of a removed bridge show as STOPPED."""
        if name not in self._bridges:
            return State.STOPPED.value, 0
        relay, _ = self._bridges[name]
        return relay.state.value, relay.in_flight

    async def stop_all(self) -> None:
        """Stop every bridge; returns when all have stopped."""
        await asyncio.gather(*[relay.command(Command.STOP) for relay, _ in self._bridges.values()])
