"""A count of answered rows, and events that are set once it has got so far."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Milestones:
    """Counts rows as clients get their answers."""

    def __init__(self, on_answer: Callable[[int], None]) -> None:
        """`on_answer` gets the number of answered rows."""
        self._on_answer = on_answer
        self._awaited: list[tuple[int, asyncio.Event]] = []
        #: Rows that have been answered.
        self.answered = 0

    def reached(self, answered: int) -> asyncio.Event:
        """An event that is set once that many rows are answered."""
        event = asyncio.Event()
        self._awaited.append((answered, event))
        self.answer(0)
        return event

    def answer(self, rows: int) -> None:
        """So many further rows are answered."""
        self.answered += rows
        self._on_answer(self.answered)
        for answered, event in self._awaited:
            if self.answered >= answered:
                event.set()
        self._awaited = [one for one in self._awaited if not one[1].is_set()]
