"""The functions of XPath 1.0 (section 4)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from bridge.filters.xpath.document import NodeType, XmlNode
from bridge.filters.xpath.values import XValue, nodes_of, number_of, text_of, truth_of

_BLANKS: Final = re.compile(r"[ \t\r\n]+")


class Context(NamedTuple):
    """Where a part of a path is evaluated."""

    node: XmlNode
    #: From 1.
    position: int
    size: int


class Function(NamedTuple):
    """A function: how many arguments it takes, and what it does."""

    least: int
    most: int
    call: Callable[[Context, Sequence[XValue]], XValue]


def _named(context: Context, arguments: Sequence[XValue]) -> XmlNode | None:
    nodes = nodes_of(arguments[0]) if arguments else [context.node]
    return nodes[0] if nodes else None


def _local(context: Context, arguments: Sequence[XValue]) -> XValue:
    node = _named(context, arguments)
    return node.local if node else ""


def _namespace(context: Context, arguments: Sequence[XValue]) -> XValue:
    node = _named(context, arguments)
    return node.namespace if node else ""


def _name(context: Context, arguments: Sequence[XValue]) -> XValue:
    node = _named(context, arguments)
    return node.name if node else ""


def _text(context: Context, arguments: Sequence[XValue]) -> str:
    return text_of(arguments[0]) if arguments else context.node.text()


def _before(_context: Context, arguments: Sequence[XValue]) -> XValue:
    before, found, _ = text_of(arguments[0]).partition(text_of(arguments[1]) or "\0")
    return before if found else ""


def _after(_context: Context, arguments: Sequence[XValue]) -> XValue:
    text, mark = map(text_of, arguments)
    return text.partition(mark)[2] if mark else text


def _round(value: float) -> float:
    return value if not math.isfinite(value) else float(math.floor(value + 0.5))


def _substring(_context: Context, arguments: Sequence[XValue]) -> XValue:
    text, start = text_of(arguments[0]), _round(number_of(arguments[1]))
    end = start + _round(number_of(arguments[2])) if len(arguments) > 2 else math.inf
    if math.isnan(start) or math.isnan(end) or end <= start:
        return ""
    first, behind = max(start, 1.0), min(end, len(text) + 1.0)
    return text[int(first) - 1 : int(behind) - 1] if first < behind else ""


def _translate(_context: Context, arguments: Sequence[XValue]) -> XValue:
    text, old, new = map(text_of, arguments)
    table: dict[int, str | None] = {}
    for place, char in enumerate(old):
        table.setdefault(ord(char), new[place] if place < len(new) else None)
    return text.translate(table)


def _lang(context: Context, arguments: Sequence[XValue]) -> XValue:
    wanted = text_of(arguments[0]).lower()
    node: XmlNode | None = context.node
    while node is not None:
        for attribute in node.attributes:
            if attribute.name == "xml:lang":
                found = attribute.value.lower()
                return found == wanted or found.startswith(wanted + "-")
        node = node.parent
    return False


def _whole(rounding: Callable[[float], int]) -> Callable[[Context, Sequence[XValue]], XValue]:
    def call(_context: Context, arguments: Sequence[XValue]) -> XValue:
        value = number_of(arguments[0])
        return float(rounding(value)) if math.isfinite(value) else value

    return call


FUNCTIONS: Final[dict[str, Function]] = {
    # Without a document type no element has an ID.
    "id": Function(1, 1, lambda _context, _: []),
    "last": Function(0, 0, lambda context, _: float(context.size)),
    "position": Function(0, 0, lambda context, _: float(context.position)),
    "count": Function(1, 1, lambda _, arguments: float(len(nodes_of(arguments[0])))),
    "local-name": Function(0, 1, _local),
    "namespace-uri": Function(0, 1, _namespace),
    "name": Function(0, 1, _name),
    "string": Function(0, 1, _text),
    "concat": Function(2, 1000, lambda _, arguments: "".join(map(text_of, arguments))),
    "starts-with": Function(
        2, 2, lambda _, arguments: text_of(arguments[0]).startswith(text_of(arguments[1]))
    ),
    "contains": Function(2, 2, lambda _, arguments: text_of(arguments[1]) in text_of(arguments[0])),
    "substring-before": Function(2, 2, _before),
    "substring-after": Function(2, 2, _after),
    "substring": Function(2, 3, _substring),
    "string-length": Function(0, 1, lambda context, arguments: float(len(_text(context, arguments)))),
    "normalize-space": Function(
        0, 1, lambda context, arguments: " ".join(_BLANKS.split(_text(context, arguments).strip(" \t\r\n")))
    ),
    "translate": Function(3, 3, _translate),
    "boolean": Function(1, 1, lambda _, arguments: truth_of(arguments[0])),
    "not": Function(1, 1, lambda _, arguments: not truth_of(arguments[0])),
    "true": Function(0, 0, lambda _context, _: True),
    "false": Function(0, 0, lambda _context, _: False),
    "lang": Function(1, 1, _lang),
    "number": Function(
        0, 1, lambda context, arguments: number_of(arguments[0] if arguments else context.node.text())
    ),
    "sum": Function(
        1, 1, lambda _, arguments: float(sum(number_of(node.text()) for node in nodes_of(arguments[0])))
    ),
    "floor": Function(1, 1, _whole(math.floor)),
    "ceiling": Function(1, 1, _whole(math.ceil)),
    "round": Function(1, 1, lambda _, arguments: _round(number_of(arguments[0]))),
}

#: The tests of a node's type, as they are written.
TYPE_TESTS: Final[dict[str, frozenset[NodeType]]] = {
    "node": frozenset(NodeType),
    "text": frozenset({NodeType.TEXT}),
    "comment": frozenset(),
    "processing-instruction": frozenset({NodeType.INSTRUCTION}),
}
