"""The rules of the cluster's design, each of which can be taken out of the code while a simulation runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

RULES: Final[dict[str, str]] = {}


@contextmanager
def rules_off(without: Iterable[str]) -> Iterator[None]:
    """Take these rules out."""
    yield
