"""Who owns which lane, on real brokers: workers that come, go, are killed, suspended and cut off."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable

import confluent_kafka
import pytest
import pytest_asyncio

from bridge.demo.ports import free_ports
from bridge.errors import SourceUnavailable, TargetRefused, TargetUnavailable
from bridge.kafka.lanes.group_ownership import LEAVE_TIMEOUT_MS
from bridge.kafka.lanes.groups import JournalTopicOwnership
from bridge.kafka.records.identity import lane_of
from bridge.relay.backoff import Backoff
from bridge.relay.ownership import Division
from bridge.relay.relay import RelayOptions
from tests.harness.eventually import until
from tests.kafka.cluster.brokers import Cluster
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.lanes.members import LONGEST_S, MOVED_WITHIN_S, Bridge, await_owned, divided, owns
from tests.kafka.lanes.worker import SESSION_TIMEOUT_MS, connection


@pytest_asyncio.fixture
async def bridge(cluster_a: Reachable) -> AsyncIterator[Bridge]:
    made = Bridge(cluster_a.bootstrap)
    yield made
    await made.close()


# -- members come and go ---------------------------------------------------------------------------------


async def test_a_lane_moves_within_3_s_of_a_clean_stop(bridge: Bridge) -> None:
    first = await bridge.joined()
    await owns(first, 0, 1, 2, 3)
    second = await bridge.joined()
    await divided(first, second)
    await second.close()
    assert await owns(first, 0, 1, 2, 3) < MOVED_WITHIN_S


async def test_a_third_member_takes_its_share_and_no_lane_moves_between_the_others(bridge: Bridge) -> None:
    first, second = await bridge.joined(), await bridge.joined()
    await divided(first, second)
    before = first.owned, second.owned
    third = await bridge.joined()
    await divided(first, second, third)
    assert first.owned <= before[0]
    assert second.owned <= before[1]
    assert len(third.owned) == 1


async def test_lanes_that_stay_ours_are_never_given_up_while_others_join_and_leave(bridge: Bridge) -> None:
    """Kafka's eager rebalances revoke everything; here only a new division takes lanes."""
    first = await bridge.joined()
    smallest = [first.owned]

    async def watch() -> None:
        while True:
            smallest[0] &= await first.changed(first.owned)

    watching = asyncio.create_task(watch())
    for _ in range(5):
        other = await bridge.joined()
        await divided(first, other)
        kept = first.owned
        await asyncio.sleep(0.5)  # a member for about a second
        await other.close()
        await owns(first, 0, 1, 2, 3)
        assert smallest[0] == kept, "the same two lanes move each time, the others never"
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


async def test_a_killed_workers_lanes_move_within_the_session_timeout(bridge: Bridge) -> None:
    worker = await bridge.worker()
    await worker.says(owned=[0, 1, 2, 3])
    member = await bridge.joined()
    await worker.says(owned=sorted({0, 1, 2, 3} - member.owned))
    worker.send(signal.SIGKILL)
    assert await owns(member, 0, 1, 2, 3) < SESSION_TIMEOUT_MS / 1000 + MOVED_WITHIN_S


async def test_workers_in_processes_of_their_own_share_and_leave(bridge: Bridge) -> None:
    first, second = await bridge.worker(), await bridge.worker()
    member = await bridge.joined()
    await await_owned(member, lambda owned: 1 <= len(owned) <= 2)
    await first.leave()
    await await_owned(member, lambda owned: len(owned) == 2)
    await second.leave()
    assert await owns(member, 0, 1, 2, 3) < MOVED_WITHIN_S


async def test_who_leaves_while_the_group_waits_for_another_need_not_wait_too(bridge: Bridge) -> None:
    """A join that waits for a suspended worker holds up what is asked behind it on its connection."""
    worker = await bridge.worker()
    await worker.says(owned=[0, 1, 2, 3])
    worker.send(signal.SIGSTOP)
    member = bridge.member()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await member.open()
    began = asyncio.get_running_loop().time()
    await member.close()
    assert asyncio.get_running_loop().time() - began < LEAVE_TIMEOUT_MS / 2_000


# -- confirmations ---------------------------------------------------------------------------------------


async def test_a_zombie_cannot_confirm_the_lane_that_was_taken_from_it(cluster_a: Reachable) -> None:
    """A suspended worker still thinks that it owns the lane when it wakes up."""
    bridge = Bridge(cluster_a.bootstrap, lanes=1)
    try:
        zombie = await bridge.worker()
        await zombie.says(owned=[0])
        await zombie.ask(0)
        await zombie.says(confirmed=0)
        member = await bridge.joined()
        await owns(member)
        zombie.send(signal.SIGSTOP)
        await owns(member, 0)
        await member.confirmed(0)
        await zombie.ask(0)
        zombie.send(signal.SIGCONT)
        await zombie.says(refused="TARGET_UNAVAILABLE", lane=0)
        await member.confirmed(0)
        await member.close()
        await zombie.says(owned=[0])
    finally:
        await bridge.close()


async def test_a_confirmation_waits_for_the_division_that_is_under_way(bridge: Bridge) -> None:
    first = await bridge.joined()
    second = bridge.member()
    joining = asyncio.create_task(second.open())
    confirmations = await asyncio.gather(
        *[first.confirmed(lane) for lane in range(4)], return_exceptions=True
    )
    await joining
    await divided(first, second)
    confirmed = {lane for lane, error in enumerate(confirmations) if error is None}
    assert confirmed >= first.owned, confirmations
    for lane in second.owned:
        with pytest.raises(TargetUnavailable, match="another member"):
            await first.confirmed(lane)


async def test_who_is_no_member_confirms_nothing(bridge: Bridge) -> None:
    member = bridge.member()
    with pytest.raises(TargetUnavailable, match="has not been joined"):
        await member.confirmed(0)
    await member.open()
    await member.close()
    with pytest.raises(TargetUnavailable, match="has not been joined"):
        await member.confirmed(0)
    await member.open()
    await member.confirmed(0)


# -- lanes that have failed ------------------------------------------------------------------------------


async def test_a_lane_that_is_given_up_moves_within_3_s_and_comes_back_when_it_may(bridge: Bridge) -> None:
    first, second = await bridge.joined(), await bridge.joined()
    await divided(first, second)
    lane, kept = sorted(first.owned)
    first.give_up(lane)
    assert first.owned == {kept}, "at once"
    began = asyncio.get_running_loop().time()
    await await_owned(second, lambda owned: len(owned) == 3)
    assert asyncio.get_running_loop().time() - began < MOVED_WITHIN_S
    await second.confirmed(lane)
    with pytest.raises(TargetUnavailable, match="another member"):
        await first.confirmed(lane)
    await second.close()
    assert await owns(first, *sorted({0, 1, 2, 3} - {lane})) < MOVED_WITHIN_S
    first.take_again()
    await owns(first, 0, 1, 2, 3)


async def test_a_lane_that_every_member_has_given_up_is_nobodys_until_one_joins(bridge: Bridge) -> None:
    first, second = await bridge.joined(), await bridge.joined()
    await divided(first, second)
    first.give_up(0)
    second.give_up(0)
    await await_owned(first, lambda owned: bool(owned) and 0 not in owned)
    await await_owned(second, lambda owned: bool(owned) and 0 not in owned)
    assert (await bridge.holders().ask()).nobody == {0}
    third = await bridge.joined()
    await await_owned(third, lambda owned: 0 in owned)


async def test_a_member_that_comes_back_takes_what_it_had_given_up(bridge: Bridge) -> None:
    member = await bridge.joined()
    member.give_up(3)
    await owns(member, 0, 1, 2)
    await member.close()
    await member.open()
    await owns(member, 0, 1, 2, 3)


# -- who holds which lane, as it is shown ----------------------------------------------------------------


async def test_the_holders_of_all_lanes_are_told_to_members_and_others(bridge: Bridge) -> None:
    await (await bridge.joined()).close()
    holders = bridge.holders()
    assert await holders.ask() == Division((), frozenset({0, 1, 2, 3}))
    first, second = await bridge.joined(name="node-1"), await bridge.joined(name="node-2")
    await divided(first, second)
    failed = min(first.owned)
    first.give_up(failed)
    await await_owned(second, lambda owned: failed in owned)
    assert (await holders.ask()).members == (), "an answer holds for a while"
    found = await bridge.holders().ask()
    assert found.nobody == frozenset()
    assert [(one.name, one.lanes, one.failed) for one in found.members] == [
        ("node-1", first.owned, {failed}),
        ("node-2", second.owned, frozenset()),
    ]
    assert {one.host for one in found.members} == {"127.0.0.1"}


async def test_while_the_lanes_are_being_divided_their_holders_are_not_known(bridge: Bridge) -> None:
    worker = await bridge.worker()
    await worker.says(owned=[0, 1, 2, 3])
    worker.send(signal.SIGSTOP)
    joining = asyncio.create_task(bridge.member().open())
    async with asyncio.timeout(LONGEST_S):
        while True:
            try:
                await bridge.holders().ask()
            except TargetUnavailable as error:
                assert "is dividing its lanes" in str(error)  # noqa: PT017 - until it is
                break
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)


async def test_a_cluster_that_cannot_be_asked_for_the_holders_is_named() -> None:
    (port,) = free_ports(1)
    with pytest.raises(TargetUnavailable, match="connector cluster: Describe group "):
        await Bridge(f"127.0.0.1:{port}").holders().ask()


# -- traps -----------------------------------------------------------------------------------------------


async def test_a_member_that_nobody_polls_stays_in_the_group(bridge: Bridge) -> None:
    """docs/kafka-traps.md 16: the interval is lowered; a consumer is thrown out by it."""
    member = await bridge.joined(max_poll_interval_ms=1_000)
    consumer = connection(bridge.bootstrap).consumer(
        group_id=f"{bridge.group}-consumer", max_poll_interval_ms=1_000, heartbeat_interval_ms=300
    )
    consumer.subscribe(["__consumer_offsets"])
    await consumer.start()
    try:
        await until(lambda: consumer._coordinator.generation <= 0, "the consumer is thrown out", LONGEST_S)
    finally:
        await consumer.stop()
    assert member.owned == {0, 1, 2, 3}
    await member.confirmed(3)


async def test_membership_makes_no_journal_topic(bridge: Bridge, cluster_a: Reachable) -> None:
    """docs/kafka-traps.md 17: this broker makes every topic that a client asks for."""
    member = await bridge.joined()
    second = await bridge.joined()
    await divided(member, second)
    await member.confirmed(min(member.owned))
    assert bridge.topic not in cluster_a.topics()
    # Another client's question, for in this process nobody's makes topics (bridge.kafka.client.producers).
    producer = confluent_kafka.Producer({"bootstrap.servers": bridge.bootstrap})
    producer.produce(bridge.topic, b"")
    assert producer.flush(LONGEST_S) == 0
    assert bridge.topic in cluster_a.topics(), "the broker makes none: the test above shows nothing"
    cluster_a.delete_topic(bridge.topic)


async def test_kafkas_tools_show_who_has_which_lane(bridge: Bridge, cluster_a: Reachable) -> None:
    await bridge.joined()
    admin = cluster_a.admin()
    group = admin.describe_consumer_groups([bridge.group])[bridge.group].result(LONGEST_S)
    (shown,) = group.members
    assert [(part.topic, part.partition) for part in shown.assignment.topic_partitions] == [
        (bridge.topic, lane) for lane in range(4)
    ]


# -- Kafka to node: lanes are shared by number -----------------------------------------------------------


async def test_lanes_on_the_source_stay_whole_whatever_topics_there_are(
    bridge: Bridge, cluster_a: Reachable, unique: Callable[[str], str]
) -> None:
    """The topics of a regex appear later; there is none yet when the members join."""
    first, second = bridge.on_source(), bridge.on_source()
    await first.open()
    await second.open()
    await divided(first, second)
    before = first.owned
    prefix = unique("orders")
    for number in range(2):
        cluster_a.create_topic(f"{prefix}.{number}", 5)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await first.changed(before)
    for number in range(2):
        for partition in range(5):
            lane = lane_of(f"{prefix}.{number}", partition, 4)
            assert (lane in first.owned) != (lane in second.owned)
        cluster_a.delete_topic(f"{prefix}.{number}")
    with pytest.raises(SourceUnavailable, match="another member"):
        await second.confirmed(min(before))


# -- who does not fit, and what Kafka refuses ------------------------------------------------------------


async def test_another_concurrency_shares_no_lane_until_the_others_have_gone(
    bridge: Bridge,
) -> None:
    old = await bridge.joined()
    new = bridge.member(lanes=8)
    with pytest.raises(TargetUnavailable, match="another concurrency"):
        await new.open()
    assert new.owned == frozenset()
    await old.confirmed(0)
    await old.close()
    await new.open()
    await owns(new, *range(8))


async def test_a_session_timeout_that_brokers_do_not_take_names_the_setting(bridge: Bridge) -> None:
    with pytest.raises(TargetRefused, match=f"Read group {bridge.group}.*session-timeout-ms"):
        await bridge.joined(session_timeout_ms=10)


async def test_nothing_is_owned_where_the_journal_topic_is_not_right(bridge: Bridge) -> None:
    async def prepare() -> None:
        raise TargetRefused("lanes us --set 4")

    member = JournalTopicOwnership(
        connection(bridge.bootstrap), group=bridge.group, topic=bridge.topic, lanes=4, prepare=prepare
    )
    with pytest.raises(TargetRefused, match="--set 4"):
        await member.open()
    assert member.owned == frozenset()
    await member.close()


# -- brokers come and go ---------------------------------------------------------------------------------


async def test_a_broker_that_restarts_within_the_session_takes_no_lane(own_cluster: Cluster) -> None:
    bridge = Bridge(own_cluster.bootstrap)
    try:
        member = await bridge.joined(session_timeout_ms=30_000)
        changing = asyncio.create_task(member.changed(member.owned))
        await asyncio.to_thread(own_cluster.broker(1).restart)
        await member.confirmed(2)
        assert not changing.done()
        changing.cancel()
    finally:
        await bridge.close()


async def test_lanes_are_given_up_when_the_session_is_lost_and_taken_back_by_another_open(
    own_cluster: Cluster,
) -> None:
    bridge = Bridge(own_cluster.bootstrap)
    try:
        member = await bridge.joined()
        own_cluster.broker(1).pause()
        with pytest.raises(TargetUnavailable, match=f"Read group {bridge.group}"):
            async with asyncio.timeout(LONGEST_S):
                await member.changed(member.owned)
        assert member.owned == frozenset()
        with pytest.raises(TargetUnavailable):
            await member.confirmed(0)
        own_cluster.broker(1).resume()
        # The controller may take it back only now: until then it names no broker, and a bridge tries again.
        retrying = RelayOptions("b", Backoff(100, 1.0, 100)).retrying(lost=True, before_wait=lambda *_: None)
        async with asyncio.timeout(LONGEST_S):
            await retrying(member.open)
        await owns(member, 0, 1, 2, 3)
        await member.confirmed(0)
    finally:
        await bridge.close()


async def test_closing_while_the_broker_hangs_takes_no_longer_than_leaving_may(own_cluster: Cluster) -> None:
    bridge = Bridge(own_cluster.bootstrap)
    member = await bridge.joined()
    own_cluster.broker(1).pause()
    began = asyncio.get_running_loop().time()
    await bridge.close()
    assert asyncio.get_running_loop().time() - began < MOVED_WITHIN_S
    assert member.owned == frozenset()
