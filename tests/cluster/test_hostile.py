"""Hostile neighbours: whatever a peer with every right says on a cluster's link, honest nodes are served."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.rig import Cluster, await_waiting, make_queue, send
from tests.hostile.peer import Batch, Gone, Peer

pytestmark = pytest.mark.processes

#: "With at most 100 MiB more than before."
GROWTH_MOST = 100 * 1024 * 1024


def record(uuid_: str, **fields: Any) -> list[Any]:
    """A NODE notice of a record without places, of an honest form; fields may lie."""
    values: dict[str, Any] = {
        "node": uuid_, "store": f"{uuid_}:1", "run": str(uuid.uuid4()), "version": [1, 1], "name": "evil",
        "url": "ws://127.0.0.1:1", "state": "UP", "heir": "", "inherited": [], "places": [],
    }  # fmt: skip
    path = fields.pop("path", [])
    return ["NODE", 0, 1, uuid_, [1, 1], [list({**values, **fields}.values()), path], []]


def notices(rng: random.Random, node: str) -> Iterator[bytes]:
    """Bodies of NOTICE: noise, true names with wrong fields, and lists that say too much."""
    for _ in range(60):
        yield rng.randbytes(rng.randint(0, 400))
    odd: list[Any] = [None, -1, 2**64 - 1, "x" * 5_000, [], [[]] * 50, {}, b"\xff" * 100, True, 1.5]
    for name in ("NODE", "KNOWN"):
        for _ in range(80):
            yield msgspec.msgpack.encode([name, *rng.choices(odd, k=rng.randint(0, 12))])
    for lie in odd:
        for field in ("node", "run", "version", "name", "url", "state", "heir", "inherited", "path"):
            yield msgspec.msgpack.encode(record(node, **{field: lie}))
    yield msgspec.msgpack.encode(["KNOWN", [[str(uuid.uuid4()), [1, 1], 1, 0]] * 3_000])


def attack(cluster: Cluster, mine: str, target: str, act: Callable[[Peer], None]) -> None:
    """Open a link as a node of the cluster, do something, and leave."""
    peer = Peer(cluster[0].port)
    try:
        peer.hello(bridge=f"$cluster.{target}", node_id=mine)
        act(peer)
    except (Gone, ConnectionError):
        pass
    finally:
        peer.close()


def test_whatever_a_neighbour_says_honest_nodes_are_served(tmp_path: Path, rng: random.Random) -> None:
    cluster = Cluster(tmp_path, 2).start()
    cluster.await_members()
    make_queue(cluster[1], "news", "q")
    cluster.await_place(0, 1, "news", "q")
    target, sent = cluster.uuid(0), 0
    before = cluster[0].resident

    def served(what: str) -> None:
        nonlocal sent
        sent += 1
        send(cluster[0], "news", [str(sent)])
        await_waiting(cluster[1], "news", "q", sent)
        assert cluster[0].resident - before <= GROWTH_MOST, what

    for number, body in enumerate(notices(rng, str(uuid.uuid4()))):
        attack(cluster, str(uuid.uuid4()), target, partial(say, body))
        if number % 25 == 0:
            served(f"notice {number}")
    for names in (
        ["q"] * 1, ["0.0//q"], ["9.9/x/q"], [f"1.0/{uuid.uuid4()}/q"], ["a/b/c/d"], ["/" * 200],
        [f"1.0/{target}/gone-{index}" for index in range(900)], ["x" * 255], [""],
    ):  # fmt: skip
        attack(cluster, str(uuid.uuid4()), target, partial(place, target, names))
        served(f"places {names[:2]}")
    assert cluster[0].stop() == 0


def say(body: bytes, peer: Peer) -> None:
    peer.send("NOTICE", body)


def place(target: str, names: list[str], peer: Peer) -> None:
    """One message for these places."""
    identity = f"journal:{uuid.uuid4().hex[:16]}:$sf.{target}/evil:0"
    opened = peer.open(identity, "evil")
    if opened[0] != "OPENED":
        return
    peer.send(*Batch().fields(), [], [[1, names]])
    peer.until("RECEIPT", "CLOSE")
