"""Redistribution between real nodes: Artemis's cases by their ids."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.rig import (
    Cluster,
    await_waiting,
    make_queue,
    numbers,
    read,
    reading,
    send,
    waiting,
)
from tests.harness.eventually import eventually
from tests.harness.node import Node

pytestmark = pytest.mark.processes

ANYCAST: Final = (
    '[addresses.jobs]\nrouting-type = "ANYCAST"\n[address-settings."#"]\nredistribution-delay = 0\n'
)
#: `redistribution-delay` of the address that is delayed, in seconds; readers count for 1 s (rig).
DELAY_S: Final = 2.0
#: Bytes from which the address of P6 is full at n1: its first message fills it.
ROOM_BYTES: Final = 16 * 1024
#: Addresses of several modes and delays; all but `never` have one.
MODES: Final = {
    "on-demand": 'address = "!strict,!off"',
    "strict": 'address = "strict"\nmessage-load-balancing = "STRICT"',
    "off": 'address = "off"\nmessage-load-balancing = "OFF_WITH_REDISTRIBUTION"',
}
SETTINGS: Final = (
    "".join(f'[addresses.{name}]\nrouting-type = "ANYCAST"\n' for name in ("c23", "delayed"))
    + '[address-settings."#"]\nredistribution-delay = 0\n'
    + f'[address-settings.delayed]\nredistribution-delay = "{DELAY_S:.0f}s"\n'
    + "[address-settings.never]\nredistribution-delay = -1\n"
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Three nodes, for tests that leave all of them running."""
    small = f"[address-settings.p6]\nmax-size-bytes = {ROOM_BYTES}\n"
    directory = tmp_path_factory.mktemp("redistribution")
    cluster = Cluster(directory, 3, connections=MODES, rest=SETTINGS, own={1: small}).start()
    cluster.await_members()
    return cluster


@contextmanager
def kept(node: Node, address: str, queue: str) -> Iterator[None]:
    """A reader that has one message of the queue and settles nothing, while the block lasts."""
    lease, messages = node.api.lease(address, queue, "max=1&lease=60000")
    assert len(messages) == 1
    yield
    assert node.api.settle("release", address, queue, lease=lease).status == 204


def release_until(node: Node, address: str, queue: str, count: int) -> None:
    """Be a reader that gives back what it gets, until so many messages are there."""

    def all_there() -> bool:
        lease, _ = node.api.lease(address, queue, "max=1&wait=200")
        if lease is not None:
            assert node.api.settle("release", address, queue, lease=lease).status == 204
        return waiting(node, address, queue) == count

    eventually(all_there, f"{count} messages follow their reader to {node.name}")


def commit(node: Node, address: str, bodies: Iterable[str]) -> None:
    """Send all in one transaction."""
    assert node.api.commit(*({"address": address, "body": body} for body in bodies)).status == 200


def test_c30_what_waits_without_a_reader_goes_to_a_node_that_has_one(tmp_path: Path) -> None:
    """C30: a node joins, and its reader gets the 20 that wait at the other."""
    cluster = Cluster(tmp_path, 2, rest=ANYCAST).start(0)
    send(cluster[0], "jobs", numbers(20))
    await_waiting(cluster[0], "jobs", "jobs", 20)
    cluster.start(1)
    found: list[str] = []

    def take() -> bool:
        found.extend(read(cluster[1], "jobs", "jobs", wait_ms=500))
        return len(found) >= 20

    eventually(take, "all arrive where the reader is")
    assert found == numbers(20)
    assert waiting(cluster[0], "jobs", "jobs") == 0


def test_c23_messages_follow_their_reader_back_and_forth(shared: Cluster) -> None:
    """C23: 20 messages, half of them with producers' IDs, 0 -> 1 -> 0 -> 1: all 20 there, none elsewhere.

    Their IDs stay known where they entered, and nowhere keep them from coming back.
    """
    for number in numbers(10):
        send(shared[0], "c23", [number], **{"Duplicate-Id": number})
    send(shared[0], "c23", numbers(10, 10))
    for to, back in ((1, 0), (0, 1), (1, 0)):
        release_until(shared[to], "c23", "c23", 20)
        assert waiting(shared[back], "c23", "c23") == 0
    assert sorted(read(shared[1], "c23", "c23"), key=int) == numbers(20)
    assert shared[0].api.send("c23", b"3", Duplicate_Id="3").json == {"verdict": "duplicate"}


def test_c25_what_a_reader_leaves_goes_to_the_readers_of_other_nodes(shared: Cluster) -> None:
    """C25: 20 over three nodes; the reader of one goes: its share is read elsewhere, none lost or doubled."""
    for node in range(3):
        make_queue(shared[node], "c25", "q")
    for node, share in enumerate((numbers(7), numbers(7, 7), numbers(6, 14))):
        commit(shared[node], "c25", share)
    with ExitStack() as readers:
        with kept(shared[1], "c25", "q"):
            others = [readers.enter_context(reading(shared[node], "c25", "q")) for node in (0, 2)]
            others[0].await_found(7)
            others[1].await_found(6)
            assert waiting(shared[1], "c25", "q") == 7
        eventually(lambda: sum(len(one.found) for one in others) >= 20, "its share is read elsewhere")
    assert sorted(others[0].found + others[1].found, key=int) == numbers(20)


def test_c26_c27_nothing_moves_before_its_delay_or_where_it_is_not_to(shared: Cluster) -> None:
    """C26: nothing before `redistribution-delay`, then all 20; without a delay nothing moves.

    C27: nothing moves from under a reader that has come back, under STRICT, and where no other node has a
    reader. What would move has a delay of 0, so it would be gone when the delayed ones are.
    """
    stay = ("back", "never", "strict", "alone")
    for address in stay:
        for node in (0, 1):
            make_queue(shared[node], address, "q")
        shared.await_place(0, 1, address, "q")
        if address != "strict":
            commit(shared[0], address, numbers(20))
    commit(shared[0], "strict", numbers(40))
    await_waiting(shared[1], "strict", "q", 20)
    assert len(read(shared[1], "strict", "q")) == 20
    commit(shared[0], "delayed", numbers(20))
    with ExitStack() as readers:
        with kept(shared[0], "back", "q"):
            pass
        readers.enter_context(kept(shared[0], "back", "q"))
        with kept(shared[0], "delayed", "delayed"):
            others = [readers.enter_context(reading(shared[1], one, "q")) for one in stay[:3]]
            reader = readers.enter_context(reading(shared[1], "delayed", "delayed"))
            shared.await_place(0, 1, "delayed", "delayed", readers=1)
            left = time.monotonic()
        eventually(lambda: reader.found, "the first arrives")
        assert time.monotonic() - left >= DELAY_S
        assert reader.await_found(20) == numbers(20)
        assert [waiting(shared[0], address, "q") for address in stay] == [20] * 4
        assert [one.found for one in others] == [[], [], []]


def test_c28_what_no_reader_elsewhere_takes_does_not_block_the_rest(shared: Cluster) -> None:
    """C28: 10 giraffes and 10 platypuses behind a lion; their readers are on two nodes: 10 and 10."""
    kinds = ["lion", *["giraffe", "platypus"] * 10]
    make_queue(shared[0], "c28", "q")
    sent = [
        {"address": "c28", "body": f"{kind}-{number}", "headers": {"kind": kind}}
        for number, kind in enumerate(kinds)
    ]
    assert shared[0].api.commit(*sent).status == 200
    for node, kind in ((1, "giraffe"), (2, "platypus")):
        make_queue(shared[node], "c28", "q", filter=f"kind = '{kind}'")
    with reading(shared[1], "c28", "q") as giraffes, reading(shared[2], "c28", "q") as platypuses:
        giraffes.await_found(10)
        platypuses.await_found(10)
    for reader, kind in ((giraffes, "giraffe"), (platypuses, "platypus")):
        assert reader.found == [one["body"] for one in sent if str(one["body"]).startswith(kind)]
    assert read(shared[0], "c28", "q") == ["lion-0"]


def test_c31_only_the_queue_that_has_no_reader_moves(shared: Cluster) -> None:
    """C31: of two queues of an address the one whose reader is elsewhere moves; the other keeps its 10."""
    for queue in ("starves", "stays"):
        for node in (0, 1):
            make_queue(shared[node], "c31", queue)
    commit(shared[0], "c31", numbers(10))
    with kept(shared[0], "c31", "stays"), reading(shared[1], "c31", "starves") as reader:
        assert reader.await_found(10) == numbers(10)
        assert waiting(shared[0], "c31", "stays") == 10
        assert waiting(shared[1], "c31", "stays") == 0


def test_c32_off_with_redistribution_keeps_messages_until_their_reader_leaves(shared: Cluster) -> None:
    """C32: two stay although another node has a reader, until the one here leaves; also where the queue is
    not named as its address, which Artemis never redistributes.
    """
    for node in (0, 1):
        make_queue(shared[node], "off", "q")
    shared.await_place(0, 1, "off", "q")
    send(shared[0], "off", ["first"])
    with reading(shared[1], "off", "q") as reader:
        with kept(shared[0], "off", "q"):
            shared.await_place(0, 1, "off", "q", readers=1)
            send(shared[0], "off", ["second", "third"])
            assert waiting(shared[0], "off", "q") == 3
            assert reader.found == []
        assert sorted(reader.await_found(3)) == ["first", "second", "third"]


def test_c34_large_messages_move_to_nodes_that_are_there(shared: Cluster) -> None:
    """C34: five large messages stay where they are while the only node with a reader is down, and arrive
    byte for byte when it is back.
    """
    for address in ("c34", "c34.small"):
        for node in (0, 1, 2):
            make_queue(shared[node], address, "q")
    bodies = [bytes([65 + index]) * (300 * 1024 + index) for index in range(5)]
    with reading(shared[2], "c34", "q"):
        shared.await_place(0, 2, "c34", "q", readers=1)
        shared[2].kill()
    shared.await_unreachable(0, 2)
    send(shared[0], "c34", [body.decode() for body in bodies])
    commit(shared[0], "c34.small", ["moves"])
    with reading(shared[1], "c34.small", "q") as other:
        other.await_found(1)
    assert waiting(shared[0], "c34", "q") == 5
    shared.start(2)
    with reading(shared[2], "c34", "q") as reader:
        reader.await_found(5)
    shared.await_members()
    assert [_digest(body.encode()) for body in reader.found] == [_digest(body) for body in bodies]
    assert waiting(shared[0], "c34", "q") == 0


def test_p6_messages_move_to_a_node_that_is_full(shared: Cluster) -> None:
    """P6: nothing pages here. The other node's address is full while its reader settles nothing: the 20 wait
    in the forward log until it does, and arrive in order.
    """
    for node in (0, 1):
        make_queue(shared[node], "p6", "q")
    send(shared[1], "p6", ["x" * (ROOM_BYTES * 2 // 3)])
    commit(shared[0], "p6", numbers(20))
    with kept(shared[1], "p6", "q"):
        shared[1].event("address-full", address="p6")
        bridge = f"$cluster.{shared.uuid(1)}"
        eventually(lambda: shared[0].status(bridge)["lag"] == 20, "all 20 are in the forward log")
        assert waiting(shared[0], "p6", "q") == 0
        assert waiting(shared[1], "p6", "q") == 1
    with reading(shared[1], "p6", "q") as reader:
        assert reader.await_found(21)[1:] == numbers(20)


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
