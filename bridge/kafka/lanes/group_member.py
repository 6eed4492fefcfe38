"""One member of a classic consumer group, at protocol level: join, sync, heartbeat, leave (KIP-62, KIP-394).

aiokafka's consumer is a member too, but it reads: it wants topics to subscribe to, asks for their metadata
in a way that makes them, leaves the group when its caller stops polling (docs/kafka-traps.md 16)
and swallows what a rebalance listener raises (trap 9). A member that only holds lanes needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaError,
    MemberIdRequired,
    NoError,
    NotCoordinatorForGroupError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from bridge.kafka.client.connection import KafkaConnection

#: A generation number that no group has.
NO_GENERATION: Final = -1


#: The coordinator removes a member that has not sent a heartbeat for so long: the time after which a killed
#: worker's lanes move. `session-timeout-ms` of the connector overrides it; brokers take 6 s to 30 min by
#: default.
SESSION_TIMEOUT_MS: Final = 6_000
#: Pause between two heartbeats, and so the delay at which members learn of a rebalance.
#: `heartbeat-interval-ms` of the connector overrides it.
HEARTBEAT_INTERVAL_MS: Final = 500
#: Most that a rebalance waits for members that are alive; below the request time-out, which covers the wait.
MAX_REBALANCE_TIMEOUT_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class GroupTimes:
    """The time limits of a group's members, in milliseconds."""

    session_ms: int = SESSION_TIMEOUT_MS
    heartbeat_ms: int = HEARTBEAT_INTERVAL_MS

    @property
    def rebalance_ms(self) -> int:
        """The time that a rebalance waits for members that are alive."""
        return min(self.session_ms, MAX_REBALANCE_TIMEOUT_MS)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The times of a connector's consumer options."""
        return cls(
            int(options.get("session_timeout_ms", SESSION_TIMEOUT_MS)),
            int(options.get("heartbeat_interval_ms", HEARTBEAT_INTERVAL_MS)),
        )


@dataclass(frozen=True, slots=True)
class Given:
    """A member's assignment, given by the leader."""

    #: The lanes as partitions of `GroupMember`'s topic: Kafka's tools show them as each member's partitions.
    partitions: Iterable[int]
    #: The same lanes in the members' own format.
    data: bytes


#: By member id: takes what each member sends, returns its assignment. Called where this member leads.
Share = Callable[[Mapping[str, bytes]], Mapping[str, Given]]


class GroupMember:
    """Requests to the coordinator and the identity under which they are sent; no loop, no time-outs.

    The members' data has the form of that of Kafka's consumers, so that Kafka's tools show it; `topic` is the
    one that they appear to subscribe to, empty for none. No request ever asks for it.

    The identity outlives `close`: a member that comes back under it takes its own place instead of
    waiting beside it until the session of the lost one expires.
    """

    def __init__(self, connection: KafkaConnection, group: str, times: GroupTimes, *, topic: str) -> None:
        self.group = group
        #: Given by the coordinator; empty: none.
        self.id: str = JoinGroupRequest.UNKNOWN_MEMBER_ID
        #: The generation of the last assignment received.
        self.generation = NO_GENERATION
        self._connection = connection
        self._topic = topic
        self._times = times
        self._client: AIOKafkaClient | None = None
        self._coordinator: int | None = None

    async def open(self) -> None:
        """Connect to the cluster, and connect again where it is connected. Raises: KafkaError."""
        await self.close()
        self._client = await self._connection.connected()

    async def close(self) -> None:
        """Close the connections; the group is not notified."""
        client, self._client = self._client, None
        self._coordinator = None
        if client is not None:
            await client.close()

    async def join(self, protocol: str, data: bytes, share: Share) -> bytes:
        """Join, or join again, with `data`; returns the data that the leader gave once all have joined.

        Raises:
            RebalanceInProgressError, UnknownMemberIdError, IllegalGenerationError: join again.
            InconsistentGroupProtocolError: the other members speak another `protocol`. KafkaError.
        """
        try:
            joined = await self._join(protocol, data)
        except MemberIdRequired:
            joined = await self._join(protocol, data)
        self.id = joined.member_id
        shares = self._shares(joined.members, share) if joined.leader_id == joined.member_id else []
        request = SyncGroupRequest(self.group, joined.generation_id, self.id, None, shares)
        answer = await self._ask(request)
        self.generation = joined.generation_id
        return bytes(ConsumerProtocol.ASSIGNMENT.decode(answer.member_assignment).user_data)

    async def _join(self, protocol: str, data: bytes) -> Any:
        topics = [self._topic] if self._topic else []
        request = JoinGroupRequest(
            self.group,
            self._times.session_ms,
            self._times.rebalance_ms,
            self.id,
            None,
            ConsumerProtocol.PROTOCOL_TYPE,
            [(protocol, ConsumerProtocol.METADATA(0, topics, data).encode())],
        )
        return await self._ask(request)

    def _shares(self, members: Iterable[tuple[str, str, bytes]], share: Share) -> list[tuple[str, bytes]]:
        said = {
            member: bytes(ConsumerProtocol.METADATA.decode(words).user_data)
            for member, _instance, words in members
        }
        shares = []
        for member, given in share(said).items():
            partitions = [(self._topic, sorted(given.partitions))] if self._topic else []
            shares.append((member, ConsumerProtocol.ASSIGNMENT(0, partitions, given.data).encode()))
        return shares

    async def heartbeat(self) -> None:
        """Send a heartbeat; returns when the coordinator has confirmed this member and its generation.

        Raises:
            RebalanceInProgressError, UnknownMemberIdError, IllegalGenerationError: not confirmed; join again.
            KafkaError: the coordinator could not be asked.
        """
        await self._ask(HeartbeatRequest(self.group, self.generation, self.id))

    async def leave(self) -> None:
        """Leave the group, so that its lanes move at once. Raises: KafkaError."""
        if self._client is not None and self.id:
            # The request has a connection of its own: brokers answer a connection's requests in order, and a
            # join that waits for the other members may be ahead of it.
            await self._ask(LeaveGroupRequest(self.group, self.id), ConnectionGroup.DEFAULT)
        self._forget()

    def _forget(self) -> None:
        self.id, self.generation = JoinGroupRequest.UNKNOWN_MEMBER_ID, NO_GENERATION

    async def _ask(self, request: Any, connections: ConnectionGroup = ConnectionGroup.COORDINATION) -> Any:
        if self._client is None:
            raise KafkaConnectionError(f"group {self.group}: not connected")
        try:
            if self._coordinator is None:
                self._coordinator = await self._client.coordinator_lookup(CoordinationType.GROUP, self.group)
            answer = await self._client.send(self._coordinator, request, group=connections)
        except KafkaError:
            self._coordinator = None
            raise
        error = for_code(answer.error_code)
        if error is NoError:
            return answer
        if error in (GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError):
            self._coordinator = None
        elif error is MemberIdRequired:
            self.id = answer.member_id
        elif error is UnknownMemberIdError:
            self._forget()
        raise error(f"group {self.group}")
