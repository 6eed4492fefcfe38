"""The lanes that this process owns, by a consumer group that reads nothing (design section 5).

Every member sends the lanes that it was given last, the leader divides the lanes
(`bridge.kafka.lanes.assignor`), and the coordinator monitors which members are alive. A rebalance takes no
lane away by itself: a member loses a lane when the new division says so, when it gives the lane up, or when
its membership is known to be lost. Two owners of a lane are possible for a moment in any such scheme;
transactional ids and positions make that harmless, so only `confirmed` here concerns safety.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import structlog
from aiokafka.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from bridge.errors import BridgeError, SourceUnavailable, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.client.errors import Side, explained, is_for_good
from bridge.kafka.lanes.assignor import Claim, assign, decode, encode, protocol_name
from bridge.kafka.lanes.group_member import Given, GroupMember, GroupTimes

#: Pause between two attempts to join.
RETRY_BACKOFF_MS: Final = 100
#: A join may take this long, however short the sessions are: the refusal of a session that is too short has
#: to arrive too.
LEAST_JOIN_MS: Final = 10_000
#: Leaving is optional: without it the other members wait for the session to expire.
LEAVE_TIMEOUT_MS: Final = 2_000

_NETWORK: Final = (KafkaError, OSError, TimeoutError)
_THROWN_OUT: Final = (UnknownMemberIdError, IllegalGenerationError)


class GroupOwnership:
    """`bridge.relay.ownership.Ownership` by a group; `bridge.kafka.lanes.groups` has the kinds of groups."""

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        group: str,
        lanes: int,
        side: Side,
        topic: str = "",
        bridge: str = "",
        name: str = "",
    ) -> None:
        """`topic`: the one that Kafka's tools show; the protocol's name has it, or else the name `bridge`.

        `name` is the member's name in a status.
        """
        times = GroupTimes.of(connection.consumer_options)
        self._session_s, self._interval_s = times.session_ms / 1000, times.heartbeat_ms / 1000
        self._join_s = max(times.session_ms + times.rebalance_ms, LEAST_JOIN_MS) / 1000
        self._connection = connection
        self._lanes = lanes
        self._protocol = protocol_name(lanes, topic or bridge)
        self._side = side
        self._member = GroupMember(connection, group, times, topic=topic)
        #: The last assignment, also when it has been lost: the leader gives its lanes back where no member
        #: has them. Also the lanes that were given up.
        self._claim = Claim(name=name)
        #: Lanes given up, as sent at the last join of this member.
        self._said_failed: frozenset[int] = frozenset()
        self._owned: frozenset[int] = frozenset()
        self._keeper: asyncio.Task[None] | None = None
        #: Numbers of the last heartbeat that was sent, and of the last one that the coordinator confirmed.
        self._sent = 0
        self._affirmed = 0
        #: Set to send the next heartbeat at once.
        self._hurry = asyncio.Event()
        #: Set, and replaced, whenever one of the above changes.
        self._news = asyncio.Event()
        self._log = structlog.get_logger().bind(group=group)

    @property
    def owned(self) -> frozenset[int]:
        """The lanes that this process owns as far as it knows now."""
        return self._owned

    async def open(self) -> None:
        """Join the group; returns when it has divided the lanes. After `changed` has raised: join again.

        Raises:
            TargetUnavailable, TargetRefused (of the source: SourceUnavailable, SourceRefused).
        """
        await self._stop_keeping()
        try:
            await self._member.open()
            await self._join()
        except _NETWORK as error:
            raise self._explained(error) from error
        self._keeper = asyncio.create_task(self._keep(), name=f"lanes-{self._member.group}")
        self._keeper.add_done_callback(lambda _task: self._notify())

    async def changed(self, known: frozenset[int]) -> frozenset[int]:
        """Wait until the owned lanes differ from `known`; returns them.

        Raises:
            As `open`: the membership is lost, and with it every lane; open again.
        """
        while True:
            self._check()
            if self._owned != known:
                return self._owned
            await self._news.wait()

    async def confirmed(self, lane: int) -> None:
        """Returns when the coordinator, asked after the call, has confirmed that this process owns the lane.

        While the group divides its lanes anew the call waits, but not longer than a session lasts.

        Raises:
            As `open`, and TargetUnavailable (SourceUnavailable): the lane is not owned, or no answer in time.
        """
        mine = self._sent + 1  # a heartbeat under way may have been answered before the call
        try:
            async with asyncio.timeout(self._session_s):
                while self._affirmed < mine:
                    self._check()
                    self._hurry.set()
                    await self._news.wait()
        except TimeoutError as error:
            raise self._unavailable(
                f"did not confirm lane {lane} within {self._session_s:g} s", found=lane
            ) from error
        self._check()
        if lane not in self._owned:
            raise self._unavailable(f"has given lane {lane} to another member", found=lane)

    def give_up(self, lane: int) -> None:
        """Give the lane up, and make the group divide its lanes anew, with the lane marked as failed."""
        failed = self._claim.failed | {lane}
        self._claim = replace(self._claim, failed=failed, lanes=self._claim.lanes - failed)
        self._own(self._owned - failed)
        self._hurry.set()

    def take_again(self) -> None:
        """Make the group divide its lanes anew, with no lane marked as failed."""
        self._claim = replace(self._claim, failed=frozenset())
        self._hurry.set()

    async def close(self) -> None:
        """Leave the group, so that its lanes move at once. Never raises."""
        await self._stop_keeping()
        self._claim = replace(self._claim, failed=frozenset())
        self._own(frozenset())
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                await self._member.leave()
        except _NETWORK as error:
            self._log.info("group-not-left", reason=repr(error))
        finally:
            await self._member.close()

    # -- membership ------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Keep the membership; raises when that is impossible, with every lane given up."""
        try:
            while True:
                await self._beat()
                await self._join()
        except _NETWORK as error:
            raise self._explained(error) from error
        finally:
            self._own(frozenset())

    async def _beat(self) -> None:
        """Send heartbeats until the members have to join again, or this one has a lane to give up.

        Raises: KafkaError, TimeoutError: for a whole session the coordinator could not be asked.
        """
        heard_s = _now_s()
        while True:
            await self._pause()
            if self._claim.failed != self._said_failed:
                return
            self._sent += 1
            number, sent_s = self._sent, _now_s()
            try:
                # A process that was suspended for its session asks again: the coordinator may have been, too.
                async with asyncio.timeout_at(max(heard_s + self._session_s, sent_s + self._interval_s)):
                    await self._member.heartbeat()
            except RebalanceInProgressError:
                return
            except _THROWN_OUT:
                self._own(frozenset())
                return
            except KafkaError as error:
                if is_for_good(error) or sent_s - heard_s >= self._session_s:
                    raise
            else:
                heard_s, self._affirmed = sent_s, number
                self._notify()

    async def _pause(self) -> None:
        """Wait until the next heartbeat is due, or a caller asks for one at once."""
        try:
            async with asyncio.timeout(self._interval_s):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    async def _join(self) -> None:
        """Join until the lanes are divided. Raises: KafkaError, TimeoutError; TargetUnavailable."""
        async with asyncio.timeout(self._join_s):
            while True:
                said = self._claim
                try:
                    given = await self._member.join(self._protocol, encode(said), self._share)
                except UnknownMemberIdError:
                    self._own(frozenset())
                except InconsistentGroupProtocolError as error:
                    raise self._unavailable(
                        "has members that do not share lanes as this one does: another concurrency, "
                        "another bridge with this group-id, or consumers that are no bridge",
                        found=self._lanes,
                    ) from error
                except (RebalanceInProgressError, IllegalGenerationError):
                    self._log.debug("group-joins-again")
                except KafkaError as error:
                    if is_for_good(error):
                        raise
                else:
                    self._said_failed = said.failed
                    # Lanes that have failed meanwhile are sent at the next join, and are not taken until
                    # then.
                    lanes = decode(given).lanes - self._claim.failed
                    self._claim = replace(self._claim, lanes=lanes, generation=self._member.generation)
                    self._own(lanes)
                    return
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)

    def _share(self, said: Mapping[str, bytes]) -> Mapping[str, Given]:
        shares = assign(self._lanes, {member: decode(data) for member, data in said.items()})
        return {member: Given(lanes, encode(Claim(lanes))) for member, lanes in shares.items()}

    async def _stop_keeping(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    # -- what is known ---------------------------------------------------------------------------------

    def _own(self, lanes: frozenset[int]) -> None:
        self._owned = lanes
        self._notify()

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _check(self) -> None:
        if self._keeper is None:
            raise self._unavailable("has not been joined")
        if self._keeper.done():
            self._keeper.result()

    def _unavailable(self, what: str, *, found: int | None = None) -> BridgeError:
        kind = TargetUnavailable if self._side == "target" else SourceUnavailable
        group = self._member.group
        return kind(f"connector {self._connection.name}: group {group} {what}", key="group-id", found=found)

    def _explained(self, error: BaseException) -> BridgeError:
        return explained(
            error,
            side=self._side,
            connector=self._connection.name,
            operation="Read",
            resource=f"group {self._member.group}",
        )


def _now_s() -> float:
    return asyncio.get_running_loop().time()
