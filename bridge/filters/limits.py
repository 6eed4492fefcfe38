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
