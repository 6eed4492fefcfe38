"""Names of addresses and queues, and the wildcards that select them; pure.

Wildcards are Artemis's (manual, chapter "Wildcard Syntax"): '.' separates words, '*' stands for one
word, '#' for any number of words, none included.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

#: Longest name, as Kafka's topics have it.
MAX_NAME_CHARACTERS: Final = 249
#: Names that begin so are the node's own.
RESERVED_PREFIXES: Final = ("$", "core-bridge.")

_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME_CHARACTERS}}}")
_WORD: Final = re.compile(r"[$A-Za-z0-9_-]*")
_NAME_RULE: Final = f"must be 1 to {MAX_NAME_CHARACTERS} of A-Z a-z 0-9 . _ -"


def check_name(value: str) -> str:
    """`value` if it can name something.

    Raises:
        ValueError: the rule that it breaks.
    """
    if not _NAME.fullmatch(value):
        raise ValueError(_NAME_RULE)
    return value


def check_address(value: str) -> str:
    """`value` if a user's address or queue can be called so.

    Raises:
        ValueError: the rule that it breaks.
    """
    if is_reserved(value):
        raise ValueError("must not begin with $ or core-bridge., which are the node's own")
    return check_name(value)


def is_reserved(name: str) -> bool:
    """Whether an address of this name is the node's own."""
    return name.startswith(RESERVED_PREFIXES)


def check_pattern(value: str) -> str:
    """`value` if it is an address or a wildcard pattern; the node's own may be meant.

    Raises:
        ValueError: the rule that it breaks.
    """
    words = value.split(".")
    if not 1 <= len(value) <= MAX_NAME_CHARACTERS or not all(
        word in ("*", "#") or _WORD.fullmatch(word) for word in words
    ):
        raise ValueError("must be words between dots, each of A-Z a-z 0-9 _ - or '*' (one word) or '#' (any)")
    return value


def matches(pattern: str, address: str) -> bool:
    """Whether the pattern means the address: ``orders.#`` means ``orders`` and ``orders.eu.west``."""
    return _matches(pattern.split("."), address.split("."))


def _matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    # One row of the table "pattern[:i] matches words[:j]" at a time: never exponential, whatever the pattern.
    reached = [True] + [False] * len(words)
    for part in pattern:
        if part == "#":
            first = reached.index(True) if True in reached else len(reached)
            reached = [index >= first for index in range(len(reached))]
        else:
            fits = (part in ("*", word) for word in words)
            reached = [False] + [before and fit for before, fit in zip(reached, fits, strict=False)]
    return reached[-1]


def specificity(pattern: str) -> tuple[int, int, tuple[int, ...], str]:
    """Sorts patterns from the most to the least specific: exact, then with '*', then with '#'.

    Among equals more literal words come first, then literal words further to the left.
    """
    words = pattern.split(".")
    kinds = tuple({"*": 1, "#": 2}.get(word, 0) for word in words)
    return max(kinds), -kinds.count(0), kinds, pattern
