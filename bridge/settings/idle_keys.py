"""Findings about keys that need another key, or that have no effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridge.settings.fields import Table, key_of
from bridge.settings.paths import KeyPath
from bridge.settings.problems import Finding


def missing(path: KeyPath, key: str, rule: str, *because_of: str) -> Finding:
    """A finding about `key`, in the table at `path`, that depends on other keys of the table."""
    return Finding((*path, key), rule, leans_on=tuple((*path, other) for other in because_of))


def idle(
    path: KeyPath, table: Table, attributes: Iterable[str], rule: str, *because_of: str
) -> Iterator[Finding]:
    """Findings about keys that are set and have no effect."""
    for attribute in attributes:
        default = type(table).model_fields[attribute].default
        if (getattr(table, attribute) or "") != (default or ""):
            yield missing(path, key_of(attribute), rule, *because_of)
