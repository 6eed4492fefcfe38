"""Findings about keys that need another one, or that nothing makes use of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridge.settings.fields import Table, key_of
from bridge.settings.paths import KeyPath
from bridge.settings.problems import Finding


def missing(path: KeyPath, key: str, rule: str, *because_of: str) -> Finding:
    """A rule of `key`, in the table at `path`, that hangs on other keys of the table."""
    return Finding((*path, key), rule, leans_on=tuple((*path, other) for other in because_of))


def idle(
    path: KeyPath, table: Table, attributes: Iterable[str], rule: str, *because_of: str
) -> Iterator[Finding]:
    """Keys that say something which nothing makes use of."""
    for attribute in attributes:
        default = type(table).model_fields[attribute].default
        if (getattr(table, attribute) or "") != (default or ""):
            yield missing(path, key_of(attribute), rule, *because_of)
