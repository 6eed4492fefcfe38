"""The world of the verdicts says of each message what happened to it: scenarios, and random histories."""

from __future__ import annotations

import random
from collections import Counter

from tests.verdicts.failover import FailoverWorld, failover_history
from tests.verdicts.histories import history
from tests.verdicts.messages import Fate, Shape, Truth
from tests.verdicts.world import World

SHAPE = Shape(0, is_kafka_source=True, is_kafka_target=False, checks_ids=True, cache=100, partitions=1)
NODES = Shape(0, is_kafka_source=False, is_kafka_target=False, checks_ids=False, cache=100, partitions=1)


def world(count: int, shape: Shape = SHAPE) -> World:
    made = World(shape)
    for _ in range(count):
        made.produce(0)
    return made


def truths(made: World) -> list[Truth]:
    """By position, of all streams."""
    return [truth for _, truth in sorted(made.truths().items())]


def test_what_is_relayed_is_there_once_and_the_rest_is_open() -> None:
    made = world(3)
    made.relay(0, 2)
    assert [(truth.fate, truth.stored) for truth in truths(made)] == [
        (Fate.STORED, 1), (Fate.STORED, 1), (Fate.OPEN, 0),
    ]  # fmt: skip
    assert [(line.side, line.from_, line.upto, line.messages) for line in made.lines] == [
        ("received", 0, 2, (0, 1)), ("sent", 0, 2, (0, 1)),
    ]  # fmt: skip


def test_what_is_lost_stands_in_the_senders_log_alone_until_a_plan_brings_it() -> None:
    made = world(3)
    made.relay(0, 3, lost=[1])
    assert [truth.fate for truth in truths(made)] == [Fate.STORED, Fate.LOST, Fate.STORED]
    assert [line.messages for line in made.lines] == [(0, 2), (0, 1, 2)]
    made.plan(0, [0, 1], "a")
    assert [truth.stored for truth in truths(made)] == [1, 1, 1]
    assert (made.lines[-1].messages, made.lines[-1].duplicates) == ((0, 1), 1)


def test_ten_records_of_one_stamp_are_ten_messages() -> None:
    made = World(SHAPE)
    for _ in range(10):
        made.produce(0, b"a stamp", is_stamp=True)
    made.relay(0, 10, lost=range(8))
    made.plan(0, made.lost(0), "a")
    assert [truth.stored for truth in truths(made)] == [1] * 10
    assert Counter(record.id for record in made.target_records()) == {b"a stamp": 10}


def test_a_producers_id_is_stored_once_where_it_is_checked() -> None:
    for checks, fates in ((True, [Fate.STORED, Fate.REJECTED]), (False, [Fate.STORED, Fate.STORED])):
        made = World(
            Shape(0, is_kafka_source=True, is_kafka_target=True, checks_ids=checks, cache=9, partitions=1)
        )
        for _ in range(2):
            made.produce(0, b"order-1")
        made.relay(0, 2)
        assert [truth.fate for truth in truths(made)] == fates


def test_a_restored_target_gets_again_what_it_had() -> None:
    made = world(4)
    made.relay(0, 2)
    backup = made.target_snapshot()
    made.relay(0, 2)
    made.restore_target(backup)
    assert [truth.stored for truth in truths(made)] == [1, 1, 0, 0]
    made.relay(0, 2)
    assert [truth.stored for truth in truths(made)] == [1, 1, 1, 1]
    received = [line for line in made.lines if line.side == "received"]
    assert [(line.session, line.number, line.after) for line in received] == [
        ("s0", 1, None), ("s0", 2, None), ("s1", 2, ("s0", 1)),
    ]  # fmt: skip


def test_a_target_that_forgot_has_what_comes_again_twice() -> None:
    made = world(4)
    made.relay(0, 4)
    made.forget(0, 2)
    made.relay(0, 4)
    assert [truth.stored for truth in truths(made)] == [1, 1, 2, 2]


def test_retention_takes_copies_and_not_what_was_true() -> None:
    made = world(4)
    made.expire_source(0, 1)
    made.relay(0, 4)
    made.expire_target(0, 2)
    assert [(truth.fate, len(truth.present)) for truth in truths(made)] == [
        (Fate.EXPIRED, 0), (Fate.STORED, 0), (Fate.STORED, 0), (Fate.STORED, 1),
    ]  # fmt: skip
    assert [record.offset for record in made.source_records()] == [1, 2, 3]
    assert [record.offset for record in made.target_records()] == [2]


def test_a_restored_source_goes_on_under_a_new_incarnation_where_the_target_is_ahead() -> None:
    made = world(2, NODES)
    backup = made.source_snapshot()
    made.produce(0)
    made.relay(0, 3)
    made.restore_source(backup)
    made.produce(0)
    made.relay(0, 9)
    assert [truth.stored for truth in truths(made)] == [1, 1, 1, 1]
    assert len(made.streams) == 2


def test_a_history_is_the_same_at_every_call_and_all_of_them_have_everything(rng: random.Random) -> None:
    seed = str(rng.getrandbits(64))
    worlds = [history(seed, number) for number in range(300)]
    assert [world.lines for world in worlds[:20]] == [history(seed, number).lines for number in range(20)]
    fates = Counter(truth.fate for world in worlds for truth in world.truths().values())
    assert set(fates) == set(Fate)
    assert any(truth.stored > 1 for world in worlds for truth in world.truths().values())
    assert any(world.former for world in worlds)
    assert any(len(world.streams) > world.shape.partitions for world in worlds)
    assert sum(any(truth.fate is Fate.LOST for truth in world.truths().values()) for world in worlds) > 30


# -- bridges that fail over ------------------------------------------------------------------------------


def test_a_store_that_was_put_back_gets_again_what_it_lost_and_nothing_that_another_one_has() -> None:
    made = FailoverWorld(NODES, passes_gaps=False)
    first, second = made.hubs[0], made.add_hub()
    made.produce(30)
    made.relay(10)
    made.back_up(first)
    made.relay(10)
    made.go_to(second)
    made.relay(10)
    made.put_back(first, 0, dies=True)
    made.go_to(first)
    made.relay(30)
    assert sorted(first.disk.copies) == list(range(20))
    assert sorted(second.disk.copies) == list(range(20, 30))
    assert [(line.hub, line.from_, line.upto) for line in made.lines if line.verdict] == [("a-", 10, 20)]


def test_until_then_the_bridge_goes_to_no_store_that_has_passed_it_and_a_gap_stops_it() -> None:
    made = FailoverWorld(NODES, passes_gaps=False)
    first, second = made.hubs[0], made.add_hub()
    made.produce(30)
    made.back_up(first)
    made.relay(10)
    made.go_to(second)
    made.relay(10)
    first.backups[0].next = 0
    made.put_back(first, 0, dies=True)
    made.go_to(first)
    made.go_to(second)
    assert made.at is first
    made.gone |= {3}
    made.relay(5)
    assert made.is_stopped


def test_histories_with_fail_over_are_the_same_at_every_call_and_have_every_trouble(
    rng: random.Random,
) -> None:
    seed = str(rng.getrandbits(64))
    worlds = [failover_history(seed, number) for number in range(300)]
    assert [world.lines for world in worlds[:20]] == [failover_history(seed, n).lines for n in range(20)]
    assert any(world.lost_lines for world in worlds)
    assert any(hub.life for world in worlds for hub in world.hubs)
    assert any(hub.is_gone for world in worlds for hub in world.hubs)
    assert any(line.verdict for world in worlds for line in world.lines)
    assert any(world.is_stopped for world in worlds)
    assert any(times > 1 for world in worlds for times in world.copies().values())
