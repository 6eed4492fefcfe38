"""The functions that a path is made of: axes, steps, predicates and operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from bridge.filters.xpath.document import NodeType, XmlNode
from bridge.filters.xpath.functions import Context
from bridge.filters.xpath.values import Failed, XValue, compare, nodes_of, number_of, truth_of

Evaluate = Callable[[Context], XValue]
NodeTest = Callable[[XmlNode], bool]
Step = Callable[[Context], list[XmlNode]]
#: Makes an operation of its symbol and its operands.
Make = Callable[[str, Evaluate, Evaluate], Evaluate]
#: Nodes from one node on, the nearest first.
Axis = Callable[[XmlNode], Sequence[XmlNode]]


def _ancestors(node: XmlNode) -> list[XmlNode]:
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found


def _siblings(node: XmlNode) -> tuple[list[XmlNode], int]:
    if node.parent is None or node.type is NodeType.ATTRIBUTE:
        return [], 0
    siblings = node.parent.children
    low, high = 0, len(siblings) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if siblings[middle].order < node.order else (low, middle)
    return siblings, low


def _preceding_siblings(node: XmlNode) -> list[XmlNode]:
    siblings, place = _siblings(node)
    return siblings[:place][::-1]


def _following_siblings(node: XmlNode) -> list[XmlNode]:
    siblings, place = _siblings(node)
    return siblings[place + 1 :]


def _following(node: XmlNode) -> list[XmlNode]:
    last = node.order[0] if node.type is NodeType.ATTRIBUTE else node.last
    return node.nodes[last + 1 :]


def _preceding(node: XmlNode) -> list[XmlNode]:
    above = set(map(id, _ancestors(node)))
    return [other for other in node.nodes[: node.order[0]][::-1] if id(other) not in above]


AXES: Final[dict[str, Axis]] = {
    "self": lambda node: [node],
    "child": lambda node: node.children,
    "parent": lambda node: [] if node.parent is None else [node.parent],
    "attribute": lambda node: node.attributes,
    "descendant": lambda node: node.descendants(),
    "descendant-or-self": lambda node: [node, *node.descendants()],
    "ancestor": _ancestors,
    "ancestor-or-self": lambda node: [node, *_ancestors(node)],
    "following-sibling": _following_siblings,
    "preceding-sibling": _preceding_siblings,
    "following": _following,
    "preceding": _preceding,
    "namespace": lambda _node: [],
}


def unknown(_asked: object) -> NoReturn:
    """A variable, or a name with a prefix: a path here has no values for them."""
    raise Failed("a path has no variables and prefixes here")


def any_node(_node: XmlNode) -> bool:
    """The test ``node()``."""
    return True


def step_along(axis: str, test: NodeTest, predicates: Sequence[Evaluate]) -> Step:
    """A step: the nodes of the axis that pass the test and the predicates, the nearest first."""
    walk = AXES[axis]

    def step(context: Context) -> list[XmlNode]:
        around = walk(context.node)
        context.node.spend(len(around) + 1)
        found = [node for node in around if test(node)]
        for predicate in predicates:
            found = _filtered(found, predicate)
        return found

    return step


def _filtered(nodes: Sequence[XmlNode], predicate: Evaluate) -> list[XmlNode]:
    kept = []
    for position, node in enumerate(nodes, 1):
        value = predicate(Context(node, position, len(nodes)))
        is_number = isinstance(value, float) and not isinstance(value, bool)
        if (value == position) if is_number else truth_of(value):
            kept.append(node)
    return kept


def _in_order(nodes: Sequence[XmlNode]) -> list[XmlNode]:
    """The nodes once each, in document order."""
    return sorted({id(node): node for node in nodes}.values(), key=lambda node: node.order)


def root(context: Context) -> XValue:
    """The document's root."""
    return [context.node.nodes[0]]


def followed(start: Evaluate, steps: Sequence[Step]) -> Evaluate:
    """The nodes that the steps reach from those of `start`, in document order.

    It raises `Failed` where `start` gives no set of nodes.
    """

    def evaluate(context: Context) -> XValue:
        nodes = nodes_of(start(context))
        for step in steps:
            found: list[XmlNode] = []
            for position, node in enumerate(nodes, 1):
                found += step(Context(node, position, len(nodes)))
            nodes = _in_order(found)
        return nodes

    return evaluate


def narrowed(start: Evaluate, predicates: Sequence[Evaluate]) -> Evaluate:
    """The nodes of `start` that pass the predicates."""

    def evaluate(context: Context) -> XValue:
        nodes = nodes_of(start(context))
        for predicate in predicates:
            nodes = _filtered(nodes, predicate)
        return nodes

    return evaluate


def either(_symbol: str, left: Evaluate, right: Evaluate) -> Evaluate:
    """``or``."""
    return lambda context: truth_of(left(context)) or truth_of(right(context))


def both(_symbol: str, left: Evaluate, right: Evaluate) -> Evaluate:
    """``and``."""
    return lambda context: truth_of(left(context)) and truth_of(right(context))


def compared(symbol: str, left: Evaluate, right: Evaluate) -> Evaluate:
    """A comparison."""
    return lambda context: compare(symbol, left(context), right(context))


def united(_symbol: str, left: Evaluate, right: Evaluate) -> Evaluate:
    """``|``: the nodes of both sides."""
    return lambda context: _in_order([*nodes_of(left(context)), *nodes_of(right(context))])


def _divided(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    return (
        math.nan
        if left == 0.0 or math.isnan(left)
        else math.copysign(math.inf, left) * math.copysign(1, right)
    )


def _remainder(left: float, right: float) -> float:
    return math.nan if right == 0.0 or math.isinf(left) else math.fmod(left, right)


_OPERATIONS: Final[dict[str, Callable[[float, float], float]]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "div": _divided,
    "mod": _remainder,
}


def calculated(symbol: str, left: Evaluate, right: Evaluate) -> Evaluate:
    """A calculation."""
    operation = _OPERATIONS[symbol]
    return lambda context: operation(number_of(left(context)), number_of(right(context)))
