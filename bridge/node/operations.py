"""A running node as its operator sees it: whether it is ready, status, metrics, commands to bridges."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bridge.assembly.summary import BridgeSummary
from bridge.errors import BridgeError, described
from bridge.http.describe import describe
from bridge.journal.dead_letters import DeadLetterService
from bridge.journal.journal import Journal
from bridge.journal.sqlite.reader import BridgeLag
from bridge.journal.values.store import AddressStatus
from bridge.node.bridge_set import NodeBridge
from bridge.node.metering import lag_of
from bridge.node.node import Node
from bridge.relay.filtering import filter_doubt
from bridge.relay.lag import PartitionStatus
from bridge.relay.lifecycle import Command, State, after
from bridge.relay.line import LineStatus
from bridge.relay.operated import Operated
from bridge.relay.ownership import Member
from bridge.runtime.logs import timestamp
from bridge.runtime.version import version


class Control:
    """Implements `bridge.http.operations.NodeControl`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def store(self) -> Journal | None:
        """None until the journal is open."""
        return self._node.journal

    @property
    def letters(self) -> DeadLetterService | None:
        """None until the journal is open."""
        return self._node.letters

    @property
    def id_cache_persisted(self) -> bool:
        """Whether ID caches are stored: ``persist-id-cache``."""
        return self._node.parts.persist_id_cache

    def ready(self) -> tuple[bool, Sequence[str], Mapping[str, str]]:
        """Whether the node takes messages, why not, and each bridge's state."""
        node = self._node
        states = {name: relay.state.value for name, (relay, _) in node.bridges.items()}
        reasons = [
            f"bridge {name} is FAILED: {relay.reason}"
            for name, (relay, _) in node.bridges.items()
            if relay.state is State.FAILED
        ]
        if node.parts.supervisor is not None:
            reasons.extend(node.parts.supervisor.problems())
        for extension in node.parts.extensions:
            reasons.extend(extension.unready())
        if node.stopping:
            reasons.append("the node is stopping")
        elif node.journal is None:
            reasons.append("the journal is not open yet")
        elif not node.accepting:
            reasons.append("the acceptor is not open yet")
        else:
            reasons.extend(_journal_reasons(node.journal))
        return not reasons, reasons, states

    async def status(self) -> Mapping[str, Any]:
        """The answer of ``GET /v1/status``. Groups that share lanes are asked all at once, each for a bounded
        time.
        """
        bridges = dict(self._node.bridges)
        lanes = await asyncio.gather(*[_lanes(relay, summary) for relay, summary in bridges.values()])
        ready, reasons, _ = self.ready()
        journal = self._node.journal
        lags = await self._lags()
        return {
            "ready": ready,
            "reasons": list(reasons),
            "version": version(),
            "node": None if journal is None else journal.options.node,
            "node-id": None if journal is None else journal.identity.node_id,
            "store": None if journal is None else journal.store,
            "duplicates": {} if journal is None else journal.counts.duplicates(),
            "bridges": [
                self._bridge(name, found, lags) | {"lanes": owned}
                for (name, found), owned in zip(bridges.items(), lanes, strict=True)
            ],
            "links": [
                {
                    "bridge": link.bridge,
                    "node": link.node,
                    "user": link.user,
                    "peer": link.peer,
                    "since": timestamp(link.since_ms / 1000),
                    "frame-bytes": link.traffic.frame_bytes,
                    "wire-bytes": link.traffic.wire_bytes,
                }
                for link in self._node.open_links
            ],
            "addresses": [] if journal is None else await self._addresses(journal),
            **{one.name: one.status() for one in self._node.parts.extensions if one.name},
        }

    async def bridge(self, bridge: str) -> Mapping[str, Any]:
        """A bridge's entry in `status`, and what it reads: partitions of Kafka, or addresses of the journal.

        Raises: NotFound.
        """
        found = self._node.bridges.known(bridge)
        lanes, rows, lags = await asyncio.gather(_lanes(*found), found.relay.partitions(), self._lags())
        entry = self._bridge(bridge, found, lags) | {"lanes": lanes}
        if not found.summary.from_journal:
            return entry | {"partitions": [_partition(row) for row in rows]}
        journal = self._node.journal
        addresses = [] if journal is None else await self._statuses(journal)
        return entry | {
            "addresses": [
                {"address": one.address, "position": queue.next, "end": one.next, "lag": queue.lag}
                for one in addresses
                for queue in one.bridges
                if queue.name == bridge
            ]
        }

    async def _lags(self) -> Sequence[BridgeLag] | None:
        """The messages in the journal that wait for each bridge; None while the journal cannot be read."""
        if self._node.journal is None:
            return None
        try:
            return await self._node.journal.bridge_lags()
        except BridgeError:
            return None

    async def _addresses(self, journal: Journal) -> Sequence[Mapping[str, Any]]:
        """Every address with its queues and lags; none while the journal cannot be read."""
        return [describe(status, self._node.bridges.state) for status in await self._statuses(journal)]

    async def _statuses(self, journal: Journal) -> Sequence[AddressStatus]:
        try:
            return await journal.addresses()
        except BridgeError:  # its own reason is in `reasons`
            return []

    def _bridge(self, name: str, found: NodeBridge, lags: Sequence[BridgeLag] | None) -> dict[str, Any]:
        """A bridge's entry, without the parts that other processes have to be asked for."""
        relay, summary = found
        counts, lag = relay.counts, lag_of(name, found, lags)
        now_ms, since_ms = self._node.parts.clock.wall_ms(), self._node.watch.since_ms(name)
        trouble = relay.reason or counts.trouble or self._standstill(summary) or counts.throttled
        reason = trouble or self._silence(name, relay, now_ms) or None
        return {
            "name": name,
            "state": relay.state.value,
            "since": None if since_ms is None else timestamp(since_ms / 1000),
            "reason": reason,
            "source": summary.source,
            "target": summary.target,
            "guarantee": summary.guarantee,
            "filter": summary.filter or None,
            "filter-doubt": filter_doubt(counts.examined, counts.taken, counts.missing) or None,
            "transformer": summary.transformer or None,
            "connector": relay.connector or None,
            "proxy": summary.proxy(relay.connector) or None,
            "store": relay.store or None,
            "sent": counts.sent,
            "acknowledged": counts.acknowledged,
            "refused": counts.refused,
            "resent": counts.resent,
            "filtered": counts.filtered,
            "not-evaluated": counts.not_evaluated,
            "dropped": counts.dropped,
            "resent-bytes": counts.resent_bytes,
            "in-flight": relay.in_flight,
            "line": None if relay.line is None else _line(relay.line),
            "lag": None if lag is None else lag[0],
            "oldest-waiting-seconds": None if lag is None else _age_s(lag[1], now_ms),
            "reconnects": counts.reconnects,
            "frame-bytes": counts.frame_bytes,
            "wire-bytes": counts.wire_bytes,
            "last-progress": timestamp(counts.last_progress_ms / 1000) if counts.last_progress_ms else None,
        }

    def _silence(self, name: str, relay: Operated, now_ms: int) -> str:
        """How long the target has confirmed nothing of what is on its way; empty: it does."""
        silent_ms = self._node.watch.silent_for_ms(name, now_ms)
        if silent_ms is None:
            return ""
        return f"no receipt for {silent_ms // 1000} s; {relay.in_flight} messages are on their way"

    def _standstill(self, summary: BridgeSummary) -> str:
        """The reason why this node's journal stops a bridge that reads it; empty: it does not."""
        journal = self._node.journal
        return journal.standstill if journal is not None and summary.from_journal else ""

    async def metrics_text(self) -> bytes:
        """The metrics in Prometheus's text format."""
        ready, _, _ = self.ready()
        return await self._node.metering.text(ready=ready)

    async def reload(self) -> Mapping[str, Any]:
        """Reload the settings; returns the changes.

        Raises: SettingsInvalid, SettingsRefused, Conflict, Stopping, BridgeError.
        """
        return (await self._node.reloads.reload()).as_dict()

    async def start(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        return await self._command(bridge, Command.START)

    async def stop(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        return await self._command(bridge, Command.STOP)

    async def pause(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        return await self._command(bridge, Command.PAUSE)

    async def resume(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        return await self._command(bridge, Command.RESUME)

    async def failback(self, bridge: str) -> str:
        """The state after it. Raises: NotFound, Conflict."""
        return await self._command(bridge, Command.FAILBACK)

    async def _command(self, bridge: str, command: Command) -> str:
        relay, _ = self._node.bridges.known(bridge)
        after(relay.state, command)  # refused before anything is stored
        if self._node.held is not None and command is not Command.FAILBACK:
            await self._node.held.keep(bridge, command)
        await relay.command(command)
        return relay.state.value


def _line(line: LineStatus) -> Mapping[str, Any]:
    """The line to a bridge's target, and what keeps the bridge from sending more."""
    return {
        "limit": line.limit or None,
        "bytes-per-second": line.rate,
        "round-trip-ms": line.round_trip_ms,
        "in-flight-bytes": line.in_flight,
        "wanted-bytes": line.wanted,
        "reconnects-last-hour": line.reconnects,
    }


def _age_s(oldest_ms: int | None, now_ms: int) -> float | None:
    """The age of the oldest message that waits, in seconds; None: none waits."""
    return None if oldest_ms is None else max(now_ms - oldest_ms, 0) / 1000


def _journal_reasons(journal: Journal) -> list[str]:
    """The reasons why the journal takes no messages, or cannot give all that it has."""
    reasons = []
    if journal.broken:
        reasons.append(f"the journal cannot be used: {journal.broken}")
    elif journal.disk_full:
        reasons.append("the disk is full")
    if places := journal.damaged:
        more = f", and {len(places) - 1} more" if len(places) > 1 else ""
        reasons.append(f"the journal is damaged: {places[0]}{more}")
    return reasons


async def _lanes(relay: Operated, summary: BridgeSummary) -> Mapping[str, Any] | None:
    """The owner of each lane: here as this node knows it, elsewhere by the group's answer."""
    if relay.owned_lanes is None:
        return None
    division, trouble = None, None
    if summary.division is not None:
        try:
            division = await summary.division()
        except BridgeError as error:
            trouble = described(error)
    return {
        "here": list(relay.owned_lanes),
        "members": None if division is None else [_member(member) for member in division.members],
        "nobody": None if division is None else sorted(division.nobody),
        "trouble": trouble,
    }


def _partition(row: PartitionStatus) -> Mapping[str, Any]:
    return {
        "topic": row.topic,
        "partition": row.partition,
        "position": row.position,
        "end": row.end,
        "lag": row.lag,
        "reason": row.reason or None,
    }


def _member(member: Member) -> Mapping[str, Any]:
    return {
        "name": member.name,
        "host": member.host,
        "lanes": sorted(member.lanes),
        "failed": sorted(member.failed),
    }
