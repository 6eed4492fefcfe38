"""Fixtures of the acceptance tests: nodes that are gone when a test ends, and their logs where it failed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.harness.certificates import make_certificates
from tests.harness.node import MakeNode, Node, made_nodes

_numbers = count()


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Makes nodes that are not started yet."""
    with made_nodes(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_lasting_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeNode]:
    """The same for nodes that all tests of a module share."""
    with made_nodes(tmp_path_factory.mktemp("nodes")) as make:
        yield make


@pytest.fixture(scope="module")
def node(make_lasting_node: MakeNode) -> Iterator[Node]:
    """One node with the defaults for all tests of a module; each uses addresses of its own."""
    node = make_lasting_node().start()
    yield node
    assert node.stop() == 0


@pytest.fixture
def address() -> str:
    """An address that no other test uses."""
    return f"orders-{next(_numbers)}"


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``NAME.pem`` and ``NAME.key`` of the authority, a node, a client that is known and one that is not."""
    directory = tmp_path_factory.mktemp("certificates")
    assert list(make_certificates(directory, "node", "orders-service", "stranger"))
    return directory
