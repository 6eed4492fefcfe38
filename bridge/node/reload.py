"""Brings a running node to its settings file as it is now: by SIGHUP, by call, or whenever the file changes.

One reload runs at a time. The file is read, and compared with the settings in effect
(`bridge.settings.reloading`), before anything changes; a file that does not hold, or changes what cannot
change while the node runs, changes nothing. Bridges that the comparison does not name are not touched. No
step of a reload has to be undone or gone on with after a crash: the node starts by the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from bridge.assembly.credentials import Credentials
from bridge.assembly.summary import BridgeSummary
from bridge.end_kind import kind_of
from bridge.errors import BridgeError, Conflict, Stopping, described
from bridge.journal.node_ends import bridge_queue
from bridge.journal.rules.commands import BridgeCommand, ConfigureCommand
from bridge.journal.values.options import JournalOptions
from bridge.relay.lifecycle import Command, State
from bridge.relay.operated import Operated
from bridge.runtime import logs
from bridge.runtime.repeated_task import RepeatedTask
from bridge.runtime.threads import abandonable
from bridge.settings import SettingsFile
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings
from bridge.settings.reloading import Plan, SettingsRefused, plan

if TYPE_CHECKING:
    from bridge.journal.journal import Journal
    from bridge.node.node import Node

T = TypeVar("T")

#: Interval of the looks at the settings file (`watch-settings`), in seconds.
LOOK_S: Final = 1.0
#: States of a bridge that the operator has stopped or paused: with other settings it waits for `start`.
_AT_REST: Final = (State.STOPPED, State.STOPPING, State.PAUSED, State.PAUSING)


class ReloadedParts(Protocol):
    """The parts of a node that its settings make."""

    #: The settings in effect, and the file that they are from.
    settings: Settings
    path: Path
    credentials: Credentials

    def options_by(self, settings: Settings) -> JournalOptions:
        """The options of the journal by these settings."""

    def adopt(self, settings: Settings, text: str, anew: Sequence[str]) -> None:
        """Make everything by these settings from now on; `text`: of their file. Workers make the bridges
        `anew` anew.
        """

    def bridge(self, bridge: Bridge) -> tuple[Operated, BridgeSummary]:
        """The relay of one bridge, stopped, by the settings in effect."""


@dataclass(slots=True)
class Reloaded:
    """The outcome of a reload."""

    #: Keys that took effect in place.
    settings: list[str] = field(default_factory=list)
    #: Bridges that are new, that stopped and started, that wait for `start` as they did before, and that are
    #: gone.
    added: list[str] = field(default_factory=list)
    restarted: list[str] = field(default_factory=list)
    at_rest: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For answers and the log."""
        return {
            "settings": self.settings,
            "added": self.added,
            "restarted": self.restarted,
            "at-rest": self.at_rest,
            "removed": self.removed,
        }


class Reloads:
    """The reloads of one node."""

    def __init__(self, node: Node, parts: ReloadedParts) -> None:
        self._node = node
        self._parts = parts
        #: Names that the settings have given to bridges; others are those of extensions.
        self._names = {bridge.name for bridge in parts.settings.bridges}
        self._turn = asyncio.Lock()
        self._asked = asyncio.Event()
        #: The file when a reload last read it, and at the last look.
        self._read = self._looked = _signature(parts.path)
        #: Whether the node has started.
        self._begun = False
        self._following = RepeatedTask("reload", self._follow, until=lambda: self._node.stopping)
        self._running: set[asyncio.Task[Reloaded]] = set()
        self._log = logs.get()

    def ask(self) -> None:
        """Reload soon: once the node has started, and once for all that asked meanwhile. The log has the
        outcome.
        """
        self._asked.set()

    def begin(self) -> None:
        """The node has started: take calls, and carry out what was asked for."""
        self._begun = True
        self._following.begin()

    async def end(self) -> None:
        """The node is going to stop: end the reload that runs, wherever it is, and take none any more."""
        await self._following.end()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def reload(self) -> Reloaded:
        """Bring the node to its settings file, after the reloads that were asked for before. It goes on where
        the caller is cancelled; the log has the outcome.

        Raises:
            SettingsInvalid: the file does not hold, with every problem.
            SettingsRefused: it changes what cannot change while the node runs, with every such key.
            Conflict: the node is still starting, or the journal has an address otherwise.
            Stopping: the node is going down.
            BridgeError, OSError: a part of it failed. What it says has not taken effect is tried again by the
                next reload.
        """
        if not self._begun or self._node.stopping:
            if self._node.stopping:
                raise Stopping("the node is stopping")
            raise Conflict("the node is still starting", key="state", found="starting")
        task = asyncio.create_task(self._in_turn(), name="reload-once")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise Stopping("the node is stopping") from None
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise

    async def _follow(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._asked.wait()
        if self._asked.is_set() or await self._is_new():
            self._asked.clear()
            with contextlib.suppress(Exception):  # it is logged, and the next one may go well
                await self.reload()

    async def _is_new(self) -> bool:
        """Whether the file is another one than was read last, and the same at two looks: it is being written
        otherwise.
        """
        before = self._looked
        self._looked = await _beside(_signature, self._parts.path)
        watches = self._parts.settings.node.watch_settings
        return watches and self._looked != self._read and self._looked == before

    async def _in_turn(self) -> Reloaded:
        async with self._turn:
            try:
                outcome = await self._reload()
            except (BridgeError, OSError) as error:
                self._log.warning("settings-not-reloaded", reason=described(error))
                raise
            except Exception as error:
                self._log.error("settings-not-reloaded", reason=described(error), exc_info=error)
                raise
            self._log.info("settings-reloaded", **outcome.as_dict())
            return outcome

    # -- one reload --------------------------------------------------------------------------------------

    async def _reload(self) -> Reloaded:
        node, parts = self._node, self._parts
        journal = node.journal
        assert journal is not None, "the node has started"
        self._read = await _beside(_signature, parts.path)
        file = await _beside(SettingsFile, parts.path, os.environ)
        settings = await _beside(partial(file.settings, transformers=True, now_s=time.time()))
        found = plan(parts.settings, settings)
        if found.refused:
            raise SettingsRefused.of(str(parts.path), found.refused)
        for name in found.added:
            if name in node.bridges and name not in self._names:
                raise Conflict(f"there is a bridge {name} already", key="bridge", found=name)
        credentials = await _beside(Credentials, settings, file)
        if found.concerns_addresses:
            options = parts.options_by(settings)
            await journal.submit(ConfigureCommand, options=options)
            journal.options = journal.options.with_addresses_of(options)
        await _beside(parts.credentials.take, credentials)  # from here on nothing is refused
        outcome = Reloaded([change.key for change in found.in_place], removed=list(found.removed))
        failed = await self._change_bridges(journal, settings, file.text, found, outcome)
        await node.renew(journal, {*found.removed, *found.changed})
        if failed:
            raise BridgeError(
                "the settings took effect, but for bridges: "
                + "; ".join(f"{name}: {described(error)}" for name, error in failed.items())
            )
        return outcome

    async def _change_bridges(
        self, journal: Journal, settings: Settings, text: str, found: Plan, outcome: Reloaded
    ) -> dict[str, BridgeError]:
        """Stop those that are gone or changed, let the journal know, start those that are new or changed.

        Returns those for which the journal failed, which are not in the settings in effect: the next reload
        tries them again.
        """
        bridges, before = self._node.bridges, self._parts.settings
        at_rest = {name for name in found.changed if bridges[name].relay.state in _AT_REST}
        await asyncio.gather(*[self._stopped(name) for name in (*found.removed, *found.changed)])
        failed: dict[str, BridgeError] = {}
        for name in (*found.removed, *found.changed, *found.added):  # a name that goes may be a previous-name
            try:
                await _tell(journal, name, before, settings)
            except BridgeError as error:
                failed[name] = error
        for name in found.removed:
            await bridges.remove(name)
            self._names.discard(name)
        wanted = tuple(bridge for bridge in settings.bridges if bridge.name not in failed)
        for name in found.changed:
            await self._stopped(name)
        anew = [name for name in (*found.changed, *found.added) if name not in failed]
        self._parts.adopt(settings.model_copy(update={"bridges": wanted}), text, anew)
        by_name = {bridge.name: bridge for bridge in wanted}
        for name in anew:
            await self._stopped(name)  # an operator may have started it meanwhile
            bridges.put(name, *self._parts.bridge(by_name[name]))
            self._names.add(name)
        outcome.added = [name for name in found.added if name in by_name]
        outcome.restarted = [name for name in found.changed if name in by_name and name not in at_rest]
        outcome.at_rest = [name for name in found.changed if name in by_name and name in at_rest]
        for name in (*outcome.added, *outcome.restarted):
            await bridges.start(name)
        return failed

    async def _stopped(self, name: str) -> None:
        """Stop the bridge, if there is one of this name; it is STOPPED when this returns."""
        bridges = self._node.bridges
        while name in bridges and bridges[name].relay.state is not State.STOPPED:
            await bridges[name].relay.command(Command.STOP)


async def _tell(journal: Journal, name: str, before: Settings, after: Settings) -> None:
    """Let the journal know what a bridge reads from now on, if it reads the journal, or did."""
    old, new = _reader(name, before), _reader(name, after)
    if new is not None:
        await journal.submit(BridgeCommand, action="put", bridge=bridge_queue(new, after))
    elif old is not None:
        await journal.submit(BridgeCommand, action="remove", bridge=bridge_queue(old, before))


def _reader(name: str, settings: Settings) -> Bridge | None:
    """The bridge of this name, where there is one that reads the journal."""
    for bridge in settings.bridges:
        if bridge.name == name and kind_of(settings, bridge.source_connector).is_own:
            return bridge
    return None


async def _beside(work: Callable[..., T], *arguments: Any) -> T:
    """The outcome of work on files, or by code of others, which a stop of the node leaves behind."""
    return await abandonable(partial(work, *arguments), "reload")


def _signature(path: Path) -> tuple[int, ...]:
    """The file's time, size and inode, one of which a change of it changes; empty: it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
