"""Replay plans: the messages that a reconciliation found lost, in a file for `core-bridge replay`. Pure.

::

    {"v": 1, "plan": "<sha256>", "entries": [
        {"bridge": "orders-to-hub", "stream": "journal:...:orders:0", "address": "orders", "target": "hub",
         "store": "...", "positions": [[17, 17], [40, 59]]}]}

The hash is the plan's name: the target remembers under it how far the plan has been sent. So a file whose
entries were changed and whose hash was not is refused, or positions would be passed over in silence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dedup.ids import MAX_POSITION

#: Version of the file's format.
VERSION: Final = 1
#: Digits of the hash that name the plan's streams.
NAME_DIGITS: Final = 16
#: Ends the names of the streams of a plan that does not ask the target first.
FORCED: Final = ":force"

_TEXTS: Final = ("bridge", "stream", "address", "target", "store")
_ENTRY_KEYS: Final = frozenset((*_TEXTS, "positions"))


class InvalidPlan(ValueError):
    """The file is no replay plan; names the place, the rule, and what was found."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The lost messages of one stream on its way through one bridge to one store."""

    bridge: str
    #: Identity of the stream at the source.
    stream: str
    #: The stream's name at the source.
    address: str
    #: Name of the target's connector.
    target: str
    #: Store identity of the target that lost it.
    store: str
    #: First and last position, inclusive; ascending, apart from each other.
    positions: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """Number of positions."""
        return sum(last - first + 1 for first, last in self.positions)


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan."""

    #: SHA-256 of the entries (`plan_hash`), in hexadecimal.
    hash: str
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """The first digits of the hash, which name its streams."""
        return self.hash[:NAME_DIGITS]


def plan_hash(entries: Sequence[Entry]) -> str:
    """SHA-256 over the entries as JSON: keys in order, no spaces, ASCII only."""
    shown = [_shown(entry) for entry in entries]
    text = json.dumps(shown, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def make(entries: Sequence[Entry]) -> Plan:
    """The plan of these entries. Raises: InvalidPlan: a file with them could not be read again."""
    plan = Plan(plan_hash(entries), tuple(entries))
    parse(encode(plan))
    return plan


def encode(plan: Plan) -> str:
    """The file's text, one entry a line."""
    entries = ",\n  ".join(json.dumps(_shown(entry)) for entry in plan.entries)
    inside = f"\n  {entries}\n" if entries else ""
    return f'{{"v": {VERSION}, "plan": "{plan.hash}", "entries": [{inside}]}}\n'


def _shown(entry: Entry) -> dict[str, Any]:
    texts = {key: getattr(entry, key) for key in _TEXTS}
    return {**texts, "positions": [[first, last] for first, last in entry.positions]}


def parse(text: str) -> Plan:
    """The plan in a file's text.

    Raises:
        InvalidPlan: not JSON, another version, a key missing or unknown, positions that do not ascend, or a
            hash that does not fit the entries.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidPlan(f"not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise InvalidPlan(f"a plan is an object; found {_kind(value)}")
    version = value.get("v")
    if version != VERSION or isinstance(version, bool):
        raise InvalidPlan(f"v: this version reads plans of version {VERSION}; found {version!r}")
    _check_keys(value, frozenset(("v", "plan", "entries")), "")
    listed = value["entries"]
    if not isinstance(listed, list):
        raise InvalidPlan(f"entries: a list; found {_kind(listed)}")
    entries = tuple(_entry(one, f"entries[{index}]") for index, one in enumerate(listed))
    found = plan_hash(entries)
    if value["plan"] != found:
        raise InvalidPlan(
            f"plan: the hash of these entries is {found}; found {value['plan']!r}. "
            "A plan is not edited: reconcile again for another one"
        )
    return Plan(found, entries)


def _entry(value: Any, place: str) -> Entry:
    if not isinstance(value, Mapping):
        raise InvalidPlan(f"{place}: an object; found {_kind(value)}")
    _check_keys(value, _ENTRY_KEYS, f"{place}.")
    for key in _TEXTS:
        if not isinstance(value[key], str) or not (value[key] or key in ("address", "target")):
            raise InvalidPlan(f"{place}.{key}: a text; found {value[key]!r}")
    bridge, stream, address, target, store = (value[key] for key in _TEXTS)
    positions = _positions(value["positions"], f"{place}.positions")
    return Entry(bridge, stream, address, target, store, positions)


def _positions(value: Any, place: str) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or not value:
        raise InvalidPlan(f"{place}: a list of [first, last], at least one; found {_kind(value)}")
    runs: list[tuple[int, int]] = []
    for index, run in enumerate(value):
        is_pair = isinstance(run, list) and len(run) == 2 and all(type(number) is int for number in run)
        if not is_pair or not 0 <= run[0] <= run[1] <= MAX_POSITION:
            raise InvalidPlan(
                f"{place}[{index}]: [first, last] with 0 <= first <= last <= {MAX_POSITION}; found {run!r}"
            )
        if runs and run[0] <= runs[-1][1]:
            raise InvalidPlan(
                f"{place}[{index}]: begins beyond {runs[-1][1]}, where the last one ended; found {run!r}"
            )
        runs.append((run[0], run[1]))
    return tuple(runs)


def _check_keys(value: Mapping[str, Any], expected: frozenset[str], place: str) -> None:
    for key in sorted(expected - value.keys()):
        raise InvalidPlan(f"{place}{key}: missing")
    for key in sorted(value.keys() - expected):
        raise InvalidPlan(f"{place}{key}: no such key")


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return "an object" if isinstance(value, dict) else repr(value)
