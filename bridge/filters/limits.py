"""The limits of a condition. Each is checked when the condition is parsed, never when it is matched."""

from __future__ import annotations

from typing import Final

#: Characters of a condition.
CONDITION_CHARS_MOST: Final = 100_000

#: Brackets that are open at one place. Artemis takes what its thread's stack holds: some hundreds.
BRACKETS_MOST: Final = 500

#: Operators inside one another. Chains of NOT, AND, OR, signs and arithmetic count as one operator, so that
#: matching stays far from Python's limit of recursion.
OPERATORS_DEEP_MOST: Final = 500

#: Digits of a whole number. Python refuses to read more than 4,300.
DIGITS_MOST: Final = 1_000

#: Brackets of an XPath that are inside one another.
XPATH_DEEP_MOST: Final = 30

#: Operators of an XPath.
XPATH_OPERATORS_MOST: Final = 100

#: Elements of an XML document that are inside one another; a deeper one cannot be evaluated.
XML_DEEP_MOST: Final = 1_000

#: Nodes that an XPath looks at in one document; one that would look at more cannot be evaluated.
XPATH_NODES_MOST: Final = 1_000_000
