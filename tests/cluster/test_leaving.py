"""Nodes that come, go, die and return, links that are cut or stopped: Artemis's cases by their ids."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.mesh import SETTLED_S, Mesh, mesh
from tests.cluster.rig import (
    Cluster,
    await_waiting,
    delete_queue,
    make_queue,
    numbers,
    read,
    send,
    waiting,
)
from tests.cluster.traffic import Books, Reader, left
from tests.harness.eventually import LOOK_AGAIN_S, eventually, until

pytestmark = pytest.mark.processes

STRICT: Final = 'message-load-balancing = "STRICT"'


def trio(directory: Path, **how: Any) -> Cluster:
    """Three nodes that share a queue of turns."""
    cluster = Cluster(directory, 3, **{"connection": STRICT, **how}).start()
    cluster.await_members()
    return cluster


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Three nodes, for tests that leave all of them running."""
    return trio(tmp_path_factory.mktemp("shared"))


def operate(cluster: Cluster, node: int, verb: str, peer: int) -> None:
    """Stop, start, pause or resume a node's bridge to another."""
    reply = cluster[node].ops.call("POST", f"/v1/bridges/$cluster.{cluster.uuid(peer)}/{verb}")
    assert reply.status == 200, reply.body


def backlog(cluster: Cluster, node: int, peer: str) -> int:
    """Messages that wait at a node for another, by its UUID."""
    return int(cluster[node].status(f"$cluster.{peer}")["lag"])


def await_backlog(cluster: Cluster, node: int, peer: str, count: int) -> None:
    eventually(lambda: backlog(cluster, node, peer) == count, f"{count} wait at n{node} for its peer")


def test_c35_a_target_that_never_comes(tmp_path: Path) -> None:
    """C35: a node whose first contact does not answer serves its clients, and stops cleanly."""
    cluster = Cluster(tmp_path, 2).start(0)
    make_queue(cluster[0], "news", "q")
    send(cluster[0], "news", numbers(5))
    cluster[0].event("contact-failed")
    assert cluster[0].stop() == 0
    cluster.start(0)
    assert read(cluster[0], "news", "q") == numbers(5)


def test_c36_a_node_that_stops_leaves_the_turns_and_comes_back_last(tmp_path: Path) -> None:
    """C36: out of the turns, then back; the others know exactly the places that there are."""
    cluster = trio(tmp_path)
    cluster.make_queues("news", "q", 0, 1, 2)
    cluster[1].stop()
    cluster.await_no_place(0, 1, "news", "q")
    cluster.await_no_place(2, 1, "news", "q")
    assert cluster.table(0)["n1"]["state"] == "LEFT"
    assert cluster[0].metrics()['core_bridge_cluster_nodes{state="left"}'] == 1
    assert cluster[0].metrics()["core_bridge_cluster_places"] == 1
    send(cluster[0], "news", numbers(12))
    await_waiting(cluster[2], "news", "q", 6)
    assert read(cluster[0], "news", "q") == numbers(12)[::2]
    assert read(cluster[2], "news", "q") == numbers(12)[1::2]
    cluster.start(1)
    cluster.await_place(0, 1, "news", "q")
    cluster.await_place(2, 1, "news", "q")
    send(cluster[0], "news", numbers(6))
    for turn, node in enumerate((1, 0, 2)):  # n2 had the last turn, and n1 comes after it now
        await_waiting(cluster[node], "news", "q", 2)
        assert read(cluster[node], "news", "q") == numbers(6)[turn::3]


def test_c38_a_node_that_dies_is_passed_over_and_keeps_its_turn(tmp_path: Path) -> None:
    """C38, C36: killed: its place is kept, skipped while others serve, and parked for where it is the only
    one; the backlog arrives when it returns.
    """
    cluster = trio(tmp_path)
    cluster.make_queues("news", "q", 0, 1, 2)
    cluster.make_queues("news", "only", 1)
    peer = cluster.uuid(1)
    cluster[1].kill()
    cluster.await_unreachable(0, 1)
    assert {one["queue"] for one in cluster.table(0)["n1"]["queues"]} == {"q", "only"}
    send(cluster[0], "news", numbers(12))
    await_waiting(cluster[2], "news", "q", 6)
    assert len(read(cluster[0], "news", "q")) == len(read(cluster[2], "news", "q")) == 6
    await_backlog(cluster, 0, peer, 12)
    cluster.start(1)
    cluster.await_place(0, 1, "news", "q")
    await_waiting(cluster[1], "news", "only", 12)
    assert read(cluster[1], "news", "only") == numbers(12)
    assert waiting(cluster[1], "news", "q") == 0
    send(cluster[0], "news", numbers(6))
    for node in range(3):
        await_waiting(cluster[node], "news", "q", 2)
    turns = [read(cluster[node], "news", "q") for node in range(3)]
    assert turns == [["0", "3"], ["1", "4"], ["2", "5"]], "n2 had the last turn, and n1 has its old place"


def test_c38_a_clean_stop_keeps_the_backlog(tmp_path: Path) -> None:
    """C38: the place is gone at once, and what was parked for it stays; both ends restart meanwhile."""
    cluster = trio(tmp_path)
    cluster.make_queues("news", "only", 1)
    peer = cluster.uuid(1)
    operate(cluster, 0, "pause", 1)
    send(cluster[0], "news", numbers(10))
    assert backlog(cluster, 0, peer) == 10
    cluster[1].stop()
    cluster.await_no_place(0, 1, "news", "only")
    send(cluster[0], "news", ["too late"])
    assert backlog(cluster, 0, peer) == 10, "a place that is gone gets nothing more"
    cluster[0].stop()
    cluster.start(0)
    cluster.start(1)
    bridge = f"$cluster.{peer}"
    eventually(
        lambda: cluster[0].ops.get("/ready").json["bridges"].get(bridge) == "PAUSED", "the pause outlives it"
    )
    operate(cluster, 0, "resume", 1)
    await_waiting(cluster[1], "news", "only", 10)
    assert read(cluster[1], "news", "only") == numbers(10)


def test_c39_two_halves_that_find_each_other_late(tmp_path: Path) -> None:
    """C39: 3 and 2 nodes that know only their own half, until one has a contact in the other: all see 5."""
    halves = {0: [1], 1: [2], 2: [0], 3: [4], 4: [3]}
    cluster = Cluster(tmp_path, 5, connection=STRICT, contacts=halves).start()
    cluster.await_members(0, 1, 2)
    cluster.await_members(3, 4)
    assert len(cluster.table(0)) == 3
    assert len(cluster.table(4)) == 2
    for index in range(5):
        make_queue(cluster[index], "news", "q")
    send(cluster[0], "news", ["before"])
    assert read(cluster[0], "news", "q") == ["before"]
    cluster.contacts = {**halves, 2: [0, 4]}
    cluster[2].stop()
    cluster.configure(2)
    cluster.start(2)
    cluster.await_members()
    for index in range(5):
        cluster.await_place(0, index, "news", "q")
    send(cluster[0], "news", numbers(10))
    found = []
    for node in cluster.nodes:
        await_waiting(node, "news", "q", 2)
        found += read(node, "news", "q")
    assert sorted(found) == numbers(10)


def test_c42_a_backlog_is_paused_by_itself(shared: Cluster) -> None:
    """C42: the bridge to one node is paused: what is here and what is for others goes on. Addresses cannot be
    paused here.
    """
    shared.make_queues("c42", "q", 0, 2)
    shared.make_queues("c42", "only", 1)
    peer = shared.uuid(1)
    operate(shared, 0, "pause", 1)
    try:
        send(shared[0], "c42", numbers(10))
        await_waiting(shared[2], "c42", "q", 5)
        assert len(read(shared[0], "c42", "q")) == 5
        assert backlog(shared, 0, peer) == 10
        assert waiting(shared[1], "c42", "only") == 0
    finally:
        operate(shared, 0, "resume", 1)
    await_waiting(shared[1], "c42", "only", 10)
    assert read(shared[1], "c42", "only") == numbers(10)
    await_backlog(shared, 0, peer, 0)


def test_c43_an_address_is_deleted_and_the_backlog_stays(shared: Cluster) -> None:
    """C43: its places here are gone, what waits for another node is not, and arrives."""
    shared.make_queues("c43", "here", 0)
    shared.make_queues("c43", "there", 1)
    shared.await_place(1, 0, "c43", "here")
    peer = shared.uuid(1)
    operate(shared, 0, "pause", 1)
    try:
        send(shared[0], "c43", numbers(5))
        reply = shared[0].ops.call("DELETE", "/v1/addresses/c43")
        assert reply.status == 204, reply.body
        shared.await_no_place(1, 0, "c43", "here")
        assert backlog(shared, 0, peer) == 5
    finally:
        operate(shared, 0, "resume", 1)
    await_waiting(shared[1], "c43", "there", 5)
    assert read(shared[1], "c43", "there") == numbers(5)


@pytest.mark.parametrize("again", range(3))
def test_c44_a_link_that_is_stopped_and_started_comes_back(shared: Cluster, again: int) -> None:
    """C44: no link within a second, the place is passed over; after the start all is as before, each time.

    The third node still reaches it, over more nodes than max-hops: what only it has waits all the same.
    """
    address = f"c44.{again}"
    shared.make_queues(address, "q", 0, 1)
    shared.make_queues(address, "only", 1)
    operate(shared, 0, "stop", 1)
    eventually(lambda: shared.table(0)["n1"]["hops"] == 2, "the link is down, and n2 tells of n1", 2.0)
    links = shared[1].ops.get("/v1/status").json["links"]
    assert {one["node"] for one in links} == {"n2"}, "no bridge, and no contacts either"
    send(shared[0], address, numbers(4))
    assert read(shared[0], address, "q") == numbers(4)
    operate(shared, 0, "start", 1)
    shared.await_place(0, 1, address, "q")
    eventually(lambda: shared.table(0)["n1"]["hops"] == 1, "the link is up")
    send(shared[0], address, numbers(4, 4))
    await_waiting(shared[1], address, "q", 2)
    assert len(read(shared[1], address, "q")) == len(read(shared[0], address, "q")) == 2
    await_waiting(shared[1], address, "only", 8)
    assert read(shared[1], address, "only") == numbers(8)


def test_c46_a_queue_that_is_gone_gets_a_dead_letter(shared: Cluster) -> None:
    """C46: deleted while copies wait for it, and nobody else has it: never silent."""
    shared.make_queues("c46.gone", "q", 1)
    operate(shared, 0, "pause", 1)
    try:
        send(shared[0], "c46.gone", numbers(3))
        delete_queue(shared[1], "c46.gone", "q")
    finally:
        operate(shared, 0, "resume", 1)

    def letters() -> list[dict[str, Any]]:
        found = shared[1].ops.get("/v1/dead-letters").json["dead-letters"]
        return [one for one in found if one["address"] == "c46.gone"]

    eventually(lambda: len(letters()) == 3, "three dead letters")
    found = letters()
    assert {one["reason"] for one in found} == {"QUEUE_GONE: there is no queue c46.gone::q any more"}
    assert {one["bridge"] for one in found} == {f"$cluster.{shared.uuid(1)}"}
    eventually(lambda: backlog(shared, 0, shared.uuid(1)) == 0, "nothing waits")


def test_c46_a_queue_that_is_gone_is_found_elsewhere(shared: Cluster) -> None:
    """C46: another node has a queue of the name: the copies go there, and are counted."""
    shared.make_queues("c46.moved", "q", 1)
    before = shared[1].metrics()["core_bridge_cluster_rerouted_total"]
    operate(shared, 0, "pause", 1)
    try:
        send(shared[0], "c46.moved", numbers(4))
        delete_queue(shared[1], "c46.moved", "q")
        make_queue(shared[2], "c46.moved", "q")
        shared.await_place(1, 2, "c46.moved", "q")
    finally:
        operate(shared, 0, "resume", 1)
    await_waiting(shared[2], "c46.moved", "q", 4)
    assert read(shared[2], "c46.moved", "q") == numbers(4)
    assert shared[1].metrics()["core_bridge_cluster_rerouted_total"] >= before + 1


@pytest.mark.parametrize("path", ["$sf.{}", "$sf.{}%2Fc40", "$sf.{}%2Fnews"])
def test_c40_clients_cannot_send_into_a_backlog(shared: Cluster, path: str) -> None:
    """C40: Artemis makes dead letters of them. Here the names are the node's own: each send is refused, the
    backlog stays empty, and what is meant for the other node goes on.
    """
    peer = shared.uuid(1)
    address = path.format(peer)
    refused = shared[0].api.call("POST", f"/v1/addresses/{address}/messages", b"stray")
    refused.is_problem(400, "INVALID_ADDRESS")
    whole = shared[0].api.commit(
        {"address": "c40", "body": "with it"}, {"address": address.replace("%2F", "/"), "body": "stray"}
    )
    assert whole.status == 400, whole.body
    assert backlog(shared, 0, peer) == 0
    shared.make_queues("c40", "only", 1)
    send(shared[0], "c40", ["meant"])
    await_waiting(shared[1], "c40", "only", 1)
    assert read(shared[1], "c40", "only") == ["meant"]


async def test_r13_a_link_is_cut_again_and_again_with_messages_in_flight(tmp_path: Path) -> None:
    """R13: 4 x 100 over two readers, a cut while receipts are out from the second time on: 400 in total,
    nothing waits, and there are the same nodes and one bridge as before.
    """
    rest = '[addresses.jobs]\nrouting-type = "ANYCAST"\n'
    async with (
        mesh(tmp_path, 13, 2, rest, keys={"message-load-balancing": '"STRICT"'}) as it,
        asyncio.timeout(SETTLED_S),
    ):

        async def nothing_left() -> bool:
            return not await left(it)

        it.spawn()
        await it.settled()
        await it.knows("jobs", "jobs")
        books, done = Books(), asyncio.Event()
        async with asyncio.TaskGroup() as readers:
            for index in range(2):
                reader = Reader(it, books, f"reader{index}", [("jobs", "jobs")], done, nodes=(index,))
                readers.create_task(reader.run())
            for start in range(0, 400, 100):
                await _send(it, books, numbers(100, start), cut=start > 0)
                await until(nothing_left, "nothing is left, with the link up again", SETTLED_S, LOOK_AGAIN_S)
                await it.settled()
            done.set()
        books.check(("jobs", "jobs"), books.sent["jobs"])
        await it.settled()
        for index in range(2):
            known = await it.surely(index, "GET", "/v1/cluster", operations=True)
            assert sorted(one["name"] for one in known["nodes"]) == ["n0", "n1"]
            status = await it.surely(index, "GET", "/v1/status", operations=True)
            assert len(status["bridges"]) == 1
        await it.stop()
        it.check_logs()


async def _send(it: Mesh, books: Books, bodies: list[str], *, cut: bool) -> None:
    """Send these to n0; its link to n1 is cut while receipts are still to come, or is left alone."""
    link = it.proxies[0, 1]
    if cut:
        link.swallow_answers_after(0)
    some = [{"address": "jobs", "body": body} for body in bodies]
    await it.surely(0, "POST", "/v1/transactions", json={"messages": some, "duplicate-id": bodies[0]})
    books.sent.setdefault("jobs", []).extend(bodies)
    if not cut:
        return

    async def in_flight() -> bool:
        status = await it.surely(0, "GET", "/v1/status", operations=True)
        return any(bridge["in-flight"] for bridge in status["bridges"])

    await until(in_flight, "messages are in flight", SETTLED_S, LOOK_AGAIN_S)
    link.cut()
    link.heal()
