"""Names the rule that a line breaks which is JSON, but none that this version reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

#: The line format that is read (contract, Delivery log).
VERSION: Final = 1
#: One beyond the last position that a stream can have (design section 1).
MOST_UPTO: Final = 2**50
#: In the year 5138. A time beyond it, of either sign, is none in ms: it counts as not known.
MOST_MS: Final = 10**14
#: Most characters of a value that a message shows.
_SHOWN: Final = 60


def complaint(text: str) -> str:
    """The rule that the line breaks and what was found, as a message ends: ``key: rule; found value``."""
    try:
        line = json.loads(text)
    except ValueError as error:
        return f"must be one JSON object; found {_shown(text)} ({error})"
    if not isinstance(line, dict):
        return f"must be a JSON object; found {_shown(line)}"
    if _is_integer(line.get("v")) and line["v"] != VERSION:
        return f"v: this version of core-bridge reads line format {VERSION}; found {line['v']}"
    return _key_complaint(line) or _range_complaint(line)


def _key_complaint(line: Mapping[str, Any]) -> str | None:
    for key, (rule, holds) in _RULES.items():
        if line.get(key) is None and key in REQUIRED:
            return f"{key}: a line of a delivery log must have it; found {_shown(sorted(line))}"
        if line.get(key) is not None and not holds(line[key]):
            return f"{key}: must be {rule}; found {_shown(line[key])}"
    return None


def _range_complaint(line: Mapping[str, Any]) -> str:
    first, upto = line["from"], line["upto"]
    if first > upto:
        return f"from: must not be above upto; found {first} above {upto}"
    for run in line["runs"]:
        if not (len(run) == 2 and first <= run[0] <= run[1] < upto):
            return f"runs: each must be [first,last] within {first}..{upto - 1}; found {_shown(run)}"
    return f"must be a line of a delivery log; found {_shown(line)}"


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_integers(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_integer, value))


def _is_run(value: Any) -> bool:
    return _is_integers(value) and len(value) == 2


def _is_place(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_text(value[0]) and _is_integer(value[1])


def _is_within(value: Any, least: int, most: int) -> bool:
    return _is_integer(value) and least <= value <= most


def _is_list(value: object, rule: tuple[str, Callable[[Any], bool]]) -> bool:
    return isinstance(value, list) and all(rule[1](item) for item in value)


_INTEGER: Final = ("a whole number of at most 64 bits", _is_integer)
_TEXT: Final = ("text", _is_text)
_POSITION: Final = (f"a whole number in 0..{MOST_UPTO}", lambda value: _is_within(value, 0, MOST_UPTO))
_RULES: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "v": _INTEGER,
    "side": ("sent or received", lambda value: value in ("sent", "received")),
    "node": _TEXT,
    "node-id": _TEXT,
    "bridge": _TEXT,
    "lane": _INTEGER,
    "stream": _TEXT,
    "address": _TEXT,
    "target": _TEXT,
    "store": _TEXT,
    "from": _POSITION,
    "upto": _POSITION,
    "runs": ("a list of runs", lambda value: isinstance(value, list) and all(map(_is_integers, value))),
    "refused": ("a list of positions", lambda value: _is_list(value, _POSITION)),
    "count": _POSITION,
    "events": ("two times", lambda value: _is_list(value, _INTEGER) and len(value) == 2),
    "committed": _INTEGER,
    "duplicates": _POSITION,
    "recovered": ("true or false", lambda value: isinstance(value, bool)),
    "verdict": _TEXT,
    "clock-offset": _INTEGER,
    "known": ("a list of runs", lambda value: _is_list(value, ("a run", _is_run))),
    "unchecked": ("true or false", lambda value: isinstance(value, bool)),
    "session": _TEXT,
    "number": _INTEGER,
    "after": ("a session and a number", _is_place),
    "replays": _TEXT,
}
#: Keys without which a line says nothing; the others have a neutral value where they are missing.
REQUIRED: Final = ("v", "side", "stream", "address", "store", "from", "upto", "runs")


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
