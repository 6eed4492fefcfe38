"""A filter: a condition that is parsed once, and asked for each message."""

from __future__ import annotations

from typing import Final

from bridge.errors import FilterRefused
from bridge.filters.headers import MessageReader
from bridge.filters.limits import CONDITION_CHARS_MOST, STEPS_MOST
from bridge.filters.nodes import Kind, Node, Properties, Refused
from bridge.filters.steps import CannotEvaluate, Steps
from bridge.filters.system import NO_SYSTEM, System
from bridge.filters.values import BLANKS
from bridge.messages.message import Message

_CONVERT: Final = "convert_string_expressions:"
_HYPHENATED: Final = "hyphenated_props:"


class Filter:
    """A condition, ready to be asked. One thread asks it at a time."""

    __slots__ = ("_convert", "_matches", "_reader", "_root", "_steps", "names", "raised", "text")

    def __init__(self, text: str, root: Node, convert: bool, steps: Steps) -> None:
        #: The condition as it was given.
        self.text: Final = text
        #: Messages that did not match because the condition could not be evaluated for them: a number was
        #: taken from a text, for one. Artemis logs AMQ224006 for each.
        self.raised = 0
        parts = list(root.parts())
        #: The names of properties and fields that it asks for.
        self.names: Final = frozenset(part.symbol for part in parts if part.kind is Kind.NAME)
        self._reader = MessageReader(self.names)
        self._root = root
        self._convert = convert
        self._steps = steps
        self._matches = root.matches or root.evaluate

    def matches(self, properties: Properties, system: System = NO_SYSTEM) -> bool:
        """Whether the condition is true for a message: unknown is not true.

        A condition that cannot be evaluated is not true either; it is counted in `raised`.
        """
        self._steps.left = STEPS_MOST
        try:
            return self._matches(properties, system) is True
        except CannotEvaluate:
            self.raised += 1
            return False

    def takes(self, message: Message, address: str, duplicate_id: bytes | None = None) -> bool:
        """Whether the condition is true for a message that is stored at `address`. Its headers are its
        properties (`bridge.filters.headers`).
        """
        reader = self._reader
        system = reader.system(message, address) if reader.has_fields else NO_SYSTEM
        return self.matches(reader.properties(message, duplicate_id), system)

    def matches_line(self, properties: Properties, system: System) -> bool:
        """As `matches`. Where some of the properties are headers, their names count as in `takes`."""
        return self.matches(self._reader.lowered(properties), system)

    @property
    def missing(self) -> set[str]:
        """The names of the condition that no message has had of those that `takes` was asked about."""
        return self._reader.missing

    def share_missing(self, missing: set[str]) -> None:
        """Take names off this set from now on: that of another filter of the same condition."""
        self._reader.missing = missing

    def explain(self) -> str:
        """The condition as it is understood: in full brackets, with the types of its literals as comments.

        It is a condition itself, and means the same.
        """
        return (_CONVERT if self._convert else "") + self._root.text()


def parse(text: str) -> Filter | None:
    """The filter of a condition; None for an empty or blank one, which means no filter.

    Raises:
        FilterRefused: the text is no condition, or above a limit; with line and column.
    """
    if len(text) > CONDITION_CHARS_MOST:
        raise FilterRefused(
            f"a condition has at most {CONDITION_CHARS_MOST} characters; found {len(text)}",
            key="filter",
            limit=CONDITION_CHARS_MOST,
            found=len(text),
        )
    end = len(text.rstrip(BLANKS))
    start = len(text) - len(text.lstrip(BLANKS))
    if start >= end:
        return None
    start, convert, hyphenated = _prefixes(text, start)
    from bridge.filters import grammar  # with Lark: only where there is a condition

    try:
        steps = Steps()
        root = grammar.parse(text, start, end, hyphenated=hyphenated, convert=convert, steps=steps)
        return Filter(text, root, convert, steps)
    except Refused as refused:
        line, column = position(text, refused.place)
        raise FilterRefused(
            f"line {line}, column {column}: {refused.reason}", key="filter", line=line, column=column
        ) from None


def _prefixes(text: str, start: int) -> tuple[int, bool, bool]:
    """Where the condition begins behind its prefixes; whether texts are converted; whether names may hold
    hyphens. The last prefix of each kind counts.
    """
    convert = hyphenated = False
    while True:
        if text.startswith(_CONVERT, start):
            convert, start = True, start + len(_CONVERT)
        elif text.startswith(_HYPHENATED, start):
            hyphenated, start = True, start + len(_HYPHENATED)
        elif text.startswith("no_" + _CONVERT, start):
            convert, start = False, start + len("no_" + _CONVERT)
        elif text.startswith("no_" + _HYPHENATED, start):
            hyphenated, start = False, start + len("no_" + _HYPHENATED)
        else:
            return start, convert, hyphenated


def position(text: str, place: int) -> tuple[int, int]:
    """Line and column, both from 1, of a place in characters from 0."""
    before = text[:place].replace("\r\n", "\n").replace("\r", "\n")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
