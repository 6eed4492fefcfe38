"""Several workers with one file: zombies, and workers that join and leave all the time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, start_together
from tests.kafka.exactly_once.rig import Form, Way, started

MakeWay = Callable[..., Way]

PARTITIONS: Final = 4
#: Most that arrives between two events.
MOST_BETWEEN: Final = 150


def owned(node: Node) -> Sequence[int]:
    """The lanes that a running worker says are its own."""
    changes = node.events("lanes")
    lanes: Sequence[int] = changes[-1]["owned"] if changes else ()
    return lanes


def test_a_zombie_stores_nothing_after_its_lane_was_taken(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random
) -> None:
    """SIGSTOP while it relays, until the other one has relayed in its place; then SIGCONT."""
    way = make_way(PARTITIONS)
    nodes = [make_node(f"node-{number}", way.settings()) for number in (1, 2)]
    start_together(*nodes)
    with way.feed.flowing(form.messages_per_s):
        for _ in range(form.rounds):
            way.await_more(1 + rng.randrange(MOST_BETWEEN))
            zombie = eventually(lambda: next((one for one in nodes if owned(one)), None), "an owner")
            zombie.pause()
            other = next(one for one in nodes if one is not zombie)
            eventually(lambda one=other: owned(one), "the lane was taken")  # type: ignore[misc]
            way.await_more(1 + rng.randrange(MOST_BETWEEN))
            zombie.resume()
            eventually(lambda one=zombie: not owned(one), "the zombie has noticed")  # type: ignore[misc]
    way.finish(*nodes)


def test_workers_join_and_leave_all_the_time(
    form: Form, make_way: MakeWay, make_node: MakeNode, rng: random.Random
) -> None:
    """Four lanes, up to three workers; every few seconds one comes, one goes, one is killed."""
    way = make_way(PARTITIONS)
    nodes = [make_node(f"node-{number}", way.settings(concurrency=PARTITIONS)) for number in (1, 2, 3)]
    running = [started(nodes[0])]
    with way.feed.flowing(form.messages_per_s):
        for _ in range(4 * form.rounds):
            way.await_more(1 + rng.randrange(MOST_BETWEEN))
            one = rng.choice(nodes)
            if one not in running:
                running.append(started(one))
            elif len(running) > 1:
                running.remove(one)
                if rng.random() < 0.5:
                    one.kill()
                else:
                    assert one.stop() == 0
    way.finish(*running)
