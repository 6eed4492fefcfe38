"""Large messages through two real nodes: what memory they take, and what a SIGKILL in mid-body leaves."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bridge.runtime.fault_injection import NAMES
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, made_nodes

MIB: Final = 1024 * 1024
#: What is written and read at a time here, so that the test itself holds no body.
_PIECE: Final = MIB
#: Of a GiB over a disk that others use, too.
_PATIENCE_S: Final = 900.0
_ACCEPTOR: Final = 'max-message-size = "1GiB"\nmin-large-message-size = "1MiB"\n'
_ROOM: Final = '[address-settings."#"]\nmax-size-bytes = "3GiB"\n'


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    with made_nodes(tmp_path) as make:
        yield make


@pytest.fixture
def nodes(make_node: MakeNode) -> tuple[Node, Node]:
    """An edge with a bridge, and its hub; not started."""
    hub = make_node("hub", acceptor=_ACCEPTOR, rest=_ROOM)
    edge = make_node("edge", acceptor=_ACCEPTOR, rest=_ROOM + bridge_to(hub))
    return edge, hub


class Film:
    """The bytes of a body, made as they are asked for: each piece differs from every other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.digest = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        self.digest = hashlib.sha256()
        piece = bytearray(random.Random(self.size).randbytes(_PIECE))
        for start in range(0, self.size, _PIECE):
            piece[:8] = start.to_bytes(8, "big")
            part = bytes(piece[: self.size - start])
            self.digest.update(part)
            yield part


def send(node: Node, film: Film, duplicate_id: str = "film-1") -> bytes:
    """POST it; the answer's body."""
    with contextlib.closing(node.api.connect(_PATIENCE_S)) as connection:
        headers = {
            "Content-Length": str(film.size),
            "Duplicate-Id": duplicate_id,
            "Message-Header-Kind": "film",
        }
        connection.request("POST", "/v1/addresses/orders/messages", iter(film), headers)
        reply = connection.getresponse()
        assert reply.status == 200, reply.read()
        return reply.read()


def digest_at(node: Node, position: int = 0) -> str:
    """SHA-256 of the body at a position of `orders`, read in pieces."""
    found = hashlib.sha256()
    with contextlib.closing(node.api.connect(_PATIENCE_S)) as connection:
        connection.request("GET", f"/v1/addresses/orders/messages/{position}")
        reply = connection.getresponse()
        assert reply.status == 200
        while piece := reply.read(_PIECE):
            found.update(piece)
    return found.hexdigest()


def messages(node: Node) -> int:
    """Messages at `orders`; 0: there is no such address yet."""
    reply = node.api.get("/v1/addresses/orders")
    return int(reply.json["messages"]) if reply.status == 200 else 0


def chunks(node: Node) -> tuple[int, int]:
    """Bytes of the chunks in its journal, and large bodies that no message has."""
    with contextlib.closing(sqlite3.connect(node.data / "journal.sqlite")) as connection:
        (many,) = connection.execute("SELECT coalesce(sum(length(bytes)), 0) FROM chunks").fetchone()
        (loose,) = connection.execute("SELECT count(*) FROM loose_bodies").fetchone()
    return many, loose


@pytest.mark.parametrize("mib", [96, pytest.param(1024, marks=pytest.mark.crash)])
def test_a_large_message_crosses_two_nodes_whose_memory_it_does_not_take(
    nodes: tuple[Node, Node], mib: int
) -> None:
    """B18: POST, link and read; 1 GiB with both nodes under 200 MiB is the long form."""
    edge, hub = nodes
    hub.start()
    edge.start()
    before = {node.name: node.resident for node in nodes}
    film = Film(mib * MIB)
    assert b'"verdict":"stored"' in send(edge, film)
    assert b'"verdict":"duplicate"' in send(edge, film)
    eventually(lambda: messages(hub) == 1, "it has arrived", _PATIENCE_S)
    eventually(lambda: messages(edge) == 0, "the edge is told", _PATIENCE_S)
    assert digest_at(hub) == film.digest.hexdigest()
    page = hub.api.get("/v1/addresses/orders/messages").json["messages"]
    assert [(one.get("body-size"), "body" in one) for one in page] == [(film.size, False)]
    eventually(lambda: chunks(edge) == (0, 0), "the edge holds nothing of it", _PATIENCE_S)
    most = {node.name: node.most_resident for node in nodes}
    print({name: (before[name] // MIB, size // MIB) for name, size in most.items()})
    for name, size in most.items():
        assert size < 200 * MIB, f"{name} took {size // MIB} MiB"
        assert size - before[name] < 80 * MIB, f"{name} grew by {(size - before[name]) // MIB} MiB"
    assert (edge.stop(), hub.stop()) == (0, 0)


#: The crash points in the middle of large bodies, each with the node that reaches it.
_POINTS: Final = {"http.after-chunk": "edge", "link.before-chunk": "edge", "link.chunk-stored": "hub"}


def test_every_crash_point_of_large_bodies_is_tried() -> None:
    assert set(_POINTS) == {name for name in NAMES if "chunk" in name}


@pytest.mark.parametrize("point", _POINTS)
def test_a_kill_in_mid_body_leaves_nothing_double_and_nothing_behind(
    nodes: tuple[Node, Node], point: str
) -> None:
    """B18"""
    edge, hub = nodes
    film = Film(6 * MIB - 5)
    if point == "http.after-chunk":
        hub.start()
        sending = threading.Thread(target=_send_until_stored, args=(edge, film))
        sending.start()
        edge.crash(point, times=3)
        edge.start()
        sending.join()
    else:
        killed, other = (hub, edge) if _POINTS[point] == "hub" else (edge, hub)
        edge.start()
        send(edge, film)
        if other is hub:
            edge.kill()
            hub.start()
        killed.crash(point, times=3)
        killed.start()
    eventually(lambda: messages(hub) == 1, "it has arrived")
    eventually(lambda: messages(edge) == 0, "the edge is told")
    assert b'"verdict":"duplicate"' in send(edge, film)
    assert digest_at(hub, _position(hub)) == film.digest.hexdigest()
    eventually(lambda: chunks(hub) == (film.size, 0), "nothing is left of the broken upload")
    eventually(lambda: chunks(edge) == (0, 0), "nor here")
    assert (edge.stop(), hub.stop()) == (0, 0)


def _send_until_stored(node: Node, film: Film) -> None:
    def stored() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return b"verdict" in send(node, film)
        return False

    eventually(stored, "it is stored", within_s=60)


def _position(node: Node) -> int:
    (one,) = node.api.get("/v1/addresses/orders/messages").json["messages"]
    return int(one["position"])
