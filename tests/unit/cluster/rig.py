"""Nodes and records for tests of the topology."""

from __future__ import annotations

from cluster.record import Announcement, NodeState, Place, Record, Version
from cluster.topology import Heard, Topology


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


A, B, C, D = (uuid(number) for number in range(1, 5))


def run_of(node: str, opening: int) -> str:
    return f"{opening:08x}{node[8:]}"


def record(
    node: str,
    *places: Place,
    opening: int = 1,
    counter: int = 1,
    run: str = "",
    state: NodeState = NodeState.UP,
    inherited: tuple[str, ...] = (),
) -> Record:
    return Record(
        node,
        f"store-{node[-2:]}",
        run or run_of(node, opening),
        Version(opening, counter),
        f"n{node[-2:]}",
        f"ws://n{node[-2:]}:61616",
        state,
        inherited=inherited,
        places=tuple(sorted(places)),
    )


def orders(readers: int = 0) -> Place:
    return Place("orders", "orders", readers, routing_type="ANYCAST")


def topology(node: str = A, *places: Place, max_hops: int = 8) -> Topology:
    return Topology(record(node, *places), max_hops)


def hear(table: Topology, said: Record, *path: str) -> Heard:
    """First-hand where there is no path."""
    return table.heard(Announcement(said, path), path[-1] if path else said.node)


def turns(table: Topology, address: str = "orders", queue: str = "orders") -> list[str]:
    return [located.node for located in table.places(address).get(queue, ())]
