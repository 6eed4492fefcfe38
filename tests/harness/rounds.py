"""The number of rounds of a test of chance: a tenth in `make quick`, more in a long look."""

from __future__ import annotations

from typing import Final

from hypothesis import settings

#: Examples of a property test unless the profile says otherwise; CI has half of them.
EXAMPLES: Final = 100


def rounds(number: int) -> int:
    """`number`, as the profile's examples are to `EXAMPLES` (`tests/conftest.py`); 1 at least."""
    return max(1, number * settings().max_examples // EXAMPLES)
