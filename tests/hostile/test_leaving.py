"""Clients that leave in mid-body leave nothing behind: with the collector of reference cycles off."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.acceptance.conftest import MakeNode
from tests.acceptance.nodes import Node
from tests.hostile.leaving import MIB, abort_upload, fill_pages, growth, leave_page, refused_upload

#: What the allocator keeps of 4 clients at a time. Each client once left 2.6 MiB (uploads) or 8.2 (pages).
GROWTH_MOST = 64 * MIB
_FULL = '[address-settings."full"]\nmax-size-bytes = "5MiB"\naddress-full-policy = "FAIL"\n'
LEAVING = pytest.mark.parametrize("leave", [abort_upload, refused_upload, leave_page])


@pytest.fixture(scope="module")
def uncollected(make_lasting_node: MakeNode) -> Iterator[Node]:
    """A node that never looks for cycles."""
    node = make_lasting_node("uncollected", collects=False, rest=_FULL).start()
    for _ in range(2):
        assert node.api.send("full", bytes(3 * MIB)).status == 200
    fill_pages(node)
    yield node
    assert node.stop() == 0


@LEAVING
def test_300_clients_that_leave_in_mid_body_leave_nothing(
    uncollected: Node, leave: Callable[[int], None]
) -> None:
    assert growth(uncollected, leave, 300) < GROWTH_MOST


@pytest.mark.hostile
@LEAVING
def test_10_000_clients_that_leave_in_mid_body_leave_nothing(
    uncollected: Node, leave: Callable[[int], None]
) -> None:
    assert growth(uncollected, leave, 10_000) < GROWTH_MOST
