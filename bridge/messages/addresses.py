"""Names of addresses and queues, and the wildcards that settings and users' rights are written in."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from bridge.errors import InvalidAddress

#: MULTICAST: every queue gets every message. ANYCAST: one queue, named like the address, which all share.
RoutingType = Literal["MULTICAST", "ANYCAST"]
#: A routing type that a bridge asks for; empty: none, and the settings of the address's node decide.
WantedType = Literal["", "MULTICAST", "ANYCAST"]

#: Longest name of an address or a queue, in characters (Kafka's limit for topics).
NAME_LENGTH_MAX = 249
#: Prefixes of the names that the node gives out itself.
OWN_PREFIXES = ("$", "core-bridge.")

#: Segments that are removed from a path before it is sent (RFC 3986, section 5.2.4), and name no Kafka topic
#: either.
PATH_SEGMENTS = (".", "..")

#: Stands between the address and the queue of a fully qualified queue name.
QUEUE_MARK: Final = "::"

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NAMES_REMEMBERED = 8192


@lru_cache(maxsize=_NAMES_REMEMBERED)
def check_name(name: str, key: str = "address") -> str:
    """`name`, if a client may use it for an address or a queue of its own.

    Raises:
        InvalidAddress: empty, too long, other characters than ``A-Z a-z 0-9 . _ -``, ``.`` or ``..``, or one
            of the node's own names. `key` is the part of the request that holds it.
    """
    if is_own(name):
        raise InvalidAddress(
            f"names that start with '$' or 'core-bridge.' are the node's own; found {name}", key, found=name
        )
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidAddress(
            f"a name has at most {NAME_LENGTH_MAX} characters; found {len(name)}",
            key,
            NAME_LENGTH_MAX,
            len(name),
        )
    if not _NAME.fullmatch(name):
        raise InvalidAddress(f"a name is made of A-Z a-z 0-9 . _ -; found {name!r}", key, found=name)
    if name in PATH_SEGMENTS:
        raise InvalidAddress(f"{name} is no name: clients take it out of a URL's path", key, found=name)
    return name


class QueueName(NamedTuple):
    """A fully qualified queue name: ``orders::billing``."""

    address: str
    queue: str

    def __str__(self) -> str:
        """As settings write it."""
        return f"{self.address}{QUEUE_MARK}{self.queue}"


def check_readable(name: str) -> str:
    """`name`, if an address can have it: the node's own names included.

    Raises:
        InvalidAddress: see `check_name`.
    """
    return name if is_own(name) else check_name(name)


def is_own(name: str) -> bool:
    """Whether the name belongs to the node itself (its store-and-forward queues, journal topics)."""
    return name.startswith(OWN_PREFIXES)


def matches(pattern: str, address: str) -> bool:
    """Whether a wildcard covers an address.

    ``.`` separates words, ``*`` is one word, ``#`` any number of words, none included, so that
    ``news.#`` covers ``news`` too (Artemis manual, "Understanding the Wildcard Syntax").
    """
    return _matches(pattern.split("."), address.split("."))


def _matches(pattern: list[str], words: list[str]) -> bool:
    # The classic walk with one point to come back to: linear in practice, and no recursion for
    # a pattern such as '#.#.#.#' to blow up.
    index = word = 0
    back_index = back_word = -1
    while word < len(words):
        part = pattern[index] if index < len(pattern) else None
        if part == "#":
            back_index, back_word = index, word
            index += 1
        elif part is not None and part in ("*", words[word]):
            index += 1
            word += 1
        elif back_index >= 0:
            back_word += 1
            index, word = back_index + 1, back_word
        else:
            return False
    return all(part == "#" for part in pattern[index:])
