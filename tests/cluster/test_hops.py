"""Messages that pass several nodes: chains and rings whose nodes have only the links of their settings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.cluster.rig import Cluster, await_waiting, make_queue, numbers, read, reading, send, sent
from tests.harness.eventually import eventually

pytestmark = pytest.mark.processes

DIRECT: Final = "allow-direct-connections-only = true"
LENGTH: Final = 5
LAST: Final = LENGTH - 1
#: Values of `max-hops`, each with a cluster connection of its own that shares the addresses of its name.
HOPS: Final = (4, 3, 1, 0)
CONNECTIONS: Final = {
    f"hops{hops}": f'{DIRECT}\naddress = "hops{hops}."\nmax-hops = {hops}\nmessage-load-balancing = "STRICT"'
    for hops in HOPS
}


def anycast(*addresses: str) -> str:
    return "".join(f'[addresses."{address}"]\nrouting-type = "ANYCAST"\n' for address in addresses)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A chain: each node has a link to the next one, the last has none."""
    ends = anycast("hops4.c17", "hops4.c20", "hops3.c18")
    cluster = Cluster(
        tmp_path_factory.mktemp("chain"),
        LENGTH,
        connections=CONNECTIONS,
        own={0: ends, LAST: ends},
        contacts={node: [node + 1] if node < LAST else [] for node in range(LENGTH)},
    ).start()
    await_far_end(cluster)
    return cluster


def await_far_end(cluster: Cluster) -> None:
    cluster.await_place(0, LAST, "hops4.c17", "hops4.c17")
    assert cluster.table(0)[f"n{LAST}"]["hops"] == LAST


def on_links(cluster: Cluster) -> list[tuple[int, int]]:
    """Messages sent and acknowledged on each link of the chain."""
    return [sent(cluster[node], cluster.uuid(node + 1)) for node in range(LAST)]


def links(cluster: Cluster) -> list[int]:
    """Bridges to other nodes, by node."""
    return [len(node.ops.get("/v1/status").json["bridges"]) for node in cluster.nodes]


def queues(cluster: Cluster, node: int, address: str) -> list[str]:
    reply = cluster[node].api.get(f"/v1/addresses/{address}")
    return [] if reply.status == 404 else [one["name"] for one in reply.json["queues"]]


def test_c17_messages_pass_a_chain_of_five_nodes(shared: Cluster) -> None:
    """C17: readers at both ends: 5 each; each of the four links carries 5; nothing is made between them."""
    before = on_links(shared)
    with reading(shared[0], "hops4.c17", "hops4.c17") as near:
        with reading(shared[LAST], "hops4.c17", "hops4.c17") as far:
            send(shared[0], "hops4.c17", numbers(10))
            assert far.await_found(5) == numbers(10)[1::2]
        assert near.await_found(5) == numbers(10)[::2]
    expected = [(some + 5, acknowledged + 5) for some, acknowledged in before]
    eventually(lambda: on_links(shared) == expected, "each link has carried 5")
    for node in range(1, LAST):
        assert queues(shared, node, "hops4.c17") == []


def test_c17_a_name_that_only_the_far_end_has_gets_all(shared: Cluster) -> None:
    """C17: MULTICAST: a queue in the middle and one at the end, each message once on each link."""
    before = on_links(shared)
    make_queue(shared[2], "hops4.news", "middle")
    make_queue(shared[LAST], "hops4.news", "far")
    for node, queue in ((2, "middle"), (LAST, "far")):
        shared.await_place(0, node, "hops4.news", queue)
    send(shared[0], "hops4.news", numbers(10))
    for node, queue in ((2, "middle"), (LAST, "far")):
        await_waiting(shared[node], "hops4.news", queue, 10)
        assert read(shared[node], "hops4.news", queue) == numbers(10)
    expected = [(some + 10, acknowledged + 10) for some, acknowledged in before]
    eventually(lambda: on_links(shared) == expected, "each link has carried 10")


def test_c18_a_place_beyond_max_hops_gets_nothing(shared: Cluster) -> None:
    """C18: max-hops 3 over four links: all 10 stay here."""
    before = on_links(shared)
    send(shared[0], "hops3.c18", numbers(10))
    assert read(shared[0], "hops3.c18", "hops3.c18") == numbers(10)
    assert on_links(shared) == before
    assert read(shared[LAST], "hops3.c18", "hops3.c18") == []


def test_c19_max_hops_1_reaches_neighbours_and_0_nothing(shared: Cluster) -> None:
    """C19: with 1 the neighbour alone takes part, with 0 nothing crosses."""
    for address in ("hops1.c19", "hops0.c19"):
        for node in (0, 1, 2):
            make_queue(shared[node], address, "q")
            shared.await_place(0, node, address, "q")
    send(shared[0], "hops1.c19", numbers(10))
    send(shared[0], "hops0.c19", numbers(10))
    await_waiting(shared[1], "hops1.c19", "q", 5)
    assert len(read(shared[0], "hops1.c19", "q")) == 5
    assert read(shared[0], "hops0.c19", "q") == numbers(10)
    for node, address in ((2, "hops1.c19"), (1, "hops0.c19"), (2, "hops0.c19")):
        assert read(shared[node], address, "q") == []


def test_c20_a_restart_in_the_middle_of_the_chain(shared: Cluster) -> None:
    """C20: the middle node is away for a while; what is sent meanwhile stays here, the next 10 go 5 and 5."""
    shared[2].stop()
    shared.await_unreachable(0, LAST)
    send(shared[0], "hops4.c20", numbers(4))
    assert read(shared[0], "hops4.c20", "hops4.c20") == numbers(4)
    shared[2].start()
    shared.await_place(0, LAST, "hops4.c20", "hops4.c20")
    send(shared[0], "hops4.c20", numbers(10))
    await_waiting(shared[LAST], "hops4.c20", "hops4.c20", 5)
    both = [*read(shared[0], "hops4.c20", "hops4.c20"), *read(shared[LAST], "hops4.c20", "hops4.c20")]
    assert sorted(both) == numbers(10)


def test_c21_direct_connections_only_are_those_of_the_settings(shared: Cluster) -> None:
    """C21: each node has the one link of its settings, though the first knows all the others."""
    assert len(shared.table(0)) == LENGTH
    assert links(shared) == [1] * LAST + [0]


def test_c21_otherwise_every_node_has_a_link_to_every_other(tmp_path: Path) -> None:
    """C21: the same contacts, of which the nodes learn the others."""
    cluster = Cluster(tmp_path, 3, contacts={0: [1], 1: [2], 2: []}).start()
    cluster.await_members()
    assert links(cluster) == [2, 2, 2]


def test_c22_a_ring_gives_each_message_once(tmp_path: Path) -> None:
    """C22: 0 to 1 to 2 to 0, two hops: 4, 4 and 4 of a work queue's 12; 10 copies for each name."""
    cluster = Cluster(
        tmp_path,
        3,
        connection=f'{DIRECT}\nmax-hops = 2\nmessage-load-balancing = "STRICT"',
        rest=anycast("jobs"),
        contacts={0: [1], 1: [2], 2: [0]},
    ).start()
    for node in range(3):
        cluster.await_place(0, node, "jobs", "jobs")
    send(cluster[0], "jobs", numbers(12))
    found = []
    for node in range(3):
        await_waiting(cluster[node], "jobs", "jobs", 4)
        found += read(cluster[node], "jobs", "jobs")
    assert sorted(found, key=int) == numbers(12)
    for node in range(3):
        make_queue(cluster[node], "news", f"of{node}")
        cluster.await_place(0, node, "news", f"of{node}")
    send(cluster[0], "news", numbers(10))
    for node in range(3):
        await_waiting(cluster[node], "news", f"of{node}", 10)
        assert read(cluster[node], "news", f"of{node}") == numbers(10)


def test_c22_more_nodes_than_max_hops_make_a_dead_letter(tmp_path: Path) -> None:
    """C22: the node between passes on less far than the entry node counts on: a dead letter, and counted."""
    cluster = Cluster(
        tmp_path,
        3,
        connection=f"{DIRECT}\nmax-hops = 2",
        connection_of={1: f"{DIRECT}\nmax-hops = 1"},
        contacts={0: [1], 1: [2], 2: []},
    ).start()
    make_queue(cluster[2], "news", "far")
    cluster.await_place(0, 2, "news", "far")
    send(cluster[0], "news", ["x"])
    found = eventually(
        lambda: cluster[1].ops.get("/v1/dead-letters").json["dead-letters"], "the message is a dead letter"
    )
    assert [one["address"] for one in found] == ["news"]
    assert found[0]["reason"].startswith("TOO_MANY_HOPS: news::far of ")
    assert cluster[1].metrics()["core_bridge_cluster_hops_exceeded_total"] == 1
