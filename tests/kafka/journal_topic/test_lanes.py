"""Other lanes and other names on real brokers: nothing is forgotten, nobody old goes on."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.errors import KafkaError

from bridge.errors import TargetRefused
from bridge.kafka.journal_topic.generations import set_lanes
from bridge.settings import kafka_names
from tests.kafka.cluster.reachable import Reachable
from tests.kafka.journal_topic.rig import Names, Owner, bridge, covered, lane_of, stream


async def leave_open(owner: Owner, partition: int) -> None:
    """Write in a transaction that nobody commits: the owner is dead."""
    change = owner.remembered.change()
    change.cover(stream(partition), covered(9))
    await owner.write(change)


# -- other lanes ---------------------------------------------------------------------------------------


async def test_lanes_can_be_set_again_and_again(cluster_a: Reachable, unique: Names) -> None:
    """4 -> 1 -> 3: the greatest next of a stream wins, wherever it was."""
    expected: dict[int, int] = {}
    async with bridge(cluster_a, unique("b"), lanes=4) as it:
        for generation, lanes in enumerate((4, 1, 3), start=1):
            if generation > 1:
                before, after = await set_lanes(
                    it.connection, bridge=it.name, topic=it.journal_topic, lanes=lanes
                )
                assert (before.lanes, after.lanes) == (it.lanes, lanes)
            it.lanes = lanes
            owners = [await it.take(lane) for lane in range(lanes)]
            for partition in range(8):
                owner = owners[lane_of(partition, lanes)]
                assert owner.next(partition) == expected.get(partition)
                expected[partition] = expected.get(partition, 0) + 10 + partition
                await owner.cover(partition, expected[partition], [b"%d-%d" % (generation, partition)])
        last = [await it.take(lane) for lane in range(3)]
        for partition in range(8):
            taker = last[lane_of(partition, 3)]
            known = taker.remembered.change().known("x", [b"%d-%d" % (g, partition) for g in (1, 2, 3)])
            assert known == [0, 1, 2]


async def test_what_a_dead_owner_left_open_does_not_hold_up_the_next_lanes(
    cluster_a: Reachable, unique: Names
) -> None:
    """The broker would end it after a minute; reading gives up after a third of that."""
    async with bridge(cluster_a, unique("b"), lanes=2) as it:
        dead = await it.take(1)
        partition = next(number for number in range(20) if lane_of(number, 2) == 1)
        await dead.cover(partition, 5)
        await leave_open(dead, partition)
        before, after = await set_lanes(it.connection, bridge=it.name, topic=it.journal_topic, lanes=1)
        assert (before.lanes, after.lanes) == (2, 1)
        it.lanes = 1
        assert (await it.take()).next(partition) == 5


async def test_old_owners_are_fenced_by_the_first_taker_and_refused(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b"), lanes=2) as it:
        old = [await it.take(lane) for lane in range(2)]
        partition = next(number for number in range(20) if lane_of(number, 2) == 1)
        await old[1].cover(partition, 5)
        await set_lanes(it.connection, bridge=it.name, topic=it.journal_topic, lanes=3)
        await old[1].cover(partition, 9)  # nobody has taken a lane yet
        taker = await it.take(lane_of(partition, 3), lanes=3)
        assert taker.next(partition) == 9
        for owner in old:
            with pytest.raises(KafkaError):
                await owner.cover(partition, 11)
            with pytest.raises(TargetRefused, match="--set 2"):
                await owner.read()
        with pytest.raises(TargetRefused, match="--set 2"):
            await it.take(1)


async def test_an_owner_of_the_old_lanes_that_has_just_started_its_producer_is_refused(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b"), lanes=2) as it:
        late = await it.begin(1)
        await set_lanes(it.connection, bridge=it.name, topic=it.journal_topic, lanes=1)
        with pytest.raises(TargetRefused, match="has 1 lanes"):
            await late.read()


async def test_a_taker_that_dies_before_its_first_transaction_changes_nothing(
    cluster_a: Reachable, unique: Names
) -> None:
    async with bridge(cluster_a, unique("b"), lanes=2) as it:
        for lane in range(2):
            owner = await it.take(lane)
            for partition in range(6):
                if lane_of(partition, 2) == lane:
                    await owner.cover(partition, 10 + partition)
        await set_lanes(it.connection, bridge=it.name, topic=it.journal_topic, lanes=1)
        it.lanes = 1
        dead = await it.take()
        await dead.write(dead.remembered.change())  # and never commits
        taker = await it.take()
        assert [taker.next(partition) for partition in range(6)] == [10, 11, 12, 13, 14, 15]
        assert taker.remembered.unwritten
        await taker.commit(taker.remembered.change())
        assert not (await it.take()).remembered.unwritten


async def test_lanes_set_twice_before_anybody_has_taken_one_lose_nothing(
    cluster_a: Reachable, unique: Names
) -> None:
    """The first owners are two generations back, and still run."""
    async with bridge(cluster_a, unique("b"), lanes=1) as it:
        old = await it.take()
        await old.cover(0, 5)
        for lanes in (2, 4):
            await set_lanes(it.connection, bridge=it.name, topic=it.journal_topic, lanes=lanes)
        await old.cover(0, 7)
        taker = await it.take(lane_of(0, 4), lanes=4)
        assert taker.next(0) == 7
        with pytest.raises(KafkaError):
            await old.cover(0, 9)


# -- another name --------------------------------------------------------------------------------------


async def test_a_renamed_bridge_goes_on_where_the_old_name_was(cluster_a: Reachable, unique: Names) -> None:
    name = unique("old")
    async with (
        bridge(cluster_a, name, lanes=2) as old,
        bridge(cluster_a, unique("new"), lanes=2, previous_topic=kafka_names.journal_topic(name)) as new,
    ):
        before = [await old.take(lane) for lane in range(2)]
        for partition in range(4):
            await before[lane_of(partition, 2)].cover(partition, 10 + partition, [b"%d" % partition])
        after = [await new.take(lane) for lane in range(2)]
        for partition in range(4):
            owner = after[lane_of(partition, 2)]
            assert owner.next(partition) == 10 + partition
            assert owner.remembered.change().known("x", [b"%d" % partition]) == [0]
            await owner.cover(partition, 20 + partition)
        for fenced in before:
            with pytest.raises(KafkaError):
                await fenced.cover(0, 99)
        with pytest.raises(TargetRefused, match=f"moved .* to {new.journal_topic}"):
            await old.take()
        assert (await new.take(lane_of(0, 2))).next(0) == 20


async def test_a_renamed_bridge_that_has_run_keeps_its_own_state(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("old")) as old, bridge(cluster_a, unique("new")) as new:
        await (await old.take()).cover(0, 50)
        await (await new.take()).cover(0, 7)
        assert (await new.take(previous_topic=old.journal_topic)).next(0) == 7
        assert (await old.take()).next(0) == 50  # let be


async def test_what_a_dead_owner_left_open_does_not_hold_up_another_name(
    cluster_a: Reachable, unique: Names
) -> None:
    async with (
        bridge(cluster_a, unique("old")) as old,
        bridge(cluster_a, unique("new"), previous_topic=old.journal_topic) as new,
    ):
        dead = await old.take()
        await dead.cover(0, 5)
        await leave_open(dead, 0)
        assert (await new.take()).next(0) == 5


async def test_a_bridge_that_was_started_without_its_former_name_adopts_it_later(
    cluster_a: Reachable, unique: Names
) -> None:
    """It was refused then, as the source knew it: nothing has been committed under the new name."""
    async with bridge(cluster_a, unique("old")) as old, bridge(cluster_a, unique("new")) as new:
        await (await old.take()).cover(0, 50)
        assert (await new.take()).next(0) is None
        assert (await new.take(previous_topic=old.journal_topic)).next(0) == 50


async def test_a_bridge_can_have_its_old_name_back(cluster_a: Reachable, unique: Names) -> None:
    async with bridge(cluster_a, unique("old")) as old, bridge(cluster_a, unique("new")) as new:
        await (await old.take()).cover(0, 50)
        await (await new.take(previous_topic=old.journal_topic)).cover(0, 60)
        assert (await old.take(previous_topic=new.journal_topic)).next(0) == 60
        with pytest.raises(TargetRefused, match="moved"):
            await new.take()


async def test_a_renamed_bridge_may_keep_its_journal_topic(cluster_a: Reachable, unique: Names) -> None:
    topic = unique("journal")
    async with (
        bridge(cluster_a, unique("old"), topic=topic) as old,
        bridge(cluster_a, unique("new"), topic=topic) as new,
    ):
        await (await old.take()).cover(0, 50)
        taker = await new.take(previous_topic=kafka_names.journal_topic(old.name))
        assert taker.next(0) == 50
        with pytest.raises(TargetRefused, match=f"belongs to bridge {new.name}"):
            await old.take()


async def test_what_was_adopted_and_then_deleted_is_not_adopted_again(
    cluster_a: Reachable, unique: Names
) -> None:
    """The former topic is out of date by then."""
    async with bridge(cluster_a, unique("old")) as old, bridge(cluster_a, unique("new")) as new:
        await (await old.take()).cover(0, 50)
        await (await new.take(previous_topic=old.journal_topic)).cover(0, 60)
        await asyncio.to_thread(cluster_a.delete_topic, new.journal_topic)
        with pytest.raises(TargetRefused, match="is gone"):
            await new.take(previous_topic=old.journal_topic)
