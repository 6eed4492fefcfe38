"""Decisions that only an operator takes: to drain this node, and to forget one that is lost for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from bridge.end_kind import kind_of
from bridge.errors import Conflict, Forbidden, NotFound, Stopping, TargetUnavailable
from bridge.http.additions import shown, taken
from bridge.http.authentication import Principal
from bridge.http.router import Addition
from bridge.journal.sqlite.backlog import Backlog
from bridge.link.duplicate_query import CONTENT_TYPE
from bridge.link.socket import post
from bridge.node.extension import NodeServices
from bridge.relay.stages import Stage
from cluster.drain import LEASE_TIMEOUT_MS, Drain, Phase
from cluster.forgetting import Forgetting, InDoubt, Window
from cluster.handover import CALL_MOST, PATH, AnyCall
from cluster.handover import Answer as HeirAnswer
from cluster.heirs import Heirs
from cluster.peers import Peers
from cluster.record import NodeState, Record
from cluster.topology import Topology

#: Bytes of an operator's request.
_REQUEST_MOST: Final = 16 * 1024


class DrainRequest(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """``POST /v1/cluster/drain``."""

    #: Name or UUID of the heir.
    to: str
    #: Also where the heir has not all bridges of this node.
    force: bool = False
    #: How long leases may last once nothing comes in any more, in ms.
    lease_timeout: int = LEASE_TIMEOUT_MS


class ForgetRequest(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """``POST /v1/cluster/forget``."""

    #: Name or UUID of the lost node.
    node: str
    in_doubt: InDoubt = "dead-letter"
    #: Only say what would be done.
    dry_run: bool = False


class Decisions:
    """The calls by which they are taken, and the parts of the cluster that carry them out."""

    def __init__(self, *, timeout_ms: int, changed: Callable[[], None]) -> None:
        """`timeout_ms`: longest wait for an heir's answer. `changed` is called after each decision."""
        self._timeout_ms = timeout_ms
        self._changed = changed
        #: None until the journal is open, and after the stop.
        self._topology: Topology | None = None
        self._peers: Peers
        self.heirs: Heirs
        self.drain: Drain
        self.forgetting: Forgetting

    async def begin(self, services: NodeServices, topology: Topology, peers: Peers, window: Window) -> None:
        """Read what the journal has of earlier ones. `window`: of the bridges to other nodes."""
        journal = services.journal

        def bridges() -> Sequence[str]:
            settings = services.settings  # a reload replaces them
            return [
                bridge.name
                for bridge in settings.bridges
                if kind_of(settings, bridge.source_connector).is_own
            ]

        name = services.settings.node.name
        self._peers = peers
        self.heirs = Heirs(journal, bridges, self._changed)
        self.drain = Drain(journal, name, bridges, self._call_heir, self._changed)
        self.drain.inherited = lambda: self.heirs.stores
        self.forgetting = Forgetting(journal, window)
        await self.heirs.load()
        await self.drain.load()
        await self.forgetting.load()
        self._topology = topology

    def end(self) -> None:
        """Take none any more."""
        self._topology = None

    def stage(self, node: str) -> Stage | None:
        """The stage of the bridge that places the copies of a lost node anew."""
        return self.forgetting.stage(node)

    def state(self, present: NodeState) -> tuple[NodeState, str]:
        """This node's state, and its heir where it has one; `present`: its state without a drain."""
        drain = self.drain.state
        if drain is not None and drain.phase is Phase.DONE:
            return NodeState.DRAINED, drain.heir
        if drain is not None:  # also where it stops: what it would get waits for it, or for its heir
            return NodeState.DRAINING, drain.heir
        if present is NodeState.UP and self.drain.beginning:
            return NodeState.DRAINING, ""
        return present, ""

    # -- the calls ---------------------------------------------------------------------------------------

    def operations_routes(self) -> Iterator[Addition]:
        """For operators."""
        yield shown("/v1/cluster/drain", self.drain_status)
        yield taken("/v1/cluster/drain", DrainRequest, _REQUEST_MOST, self._begin_drain)
        yield taken("/v1/cluster/drain/cancel", dict, _REQUEST_MOST, self._cancel_drain, default=b"{}")
        yield taken("/v1/cluster/forget", ForgetRequest, _REQUEST_MOST, self._forget)

    def acceptor_routes(self) -> Iterator[Addition]:
        """For a leaver whose heir this node is."""
        yield taken(PATH, AnyCall, CALL_MOST, self._be_heir, changes=False)

    def _known(self) -> Topology:
        if self._topology is None:
            raise Stopping("this node is starting or stopping")
        return self._topology

    async def _begin_drain(self, asked: DrainRequest, _principal: Principal) -> Mapping[str, Any]:
        """Begin a drain. Raises: Conflict, NotFound, TargetUnavailable, TargetRefused."""
        topology = self._known()
        if self.drain.state is None:
            if self.drain.beginning:
                raise Conflict("a drain of this node is beginning", "to", found=asked.to)
            leaver = self.heirs.busy(topology.records)
            if leaver:
                detail = f"{leaver} is handing its messages over to this node"
                raise Conflict(detail, "to", found=asked.to)
            heir = _other(topology, asked.to)
            if heir.state is not NodeState.UP or topology.distance(heir.node) != 1:
                detail = f"{asked.to} is {heir.state.value}, and {topology.distance(heir.node)} links away"
                raise Conflict(detail, "to", found=asked.to)
            await self._ask_heir(topology, heir, asked)
        return self.drain_status()

    async def _ask_heir(self, topology: Topology, heir: Record, asked: DrainRequest) -> None:
        """Say that this node drains, then ask: the heir knows by the version which records are older."""
        self.drain.beginning = True
        try:
            own = topology.records[topology.node]
            topology.own(msgspec.structs.replace(own, state=NodeState.DRAINING))
            await self.drain.begin(
                heir.node,
                heir.name,
                force=asked.force,
                lease_timeout_ms=asked.lease_timeout,
                version=topology.records[topology.node].version,
            )
        finally:
            self.drain.beginning = False
            self._changed()

    async def _cancel_drain(self, _asked: object, _principal: Principal) -> Mapping[str, Any]:
        self._known()
        if await self.drain.cancel():
            detail = "messages have been moved: the drain can only go on"
            raise Conflict(detail, "phase", found=self.drain_status()["phase"])
        return self.drain_status()

    def drain_status(self) -> Mapping[str, Any]:
        """The drain of this node; its phase is null where there is none."""
        state = None if self._topology is None else self.drain.state
        if state is None:
            return {"phase": None}
        return {
            "phase": state.phase.value,
            "heir": state.heir_name,
            "heir-id": state.heir,
            "moved": state.moved,
            "waits": self.drain.waits,
        }

    async def _call_heir(self, heir: str, call: AnyCall) -> str:
        """Call the heir; returns why it refuses, empty: it agrees.

        Raises: TargetUnavailable, TargetRefused: it does not answer.
        """
        peer = self._peers.known(heir)
        if peer is None:
            raise TargetUnavailable(f"there is no link to {heir}")
        endpoint = self._peers.endpoint(peer.connector, peer.url)
        body = await post(endpoint, PATH, msgspec.msgpack.encode(call), CONTENT_TYPE, self._timeout_ms)
        try:
            return msgspec.msgpack.decode(body, type=HeirAnswer).refused
        except msgspec.DecodeError as error:
            raise TargetUnavailable(f"{endpoint}: its answer cannot be read: {error}") from error

    async def _be_heir(self, call: AnyCall, principal: Principal) -> HeirAnswer:
        if principal.is_user:
            detail = f"{principal.name} may not hand a node over: that takes a token of the acceptor"
            raise Forbidden(detail, "link")
        self._known()
        return await self.heirs.take(call, draining=self.drain.beginning or self.drain.state is not None)

    async def _forget(self, asked: ForgetRequest, _principal: Principal) -> Mapping[str, Any]:
        """Forget a lost node. Raises: Conflict: it is up. NotFound."""
        topology = self._known()
        record = _other(topology, asked.node)
        if topology.reachable(record.node):
            raise Conflict(f"{record.name} is up: stop it, or drain it", "node", found=asked.node)
        if self.forgetting.is_full:
            raise Conflict(f"{len(self.forgetting.nodes)} nodes are forgotten, the most there may be", "node")
        backlog = await self.forgetting.backlog(record.node)
        if not asked.dry_run:
            await self._peers.drop(record.node)
            backlog = await self.forgetting.forget(record.node, record.name, asked.in_doubt)
            topology.forget(record.node)
            self._changed()
        return _plan(record, asked, backlog)


def _other(topology: Topology, name: str) -> Record:
    """Another node by name or UUID. Raises: NotFound."""
    others = [one for one in topology.records.values() if one.node != topology.node]
    found = [one for one in others if name in (one.name, one.node)]
    if len(found) != 1:
        raise NotFound(f"{len(found)} other nodes are called {name}; expected one", key="to", found=name)
    return found[0]


def _plan(record: Record, asked: ForgetRequest, backlog: list[Backlog]) -> Mapping[str, Any]:
    return {
        "node": record.node,
        "name": record.name,
        "in-doubt": asked.in_doubt,
        "done": not asked.dry_run,
        "waiting": sum(one.messages for one in backlog),
        "perhaps-delivered": sum(one.in_doubt for one in backlog),
        "addresses": [
            {
                "address": one.address.partition("/")[2],
                "waiting": one.messages,
                "perhaps-delivered": one.in_doubt,
                "next": one.next,
                "unsent-from": one.unsent_from,
                "end": one.end,
            }
            for one in backlog
        ],
    }
