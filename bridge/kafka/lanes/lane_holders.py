"""The owners of a bridge's lanes, as its group says, for members of the group and other processes."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import KafkaError, NoError, for_code
from aiokafka.protocol.admin import DescribeGroupsRequest

from bridge.errors import BridgeError, SourceUnavailable, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import Side, explained
from bridge.kafka.lanes.assignor import decode
from bridge.relay.ownership import Division, Member
from bridge.runtime.clock import Clock

#: Longest that the question may take: a status must be answered, also while brokers are down.
ASK_TIMEOUT_MS: Final = 2_000
#: How long an answer, or the error in its place, is kept: however often a status is asked for.
ANSWER_MS: Final = 2_000
#: The coordinator's name for the state of a group whose lanes are divided.
_STABLE: Final = "Stable"


class LaneHolders:
    """Asks the coordinator with a client of its own, so a bridge that has left the group can ask, too.

    Needs the right to describe the group, which Read on it includes.
    """

    def __init__(
        self, connection: KafkaConnection, *, group: str, lanes: int, side: Side, clock: Clock
    ) -> None:
        self._connection = connection
        self._group = group
        self._lanes = lanes
        self._side = side
        self._clock = clock
        #: One request at a time.
        self._asking = asyncio.Lock()
        self._known: Division | BridgeError = Division()
        #: Monotonic clock, ms, until when the answer above is kept.
        self._holds_until_ms = -1

    async def ask(self) -> Division:
        """The division of the lanes, not older than `ANSWER_MS`.

        Raises:
            BridgeError: the group cannot be asked, or is dividing its lanes anew.
        """
        async with self._asking:
            if self._clock.monotonic_ms() >= self._holds_until_ms:
                self._known = await self._asked()
                self._holds_until_ms = self._clock.monotonic_ms() + ANSWER_MS
        if isinstance(self._known, BridgeError):
            raise self._known
        return self._known

    async def _asked(self) -> Division | BridgeError:
        try:
            async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
                return self._division(await self._describe())
        except (KafkaError, OSError, TimeoutError) as error:
            return explained(
                error,
                side=self._side,
                connector=self._connection.name,
                operation="Describe",
                resource=f"group {self._group}",
            )
        except BridgeError as error:
            return error

    async def _describe(self) -> Any:
        client = await self._connection.connected()
        try:
            coordinator = await client.coordinator_lookup(CoordinationType.GROUP, self._group)
            request = DescribeGroupsRequest([self._group])
            answer = await client.send(coordinator, request, group=ConnectionGroup.COORDINATION)
        finally:
            await client.close()
        ((code, _group, state, _type, _protocol, members, *_rights),) = answer.groups
        error = for_code(code)
        if error is not NoError:
            raise error(f"group {self._group}")
        if members and state != _STABLE:
            kind = TargetUnavailable if self._side == "target" else SourceUnavailable
            raise kind(f"group {self._group} is dividing its lanes", key="group-id", found=state)
        return members

    def _division(self, described: Any) -> Division:
        members = sorted((_member(*each) for each in described), key=lambda member: member.name)
        owned = frozenset[int]().union(*[member.lanes for member in members])
        return Division(tuple(members), frozenset(range(self._lanes)) - owned)


def _member(member: str, _client: str, host: str, said: bytes, given: bytes, *_instance: str) -> Member:
    claim = decode(bytes(ConsumerProtocol.METADATA.decode(said).user_data))
    lanes = decode(bytes(ConsumerProtocol.ASSIGNMENT.decode(given).user_data)).lanes
    return Member(claim.name or member, host.lstrip("/"), lanes - claim.failed, claim.failed)
