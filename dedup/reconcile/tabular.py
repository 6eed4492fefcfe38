"""Tables of the page, as data for `templates/table.html`; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

#: A number that there cannot be.
NOTHING: Final = "–"


class Line(NamedTuple):
    """A line of a cell: text, then something in a fainter colour; either may be empty."""

    text: str
    quiet: str = ""


#: One text, or several lines.
Cell = str | Sequence[Line]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    #: Right-aligned; a 0 is drawn faintly.
    numeric: bool = False
    #: Something to copy: a stream, a hash.
    code: bool = False
    #: Its cells name their rows.
    header: bool = False
    #: Shares a line with others on a phone, as numbers do.
    short: bool = False
    #: A number above 0 is marked as ``bad`` or ``warn``.
    tone: str = ""

    def classes(self, cell: Cell) -> str:
        """Of one of its cells, for the style sheet."""
        tone = self.tone
        if self.numeric and cell in ("0", NOTHING):
            tone = "zero" if cell == "0" else "zero none"
        names = ("num" if self.numeric else "", "short" if self.short else "", tone)
        return " ".join(name for name in names if name)


@dataclass(frozen=True, slots=True)
class Table:
    """Headers with scope, a caption, and labels for the cards of a phone."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    #: A row is a card on a phone.
    cards: bool = True
