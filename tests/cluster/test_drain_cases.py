"""Drains, case by case: Artemis's scale-down by its ids, and what ours refuses."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster.rig import Cluster, await_waiting, make_queue, numbers, read, reading, send, waiting
from tests.cluster.test_drain import await_phase, drain
from tests.harness.eventually import eventually
from tests.harness.node import Node, made_nodes

pytestmark = pytest.mark.processes

ANYCAST: Final = '[addresses.jobs]\nrouting-type = "ANYCAST"\n'
STRICT: Final = 'message-load-balancing = "STRICT"\n'
MIB: Final = 1024 * 1024


def pair(directory: Path, count: int = 2, **how: Any) -> Cluster:
    """Nodes that know each other; n0 alone has the ANYCAST address at first."""
    cluster = Cluster(directory, count, **{"own": {0: ANYCAST}, **how}).start()
    cluster.await_members()
    return cluster


def letters(node: Node) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.ops.get("/v1/dead-letters?max=1000").json["dead-letters"]
    return found


def test_s2_what_is_parked_for_the_heir_itself_arrives_in_its_queues(tmp_path: Path) -> None:
    """S2: copies for two queues of the heir wait at the leaver when the drain begins: 50 and 50."""
    cluster = pair(tmp_path)
    cluster.make_queues("news", "q1", 1)
    cluster.make_queues("more", "q2", 1)
    peer = cluster.uuid(1)
    cluster[1].pause()
    send(cluster[0], "news", numbers(50))
    send(cluster[0], "more", numbers(50, 50))
    assert cluster[0].status(f"$cluster.{peer}")["lag"] == 100
    cluster[1].resume()
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    assert read(cluster[1], "news", "q1") == numbers(50)
    assert read(cluster[1], "more", "q2") == numbers(50, 50)


def test_s5_large_and_small_messages_keep_their_bytes_and_order(tmp_path: Path) -> None:
    """S5: large ones among small ones, also one that is larger than a move."""
    cluster = pair(tmp_path)
    sizes = [10, 200 * 1024, 3, 2 * MIB, 200 * 1024, 1] * 2
    bodies = [bytes([65 + index]) * size for index, size in enumerate(sizes)]
    for body in bodies:
        assert cluster[0].api.send("jobs", body).status == 200
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    found = [body.encode() for body in read(cluster[1], "jobs", "jobs")]
    digests = [[hashlib.sha256(body).hexdigest() for body in some] for some in (found, bodies)]
    assert digests[0] == digests[1]


def test_s6_a_long_backlog_arrives_in_order(tmp_path: Path) -> None:
    """S6: more than many moves; what was read before is not among it."""
    cluster = pair(tmp_path)
    for start in range(0, 12_000, 2_000):
        reply = cluster[0].api.commit(*({"address": "jobs", "body": body} for body in numbers(2_000, start)))
        assert reply.status == 200
    assert read(cluster[0], "jobs", "jobs", most=1_500) == numbers(1_500)
    drain(cluster[0], "n1")
    assert await_phase(cluster[0], "DONE")["moved"] == 10_500
    assert read(cluster[1], "jobs", "jobs", most=20_000) == numbers(10_500, 1_500)


def test_s7_queues_keep_their_filters_and_dead_letters_stay_dead_letters(tmp_path: Path) -> None:
    """S7: 25 and 25; a dead letter is one at the heir, and is sent again from there."""
    cluster = pair(tmp_path)
    make_queue(cluster[0], "news", "even", filter="kind = 'even'")
    make_queue(cluster[0], "news", "odd", filter="kind = 'odd'")
    kinds = [{"kind": "odd" if number % 2 else "even"} for number in range(50)]
    cluster[0].api.commit(
        *({"address": "news", "body": str(one), "headers": kind} for one, kind in enumerate(kinds))
    )
    make_queue(cluster[0], "picky", "picky-only", filter="kind = 'none'")
    # A copy from elsewhere whose queue is gone becomes a dead letter here.
    make_queue(cluster[0], "gone", "q")
    cluster.await_place(1, 0, "gone", "q")
    peer = cluster.uuid(0)
    reply = cluster[1].ops.call("POST", f"/v1/bridges/$cluster.{peer}/pause")
    assert reply.status == 200
    send(cluster[1], "gone", numbers(3))
    assert cluster[0].api.call("DELETE", "/v1/addresses/gone/queues/q").status == 204
    cluster[1].ops.call("POST", f"/v1/bridges/$cluster.{peer}/resume")
    eventually(lambda: len(letters(cluster[0])) == 3, "three dead letters at the leaver")
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    for kind, first in (("even", 0), ("odd", 1)):
        await_waiting(cluster[1], "news", kind, 25)
        assert read(cluster[1], "news", kind) == [str(number) for number in range(first, 50, 2)]
    send(cluster[1], "news", ["late"], **{"Message-Header-kind": "odd"})
    assert read(cluster[1], "news", "odd") == ["late"]
    assert waiting(cluster[1], "news", "even") == 0
    found = letters(cluster[1])
    assert [one["address"] for one in found] == ["gone"] * 3
    assert {one["reason"].partition(":")[0] for one in found} == {"QUEUE_GONE"}
    make_queue(cluster[1], "gone", "q")
    again = cluster[1].ops.call("POST", "/v1/dead-letters/replay", positions="all")
    assert len(again.json["replayed"]) == 3, again.body
    assert sorted(read(cluster[1], "gone", "q", wait_ms=500)) == numbers(3)


def test_s9_a_drained_backlog_is_drained_on(tmp_path: Path) -> None:
    """S9: 0 -> 1 -> 2: ten at each step, none left behind; IDs and what others have parked go both ways."""
    cluster = pair(tmp_path, 4)
    make_queue(cluster[0], "news", "sub")
    cluster.await_place(3, 0, "news", "sub")
    send(cluster[0], "jobs", numbers(10))
    send(cluster[0], "jobs", ["once"], **{"Duplicate-Id": "once"})
    cluster[0].kill()
    cluster.await_unreachable(3, 0)
    send(cluster[3], "news", numbers(5))  # they wait for n0
    cluster[3].pause()
    cluster.start(0)
    cluster.await_reachable(0, 1)
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    await_waiting(cluster[1], "jobs", "jobs", 11)
    assert waiting(cluster[0], "jobs", "jobs") == 0
    cluster[0].stop()
    drain(cluster[1], "n2")
    await_phase(cluster[1], "DONE")
    cluster[1].stop()
    assert read(cluster[2], "jobs", "jobs") == [*numbers(10), "once"]
    again = cluster[2].api.send("jobs", b"once", Duplicate_Id="once")
    assert again.json == {"verdict": "duplicate"}
    cluster[3].resume()
    await_waiting(cluster[2], "news", "sub", 5)
    assert read(cluster[2], "news", "sub") == numbers(5)


def test_s10_a_heir_that_is_down_and_a_peer_that_is_down(tmp_path: Path) -> None:
    """S10: the call says why, the drain says what it waits for, and nothing is dropped."""
    cluster = pair(tmp_path, 3)
    make_queue(cluster[2], "news", "far")
    cluster.await_place(0, 2, "news", "far")
    send(cluster[0], "jobs", numbers(10))
    cluster[1].kill()
    cluster[2].kill()
    cluster.await_unreachable(0, 1)
    cluster.await_unreachable(0, 2)
    send(cluster[0], "news", numbers(3))
    refused = cluster[0].ops.call("POST", "/v1/cluster/drain", to="n1")
    assert refused.status in (409, 503), refused.body
    assert cluster[0].ops.get("/v1/cluster/drain").json["phase"] is None
    send(cluster[0], "jobs", numbers(1, 10))  # nothing has changed for clients
    cluster.start(1)
    cluster.await_reachable(0, 1)
    drain(cluster[0], "n1")
    found = eventually(
        lambda: (said := cluster[0].ops.get("/v1/cluster/drain").json)["waits"] and said, "it says what for"
    )
    assert found["phase"] == "QUIESCE"
    assert "news" in found["waits"]
    assert waiting(cluster[0], "jobs", "jobs") == 11
    cancelled = cluster[0].ops.call("POST", "/v1/cluster/drain/cancel")
    assert cancelled.status == 200, cancelled.body
    send(cluster[0], "jobs", numbers(1, 11))
    drain(cluster[0], "n1")
    cluster.start(2)
    await_phase(cluster[0], "DONE")
    assert read(cluster[1], "jobs", "jobs") == numbers(12)
    await_waiting(cluster[2], "news", "far", 3)


def test_s12_a_message_comes_home_although_its_id_is_known_there(tmp_path: Path) -> None:
    """S12: sent to the heir with an ID, redistributed to the leaver, drained home: Artemis dropped it."""
    rest = f'{ANYCAST}[address-settings."#"]\nredistribution-delay = 0\n'
    cluster = pair(tmp_path, 2, own={1: ANYCAST}, rest=rest.replace(ANYCAST, ""))
    send(cluster[1], "jobs", ["mine"], **{"Duplicate-Id": "mine"})
    make_queue(cluster[0], "jobs", "jobs")
    lease = ""

    def leased_at_n0() -> bool:
        nonlocal lease
        found, messages = cluster[0].api.lease("jobs", "jobs", "wait=500")
        lease = found or ""
        return bool(messages)

    eventually(leased_at_n0, "it moves to n0, which has a reader")
    assert cluster[0].api.settle("release", "jobs", "jobs", lease=lease).status == 204
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    await_waiting(cluster[1], "jobs", "jobs", 1)
    assert read(cluster[1], "jobs", "jobs") == ["mine"]
    again = cluster[1].api.send("jobs", b"mine", Duplicate_Id="mine")
    assert again.json == {"verdict": "duplicate"}


def test_a_lease_holds_a_drain_up(tmp_path: Path) -> None:
    """What a reader keeps is not moved, and what it settles does not come again at the heir."""
    cluster = pair(tmp_path)
    send(cluster[0], "jobs", numbers(4))
    kept, _ = cluster[0].api.lease("jobs", "jobs", "max=2&lease=60000")
    drain(cluster[0], "n1", lease_timeout=60_000)
    found = eventually(
        lambda: (said := cluster[0].ops.get("/v1/cluster/drain").json)["phase"] == "FREEZE" and said["waits"],
        "it waits for the lease",
    )
    assert "jobs::jobs" in found
    assert cluster[0].api.settle("acknowledge", "jobs", "jobs", lease=kept).status == 204
    await_phase(cluster[0], "DONE")
    assert read(cluster[1], "jobs", "jobs") == numbers(2, 2)


def test_a_lease_is_broken_after_its_time_and_comes_again_at_the_heir(tmp_path: Path) -> None:
    """What is acknowledged then is refused: it is read at the heir, once."""
    cluster = pair(tmp_path)
    send(cluster[0], "jobs", numbers(4))
    kept, _ = cluster[0].api.lease("jobs", "jobs", "max=2&lease=600000")
    drain(cluster[0], "n1", lease_timeout=500)
    await_phase(cluster[0], "DONE")
    cluster[0].api.settle("acknowledge", "jobs", "jobs", lease=kept).is_problem(409, "STALE_LEASE")
    assert sorted(read(cluster[1], "jobs", "jobs")) == numbers(4)


def test_a_node_neither_drains_to_a_leaver_nor_leaves_while_it_inherits(tmp_path: Path) -> None:
    """Heirs stay: n1 -> n2 is refused while n0 -> n1 is under way, and n2 -> n0 as well."""
    cluster = pair(tmp_path, 3)
    make_queue(cluster[2], "news", "far")
    cluster.await_place(0, 2, "news", "far")
    cluster[2].pause()
    send(cluster[0], "news", ["holds the drain up"])
    drain(cluster[0], "n1")
    refused = cluster[1].ops.call("POST", "/v1/cluster/drain", to="n2")
    assert "n0" in refused.is_problem(409, "CONFLICT")["detail"]
    cluster[2].resume()
    await_phase(cluster[0], "DONE")
    refused = cluster[2].ops.call("POST", "/v1/cluster/drain", to="n0")
    refused.is_problem(409, "CONFLICT")
    drain(cluster[1], "n2")
    await_phase(cluster[1], "DONE")
    await_waiting(cluster[2], "news", "far", 1)


def test_a_bridge_of_another_node_hears_the_heir_and_goes_on_there(tmp_path: Path) -> None:
    """S3: a node outside the cluster has both as connectors: the heir answers for the leaver's store."""
    cluster = pair(tmp_path)
    with made_nodes(tmp_path) as make:
        edge = make("edge", "".join(f'[connectors.{one.name}]\nurl = "{one.url}"\n' for one in cluster.nodes))
        ways = 'static-connectors = ["n0"]', 'static-connectors = ["n0", "n1"]'
        connectors, bridge = edge.rest, (
            '[[bridges]]\nname = "outside"\nqueue-name = "orders"\nforwarding-address = "jobs"\n'
            "retry-interval = 100\nmax-retry-interval = 100\n"
        )  # fmt: skip
        edge.rest = f"{connectors}{bridge}{ways[0]}\n"
        edge.start()
        send(edge, "orders", numbers(5))
        await_waiting(cluster[0], "jobs", "jobs", 5)
        drain(cluster[0], "n1")
        await_phase(cluster[0], "DONE")
        send(edge, "orders", numbers(5, 5))
        heir = f"http://127.0.0.1:{cluster[1].port}"
        eventually(lambda: heir in str(edge.status("outside")["reason"]), "its status names the heir")
        assert edge.stop() == 0
        edge.rest = f"{connectors}{bridge}{ways[1]}\nreconnect-attempts-same-node = 0\n"
        edge.start()
        await_waiting(cluster[1], "jobs", "jobs", 10)
        assert read(cluster[1], "jobs", "jobs") == numbers(10)
        assert edge.status("outside")["connector"] == "n1"
        assert edge.events("failover-in-doubt") == []


def test_a_drained_node_that_is_started_again_stays_drained(tmp_path: Path) -> None:
    """It takes neither clients' messages nor its peers', and gives no page; its heir has everything."""
    cluster = pair(tmp_path)
    send(cluster[0], "jobs", numbers(5))
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    cluster[0].stop()
    cluster[0].start_without_waiting()
    await_phase(cluster[0], "DONE")
    cluster[0].api.await_status("/v1/addresses", 200)
    cluster[0].api.call("POST", "/v1/addresses/jobs/messages", b"late").is_problem(503, "STOPPING")
    read_there = cluster[0].api.get("/v1/addresses/jobs/queues/jobs/messages")
    read_there.is_problem(503, "STOPPING")
    refused = cluster[0].ops.call("POST", "/v1/cluster/drain/cancel")
    refused.is_problem(409, "CONFLICT")
    eventually(lambda: cluster.table(1)["n0"]["state"] == "DRAINED", "n1 sees it drained")
    with reading(cluster[1], "jobs", "jobs") as reader:
        assert reader.await_found(5) == numbers(5)
    send(cluster[1], "jobs", ["after"])
    assert read(cluster[1], "jobs", "jobs") == ["after"]
