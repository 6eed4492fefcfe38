"""Tables of the page: headers with scope, a caption, and labels for the cards of a phone; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from dedup.reconcile.markup import escaped

#: A number that there cannot be.
NOTHING: Final = "–"


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


@dataclass(frozen=True, slots=True)
class Markup:
    """A cell that is markup already; everything else is escaped."""

    html: str


#: Text, or markup that was made here.
Cell = str | Markup


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], *, kind: str = "") -> str:
    """A table whose caption is for those who do not see where it stands.

    The roles are written out because the phone's style, which is no table any more, would take them away.
    """
    head = "".join(_head(column) for column in columns)
    lines = ("".join(map(_cell, columns, row)) for row in rows)
    body = "".join(f'<tr role="row">{line}</tr>' for line in lines)
    return (
        f'<div class="scroll" role="group" aria-label="{escaped(caption)}" tabindex="0">'
        f'<table role="table"{_class(kind)}><caption>{escaped(caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div>'
    )


def _head(column: Column) -> str:
    names = _class("num" if column.numeric else "")
    return f'<th scope="col" role="columnheader"{names}>{escaped(column.name)}</th>'


def _cell(column: Column, cell: Cell) -> str:
    content = cell.html if isinstance(cell, Markup) else escaped(cell)
    names = [name for name, given in (("num", column.numeric), ("short", column.short)) if given]
    if column.numeric and cell in ("0", NOTHING):
        names.append("zero" if cell == "0" else "zero none")
    elif column.tone:
        names.append(column.tone)
    if column.code:
        content = f"<code>{content}</code>"
    label = f' data-label="{escaped(column.name)}"'
    if column.header:
        return f'<th scope="row" role="rowheader"{_class(*names)}{label}>{content}</th>'
    return f'<td role="cell"{_class(*names)}{label}>{content}</td>'


def _class(*names: str) -> str:
    kept = " ".join(name for name in names if name)
    return f' class="{kept}"' if kept else ""
