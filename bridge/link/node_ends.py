"""The link's ends as a node's settings say."""

from __future__ import annotations

from functools import partial

from bridge.end_kind import Lane, NodeContext, NodeEnds, TargetEnd
from bridge.link import duplicate_query
from bridge.link.frames import Hello
from bridge.link.limits import VERSION
from bridge.link.node_target import NodeTarget, ReadChunk
from bridge.link.socket import Endpoint
from bridge.messages.block import KeptBody
from bridge.relay.pacing import Pacer
from bridge.relay.ports import Target
from bridge.replay.node_presence import NodePresence
from bridge.replay.sending import PlanSource, Presence
from bridge.settings.bridges import Bridge


class LinkEnds(NodeEnds):
    """Makes targets at other nodes."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    def target(self, lane: Lane) -> TargetEnd:
        """The node that the bridge's connector leads to."""
        return TargetEnd(self._target(lane))

    def _target(self, lane: Lane) -> NodeTarget:
        bridge = lane.bridge
        hello = Hello(
            version=VERSION,
            node_id=self._node.node_id,
            node_name=self._node.settings.node.name,
            store=self._node.store,
            bridge=lane.name,
            previous=lane.previous_name,
            check_producer_ids=bridge.checks_producer_ids,
            use_duplicate_detection=bridge.use_duplicate_detection,
            producer_window=bridge.producer_window_size_bytes,
            check_period_ms=bridge.check_period_ms,
            connection_ttl_ms=bridge.connection_ttl_ms,
            window=bridge.confirmation_window_size_bytes,
        )
        endpoint = self._endpoint(bridge.static_connectors[0])
        return NodeTarget(
            endpoint,
            hello,
            call_timeout_ms=bridge.call_timeout_ms,
            clock=self._node.clock,
            read_chunk=_paced(self._node.read_chunk, lane.pacer),
            traffic=lane.counts,
        )

    def _endpoint(self, name: str) -> Endpoint:
        """The endpoint of the node that the connector of this name leads to."""
        connector = self._node.settings.connectors[name]
        return Endpoint(
            connector.url,
            partial(self._node.token, name),
            self._node.tls(name),
            connector.server_name or None,
            name,
            connector.proxy_to(connector.url),
            connector.compression,
        )

    def plan_target(
        self,
        bridge: Bridge,
        source: PlanSource,
        *,
        force: bool,  # noqa: ARG002 - asking costs little
    ) -> tuple[Target, Presence]:
        """The node's addresses, and the node's answer to which messages they hold."""
        endpoint = self._endpoint(bridge.static_connectors[0])
        presence = NodePresence(
            bridge.name,
            lambda question: duplicate_query.ask(endpoint, question, bridge.call_timeout_ms),
            source,
            checks_ids=bridge.checks_producer_ids,
        )
        return self._target(Lane(bridge)), presence


def _paced(read: ReadChunk | None, pacer: Pacer | None) -> ReadChunk | None:
    """`read`, where each chunk of a large body waits for the bridge's `max-rate`."""
    if read is None or pacer is None:
        return read

    async def paced(kept: KeptBody, number: int) -> bytes:
        chunk = await read(kept, number)
        await pacer.passed(len(chunk))
        return chunk

    return paced
