"""A running node: the order of opening and closing, and its state for the operator."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import Final, Protocol

from bridge.assembly.credentials import Credentials, CredentialsWatch, News
from bridge.assembly.summary import BridgeSummary
from bridge.delivery_log import LogThread
from bridge.end_kind import LogCopier
from bridge.errors import BridgeError
from bridge.http.acceptor import Acceptor
from bridge.http.links import LinkService, OpenLink
from bridge.http.listener import Bound
from bridge.http.operations import NodeControl, Operations
from bridge.journal.dead_letters import DeadLetterService
from bridge.journal.journal import Journal
from bridge.journal.measures import FullAddress
from bridge.journal.sqlite.database import SQLITE_VERSION
from bridge.journal.sqlite.reader import Orphan
from bridge.journal.unused import UnusedRemover
from bridge.journal.values.options import JournalOptions
from bridge.node.bridge_set import BridgeSet
from bridge.node.bridge_watch import LOOK_S, BridgeWatch
from bridge.node.extension import Extension, NodeServices
from bridge.node.held_bridges import HeldBridges
from bridge.node.metering import Metering
from bridge.node.outbox import OutboxCopier
from bridge.node.reload import Reloads
from bridge.relay.operated import Operated
from bridge.runtime import log_output, logs, signals
from bridge.runtime.clock import Clock
from bridge.runtime.event_loop import fast_loop
from bridge.runtime.exits import EXIT_GRACE_S, EXIT_S, bound_exit
from bridge.runtime.repeated_task import RepeatedTask
from bridge.workers.supervisor import Supervisor

#: Interval of the checks whether the disk is full, in seconds.
_LOOK_S: Final = 0.5
#: Longest that an extension may take to stop, in seconds: its bridges have stopped before.
_EXTENSION_STOP_S: Final = 1.0


class NodeParts(Protocol):
    """Makes the parts of a node; `bridge.node.wiring` does it from the settings."""

    clock: Clock
    #: ``persist-id-cache``.
    persist_id_cache: bool
    #: URL of the operations listener; None: not opened.
    operations: str | None
    #: Whether metrics have each partition of bridges from Kafka.
    partition_metrics: bool
    #: Tokens and TLS, by their files' present content.
    credentials: Credentials
    #: The extensions of the node, in the order in which they start.
    extensions: Sequence[Extension]
    #: The supervisor of the worker processes; None: this process relays everything itself.
    supervisor: Supervisor | None

    @property
    def shutdown_timeout_ms(self) -> int:
        """``shutdown-timeout``."""

    def reloads(self, node: Node) -> Reloads:
        """The reloads of the node's settings while it runs."""

    def journal_options(self) -> JournalOptions:
        """The options for opening the journal."""

    def log_files(self) -> LogThread | None:
        """The delivery log's files; None where it is off."""

    def log_copy(self) -> LogCopier | None:
        """The task that copies the delivery log elsewhere; None: it is not copied."""

    def control(self, node: Node) -> NodeControl:
        """The node's interface for its operator."""

    def letters(self, journal: Journal) -> DeadLetterService:
        """The dead letters in this node's journal."""

    def services(self, journal: Journal, bridges: BridgeSet) -> NodeServices:
        """The parts of the node that its extensions work with."""

    def links(self, journal: Journal) -> LinkService:
        """The receiving end of node links."""

    def acceptor(self, node: Node, journal: Journal, links: LinkService) -> Acceptor | None:
        """The listener for messages; None where the node does not listen."""

    def bridges(self, journal: Journal) -> Mapping[str, tuple[Operated, BridgeSummary]]:
        """The relay of every bridge."""


class Node:
    """Everything that one process runs; `bridge.node.operations` is its interface for the operator."""

    def __init__(self, parts: NodeParts) -> None:
        self.parts = parts
        self._log = logs.get()
        #: None until it is open.
        self.journal: Journal | None = None
        self.letters: DeadLetterService | None = None
        self.bridges = BridgeSet()
        self.watch = BridgeWatch()
        #: What operators have told bridges; None until the journal is open.
        self.held: HeldBridges | None = None
        self.metering = Metering(with_partitions=parts.partition_metrics)
        self.metering.certificate_expiries = parts.credentials.certificate_expiries
        #: Whether the acceptor takes messages, and whether the node is going down.
        self.accepting = False
        self.stopping = False
        self._acceptor: Acceptor | None = None
        self._operations: Operations | None = None
        self._bound_operations: Bound | None = None
        self._outbox: OutboxCopier | None = None
        self._log_copy: LogCopier | None = None
        self._links: LinkService | None = None
        #: The work that the node itself does again and again.
        self._repeated: list[RepeatedTask] = []
        self._removes_unused = False
        #: Whether the log's last word of the disk is that it is full, and of which addresses.
        self._logged_disk_full = False
        self._logged_damaged = 0
        self._logged_full: Mapping[str, FullAddress] = {}
        self._tallies: dict[str | None, logs.Tally] = {}
        self.reloads = parts.reloads(self)

    # -- life --------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Start, wait for SIGTERM or SIGINT, drain. Returns 0 when drained; a second signal stops at once.

        Raises:
            BridgeError, OSError: it could not start.
        """
        with asyncio.Runner(loop_factory=fast_loop()) as runner:
            return runner.run(self._run())

    async def _run(self) -> int:
        asked = asyncio.Event()

        def stop() -> None:
            if asked.is_set():
                log_output.flush()
                os._exit(1)  # durable messages stay; the others were never answered
            asked.set()
            bound_exit(self.parts.shutdown_timeout_ms / 1000 + EXIT_GRACE_S, 1)

        signals.hand_over(asyncio.get_running_loop(), stop, self.reloads.ask)
        try:
            await self._start_unless(asked)
            await asked.wait()
        finally:
            await self.stop()
            bound_exit(EXIT_S, 0 if asked.is_set() else 1)
        return 0

    async def _start_unless(self, asked: asyncio.Event) -> None:
        """Start; where the node is asked to stop meanwhile, leave that as soon as nothing is half open."""
        asking = asyncio.create_task(asked.wait(), name="asked-to-stop")
        try:
            for step, patience_ms in ((self._open, self.parts.shutdown_timeout_ms), (self._begin, 0)):
                if asked.is_set():
                    return
                starting = asyncio.create_task(step(), name="start")
                await asyncio.wait((asking, starting), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait((starting,), timeout=patience_ms / 1000)
                starting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await starting
        finally:
            asking.cancel()

    async def start(self) -> None:
        """Start operations first, so that /ping answers; then the journal, the acceptor, the bridges."""
        await self._open()
        await self._begin()

    async def _open(self) -> None:
        parts = self.parts
        if parts.operations is not None:
            tokens = parts.credentials.operations_tokens
            self._operations = Operations(
                parts.control(self),
                url=parts.operations,
                tokens=tokens,
                meter=self.metering.operations,
                additions=[one for extension in parts.extensions for one in extension.operations_routes()],
            )
            self._bound_operations = await self._operations.start()
        self.journal = journal = await Journal.open(parts.journal_options(), parts.clock)
        journal.counts.on_duplicates = self._on_duplicates
        self._repeat("watch-journal", lambda: self._watch_journal(journal))
        self._repeat("watch-bridges", self._watch_bridges)
        self._remove_unused(journal)
        files = parts.log_files()
        if files is not None:
            outbox = OutboxCopier(journal, files)
            await outbox.start()
            self._outbox = outbox  # not before: a log that another process writes gets no line at the stop
            self._log_copy = parts.log_copy()
            if self._log_copy is not None:
                self._log_copy.start()
        self.held = HeldBridges(journal)
        await self.held.load()
        self.bridges.held = self.held.of

    async def _begin(self) -> None:
        parts, journal, bound_operations = self.parts, self.journal, self._bound_operations
        assert journal is not None, "it is open"
        for name, (relay, summary) in parts.bridges(journal).items():
            self.bridges.add(name, relay, summary)
        self.letters = parts.letters(journal)
        services = parts.services(journal, self.bridges)
        for extension in parts.extensions:
            await extension.start(services)
        self._log_opening(journal, await journal.orphans())
        self._links = parts.links(journal)
        self.metering.watch(journal, self.bridges, self._links, parts.extensions)
        self._acceptor = parts.acceptor(self, journal, self._links)
        bound: Bound | None = None
        if self._acceptor is not None:
            bound = await self._acceptor.start()
        self.accepting = True
        self._log.info(
            "listening",
            acceptor=None if bound is None else str(bound),
            operations=None if bound_operations is None else str(bound_operations),
            sqlite=SQLITE_VERSION,
        )
        watch = CredentialsWatch(parts.credentials, self._on_credentials)
        self._repeat("watch-credentials", watch.turn)
        if parts.supervisor is not None:
            parts.supervisor.start(journal.identity.node_id)
        for name in self.bridges:
            await self.bridges.start(name)
        self.reloads.begin()

    def _remove_unused(self, journal: Journal) -> None:
        if journal.options.deletes_unused and not self._removes_unused:
            self._removes_unused = True
            self._repeat("delete-unused", UnusedRemover(journal).turn)

    def _repeat(self, name: str, turn: Callable[[], Awaitable[object]]) -> None:
        task = RepeatedTask(name, turn)
        self._repeated.append(task)
        task.begin()

    async def renew(self, journal: Journal, bridges: Set[str]) -> None:
        """Go on by the settings that a reload has put into effect; `bridges` are removed or replaced."""
        credentials = self.parts.credentials
        if self._acceptor is not None:
            self._acceptor.renew(credentials.tokens, credentials.users)
        if self._operations is not None:
            self._operations.renew(credentials.operations_tokens)
        self.letters = self.parts.letters(journal)
        self._remove_unused(journal)
        for extension in self.parts.extensions:
            extension.reloaded()
        self._log_orphans([orphan for orphan in await journal.orphans() if orphan.bridge in bridges])

    def _on_credentials(self, news: News) -> None:
        """Apply new tokens or certificates: those that are gone open nothing any more, and their links
        end.
        """
        credentials = self.parts.credentials
        if self._acceptor is not None:
            self._acceptor.renew_tokens(credentials.tokens, credentials.users)
            if news.acceptor_tls:
                self._acceptor.renew_certificates(credentials.users)
        if self._operations is not None:
            self._operations.renew_tokens(credentials.operations_tokens)

    def _on_duplicates(self, bridge: str | None, count: int) -> None:
        tally = self._tallies.get(bridge)
        if tally is None:
            later = asyncio.get_running_loop().call_later
            tally = self._tallies[bridge] = logs.rate_limited(
                "duplicate-rejected", bridge=bridge, later=later
            )
        tally.add(count)

    async def _watch_bridges(self) -> None:
        self.watch.look(self.bridges, self.parts.clock.wall_ms())
        await asyncio.sleep(LOOK_S)

    async def _watch_journal(self, journal: Journal) -> None:
        """Log once that the disk, or an address, has no room, and once that it has room again.

        Log each damaged place of the journal.
        """
        self._logged_full = self._log_full(self._logged_full, journal.full_addresses())
        disk_full = journal.disk_full
        if disk_full and not self._logged_disk_full:
            self._log.warning("journal-full", directory=str(journal.options.directory))
        elif self._logged_disk_full and not disk_full:
            self._log.info("journal-room", directory=str(journal.options.directory))
        self._logged_disk_full = disk_full
        for place in journal.damaged[self._logged_damaged :]:
            self._log.error("journal-damaged", directory=str(journal.options.directory), place=place)
            self._logged_damaged += 1
        await asyncio.sleep(_LOOK_S)

    def _log_full(
        self, before: Mapping[str, FullAddress], now: Mapping[str, FullAddress]
    ) -> Mapping[str, FullAddress]:
        """Log the addresses that are full now and were not, and those that are not full any more; answers
        `now`.
        """
        for address in now.keys() - before.keys():
            found = now[address]
            self._log.warning(
                "address-full",
                address=address,
                bytes=found.bytes,
                max_bytes=found.max_bytes,
                slowest_queue=found.slowest_queue or None,
            )
        for address in before.keys() - now.keys():
            self._log.info("address-room", address=address)
        return now

    def _log_opening(self, journal: Journal, orphans: Sequence[Orphan]) -> None:
        self._log_orphans(orphans)
        for address, dropped in journal.identity.ids_dropped.items():
            self._log.warning("id-cache-shrunk", address=address, dropped=dropped)

    def _log_orphans(self, orphans: Sequence[Orphan]) -> None:
        for orphan in orphans:
            self._log.warning(
                "orphan-queue",
                bridge=orphan.bridge,
                address=orphan.address,
                queued=orphan.messages,
                reason=orphan.reason,
            )

    @property
    def open_links(self) -> Sequence[OpenLink]:
        """Links of other nodes' bridges that are open here."""
        return [] if self._links is None else list(self._links.open)

    async def stop(self) -> None:
        """Drain: take no new work; let bridges take their receipts; make everything durable; at most
        `shutdown-timeout`.
        """
        self.stopping = True
        await self.reloads.end()
        for extension in self.parts.extensions:
            extension.leaving()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.parts.shutdown_timeout_ms / 1000):
                await self._drain()
        for extension in reversed(self.parts.extensions):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EXTENSION_STOP_S):
                    await extension.stop()
        if self.parts.supervisor is not None:
            await self.parts.supervisor.kill()
        for task in self._repeated:
            await task.end()
        for tally in self._tallies.values():
            tally.flush()
        queued = 0
        if self.journal is not None:
            with contextlib.suppress(BridgeError):
                queued = sum(lag.messages for lag in await self.journal.bridge_lags())
            try:
                if self._outbox is not None:
                    await self._outbox.stop()
                if self._log_copy is not None:
                    await self._log_copy.stop()
            finally:
                await self.journal.close()
        if self._operations is not None:
            await self._operations.stop()
        self._log.info("stopped", queued=queued)

    async def _drain(self) -> None:
        if self._links is not None:
            self._links.stop()
        if self.journal is not None:
            self.journal.let_go()
        if self._acceptor is not None:
            await self._acceptor.stop(self.parts.shutdown_timeout_ms // 2)
        ending = [self.bridges.stop_all()]
        if self.parts.supervisor is not None:
            ending.append(self.parts.supervisor.stop())
        await asyncio.gather(*ending)
