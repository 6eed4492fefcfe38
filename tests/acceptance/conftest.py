"""Fixtures of the acceptance tests: nodes that are gone when a test ends, and their logs where it failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.nodes import Node, make_certificates

MakeNode = Callable[..., Node]
_numbers = count()


@contextmanager
def _nodes(directory: Path) -> Iterator[MakeNode]:
    made: list[Node] = []

    def make(name: str = "node", **how: Any) -> Node:
        node = Node(name, directory, **how)
        made.append(node)
        return node

    try:
        yield make
    finally:
        for node in made:
            node.destroy()
            if node.log.exists():
                print(f"--- {node.name}\n{node.log.read_text(encoding='utf-8', errors='replace')}")
    for node in made:
        if node.log.exists():
            log = node.log.read_text(encoding="utf-8")
            assert "Traceback" not in log, f"{node.name} logged an error that nobody foresaw:\n{log}"


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Makes nodes that are not started yet."""
    with _nodes(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_lasting_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeNode]:
    """The same for nodes that all tests of a module share."""
    with _nodes(tmp_path_factory.mktemp("nodes")) as make:
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
