"""Where messages go for which several nodes have queues: real nodes, Artemis's cases by their ids.

Three nodes serve most cases: a cluster connection for each `message-load-balancing`, which shares the
addresses that begin with its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.cluster.rig import (
    Cluster,
    await_waiting,
    delete_queue,
    make_queue,
    numbers,
    read,
    reading,
    send,
    sent,
    waiting,
)
from tests.harness.eventually import eventually

pytestmark = pytest.mark.processes

#: Case C14's prefixes, and one with a character that was a wildcard for Artemis.
PREFIXES: Final = "jms.eu,!jms.eu.uk,jms.us,!jms.us.bos,a_b"
CONNECTIONS: Final = {
    "strict": 'address = "strict."\nmessage-load-balancing = "STRICT"',
    "demand": 'address = "demand."\nmessage-load-balancing = "ON_DEMAND"',
    "off": 'address = "off."\nmessage-load-balancing = "OFF"',
    "prefixes": f'address = "{PREFIXES}"\nmessage-load-balancing = "STRICT"',
}
#: ANYCAST addresses, and the nodes that have them from the start.
ANYCAST: Final = {
    "strict.c1": (0, 1),
    "demand.c10": (0, 1, 2),
    "demand.c11": (1,),
    "off.c12": (0, 1),
    "off.c12.there": (1,),
    "demand.c13": (1, 2),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    own = {
        node: "".join(
            f'[addresses."{address}"]\nrouting-type = "ANYCAST"\n'
            for address, nodes in ANYCAST.items()
            if node in nodes
        )
        for node in range(3)
    }
    cluster = Cluster(tmp_path_factory.mktemp("shared"), 3, connections=CONNECTIONS, own=own).start()
    cluster.await_members()
    return cluster


def test_c1_one_queue_on_two_nodes_takes_turns(shared: Cluster) -> None:
    """C1, O7: 5 and 5 alternately; the link carries 5, one way; the turn goes on with later sends."""
    first, second, _ = shared.nodes
    there, back = shared.uuid(1), shared.uuid(0)
    shared.await_place(0, 1, "strict.c1", "strict.c1")
    shared.await_place(1, 0, "strict.c1", "strict.c1")
    before = sent(first, there), sent(second, back), first.metrics()["core_bridge_cluster_routed_total"]
    send(first, "strict.c1", numbers(10))
    await_waiting(first, "strict.c1", "strict.c1", 5)
    await_waiting(second, "strict.c1", "strict.c1", 5)
    eventually(lambda: sent(first, there) == (before[0][0] + 5, before[0][1] + 5), "5 are acknowledged")
    assert sent(second, back) == before[1]
    assert first.metrics()["core_bridge_cluster_routed_total"] == before[2] + 5
    metric = f'core_bridge_messages_acknowledged_total{{bridge="$cluster.{there}"}}'
    assert first.metrics()[metric] == before[0][1] + 5
    assert read(first, "strict.c1", "strict.c1") == ["0", "2", "4", "6", "8"]
    assert read(second, "strict.c1", "strict.c1") == ["1", "3", "5", "7", "9"]
    send(first, "strict.c1", ["a"])
    send(first, "strict.c1", ["b"])
    await_waiting(second, "strict.c1", "strict.c1", 1)
    send(second, "strict.c1", ["c", "d"])
    await_waiting(first, "strict.c1", "strict.c1", 2)
    assert read(first, "strict.c1", "strict.c1") == ["a", "d"]
    assert read(second, "strict.c1", "strict.c1") == ["b", "c"], "each entry node has turns of its own"


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_c2_turns_follow_the_order_in_which_places_became_known(
    shared: Cluster, order: tuple[int, ...]
) -> None:
    """C2: the place that was known first is first, and the order is kept strictly."""
    address = f"strict.c2.{''.join(map(str, order))}"
    shared.make_queues(address, "q", *order)
    send(shared[0], address, numbers(7))
    for turn, node in enumerate(order):
        await_waiting(shared[node], address, "q", 3 if turn == 0 else 2)
        assert read(shared[node], address, "q") == numbers(7)[turn::3]


def test_c3_each_of_several_names_takes_turns_by_itself(shared: Cluster) -> None:
    """C3: three names on two nodes: 5 and 5 of each; a message has one copy on the link for all three."""
    names, there = ["q1", "q2", "q3"], shared.uuid(1)
    for name in names:
        shared.make_queues("strict.c3", name, 0, 1)
    before = sent(shared[0], there)
    send(shared[0], "strict.c3", numbers(10))
    for name in names:
        await_waiting(shared[1], "strict.c3", name, 5)
        assert read(shared[0], "strict.c3", name) == numbers(10)[::2]
        assert read(shared[1], "strict.c3", name) == numbers(10)[1::2]
    eventually(lambda: sent(shared[0], there) == (before[0] + 5, before[1] + 5), "5 copies crossed")


def test_c4_queues_of_other_names_get_each_message(shared: Cluster) -> None:
    """C4: five names here, five others there: all ten get all, and the link carries each message once."""
    here, away = [f"h{number}" for number in range(5)], [f"t{number}" for number in range(5)]
    for mine, other in zip(here, away, strict=True):
        make_queue(shared[0], "demand.c4", mine)
        make_queue(shared[1], "demand.c4", other)
    for other in away:
        shared.await_place(0, 1, "demand.c4", other)
    before = sent(shared[0], shared.uuid(1))
    send(shared[0], "demand.c4", numbers(10))
    for node, names in ((shared[0], here), (shared[1], away)):
        for name in names:
            await_waiting(node, "demand.c4", name, 10)
            assert read(node, "demand.c4", name) == numbers(10)
    eventually(
        lambda: sent(shared[0], shared.uuid(1)) == (before[0] + 10, before[1] + 10), "10 copies crossed"
    )


def test_c5_names_of_one_node_and_shared_names_on_one_address(shared: Cluster) -> None:
    """C5: what only one node has gets everything, a shared name takes turns."""
    shared.make_queues("strict.c5", "here", 0)
    shared.make_queues("strict.c5", "there", 1)
    shared.make_queues("strict.c5", "both", 1, 0)
    send(shared[0], "strict.c5", numbers(10))
    for node, queue, expected in (
        (0, "here", numbers(10)),
        (1, "there", numbers(10)),
        (1, "both", numbers(10)[::2]),
        (0, "both", numbers(10)[1::2]),
    ):
        await_waiting(shared[node], "strict.c5", queue, len(expected))
        assert read(shared[node], "strict.c5", queue) == expected


def test_c6_the_other_holder_gets_all_once_one_is_gone(shared: Cluster) -> None:
    """C6: one holder of each shared name is deleted, here or there."""
    for queue, gone, kept in (("q1", 1, 0), ("q2", 0, 1)):
        shared.make_queues("strict.c6", queue, 0, 1)
        delete_queue(shared[gone], "strict.c6", queue)
        shared.await_no_place(0, gone, "strict.c6", queue)
        shared.await_place(0, kept, "strict.c6", queue)
    send(shared[0], "strict.c6", numbers(10))
    await_waiting(shared[1], "strict.c6", "q2", 10)
    assert read(shared[1], "strict.c6", "q2") == numbers(10)
    assert read(shared[0], "strict.c6", "q1") == numbers(10)
    assert waiting(shared[0], "strict.c6", "q2") == waiting(shared[1], "strict.c6", "q1") == 0


def test_c7_only_what_the_filter_there_takes_crosses(shared: Cluster) -> None:
    """C7: a filter of a queue of another node, and its change while messages flow."""
    there = shared.uuid(1)
    shared.make_queues("demand.c7", "q", 1, filter="kind = 'x'")
    before = sent(shared[0], there)

    def send_both(count: int, start: int) -> None:
        for number in range(start, start + count):
            kind = "x" if number % 2 == 0 else "y"
            send(shared[0], "demand.c7", [f"{kind}{number}"], **{"Message-Header-Kind": kind})

    send_both(10, 0)
    await_waiting(shared[1], "demand.c7", "q", 5)
    assert read(shared[1], "demand.c7", "q") == ["x0", "x2", "x4", "x6", "x8"]
    eventually(lambda: sent(shared[0], there) == (before[0] + 5, before[1] + 5), "5 crossed")
    make_queue(shared[1], "demand.c7", "q", filter="kind = 'y'")
    shared.await_filter(0, 1, "demand.c7", "q", "kind = 'y'")
    send_both(10, 10)
    await_waiting(shared[1], "demand.c7", "q", 5)
    assert read(shared[1], "demand.c7", "q") == ["y11", "y13", "y15", "y17", "y19"]
    assert sent(shared[0], there)[0] == before[0] + 10


def test_c7_a_shared_name_with_two_filters_gives_each_message_to_the_one_that_takes_it(
    shared: Cluster,
) -> None:
    """C7: one filter here, another there; what neither takes is counted. ANYCAST queues have no filter."""
    for node, kind in ((0, "x"), (1, "y")):
        shared.make_queues("strict.c7", "q", node, filter=f"kind = '{kind}'")
    for kind in "xyzxyz":
        send(shared[0], "strict.c7", [kind], **{"Message-Header-Kind": kind})
    await_waiting(shared[1], "strict.c7", "q", 2)
    assert read(shared[0], "strict.c7", "q") == ["x", "x"]
    assert read(shared[1], "strict.c7", "q") == ["y", "y"]
    assert shared[0].api.get("/v1/addresses/strict.c7").json["unrouted"] == 2
    reply = shared[1].api.call("PUT", "/v1/addresses/strict.c1/queues/strict.c1", filter="kind = 'x'")
    assert reply.is_problem(409, "CONFLICT")["key"] == "filter"


def test_c8_a_shared_name_goes_only_where_a_reader_takes_the_message(shared: Cluster) -> None:
    """C8, by filters of queues: readers have no filter of their own here."""
    shared.make_queues("demand.c8", "q", 0)
    shared.make_queues("demand.c8", "q", 1, filter="kind = 'x'")
    shared.make_queues("demand.c8", "q", 2, filter="kind = 'y'")
    with reading(shared[1], "demand.c8", "q") as of_x, reading(shared[2], "demand.c8", "q") as of_y:
        for node in (1, 2):
            shared.await_place(0, node, "demand.c8", "q", readers=1)
        for number, kind in enumerate("xyzxyz"):
            send(shared[0], "demand.c8", [f"{kind}{number}"], **{"Message-Header-Kind": kind})
        assert of_x.await_found(2) == ["x0", "x3"]
        assert of_y.await_found(2) == ["y1", "y4"]
    assert read(shared[0], "demand.c8", "q") == ["z2", "z5"], "what no reader takes stays"


def test_c9_five_nodes_take_turns_without_readers(tmp_path: Path) -> None:
    """C9: STRICT asks for no reader: 2 each of 10."""
    rest = '[addresses.jobs]\nrouting-type = "ANYCAST"\n'
    cluster = Cluster(tmp_path, 5, connection='message-load-balancing = "STRICT"', rest=rest).start()
    cluster.await_members()
    for index in range(5):
        cluster.await_place(0, index, "jobs", "jobs")
    send(cluster[0], "jobs", numbers(10))
    found = []
    for node in cluster.nodes:
        await_waiting(node, "jobs", "jobs", 2)
        found += read(node, "jobs", "jobs")
    assert sorted(found) == numbers(10)


def test_c9_readers_do_not_matter_to_strict(shared: Cluster) -> None:
    """C9: a reader at one node alone: 4, 4 and 4 of 12 all the same."""
    shared.make_queues("strict.c9", "q", 0, 1, 2)
    with reading(shared[1], "strict.c9", "q") as reader:
        shared.await_place(0, 1, "strict.c9", "q", readers=1)
        send(shared[0], "strict.c9", numbers(12))
        reader.await_found(4)
        await_waiting(shared[0], "strict.c9", "q", 4)
        await_waiting(shared[2], "strict.c9", "q", 4)
    assert len(reader.found) == 4


def test_c10_without_readers_elsewhere_messages_stay(shared: Cluster) -> None:
    """C10: no reader, or one here alone; a reader that comes elsewhere later gets none of them."""
    for node in (1, 2):
        shared.await_place(0, node, "demand.c10", "demand.c10", readers=0)
    send(shared[0], "demand.c10", numbers(10))
    assert waiting(shared[0], "demand.c10", "demand.c10") == 10
    with reading(shared[0], "demand.c10", "demand.c10") as here:
        here.await_found(10)
        send(shared[0], "demand.c10", numbers(10, 10))
        assert here.await_found(20) == numbers(20)
    shared.await_place(1, 0, "demand.c10", "demand.c10", readers=0)
    send(shared[1], "demand.c10", numbers(10, 20))
    with reading(shared[2], "demand.c10", "demand.c10") as late:
        shared.await_place(1, 2, "demand.c10", "demand.c10", readers=1)
        send(shared[1], "demand.c10", ["last"])
        assert late.await_found(1) == ["last"], "what came after the reader, and nothing before"
    assert late.found == ["last"]
    assert read(shared[1], "demand.c10", "demand.c10") == numbers(10, 20)


def test_c11_a_queue_of_another_node_alone_gets_all_without_a_reader(shared: Cluster) -> None:
    """C11: MULTICAST and ANYCAST, to a node that has no such queue: it makes none."""
    shared.make_queues("demand.c11.news", "q", 1)
    shared.await_place(0, 1, "demand.c11", "demand.c11", readers=0)
    for address, queue in (("demand.c11.news", "q"), ("demand.c11", "demand.c11")):
        send(shared[0], address, numbers(10))
        await_waiting(shared[1], address, queue, 10)
        assert read(shared[1], address, queue) == numbers(10)
        assert queues(shared, 0, address) == []


def queues(cluster: Cluster, node: int, address: str) -> list[str]:
    """Names of the queues that an address has at a node."""
    reply = cluster[node].api.get(f"/v1/addresses/{address}")
    return [] if reply.status == 404 else [one["name"] for one in reply.json["queues"]]


def test_c12_off_keeps_messages_where_the_queue_is(shared: Cluster) -> None:
    """C12: a work queue's stay, also where only another node has it; so do those of a name that is here."""
    shared.await_place(0, 1, "off.c12", "off.c12")
    shared.await_place(0, 1, "off.c12.there", "off.c12.there")
    shared.make_queues("off.c12.news", "both", 0, 1)
    shared.make_queues("off.c12.news", "there", 1)
    with reading(shared[1], "off.c12", "off.c12") as away:
        shared.await_place(0, 1, "off.c12", "off.c12", readers=1)
        for address in ("off.c12", "off.c12.there", "off.c12.news"):
            send(shared[0], address, numbers(10))
        await_waiting(shared[1], "off.c12.news", "there", 10)
    assert away.found == []
    assert read(shared[0], "off.c12", "off.c12") == numbers(10)
    assert read(shared[0], "off.c12.there", "off.c12.there") == numbers(10)
    assert read(shared[0], "off.c12.news", "both") == numbers(10)
    assert read(shared[1], "off.c12.news", "there") == numbers(10), "a subscription of another node alone"
    assert waiting(shared[1], "off.c12.news", "both") == 0


def test_c13_a_node_without_the_queue_passes_messages_on(shared: Cluster) -> None:
    """C13: single names get all, a shared one takes turns over the others, and no queue is made here."""
    shared.make_queues("demand.c13.news", "one", 1)
    shared.make_queues("demand.c13.news", "two", 2)
    shared.make_queues("demand.c13.news", "both", 1, 2)
    for node in (1, 2):
        shared.await_place(0, node, "demand.c13", "demand.c13")
    for address in ("demand.c13.news", "demand.c13"):
        send(shared[0], address, numbers(10))
    for node, single in ((1, "one"), (2, "two")):
        await_waiting(shared[node], "demand.c13.news", single, 10)
        assert read(shared[node], "demand.c13.news", single) == numbers(10)
        await_waiting(shared[node], "demand.c13.news", "both", 5)
        assert read(shared[node], "demand.c13.news", "both") == numbers(10)[node - 1 :: 2]
        await_waiting(shared[node], "demand.c13", "demand.c13", 5)
    both = [read(shared[node], "demand.c13", "demand.c13") for node in (1, 2)]
    assert sorted(both) == [numbers(10)[::2], numbers(10)[1::2]]
    assert queues(shared, 0, "demand.c13.news") == queues(shared, 0, "demand.c13") == []


def test_c13_with_one_reader_all_go_to_it(shared: Cluster) -> None:
    """C13: ON_DEMAND, a reader at one of the two other nodes."""
    shared.make_queues("demand.c13.read", "q", 1, 2)
    with reading(shared[2], "demand.c13.read", "q") as reader:
        shared.await_place(0, 2, "demand.c13.read", "q", readers=1)
        send(shared[0], "demand.c13.read", numbers(10))
        assert reader.await_found(10) == numbers(10)
    assert waiting(shared[1], "demand.c13.read", "q") == 0


@pytest.mark.parametrize(
    ("address", "crosses"),
    [
        ("jms.eu", True),
        ("jms.eu.de", True),
        ("jms.usa", True),
        ("a_b.c", True),
        ("jms.eu.uk", False),
        ("jms.eu.ukraine", False),
        ("jms.us.bos", False),
        ("jms", False),
        ("axb", False),
        ("other", False),
    ],
)
def test_c14_prefixes_choose_the_addresses_and_exclusions_win(
    shared: Cluster, address: str, crosses: bool
) -> None:
    """C14, C15: plain prefixes, of which '_' is no wildcard; what no connection shares stays."""
    make_queue(shared[1], address, "q")
    shared.make_queues("strict.c14", f"after-{address}", 1)
    send(shared[0], address, numbers(3))
    if crosses:
        await_waiting(shared[1], address, "q", 3)
    else:
        assert shared[0].api.get(f"/v1/addresses/{address}").json["messages"] == 3
        known = shared.table(0)["n1"]["queues"]
        assert [one for one in known if one["address"] == address] == []
