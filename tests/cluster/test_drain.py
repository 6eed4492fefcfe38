"""Drains of real nodes: everything goes to the heir, once, also what others have parked for the leaver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.rig import Cluster, await_waiting, make_queue, numbers, read, send, waiting
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import Node

pytestmark = pytest.mark.processes

ANYCAST = '[addresses.jobs]\nrouting-type = "ANYCAST"\n'


def drain(node: Node, to: str, **how: Any) -> None:
    reply = node.ops.call("POST", "/v1/cluster/drain", to=to, **how)
    assert reply.status == 200, reply.body


def await_phase(node: Node, phase: str) -> dict[str, Any]:
    def reached() -> dict[str, Any] | None:
        found: dict[str, Any] = node.ops.get("/v1/cluster/drain").json
        return found if found["phase"] == phase else None

    return eventually(reached, f"{node.name} reaches {phase}")


def test_s1_s4_queues_and_messages_go_to_the_heir(tmp_path: Path) -> None:
    """S1, S4: three queues that the heir lacks, one of them read in part; all go along."""
    cluster = Cluster(tmp_path, 2, rest=ANYCAST).start()
    cluster.await_members()
    make_queue(cluster[0], "news", "q1")
    make_queue(cluster[0], "news", "q2")
    send(cluster[0], "news", ["a", "b"])
    assert read(cluster[0], "news", "q2", most=1) == ["a"]
    send(cluster[0], "jobs", numbers(10))
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    assert read(cluster[1], "news", "q1") == ["a", "b"]
    assert read(cluster[1], "news", "q2") == ["b"]
    assert read(cluster[1], "jobs", "jobs") == numbers(10)
    refused = cluster[0].api.call("POST", "/v1/addresses/jobs/messages", b"late")
    refused.is_problem(503, "STOPPING")
    assert refused.headers["location"] == f"http://127.0.0.1:{cluster[1].port}"


def test_the_command_drains_and_says_how_far_it_is(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, 2, rest=ANYCAST).start()
    cluster.await_members()
    send(cluster[0], "jobs", numbers(3))
    operations = ("--operations", f"http://127.0.0.1:{cluster[0].operations_port}")
    nobody = command("drain", "--to", "n7", *operations, cwd=tmp_path)
    assert (nobody.code, "n7" in nobody.err) == (1, True), nobody
    itself = command("drain", "--to", "n0", *operations, cwd=tmp_path)
    assert itself.code == 1, itself
    done = command("drain", "--to", "n1", *operations, cwd=tmp_path)
    assert (done.code, done.out) == (0, "drained: 3 messages moved to n1\n"), done
    assert read(cluster[1], "jobs", "jobs") == numbers(3)
    again = command("drain", "--to", "n1", *operations, cwd=tmp_path)
    assert again.code == 0, again


def test_s3_what_a_third_node_has_parked_for_the_leaver_reaches_the_heir(tmp_path: Path) -> None:
    """S3: 20 are parked for the leaver: none is lost, and nothing is left at the leaver."""
    cluster = Cluster(tmp_path, 3, rest=ANYCAST).start()
    cluster.await_members()
    make_queue(cluster[0], "news", "sub")
    cluster.await_place(2, 0, "news", "sub")
    cluster[0].kill()
    cluster.await_unreachable(2, 0)
    send(cluster[2], "news", numbers(20))  # only n0 has the queue: they wait for it
    cluster[2].pause()
    cluster.start(0)
    eventually(lambda: cluster.table(1)["n0"]["reachable"], "n1 reaches n0")
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    cluster[2].resume()
    await_waiting(cluster[1], "news", "sub", 20)
    assert read(cluster[1], "news", "sub") == numbers(20)
    assert waiting(cluster[0], "news", "sub") == 0


def test_s3_a_third_node_that_has_delivered_before_goes_on_at_the_heir(tmp_path: Path) -> None:
    """S3: also what is parked in streams that have delivered to the leaver before."""
    cluster = Cluster(tmp_path, 3, rest=ANYCAST).start()
    cluster.await_members()
    make_queue(cluster[0], "news", "sub")
    cluster.await_place(2, 0, "news", "sub")
    cluster.await_place(1, 0, "news", "sub")
    send(cluster[2], "news", numbers(5))
    send(cluster[1], "news", ["heir's own"])
    await_waiting(cluster[0], "news", "sub", 6)
    cluster[0].kill()
    cluster.await_unreachable(1, 0)
    cluster.await_unreachable(2, 0)
    send(cluster[2], "news", numbers(5, 5))  # they wait for it, in forward logs that have been used before
    send(cluster[1], "news", ["heir's second"])
    cluster[2].pause()
    cluster.start(0)
    eventually(lambda: cluster.table(1)["n0"]["reachable"], "n1 reaches n0")
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    cluster[0].stop()
    cluster[2].resume()
    await_waiting(cluster[1], "news", "sub", 12)
    found = read(cluster[1], "news", "sub")
    assert [body for body in found if body.isdigit()] == numbers(10)
    assert sorted(body for body in found if not body.isdigit()) == ["heir's own", "heir's second"]


def test_s11_ids_go_along(tmp_path: Path) -> None:
    """S11: an ID of a message that was consumed is known at the heir."""
    cluster = Cluster(tmp_path, 2, rest=ANYCAST).start()
    cluster.await_members()
    send(cluster[0], "jobs", ["one"], **{"Duplicate-Id": "known"})
    assert read(cluster[0], "jobs", "jobs") == ["one"]
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")
    again = cluster[1].api.call("POST", "/v1/addresses/jobs/messages", b"one", {"Duplicate-Id": "known"})
    assert again.json == {"verdict": "duplicate"}


def test_what_waits_at_addresses_without_a_queue_goes_along(tmp_path: Path) -> None:
    """Also at those that the cluster does not share: the heir keeps it for queues that come later."""
    cluster = Cluster(tmp_path, 2, connection='address = "jobs"', rest=ANYCAST).start()
    cluster.await_members()
    send(cluster[0], "kept", numbers(7))
    drain(cluster[0], "n1")
    assert await_phase(cluster[0], "DONE")["moved"] == 7
    found = cluster[1].api.get("/v1/addresses/kept/messages").json["messages"]
    assert [message["body"] for message in found] == numbers(7)
    make_queue(cluster[1], "kept", "late")
    assert read(cluster[1], "kept", "late") == numbers(7)


def test_a_leaver_that_still_runs_gets_no_bridge_again(tmp_path: Path) -> None:
    """Contacts find it at its address: what waits for it goes to its heir all the same."""
    cluster = Cluster(tmp_path, 3, rest=ANYCAST).start()
    cluster.await_members()
    bridge = f"$cluster.{cluster.uuid(0)}"
    drain(cluster[0], "n1")
    await_phase(cluster[0], "DONE")

    def bridges() -> list[str]:
        return [one["name"] for one in cluster[2].ops.get("/v1/status").json["bridges"]]

    eventually(lambda: bridge not in bridges(), "n2's bridge to the leaver has ended")
    begun = len(cluster[2].events("bridge-started", bridge=bridge))
    for number in range(10):  # each takes longer than contacts wait
        cluster.make_queues(f"news.{number}", "q", 1, seen_by=2)
    assert len(cluster[2].events("bridge-started", bridge=bridge)) == begun
