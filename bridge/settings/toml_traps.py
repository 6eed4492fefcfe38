r"""Advice on TOML's traps: ``[addresses.orders.eu]``, ``[address-settings.#]`` and ``"/a\.b/"``."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any, Final

from bridge.runtime.secret_values import HIDDEN, holds_secret
from bridge.settings.paths import KeyPath, render
from bridge.settings.problems import NOTHING, Problem, shorten, show

#: Tables whose keys are names that users choose.
NAMED_TABLES: Final = ("addresses", "address-settings", "connectors")

_PLACE: Final = re.compile(r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$")
_PATTERN_HEADER: Final = re.compile(r"\[{1,2}(?P<name>[^\]\"']*[#*][^\]\"']*)\]{1,2}")
_KEY: Final = re.compile(r"""(?:^|[{,])\s*["']?(?P<key>[A-Za-z0-9_.-]+)["']?\s*=""")
_DOUBLE_QUOTED: Final = re.compile(r'"(?P<inside>[^"]*\\[^"]*)"')
_NUMBER_WITH_UNIT: Final = re.compile(r"=\s*(?P<value>-?[0-9][0-9.]*\s*[A-Za-z]+)\s*(?:#.*)?$")
_BARE_WORD: Final = re.compile(r"=\s*(?P<value>[A-Za-z/$][^\s#,\]}]*)")


def toml_problem(file: str, text: str, error: tomllib.TOMLDecodeError) -> Problem:
    """The problem of a file that is not TOML: the rule, its place, and what to write instead."""
    message = str(error)
    lines = text.split("\n")
    place = _PLACE.search(message)
    if place is not None and place["line"] is not None:
        row, column = int(place["line"]), int(place["column"])
    else:  # "at end of document"
        row, column = len(lines), len(lines[-1]) + 1
    message = message[: place.start()] if place is not None else message
    line = lines[row - 1].strip() if row <= len(lines) else ""
    rule, found = _answer(line, message)
    if found is None:
        found = _shown_line(lines[:row])
    return Problem(file, f"line {row}, column {column}", rule, found)


def dotted_name(path: KeyPath, table: dict[str, Any]) -> str:
    """The rule for a name with dots that was not quoted, so that TOML made tables within tables of it.

    `path` is the place to which the second word led, `table` the table there.
    """
    words = [str(step) for step in path[1:]]
    while len(table) == 1:
        ((word, inner),) = table.items()
        if not isinstance(inner, dict):
            break
        words.append(word)
        table = inner
    return f"names with dots must be quoted: write [{path[0]}.{json.dumps('.'.join(words))}]"


def brackets(path: KeyPath, value: Any, *, many: bool) -> str | None:
    """The rule for ``[bridges]`` in the place of ``[[bridges]]``, and the other way round."""
    if many and isinstance(value, dict):
        return f"must be written [[{render(path)}]], in double brackets"
    if not many and isinstance(value, list) and value and isinstance(value[0], dict):
        return f"must be written [{render(path)}], in single brackets"
    return None


def misplaced(owner: KeyPath, table: KeyPath) -> str:
    """The rule for a key of ``[acceptor]`` that is written below ``[[acceptor.users]]``."""
    many = isinstance(table[-1], int)
    inner = render(table[:-1]) if many else render(table)
    return f"unknown key: it belongs to [{render(owner)}], above {f'[[{inner}]]' if many else f'[{inner}]'}"


def _answer(line: str, message: str) -> tuple[str, str | None]:
    """The rule, and the value found where that is known."""
    if "key part" in message and (header := _PATTERN_HEADER.match(line)):
        return _pattern(header)
    if "Unescaped '\\'" in message or "hex value" in message:
        return _backslash(line)
    if not _may_be_secret(line) and (number := _NUMBER_WITH_UNIT.search(line)):
        value = number["value"].replace(" ", "")
        return f'a value with a unit must be in quotes: write "{value}"', number["value"]
    if message == "Invalid value":
        return _bare_word(line)
    if message.startswith(("Cannot declare", "Cannot overwrite")):
        return "a table or key must be written only once ([[...]] for one more item of a list)", None
    return f"must be TOML ({message[:1].lower()}{message[1:]})", None


def _backslash(line: str) -> tuple[str, str | None]:
    quoted = None if _may_be_secret(line) else _DOUBLE_QUOTED.search(line)
    instead = f"'{quoted['inside']}'" if quoted and "'" not in quoted["inside"] else r"'/orders\..*/'"
    rule = f"a backslash in double quotes is an escape: write {instead}, in single quotes"
    return rule, quoted[0] if quoted else None


def _bare_word(line: str) -> tuple[str, str | None]:
    word = _BARE_WORD.search(line)
    if word is not None and word["value"].lower() in ("true", "false"):
        return f"write {word['value'].lower()}, in small letters", word["value"]
    return "text must be in quotes", None


def _pattern(header: re.Match[str]) -> tuple[str, str]:
    table, _, pattern = header["name"].partition(".")
    why = "'#' begins a comment and " if "#" in pattern else ""
    rule = f"{why}a pattern must be quoted: write [{table.strip()}.{json.dumps(pattern.strip())}]"
    return rule, header[0].strip()


def _may_be_secret(line: str) -> bool:
    return any(holds_secret(found["key"].rpartition(".")[2], "@") for found in _KEY.finditer(line))


def _shown_line(lines: list[str]) -> str:
    """The last line, hidden if it, or the nearest key above it, may hold a secret."""
    line = lines[-1].strip()
    for above in reversed(lines):
        if _may_be_secret(above):
            return HIDDEN
        if _KEY.search(above) or above.lstrip().startswith("["):
            break
    if not line:
        return NOTHING
    return shorten(line) if line.isprintable() else show(line)
