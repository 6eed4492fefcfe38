"""The bound on the work that one condition does for one message.

A condition has no loops, so its own size bounds how many values it looks at. Operations on long texts count:
each time that a text is joined, searched, compared or read as a number, its characters count. So neither a
client's condition nor the headers that others send keep the node busy.
"""

from __future__ import annotations

from typing import Any, Final

from bridge.filters.limits import STEPS_MOST

#: Characters of a text that does not count: that costs no more than to look the value up.
SHORT_TEXT: Final = 32


class CannotEvaluate(Exception):
    """An operation that Artemis raises on while it evaluates, or more work than `STEPS_MOST`."""


class Steps:
    """The work that is left to a condition for one message. One thread uses it at a time."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        #: Characters.
        self.left = STEPS_MOST

    def take(self, count: int) -> None:
        """Count an operation on so many characters.

        Raises:
            CannotEvaluate: the condition has done `STEPS_MOST`.
        """
        self.left -= count
        if self.left < 0:
            raise CannotEvaluate(f"more than {STEPS_MOST} characters of texts are handled for one message")

    def take_text(self, value: Any) -> None:
        """Count an operation on a value, where it is a long text. Raises: CannotEvaluate: as `take`."""
        if isinstance(value, str) and len(value) > SHORT_TEXT:
            self.take(len(value))
