"""Key paths: the place of a value in a parsed settings file, and its notation in a problem; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

#: Keys, and indices of list items, from the top down.
KeyPath = tuple[str | int, ...]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def look_up(tree: Any, path: KeyPath) -> tuple[bool, Any]:
    """Whether there is a value at `path`, and the value."""
    for step in path:
        match tree, step:
            case dict(), str() if step in tree:
                tree = tree[step]
            case list(), int() if step < len(tree):
                tree = tree[step]
            case _:
                return False, None
    return True, tree


def written_path(tree: Any, path: KeyPath) -> KeyPath:
    """`path` without the steps that the model added below the written value (one text where a list may
    be).
    """
    kept: list[str | int] = []
    for step in path:
        if kept and not isinstance(look_up(tree, tuple(kept))[1], dict | list):
            break
        kept.append(step)
    return tuple(kept)


def render(path: KeyPath) -> str:
    """A path as TOML would quote it: ``bridges[0].retry-interval``, ``addresses."orders.eu".queues``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            name = step if _BARE.fullmatch(step) else json.dumps(step, ensure_ascii=False)
            text += f".{name}" if text else name
    return text


def item_name(tree: Any, path: KeyPath) -> str | None:
    """The `name` of the innermost list item on the path, where it has one: ``orders-to-hub``."""
    for length in range(len(path), 0, -1):
        if isinstance(path[length - 1], int):
            _, item = look_up(tree, path[:length])
            name = item.get("name") if isinstance(item, Mapping) else None
            if isinstance(name, str) and name:
                return name
    return None


def covers(outer: KeyPath, inner: KeyPath) -> bool:
    """Whether `inner` is at or below `outer`."""
    return inner[: len(outer)] == outer


class Paths:
    """Many key paths, asked for those above and below another without looking at each."""

    def __init__(self) -> None:
        self._paths: set[KeyPath] = set()
        #: Each of them, and all that is above it.
        self._above: set[KeyPath] = set()

    def add(self, path: KeyPath) -> None:
        """Take in a path."""
        self._paths.add(path)
        self._above.update(_from_the_top(path))

    def update(self, others: Paths) -> None:
        """Take in the paths of others."""
        self._paths |= others._paths
        self._above |= others._above

    def cover(self, path: KeyPath) -> bool:
        """Whether `path` is one of them, or below one."""
        return any(above in self._paths for above in _from_the_top(path))

    def lie_below(self, path: KeyPath) -> bool:
        """Whether one of them is `path`, or below it."""
        return path in self._above


def _from_the_top(path: KeyPath) -> Iterator[KeyPath]:
    return (path[:length] for length in range(len(path) + 1))


def place_in_file(tree: Any, path: KeyPath) -> tuple[int, ...]:
    """Sorts paths in the order in which the file writes their tables; paths that are not written come
    last.
    """
    places: list[int] = []
    for step in path:
        if isinstance(step, int):
            places.append(step)
            tree = tree[step] if isinstance(tree, list) and step < len(tree) else None
        else:
            keys = list(tree) if isinstance(tree, dict) else []
            places.append(keys.index(step) if step in keys else len(keys))
            tree = tree[step] if step in keys else None
    return tuple(places)
