"""Checks a parsed file against the model: wrong values are noted and taken out, and the rest is checked
again.

So that the rules between keys can be checked although some keys are wrong, a wrong value is replaced by its
default, or where there is none by a stand-in; a further problem at or around a place that was wrong already
is not reported.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bridge.settings import toml_traps
from bridge.settings.artemis import answer_to_key, answer_to_value
from bridge.settings.fields import DIRECTORY
from bridge.settings.model import Settings
from bridge.settings.paths import KeyPath, Paths, look_up, written_path
from bridge.settings.problems import Finding, nearest
from bridge.settings.schema import known_keys

#: Wrong values are taken out at most this often; a table in a list takes one pass more than it is deep.
MAX_PASSES: Final = 10

#: Stand-ins of required keys that are not names.
_STAND_INS: Final[dict[str, Callable[[str], Any]]] = {
    "url": lambda _name: "ws://127.0.0.1:1",
    "static-connectors": lambda name: [name],
}

_RULES: Final = {
    "missing": "required",
    "string_type": "must be text in quotes",
    "bool_type": "must be true or false, without quotes",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "too_short": "must not be empty",
}


class Validation:
    """The validation of one file, and its findings."""

    def __init__(self, tree: dict[str, Any], directory: Path) -> None:
        #: The file's content, places filled in.
        self.tree = tree
        self.directory = directory
        #: The findings, in no particular order.
        self.findings: list[Finding] = []
        self._repaired = copy.deepcopy(tree)
        self._told = Paths()

    def report(self, findings: Iterable[Finding]) -> None:
        """Add the findings that are no consequence of earlier ones."""
        now = Paths()
        for finding in findings:
            about = (finding.path, *finding.leans_on)
            if any(self._told.cover(place) or self._told.lie_below(place) for place in about):
                continue
            if not now.lie_below(finding.path):  # a list is "empty" for its wrong item
                now.add(finding.path)
                self.findings.append(finding)
        self._told.update(now)

    def take_out(self, path: KeyPath) -> None:
        """Go on without the value at `path`."""
        _, parent = look_up(self._repaired, path[:-1])
        match parent, path[-1]:
            case dict(), str(key):
                parent.pop(key, None)
            case list(), int(index):
                stand_in = _stand_in(path)
                if parent[index] == {} or parent[index] == stand_in:  # neither is valid: go without the list
                    self.take_out(path[:-1])
                else:
                    parent[index] = {} if _holds_tables(path) else stand_in

    def settings(self) -> Settings | None:
        """The settings with everything wrong taken out; None where too much is wrong to tell."""
        self._take_out_unquoted_names()
        for _ in range(MAX_PASSES):
            try:
                return Settings.model_validate(self._repaired, context={DIRECTORY: self.directory})
            except ValidationError as invalid:
                errors = invalid.errors(include_url=False)
            # Not `written_path` for missing keys: their paths lead nowhere by nature.
            paths = [written_path(self._repaired, error["loc"]) for error in errors]
            self.report(map(self._finding, errors, paths))
            for error, path in zip(errors, paths, strict=True):
                if error["type"] == "missing":
                    _, parent = look_up(self._repaired, path[:-1])
                    parent[path[-1]] = _stand_in(path)
                else:
                    self.take_out(path)
        return None

    def _take_out_unquoted_names(self) -> None:
        """Take out tables that exist only because a name was not quoted, before the model misses keys in
        them.
        """
        for top in toml_traps.NAMED_TABLES:
            _, tables = look_up(self.tree, (top,))
            for name, table in tables.items() if isinstance(tables, dict) else ():
                known = known_keys((top, name))
                for key, value in table.items() if isinstance(table, dict) else ():
                    if isinstance(value, dict) and key not in known and nearest(key, known) is None:
                        path = (top, name, key)
                        self.report([Finding(path, toml_traps.dotted_name(path, value))])
                        self.take_out(path if len(table) > 1 else path[:2])

    def _finding(self, error: ErrorDetails, path: KeyPath) -> Finding:
        kind = error["type"]
        _, value = look_up(self.tree, path)
        if kind == "extra_forbidden":
            return _unknown_key(path)
        if kind == "literal_error":
            choices = error["ctx"]["expected"].replace("'", "")
            words = choices.replace(" or ", ", ").split(", ")
            answer = answer_to_value(str(path[0]), str(path[-1]), value)
            if answer is not None:
                return Finding(path, f"must be {choices}: {answer}")
            return Finding(
                path, f"must be {choices}", nearest(value, words) if isinstance(value, str) else None
            )
        if kind == "value_error":
            return Finding(path, str(error["ctx"]["error"]))
        if kind in ("tuple_type", "model_type"):
            trap = toml_traps.brackets(path, value, many=kind == "tuple_type")
            return Finding(path, trap or _RULES[kind])
        return Finding(path, _RULES.get(kind) or f"{error['msg'][:1].lower()}{error['msg'][1:]}")


def _unknown_key(path: KeyPath) -> Finding:
    key = str(path[-1])
    answer = answer_to_key(str(path[0]) if len(path) > 1 else "", key)
    if answer is not None:
        return Finding(path, f"unknown key: {answer}")
    for length in range(len(path) - 2, 0, -1):
        if key in known_keys(path[:length]):
            return Finding(path, toml_traps.misplaced(path[:length], path[:-1]))
    return Finding(path, "unknown key", nearest(key, known_keys(path[:-1])))


def _holds_tables(path: KeyPath) -> bool:
    return bool(known_keys(path))


def _stand_in(path: KeyPath) -> Any:
    """A value that breaks no rule of its own and equals no other: the path itself serves as a name."""
    name = ".".join(map(str, path))
    special = _STAND_INS.get(str(path[-1]))
    return name if special is None else special(name)
