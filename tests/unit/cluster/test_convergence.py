"""Topologies of up to six nodes, whose links come and go, and whose notices are lost, late and repeated.

Once the links stay and neighbours say what they know, all tables of nodes that are joined are equal and true,
with the shortest ways, none of them in a circle.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import combinations
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.notices import Assembler, known_notice, pages
from cluster.record import Announcement, Known, KnownNode, NodeState, Place
from cluster.topology import Heard, Topology
from tests.unit.cluster.rig import record, uuid

#: Exchanges between all neighbours after which six nodes agree: the end of a way goes one link an exchange,
#: and what is on its way when they begin may contradict it.
EXCHANGES = 12


@dataclass(eq=False)
class End:
    """One direction of a link: what is on its way to `to`."""

    to: int
    bodies: list[bytes] = field(default_factory=list)
    assembler: Assembler = field(default_factory=Assembler)


class World:
    """Nodes by number, and what is under way on the links between them."""

    def __init__(self, nodes: int, max_hops: int) -> None:
        self.max_hops = max_hops
        self.openings = dict.fromkeys(range(nodes), 1)
        self.tables = {number: Topology(record(uuid(number)), max_hops) for number in range(nodes)}
        #: By (from, to): both directions of each link that is up.
        self.ends: dict[tuple[int, int], End] = {}
        self.announcements = 0

    def say(self, source: int, target: int, said: Announcement | Known) -> None:
        bodies = [known_notice(said)] if isinstance(said, Known) else pages(said)
        self.announcements += isinstance(said, Announcement)
        self.ends[source, target].bodies.extend(bodies)

    def join(self, one: int, other: int) -> None:
        if (one, other) in self.ends or NodeState.LEFT in (self.state(one), self.state(other)):
            return
        for source, target in ((one, other), (other, one)):
            self.ends[source, target] = End(target)
            self.tables[source].linked(uuid(target))
        for source, target in ((one, other), (other, one)):
            self.say(source, target, self.tables[source].known())

    def cut(self, one: int, other: int) -> None:
        if (one, other) in self.ends:
            del self.ends[one, other], self.ends[other, one]
            self.tables[one].lost(uuid(other))
            self.tables[other].lost(uuid(one))

    def neighbours(self, number: int) -> list[int]:
        return [target for source, target in self.ends if source == number]

    def state(self, number: int) -> NodeState:
        return self.tables[number].records[uuid(number)].state

    def push(self, number: int, node: int, but: int = -1) -> None:
        """Tell the neighbours of a change."""
        for neighbour in self.neighbours(number):
            said = self.tables[number].announced(uuid(node), uuid(neighbour))
            if said is not None and neighbour != but:
                self.say(number, neighbour, said)

    def change(self, number: int, queues: int) -> None:
        own = self.tables[number].records[uuid(number)]
        places = tuple(Place("orders", f"q{bit}") for bit in range(4) if queues >> bit & 1)
        self.tables[number].own(msgspec.structs.replace(own, state=NodeState.UP, places=places))
        self.push(number, number)

    def leave(self, number: int) -> None:
        own = self.tables[number].records[uuid(number)]
        self.tables[number].own(msgspec.structs.replace(own, state=NodeState.LEFT))
        self.push(number, number)
        for neighbour in self.neighbours(number):
            # The last record is out before the link ends.
            while (end := self.ends[number, neighbour]).bodies:
                self.deliver(end, number, 0)
            self.cut(number, neighbour)

    def restart(self, number: int) -> None:
        for neighbour in self.neighbours(number):
            self.cut(number, neighbour)
        self.openings[number] += 1
        self.tables[number] = Topology(record(uuid(number), opening=self.openings[number]), self.max_hops)

    def deliver(self, end: End, source: int, index: int, *, keep: bool = False) -> None:
        body = end.bodies[index] if keep else end.bodies.pop(index)
        said = end.assembler.take(body)
        table = self.tables[end.to]
        if isinstance(said, Known):
            for one in table.heard_known(said, uuid(source)):
                self.say(end.to, source, one)
        elif said is not None and table.heard(said, uuid(source)) is Heard.APPLIED:
            self.push(end.to, int(said.record.node[-12:], 16), but=source)

    def exchange(self) -> int:
        """Each end says what it knows, and everything arrives; returns the announcements that were made."""
        before = self.announcements
        for source, target in list(self.ends):
            self.say(source, target, self.tables[source].known())
        while waiting := [(key, end) for key, end in self.ends.items() if end.bodies]:
            for (source, _), end in waiting:
                self.deliver(end, source, 0)
        return self.announcements - before

    def distances(self, start: int) -> dict[int, int]:
        found, reached = {start: 0}, deque([start])
        while reached:
            one = reached.popleft()
            for other in self.neighbours(one):
                if other not in found:
                    found[other] = found[one] + 1
                    reached.append(other)
        return found

    def faults(self) -> list[str]:
        """Where a table is not true."""
        return [
            f"{number} of {node}: {fault}"
            for number in self.tables
            for node in self.tables
            if number != node and (fault := self.fault(number, node))
        ]

    def fault(self, number: int, node: int) -> str:
        table, distance = self.tables[number], self.distances(number).get(node)
        if distance is None:
            return "reachable" if table.reachable(uuid(node)) else ""
        if table.records.get(uuid(node)) != self.tables[node].records[uuid(node)]:
            return "another record"
        if not table.reachable(uuid(node)) or table.distance(uuid(node)) != distance:
            return f"distance {table.distance(uuid(node))}, not {distance}"
        hop, steps = number, 0
        while hop != node and steps < distance:
            following = self.tables[hop].next_hop(uuid(node))
            hop, steps = int(following[-12:], 16) if following else hop, steps + 1
        if hop != node:
            return "the way does not lead there"
        turns = {one.node for names in table.places("orders").values() for one in names}
        ever = table.snapshot().shortest[uuid(node)].links
        if ever > self.max_hops and uuid(node) in turns:
            return "has places beyond max-hops"
        return ""

    def unequal(self) -> list[str]:
        """Nodes, gone ones included, of which neighbours that both know them have different records."""
        return [
            f"{one} and {other} of {node}"
            for one, other in self.ends
            for node, mine in self.tables[one].records.items()
            if self.tables[other].records.get(node, mine) != mine
        ]


def step(world: World, kind: str, first: int, second: int) -> None:
    one, other = first % len(world.tables), second % len(world.tables)
    if kind == "change":
        world.change(one, second)
    elif kind == "all":
        world.exchange()
    elif kind in ("leave", "restart"):
        getattr(world, kind)(one)
    elif kind in ("late", "lost", "twice", "next"):
        move_notice(world, kind, first, second)
    elif one != other:
        two_nodes(world, kind, one, other)


def move_notice(world: World, kind: str, first: int, second: int) -> None:
    if waiting := [(key, end) for key, end in world.ends.items() if end.bodies]:
        (source, _), end = waiting[first % len(waiting)]
        index = 0 if kind == "next" else second % len(end.bodies)
        if kind == "lost":
            end.bodies.pop(index)
        else:
            world.deliver(end, source, index, keep=kind == "twice")


def two_nodes(world: World, kind: str, one: int, other: int) -> None:
    joined = (one, other) in world.ends
    if kind in ("join", "cut"):
        getattr(world, kind)(one, other)
    elif kind == "forget" and not joined:
        world.tables[one].forget(uuid(other))
    elif kind == "know" and joined:
        world.say(one, other, world.tables[one].known())


#: What happens, as often as it is here.
KINDS = [
    *["join"] * 9, *["cut"] * 5, *["change"] * 2, "leave", *["restart"] * 2, "forget",
    *["know"] * 4, "late", "lost", "twice", *["next"] * 12, *["all"] * 2,
]  # fmt: skip
STEPS = 120
HISTORIES = 150


@settings(max_examples=HISTORIES)
@given(st.integers(3, 6), st.integers(0, 4), st.integers(0, 2**32))
def test_tables_become_equal_and_true_whatever_became_of_the_notices(
    nodes: int, max_hops: int, seed: int
) -> None:
    chance, world = Random(seed), World(nodes, max_hops)
    for _ in range(STEPS):
        step(world, chance.choice(KINDS), chance.randrange(1_000), chance.randrange(1_000))
    for _ in range(nodes):
        # The last that happens to links is not heard of yet.
        step(world, chance.choice(["join", "join", "cut"]), chance.randrange(1_000), chance.randrange(1_000))
    told = 0
    for _ in range(EXCHANGES):
        told = world.exchange()
        if not told and not world.faults() and not world.unequal():
            break
    else:
        pytest.fail(f"after {EXCHANGES} exchanges: {world.faults() + world.unequal()}, {told} announcements")


def test_a_chain_of_five_knows_its_ends_over_four_links_and_hears_of_a_cut() -> None:
    # C17, C20: the middle node is away, and returns.
    world = World(5, 4)
    for number in range(4):
        world.join(number, number + 1)
    for number in (0, 4):
        world.change(number, 1)
    for _ in range(4):
        world.exchange()
    first = world.tables[0]
    assert first.distance(uuid(4)) == 4
    assert [one.node for one in first.places("orders")["q0"]] == [uuid(0), uuid(4)]
    world.restart(2)
    for _ in range(3):
        world.exchange()
    assert not first.reachable(uuid(4))
    world.join(1, 2)
    world.join(2, 3)
    for _ in range(4):
        world.exchange()
    assert first.reachable(uuid(4))
    assert [one.node for one in first.places("orders")["q0"]] == [uuid(0), uuid(4)]


@pytest.mark.parametrize(("max_hops", "reached"), [(3, 3), (1, 1), (0, 0)])
def test_a_chain_goes_as_far_as_max_hops(max_hops: int, reached: int) -> None:
    # C18, C19.
    world = World(5, max_hops)
    for number in range(4):
        world.join(number, number + 1)
    for number in range(1, 5):
        world.change(number, 1)
    for _ in range(4):
        world.exchange()
    seen = [one.node for one in world.tables[0].places("orders").get("q0", ())]
    assert sorted(seen) == [uuid(number) for number in range(1, reached + 1)]
    assert len(world.tables[0].records) == 5


def test_in_a_ring_and_in_a_mesh_each_node_is_known_once_and_by_the_shortest_way() -> None:
    # C22: Artemis learns its own queue as a remote one in a mesh, and keeps the first way that it heard.
    for links in (((0, 1), (1, 2), (2, 0)), tuple(combinations(range(4), 2))):
        world = World(4, 2)
        for one, other in links:
            world.join(one, other)
        for number in range(4):
            world.change(number, 1)
        for _ in range(4):
            world.exchange()
        table = world.tables[0]
        seen = [one.node for one in table.places("orders")["q0"]]
        assert len(seen) == len(set(seen)) == len({number for link in links for number in link})
        assert {table.distance(node) for node in seen} == {0, 1}


def test_a_cluster_that_starts_in_two_parts_is_one_when_they_meet() -> None:
    # C39: 3 + 2.
    world = World(5, 1)
    parts = ((0, 1, 2), (3, 4))
    for part in parts:
        for one, other in combinations(part, 2):
            world.join(one, other)
        for number in part:
            world.change(number, 1)
    for _ in range(3):
        world.exchange()
    assert [len(world.tables[number].places("orders")["q0"]) for number in range(5)] == [3, 3, 3, 2, 2]
    for one in parts[0]:
        for other in parts[1]:
            world.join(one, other)
    world.exchange()
    assert [len(world.tables[number].places("orders")["q0"]) for number in range(5)] == [5] * 5


def test_a_node_that_was_forgotten_does_not_come_back_by_others() -> None:
    world = World(3, 1)
    for one, other in combinations(range(3), 2):
        world.join(one, other)
    world.exchange()
    world.cut(2, 0)
    world.cut(2, 1)
    world.tables[0].forget(uuid(2))
    for _ in range(3):
        world.exchange()
    assert uuid(2) not in world.tables[0].records
    assert uuid(2) in world.tables[1].records


def test_what_a_node_without_a_way_knows_of_a_node_is_not_taken_for_one() -> None:
    # Two nodes whose way to a third is down do not send each other in circles.
    world = World(3, 4)
    world.join(0, 1)
    world.join(1, 2)
    world.join(0, 2)
    for _ in range(3):
        world.exchange()
    world.restart(2)
    for _ in range(3):
        world.exchange()
    for number in (0, 1):
        assert not world.tables[number].reachable(uuid(2))
        said = KnownNode(uuid(2), world.tables[number].records[uuid(2)].version)
        assert said in world.tables[number].known().nodes
