"""Decisions about a node that does not run: both ends of a bridge, and the journal, opened by a command.

The journal's lock keeps a running node out, and these commands out of a running node. A bridge from Kafka to
Kafka has nothing in the journal, and its workers may run on any machine: the operator stops them before a
decision about it.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bridge.assembly.bridges import Assembly
from bridge.assembly.context import node_context
from bridge.end_kind import NodeContext, kind_of
from bridge.errors import Conflict, NotFound, TargetRefused, TargetUnavailable, described
from bridge.journal.giving_back import GivingBack, InDoubt, read_taken
from bridge.journal.journal import Journal
from bridge.journal.rules import branching
from bridge.journal.rules.commands import Branch, BranchCommand, DisownCommand, ForgetCommand, QueueCommand
from bridge.journal.rules.forgetting import Forgotten
from bridge.journal.sqlite import repair
from bridge.journal.sqlite.database import FILE_NAME, DirectoryLock
from bridge.journal.sqlite.identity_file import forget_reached
from bridge.journal.sqlite.reader import bridge_lags
from bridge.journal.values.options import JournalOptions
from bridge.journal.writer.opening import find_loss
from bridge.messages.stream_names import is_own_log
from bridge.node.wiring import journal_options
from bridge.relay import reposition
from bridge.relay.ports import Source, Target
from bridge.relay.reposition import Decision, Start
from bridge.runtime import logs
from bridge.runtime.clock import SystemClock
from bridge.settings import load
from bridge.settings.bridges import Bridge
from bridge.settings.model import Settings

#: What becomes of messages that the target may have: their queue, and how many there are.
_IN_DOUBT: Final[Mapping[InDoubt, str]] = {
    "dead-letter": "{1} messages of {0} that may be delivered become dead letters",
    "requeue": "{1} messages that may be delivered go back to {0}, and may be doubled",
}

#: Called with the lines of a plan; answers whether to carry it out.
Approve = Callable[[Sequence[str]], bool]


def read_settings(path: Path) -> Settings:
    """The settings at `path`; their logging settings apply from now on. Raises: SettingsInvalid."""
    settings = load(path, os.environ)
    logs.configure(settings.node.log_level, settings.node.log_format, settings.node.name)
    return settings


def find_bridge(settings: Settings, name: str) -> Bridge:
    """The bridge of this name. Raises: NotFound."""
    for bridge in settings.bridges:
        if bridge.name == name:
            return bridge
    names = ", ".join(bridge.name for bridge in settings.bridges) or "none"
    raise NotFound(f"no bridge {name}; the settings have: {names}", key="bridge", found=name)


async def decide_positions(
    path: Path, name: str, start: Start, approve: Approve, connector: str | None = None
) -> None:
    """`bridge.relay.reposition` for the bridge `name`, all its lanes, as the file at `path` describes it.

    `connector`: the one of the bridge's that leads to the target; None: the one to the store where it was
    last.

    Raises:
        SettingsInvalid; NotFound: no such bridge, or it has no such connector; Conflict: none of several
            connectors leads to the store where it was last; JournalFailed: the node runs; the ends' errors.
    """
    settings = read_settings(path)
    bridge = find_bridge(settings, name)
    several = len(bridge.static_connectors) > 1
    async with contextlib.AsyncExitStack() as stack:
        assembly = await _assembly(stack, settings, bridge)
        if connector is None:
            bridge = await _where_it_was(assembly, bridge)
        else:
            bridge = _by(bridge, connector)
        plans: list[tuple[Source, Target, list[Decision]]] = []
        for source, target in assembly.ends(bridge):
            stack.push_async_callback(target.close)
            stack.push_async_callback(source.close)
            plans.append((source, target, await reposition.plan(source, target, start)))
        where = f"at {bridge.target}: " if several else ""
        if approve([f"{where}{decision}" for _, _, decisions in plans for decision in decisions]):
            for source, target, decisions in plans:
                await reposition.carry_out(source, target, decisions)


async def _assembly(stack: contextlib.AsyncExitStack, settings: Settings, bridge: Bridge) -> Assembly:
    """The maker of the bridge's ends, with the journal open where they need it."""
    ends = (bridge.source_connector, bridge.static_connectors[0])
    if all(kind_of(settings, connector).stands_alone for connector in ends):
        return Assembly(NodeContext(settings, SystemClock(), process=settings.node.name))
    journal = await stack.enter_async_context(open_journal(journal_options(settings)))
    return Assembly(node_context(settings, SystemClock(), journal))


def _by(bridge: Bridge, connector: str) -> Bridge:
    """The bridge with this one of its connectors alone. Raises: NotFound."""
    if connector in bridge.static_connectors:
        return bridge.by(connector)
    names = ", ".join(bridge.static_connectors)
    raise NotFound(
        f"bridge {bridge.name} has no connector {connector}; its static-connectors: {names}",
        key="connector",
        found=connector,
    )


async def _where_it_was(assembly: Assembly, bridge: Bridge) -> Bridge:
    """The bridge with the one connector alone that leads to the store where it was last; where it was at none
    yet, with the first that answers.

    Raises: Conflict: of several connectors none leads there now, or its streams were at different stores.
    """
    if len(bridge.static_connectors) == 1:
        return bridge
    stores: set[str] = set()
    said: list[str] = []
    for name in bridge.static_connectors:
        lanes = assembly.ends(bridge.by(name))
        try:
            stores = {store for source, _ in lanes for store in await _stores(source)}
            opened = await lanes[0][1].open([])
            if stores <= {opened.store, *opened.inherited}:
                return bridge.by(name)
            said.append(f"{name} leads to {opened.store}")
        except (TargetUnavailable, TargetRefused) as error:
            said.append(f"{name}: {described(error)}")
        finally:
            for source, target in lanes:
                await source.close()
                await target.close()
    raise Conflict(
        f"bridge {bridge.name} was last at {' and '.join(sorted(stores)) or 'no store'}, and no connector is"
        f" known to lead there: {'; '.join(said)}. Name the one to go on at: positions {bridge.name}"
        " --connector NAME; or leave one in static-connectors",
        key="static-connectors",
    )


async def _stores(source: Source) -> set[str]:
    """The stores that have confirmed messages of the streams that a source has."""
    streams = {stream.identity for stream in await source.streams()}
    return {known.store for stream, known in (await source.remembered()).items() if stream in streams}


@contextlib.asynccontextmanager
async def open_journal(options: JournalOptions) -> AsyncIterator[Journal]:
    """The journal, which no node has open. Raises: JournalFailed."""
    journal = await Journal.open(options)
    try:
        yield journal
    finally:
        await journal.close()


async def new_incarnation(path: Path, restored_at: int | None, approve: Approve) -> None:
    """Let a journal that was restored or copied go on under a new incarnation
    (`bridge.journal.rules.branching`).

    Asks the target of each bridge first. If it is cut short after the journal has changed, the bridges
    refuse, and `positions BRIDGE --from group` completes it.

    Raises:
        SettingsInvalid; JournalFailed: the node runs; Conflict: where it branched off cannot be known, or a
            bridge is missing from the settings, or cannot be asked for where it was last; the ends' errors.
    """
    settings = read_settings(path)
    bridges = [bridge for bridge in settings.bridges if kind_of(settings, bridge.source_connector).is_own]
    async with open_journal(journal_options(settings)) as journal:
        incarnation = uuid.uuid4().hex[:16]
        branches: list[Branch] = []
        for bridge in bridges:
            branches += await _branches(settings, journal, bridge, incarnation, restored_at)
        lines = [f"incarnation {journal.identity.incarnation} -> {incarnation}"]
        lines += [f"{one.bridge}: {one.address} goes on at {one.at}, at {one.store}" for one in branches]
        lines.append(
            "bridges of other nodes that deliver here find another store and have to be decided about"
        )
        if not approve(lines):
            return
        await journal.submit(BranchCommand, incarnation=incarnation, branches=branches)
    for bridge in bridges:
        await decide_positions(path, bridge.name, "group", lambda _: True)


def skip_damaged(path: Path, approve: Approve) -> str:
    """Save what can be read of a damaged journal (`bridge.journal.sqlite.repair`), and pass over the rest.

    Answers where the damaged file is kept; empty: nothing was changed.

    Raises: SettingsInvalid; JournalFailed: the node runs, or the journal cannot be saved.
    """
    directory = read_settings(path).node.data_directory
    with _locked(directory):
        file = directory / FILE_NAME
        findings = repair.examine(file)
        lines = list(findings) or ["nothing is lost: every message can be read"]
        lines.append(
            f"writes what can be read into another file, and keeps the damaged one as {repair.KEPT_NAME}"
        )
        if not approve(lines):
            return ""
        return str(repair.save(file, findings, SystemClock().wall_ms()))


def accept_loss(path: Path, approve: Approve) -> None:
    """Let a journal that lacks what it had go on as it is (`bridge.journal.sqlite.identity_file`).

    Raises: SettingsInvalid; JournalFailed: the node runs; Conflict: it lacks nothing.
    """
    directory = read_settings(path).node.data_directory
    with _locked(directory):
        lacks = find_loss(directory / FILE_NAME)
        if not lacks:
            raise Conflict(
                f"the journal in {directory} lacks nothing that is known", key="node.data-directory"
            )
        if approve([lacks, "the next start goes on with what there is, and gives its positions again"]):
            forget_reached(directory)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    lock = DirectoryLock(directory)
    try:
        yield
    finally:
        lock.release()


async def _branches(
    settings: Settings, journal: Journal, bridge: Bridge, incarnation: str, restored_at: int | None
) -> list[Branch]:
    """The position where each stream of a bridge goes on, by the target's present word on it."""
    own = journal.identity
    assembly = Assembly(node_context(settings, SystemClock(), journal))
    ((source, target),) = assembly.ends(await _where_it_was(assembly, bridge))
    try:
        streams = await source.streams()
        opened = await target.open(streams)
    finally:
        await source.close()
        await target.close()
    looks = await journal.read(
        branching.read_looks, bridge.name, own.incarnation, opened.streams, own.session_id
    )
    store = opened.store if opened.store != own.store else f"{own.node_id}:{incarnation}"
    branches = []
    for identity, look in looks.items():
        at = branching.branch_at(opened.streams[identity], look, restored_at)
        if at is None:
            opened_at = ", ".join(str(first) for first, _ in await journal.read(branching.read_sessions))
            raise Conflict(
                f"{identity}: the target covers up to {opened.streams[identity].next} what this journal "
                "never sent, and where the two parted cannot be known. Say with --restored-at at which "
                f"position this journal was restored; it was opened at {opened_at}",
                key="restored-at",
            )
        branches.append(Branch(bridge.name, look.row.address, at, store))
    return branches


async def forget_bridge(
    path: Path, name: str, address: str | None, in_doubt: InDoubt, approve: Approve
) -> None:
    """Drop the leftovers of a bridge that is not in the settings any more; with `address`, only those there.

    At an address that its `queue-name` leaves out now, the leftovers of a bridge that is in the settings,
    too. What it has taken out of queues that others read, too, is given back (`bridge.journal.giving_back`).

    Raises:
        SettingsInvalid; JournalFailed: the node runs; Conflict: it is in the settings, and reads the address;
            NotFound: nothing is left of it.
    """
    settings = read_settings(path)
    async with open_journal(journal_options(settings)) as journal:
        left: Forgotten = await journal.submit(ForgetCommand, bridge=name, address=address, really=False)
        logs = [one for one in left.queues if is_own_log(one)]
        lines = [
            f"{one}: drops the queue of {name}, which holds {lag} messages"
            for one, lag in await _lags(journal, name)
            if one in left.queues and one not in logs
        ]
        for log in logs:
            taken = await journal.look(read_taken, name, log)
            lines += [f"{log}: {_IN_DOUBT[in_doubt].format(queue, count)}" for queue, count in taken.items()]
        lines += [f"{stream}: forgets that it was confirmed up to {upto}" for stream, upto in left.settled]
        lines += [f"{stream}: forgets which of its messages have a dead letter" for stream in left.letters]
        if approve(lines):
            for log in logs:
                await GivingBack(journal, name, log, in_doubt).run()
            with contextlib.suppress(NotFound):  # there was nothing but these logs
                await journal.submit(ForgetCommand, bridge=name, address=address, really=True)


async def forget_owner(path: Path, name: str, approve: Approve) -> None:
    """Let the positions of the bridge `name` here belong to the first caller that opens them again.

    Raises: SettingsInvalid; JournalFailed: the node runs; NotFound: no such bridge has delivered here.
    """
    settings = read_settings(path)
    async with open_journal(journal_options(settings)) as journal:
        owners = await journal.submit(DisownCommand, bridge=name, really=False)
        if approve([f"{stream}: forgets that it belongs to {owner}" for stream, owner in owners.items()]):
            await journal.submit(DisownCommand, bridge=name, really=True)


async def _lags(journal: Journal, name: str) -> list[tuple[str, int]]:
    return [(lag.address, lag.messages) for lag in await journal.look(bridge_lags) if lag.bridge == name]


async def forget_queue(path: Path, address: str, queue: str, approve: Approve) -> None:
    """Drop a readers' queue. Raises: SettingsInvalid, JournalFailed, AddressNotFound, QueueNotFound."""
    settings = read_settings(path)
    async with open_journal(journal_options(settings)) as journal:
        lags = {status.name: status.lag for status in (await journal.address(address)).queues}
        if queue not in lags:
            raise NotFound(f"{address} has no queue {queue}", key="queue", found=queue)
        lines = [f"{address}: drops the queue {queue}, which holds {lags[queue]} messages"]
        declared = settings.addresses.get(address)
        if declared is not None and any(one.name == queue for one in declared.queues):
            lines.append(
                "the settings declare it: the next start makes it anew, from the earliest message on"
            )
        if approve(lines):
            await journal.submit(QueueCommand, action="delete", address=address, queue=queue)
