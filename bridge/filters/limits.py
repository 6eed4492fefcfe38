"""The limits of a condition. All but `STEPS_MOST` are checked when it is parsed."""

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

#: Characters of texts that a condition joins, searches, compares or reads as numbers for one message
#: (`bridge.filters.steps`).
STEPS_MOST: Final = 100_000

#: Characters of a condition that is explained: BETWEEN writes its value twice.
EXPLAINED_CHARS_MOST: Final = 1_000_000
