"""The parts of a condition: each is made with the function that evaluates it, from the parts below it.

So nothing walks a tree, neither to compile a condition nor to match a message. A part also keeps the pieces
of its own text, for `explain`.

Source of the rules: the expressions of Artemis 2.44 (`org.apache.activemq.artemis.selector.filter`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bridge.errors import FilterRefused
from bridge.filters.limits import EXPLAINED_CHARS_MOST, OPERATORS_DEEP_MOST
from bridge.filters.system import FIELDS, System
from bridge.filters.values import INT_LEAST, INT_MOST, Big, Value

#: Values by name; a name that is missing and one with None are the same.
Properties = Mapping[str, Value]

#: The value of a part for one message; None: unknown. Raises `CannotEvaluate`.
Evaluate = Callable[[Properties, System], Any]


class Kind(Enum):
    """The kinds of parts. They decide which parts may be operands of which."""

    #: A text or number that is written in the condition.
    LITERAL = "a literal"
    #: TRUE, FALSE or NULL.
    CONSTANT = "TRUE, FALSE or NULL"
    NAME = "a name"
    #: Arithmetic, or a sign.
    OPERATION = "a calculation"
    #: What is true, false or unknown.
    TEST = "a test"


class Refused(Exception):
    """A condition that is not taken: the place of what is wrong, in characters, and why."""

    def __init__(self, place: int, reason: str) -> None:
        super().__init__(reason)
        self.place = place
        self.reason = reason


@dataclass(slots=True, eq=False)
class Node:
    """A part of a condition. Only the one that has just been made grows: a chain, by its next operand."""

    kind: Kind
    evaluate: Evaluate
    #: Where it begins in the condition, in characters from 0.
    place: int
    #: Its text: pieces of text and parts.
    pieces: list[str | Node]
    #: Operators that are inside one another.
    depth: int = 0
    #: The value of a literal or constant.
    value: Value = None
    #: The operator, or the name.
    symbol: str = ""
    #: The operations of a chain, each with its right operand.
    operations: list[tuple[Callable[[Any, Any], Value], Evaluate]] = field(default_factory=list)
    #: The tests of AND, OR and NOT.
    tests: list[Node] = field(default_factory=list)
    #: Whether the whole condition matches, where this part is all of it or an AND or OR that is reached
    #: through AND and OR alone. It stops sooner than `evaluate`.
    matches: Evaluate | None = None

    def parts(self) -> Iterator[Node]:
        """This part and every part below it. Found without recursion."""
        waiting, seen = [self], {id(self)}
        while waiting:
            part = waiting.pop()
            yield part
            for piece in part.pieces:
                if isinstance(piece, Node) and id(piece) not in seen:
                    seen.add(id(piece))
                    waiting.append(piece)

    def text(self) -> str:
        """The part in full brackets, with the types of its literals. Made without recursion.

        Raises:
            FilterRefused: it is longer than `EXPLAINED_CHARS_MOST`.
        """
        written: list[str] = []
        length = 0
        waiting: list[str | Node] = [self]
        while waiting:
            piece = waiting.pop()
            if isinstance(piece, str):
                written.append(piece)
                length += len(piece)
                if length > EXPLAINED_CHARS_MOST:
                    detail = f"explained, the condition has more than {EXPLAINED_CHARS_MOST} characters"
                    raise FilterRefused(detail, key="filter", limit=EXPLAINED_CHARS_MOST)
            else:
                waiting.extend(reversed(piece.pieces))
        return "".join(written)


def deeper(place: int, *parts: Node) -> int:
    """The depth of an operator above these parts.

    Raises:
        Refused: it is above `OPERATORS_DEEP_MOST`.
    """
    depth = max(part.depth for part in parts) + 1
    if depth > OPERATORS_DEEP_MOST:
        raise Refused(
            place, f"at most {OPERATORS_DEEP_MOST} operators may be inside one another; found {depth}"
        )
    return depth


def quoted(text: str, mark: str) -> str:
    """A text between marks, with those in it doubled."""
    return mark + text.replace(mark, mark * 2) + mark


def type_name(value: Value) -> str:
    """A literal's type as `explain` shows it."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, float):
        return "double"
    if type(value) is Big:
        return "above 2^63-1"
    return "int" if INT_LEAST <= int(value or 0) <= INT_MOST else "long"


def constant(place: int, word: str) -> Node:
    """TRUE, FALSE or NULL."""
    value = {"TRUE": True, "FALSE": False, "NULL": None}[word]
    return Node(Kind.CONSTANT, lambda _properties, _system: value, place, [word], value=value)


def literal(place: int, value: Value, written: str) -> Node:
    """A text or a number."""
    return Node(
        Kind.LITERAL,
        lambda _properties, _system: value,
        place,
        [f"{written} /* {type_name(value)} */"],
        value=value,
    )


def name(place: int, called: str) -> Node:
    """The value of a field or of a property."""
    return Node(Kind.NAME, _lookup(called), place, [quoted(called, '"')], symbol=called)


def _lookup(called: str) -> Evaluate:
    own = FIELDS.get(called)
    if own is None:
        return lambda properties, _system: properties.get(called)

    def from_field(properties: Properties, system: System) -> Value:
        value = own(system)
        return properties.get(called) if value is None else value

    return from_field
