"""Clients that leave in mid-body leave nothing behind: with the collector of reference cycles off."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from bridge.journal.uploads import UPLOADS_MOST
from bridge.messages.message import CHUNK_BYTES
from tests.harness.eventually import eventually
from tests.harness.node import UNCOLLECTED, MakeNode, Node, bridge_to, start_together
from tests.hostile.cutting import CuttingProxy
from tests.hostile.leaving import MIB, abort_upload, fill_pages, growth, leave_page, refused_upload

#: What the allocator keeps of 4 clients at a time. Each client once left 2.6 MiB (uploads) or 8.2 (pages).
GROWTH_MOST = 64 * MIB
#: The same of uploads. Where a client has left, its chunk waits for the disk, and others come: at most
#: `UPLOADS_MOST` chunks, and as much in the hands of journal and allocator. The `FIRST_UPLOADS` bring the
#: node there; each client once left a chunk.
UPLOADS_GROWTH_MOST = GROWTH_MOST + 2 * UPLOADS_MOST * CHUNK_BYTES
FIRST_UPLOADS = 256
_FULL = '[address-settings."full"]\nmax-size-bytes = "5MiB"\naddress-full-policy = "FAIL"\n'


@pytest.fixture(scope="module")
def uncollected(make_lasting_node: MakeNode) -> Iterator[Node]:
    """A node that never looks for cycles."""
    node = make_lasting_node("uncollected", program=UNCOLLECTED, rest=_FULL).start()
    for _ in range(2):
        assert node.api.send("full", bytes(3 * MIB)).status == 200
    fill_pages(node)
    yield node
    assert node.stop() == 0


def test_256_uploads_that_are_cut_off_leave_nothing(uncollected: Node) -> None:
    assert growth(uncollected, abort_upload, 256, first=FIRST_UPLOADS) < UPLOADS_GROWTH_MOST


@pytest.mark.hostile
def test_10_000_uploads_that_are_cut_off_leave_nothing(uncollected: Node) -> None:
    assert growth(uncollected, abort_upload, 10_000, first=FIRST_UPLOADS) < UPLOADS_GROWTH_MOST


@pytest.mark.parametrize("leave", [refused_upload, leave_page])
def test_100_clients_that_leave_leave_nothing(uncollected: Node, leave: Callable[[int], None]) -> None:
    assert growth(uncollected, leave, 100) < GROWTH_MOST


@pytest.mark.hostile
@pytest.mark.parametrize("leave", [refused_upload, leave_page])
def test_10_000_clients_that_leave_leave_nothing(uncollected: Node, leave: Callable[[int], None]) -> None:
    assert growth(uncollected, leave, 10_000) < GROWTH_MOST


def test_150_cuts_in_mid_batch_leave_nothing_at_either_end(make_node: MakeNode) -> None:
    cut_growth(make_node, 150)


@pytest.mark.hostile
def test_1000_cuts_in_mid_batch_leave_nothing_at_either_end(make_node: MakeNode) -> None:
    cut_growth(make_node, 1000)


def cut_growth(make_node: MakeNode, times: int) -> None:
    """A cut once left 3.7 MiB at the edge and 1.6 at the hub; of a large body, 0.7."""
    hub = make_node("hub", program=UNCOLLECTED)
    cut_after = MIB // 16  # what came before a cut is not sent again: bodies last for all of them
    bodies = (20 + times) * cut_after // (4 * MIB) + 3
    with CuttingProxy(hub.port, cut_after=cut_after).running() as link:
        often = {"retry_interval": "10", "max_retry_interval": "10"}
        bridge = bridge_to(hub, connector__url=f'"ws://127.0.0.1:{link.port}"', **often)
        edge = make_node("edge", program=UNCOLLECTED, rest=bridge)
        start_together(hub, edge)
        for _ in range(bodies):
            assert edge.api.send("orders", os.urandom(4 * MIB)).status == 200
        eventually(lambda: link.cuts >= 20, "the first are cut", 60)
        before = edge.resident, hub.resident
        eventually(lambda: link.cuts >= 20 + times, "the others are", 1 + times / 4)
        grown = edge.resident - before[0], hub.resident - before[1]
        assert max(grown) < GROWTH_MOST, [size // MIB for size in grown]
        link.cutting = False
        eventually(lambda: edge.lag("orders") == 0, "everything arrives")
        assert hub.api.get("/v1/addresses/orders").json["messages"] == bodies
        assert (edge.stop(), hub.stop()) == (0, 0)
