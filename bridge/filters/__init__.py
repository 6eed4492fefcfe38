"""Conditions on messages: Artemis's filter language (docs/filters.md).

`parse` makes a `Filter` of a condition, once; the filter is then asked for each message. Lark, which parses,
is imported with the first condition.
"""

from bridge.errors import FilterRefused
from bridge.filters.filter import Filter, parse
from bridge.filters.system import System
from bridge.filters.values import Byte, Char, Float, HeaderText, Long, Short, Value

__all__ = [
    "Byte",
    "Char",
    "Filter",
    "FilterRefused",
    "Float",
    "HeaderText",
    "Long",
    "Short",
    "System",
    "Value",
    "parse",
]
