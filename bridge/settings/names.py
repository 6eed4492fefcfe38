"""Names and wildcard patterns as settings may write them; `bridge.messages.addresses` knows their meaning.
Pure.

Wildcards are Artemis's (manual, chapter "Wildcard Syntax"): '.' separates words, '*' stands for one
word, '#' for any number of words, none included.
"""

from __future__ import annotations

import re
from typing import Final

from bridge.messages.addresses import NAME_LENGTH_MAX, PATH_SEGMENTS, is_own

_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_LENGTH_MAX}}}")
_WORD: Final = re.compile(r"[$A-Za-z0-9_-]*")
_NAME_RULE: Final = f"must be 1 to {NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ -"


def check_name(value: str) -> str:
    """`value` if it is valid as a name: of a node, a consumer group or a Kafka topic
    (``org.apache.kafka.common.internals.Topic``), too.

    Raises:
        ValueError: the rule that it breaks.
    """
    if value in PATH_SEGMENTS:
        raise ValueError("must be neither . nor ..")
    if not _NAME.fullmatch(value):
        raise ValueError(_NAME_RULE)
    return value


def check_user_name(value: str) -> str:
    """`value` if it is valid as the name of a user's address, queue, bridge or cluster.

    Raises:
        ValueError: the rule that it breaks.
    """
    if is_own(value):
        raise ValueError("must not begin with $ or core-bridge., which are the node's own")
    return check_name(value)


def check_pattern(value: str) -> str:
    """`value` if it is an address or a wildcard pattern; it may name the node's own addresses.

    Raises:
        ValueError: the rule that it breaks.
    """
    words = value.split(".")
    if not 1 <= len(value) <= NAME_LENGTH_MAX or not all(
        word in ("*", "#") or _WORD.fullmatch(word) for word in words
    ):
        raise ValueError("must be words between dots, each of A-Z a-z 0-9 _ - or '*' (one word) or '#' (any)")
    return value


def specificity(pattern: str) -> tuple[int, int, tuple[int, ...], str]:
    """Sorts patterns from the most to the least specific: exact, then with '*', then with '#'.

    Among equals more literal words come first, then literal words further to the left.
    """
    words = pattern.split(".")
    kinds = tuple({"*": 1, "#": 2}.get(word, 0) for word in words)
    return max(kinds), -kinds.count(0), kinds, pattern
