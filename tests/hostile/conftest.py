"""One node for all cases: that it outlives them all is what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import make_lasting_node, make_node
from tests.harness.node import MakeNode
from tests.hostile.rig import Victim, victim

__all__ = ["make_lasting_node", "make_node", "node"]


@pytest.fixture(scope="module")
def node(make_lasting_node: MakeNode) -> Iterator[Victim]:
    """The node, and its honest company."""
    with victim(make_lasting_node) as made:
        yield made
