"""Nodes of a cluster die exactly where it could hurt: each message arrives once, for each queue name.

The rows of the table "What fails" in `docs/cluster.md`, on real processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import signal
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.mesh import SETTLED_S, Mesh, mesh
from tests.cluster.rig import (
    Cluster,
    await_waiting,
    delete_queue,
    make_queue,
    numbers,
    read,
    reading,
    send,
    waiting,
)
from tests.cluster.traffic import Books, Reader, left
from tests.harness.eventually import LOOK_AGAIN_S, eventually, until

pytestmark = pytest.mark.processes

#: `make test` kills at each point, `make test-cluster-long` at further times of it, too.
LONG: Final = pytest.mark.cluster_long
REST: Final = '[addresses.jobs]\nrouting-type = "ANYCAST"\n[address-settings."#"]\nredistribution-delay = 0\n'
#: Small batches, so that each point is reached several times.
SMALL: Final = 'producer-window-size = "1KiB"\nconfirmation-window-size = "4KiB"\n'
#: Messages that cross, and what each has of a body beside its number.
COUNT: Final = 200
#: (address, queue) of n1 that n0 has not.
THERE: Final = (("news", "sub"), ("jobs", "jobs"))


def send_all(cluster: Cluster, index: int, count: int = COUNT) -> list[str]:
    """Send to both addresses, in transactions of 20."""
    bodies = [f"{number:04}" + "." * 60 for number in range(count)]
    for start in range(0, count, 20):
        for address, _ in THERE:
            reply = cluster[index].api.commit(
                *({"address": address, "body": body} for body in bodies[start : start + 20])
            )
            assert reply.status == 200, reply.body
    return bodies


def parked(directory: Path) -> tuple[Cluster, list[str]]:
    """Two nodes; n0 runs and has messages for queues of n1, which is down and has got none of them."""
    cluster = Cluster(directory, 2, own={1: REST}, connection=SMALL).start()
    cluster.await_members()
    for address, queue in THERE:
        make_queue(cluster[1], address, queue)
        cluster.await_place(0, 1, address, queue)
    cluster[1].kill()
    cluster.await_unreachable(0, 1)
    return cluster, send_all(cluster, 0)


def check_arrived(cluster: Cluster, bodies: list[str]) -> None:
    """All of them are at n1, once, in order; n0 has nothing left."""
    for address, queue in THERE:
        await_waiting(cluster[1], address, queue, len(bodies))
        assert read(cluster[1], address, queue) == bodies
    peer = cluster.uuid(1)
    eventually(lambda: cluster[0].status(f"$cluster.{peer}")["lag"] == 0, "nothing waits at n0")


@pytest.mark.parametrize("point", ["journal.before-commit", "journal.after-commit", "http.before-answer"])
def test_the_entry_node_dies_in_the_transaction_that_routes(tmp_path: Path, point: str) -> None:
    """Entry node, before COMMIT: nothing is stored, and the repeat is new. After: copies and ID are there,
    and the repeat is a duplicate. The commit in which it dies may be the cluster's own, right before or
    after the message's: the queue here shows whether the message is stored.
    """
    cluster = Cluster(tmp_path, 2, connection=SMALL).start()
    cluster.await_members()
    make_queue(cluster[0], "news", "here")
    make_queue(cluster[1], "news", "sub")
    cluster[0].stop()
    cluster[0].start(CORE_BRIDGE_CRASH_AT=f"{point}:40")
    cluster.await_place(0, 1, "news", "sub")
    cluster[1].kill()
    cluster.await_unreachable(0, 1)
    number = 0
    with contextlib.suppress(OSError, http.client.HTTPException):
        while number < 100:
            reply = cluster[0].api.send("news", str(number).encode(), Duplicate_Id=f"id-{number}")
            assert reply.json["verdict"] == "stored"
            number += 1
    assert cluster[0].wait() == -signal.SIGKILL
    assert 0 < number < 100
    cluster.start(0, 1)
    cluster.await_place(0, 1, "news", "sub")
    stored = waiting(cluster[0], "news", "here") == number + 1
    assert stored or point != "http.before-answer"
    again = cluster[0].api.send("news", str(number).encode(), Duplicate_Id=f"id-{number}")
    assert again.json["verdict"] == ("duplicate" if stored else "stored")
    await_waiting(cluster[1], "news", "sub", number + 1)
    assert read(cluster[1], "news", "sub") == numbers(number + 1)
    assert read(cluster[0], "news", "here") == numbers(number + 1)


def test_a_node_that_starts_alone_keeps_what_is_for_queues_of_the_others(tmp_path: Path) -> None:
    """C38 over a restart: the entry node knows the others' queues before it has heard of them again."""
    cluster = Cluster(tmp_path, 2, connection=SMALL).start()
    cluster.await_members()
    make_queue(cluster[0], "news", "here")
    make_queue(cluster[1], "news", "sub")
    make_queue(cluster[1], "gone", "sub")
    cluster.await_place(0, 1, "news", "sub")
    cluster.await_place(0, 1, "gone", "sub")
    delete_queue(cluster[1], "gone", "sub")
    cluster.await_no_place(0, 1, "gone", "sub")
    for node in (cluster[1], cluster[0]):
        node.kill()
    for restart in range(3):
        cluster.start(0)
        send(cluster[0], "news", numbers(10, 10 * restart))
        send(cluster[0], "gone", ["x"])
        cluster[0].kill()
    cluster.start()
    await_waiting(cluster[1], "news", "sub", 30)
    assert read(cluster[1], "news", "sub") == numbers(30)
    assert read(cluster[0], "news", "here") == numbers(30)
    assert cluster[1].ops.get("/v1/dead-letters").json["dead-letters"] == []


@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("source.before-settle", 4),
        ("source.after-settle", 1),
        ("link.before-batch", 1),
        ("link.after-batch", 4),
        ("link.before-open", 1),
        pytest.param("source.before-settle", 1, marks=LONG),
        pytest.param("source.after-settle", 4, marks=LONG),
        pytest.param("link.before-batch", 4, marks=LONG),
        pytest.param("link.after-batch", 1, marks=LONG),
    ],
)
def test_the_sender_dies_around_a_batch_and_its_receipt(tmp_path: Path, point: str, times: int) -> None:
    """Sender: what the target covers is settled by its word, the rest goes again under the same positions."""
    cluster, bodies = parked(tmp_path)
    cluster[0].kill()
    cluster.start(1)
    cluster[0].crash(point, times)
    cluster.start(0)
    check_arrived(cluster, bodies)


@pytest.mark.parametrize(
    ("point", "times"),
    [
        pytest.param(point, times, marks=() if times in short else LONG)
        for point, short in {
            "journal.before-commit": (3,),
            "journal.after-commit": (3, 5),
            "link.before-receipt": (1, 5),
            "link.after-receipt": (3,),
        }.items()
        for times in (1, 3, 5)
    ],
)
def test_the_receiver_dies_around_its_commit(tmp_path: Path, point: str, times: int) -> None:
    """Receiver, before COMMIT: next unmoved, no copy, sent again. After: both there, DUPLICATE."""
    cluster, bodies = parked(tmp_path)
    cluster[1].crash(point, times)
    cluster.start(1)
    check_arrived(cluster, bodies)


@pytest.mark.parametrize(
    "point", ["journal.before-commit:4", "journal.after-commit:4", "link.before-receipt:1"]
)
def test_the_receiver_dies_with_a_queue_that_is_gone(tmp_path: Path, point: str) -> None:
    """Place: the dead letter of a copy whose queue is gone is stored once, in the transaction of next."""
    cluster, bodies = parked(tmp_path)
    cluster[0].pause()
    cluster.start(1)
    delete_queue(cluster[1], "news", "sub")
    cluster[1].kill()
    cluster[0].resume()
    name, _, times = point.partition(":")
    cluster[1].crash(name, int(times))
    cluster.start(1)
    await_waiting(cluster[1], "jobs", "jobs", len(bodies))
    assert read(cluster[1], "jobs", "jobs") == bodies

    def letters() -> list[str]:
        found = cluster[1].ops.get("/v1/dead-letters?max=1000").json["dead-letters"]
        return [one["address"] for one in found]

    eventually(lambda: len(letters()) >= len(bodies), "each has a dead letter")
    peer = cluster.uuid(1)
    eventually(lambda: cluster[0].status(f"$cluster.{peer}")["lag"] == 0, "nothing waits at n0")
    assert Counter(letters()) == {"news": len(bodies)}


@pytest.mark.parametrize(
    "point",
    [
        "cluster.before-move:1", "cluster.after-move:2", "journal.before-commit:4", "journal.after-commit:4",
        "source.before-settle:1", pytest.param("cluster.after-move:1", marks=LONG),
        pytest.param("journal.before-commit:6", marks=LONG),
    ],
)  # fmt: skip
def test_the_mover_dies_inside_a_move(tmp_path: Path, point: str) -> None:
    """Mover: a MoveCommand is whole or not at all; the copy is in the queue or in the forward log."""
    count = 2_500
    cluster = Cluster(tmp_path, 2, rest=REST).start(0)
    for start in range(0, count, 500):
        cluster[0].api.commit(*({"address": "jobs", "body": body} for body in numbers(500, start)))
    assert waiting(cluster[0], "jobs", "jobs") == count
    cluster[0].stop()
    cluster.start(1)
    make_queue(cluster[1], "jobs", "jobs")
    name, _, times = point.partition(":")
    with reading(cluster[1], "jobs", "jobs") as reader:
        cluster[0].crash(name, int(times))
        cluster.start(0)
        found = list(reader.await_found(count))
    assert Counter(found) == Counter(numbers(count))
    assert found == numbers(count), "one queue, one reader: in order, too"
    assert waiting(cluster[0], "jobs", "jobs") == 0


@pytest.mark.parametrize("killed", ["source", "target"])
async def test_c33_messages_are_redistributed_while_a_node_is_killed(tmp_path: Path, killed: str) -> None:
    """C33: 2,000 messages; Artemis doubled 122 in one round of 18 when the target was killed."""
    async with mesh(tmp_path, 33, 2, REST) as it, asyncio.timeout(SETTLED_S):
        await kill_while_it_moves(it, 0 if killed == "source" else 1, rounds=2, count=2_000)
        it.check_logs()


async def kill_while_it_moves(it: Mesh, victim: int, rounds: int, count: int) -> None:
    """Messages wait at n0 and are read at n1, while a node dies again and again."""
    books, done = Books(), asyncio.Event()
    it.spawn()
    await it.settled()
    books.sent["jobs"] = numbers(count)
    for start in range(0, count, 500):
        some = [{"address": "jobs", "body": body} for body in numbers(500, start)]
        await it.surely(0, "POST", "/v1/transactions", json={"messages": some, "duplicate-id": str(start)})
    async with asyncio.TaskGroup() as group:
        keepers = [group.create_task(it.keep_alive(index)) for index in range(2)]
        reader = Reader(it, books, "reader", [("jobs", "jobs")], done, most=100, nodes=(1,))
        reading_ = group.create_task(reader.run())
        for number in range(rounds):
            await books.until_count(("jobs", "jobs"), count * (number + 1) // (rounds + 1), SETTLED_S)
            if it.nodes[victim].process is not None:
                it.nodes[victim].signal(signal.SIGKILL)
        await books.until_count(("jobs", "jobs"), count, SETTLED_S)
        done.set()
        await reading_

        async def nothing_left() -> bool:
            return not await left(it)

        await until(nothing_left, "nothing is left", SETTLED_S, LOOK_AGAIN_S)
        for keeper in keepers:
            keeper.cancel()
    books.check(("jobs", "jobs"), books.sent["jobs"])
    await it.stop()
