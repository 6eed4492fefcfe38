"""The settings as they grow: tables and keys, each with its line of broker.xml, and remarks on the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from bridge.migrate.document import Element, Place
from bridge.migrate.shown import NAMING, one_line, shown_content, shown_text
from bridge.migrate.values import read
from bridge.settings.artemis import SCOPES, ArtemisKey, Form
from bridge.settings.load import find_problems
from bridge.settings.paths import KeyPath
from bridge.settings.schema import known_keys

#: Tables of which the settings have many, as lists.
LISTS: Final = ("bridges", "cluster-connections")
#: The name of a node where broker.xml has none.
_ANY_NODE: Final = "node-1"
#: The key to take back where a finding is about another one that is not written: its default does not fit.
_PARTNERS: Final = {"connection-ttl": "check-period"}

#: Elements that need not be named to say where something is.
_UNNAMED: Final = frozenset(
    {
        *(
            "configuration",
            "core",
            "jms",
            "connectors",
            "acceptors",
            "address-settings",
            "addresses",
            "queues",
        ),
        *("bridges", "diverts", "cluster-connections"),
    }
)
_NO_ATTRIBUTE: Final = "not known: Artemis's schema has no such attribute here"
_NO_TEXT: Final = "not known: Artemis's schema has no text here"
TWICE: Final = "written twice: the first one counts"


class Kind(Enum):
    """Kinds of remarks."""

    #: Not carried over: broker.xml does something that the settings do not.
    LEFT = "left"
    #: Carried over with another meaning, or as a placeholder: a person decides.
    CHECK = "check"
    #: Not carried over, and nothing is lost: it concerns Artemis's own machinery.
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Remark:
    """A line of broker.xml, and what became of it."""

    place: Place
    kind: Kind
    #: The element: ``bridge my-bridge: ha``.
    what: str
    #: What stands for it here, or the rule that it breaks.
    text: str
    #: Its value; empty where there is none, or it may be secret.
    found: str = ""

    def __str__(self) -> str:
        found = f"; found {self.found}" if self.found else ""
        return f"{self.place}: {self.kind.value}: {self.what}: {self.text}{found}"


@dataclass(slots=True)
class Row:
    """A key of a table."""

    value: Any
    place: Place
    #: Whether a person has to fill it in: the settings may refuse it until then.
    placeholder: bool = False
    #: Whether the table does what it is for without it.
    spare: bool = False
    #: A word about the value, written beside it.
    note: str = ""
    #: Of a list, the place of each item; empty: all are at `place`.
    places: list[Place] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    """A table of the settings, made of an element."""

    #: The steps of its header; without the index where there are many.
    path: tuple[str, ...]
    #: The element in words: ``bridge my-bridge``; empty: `<core>` itself.
    what: str
    place: Place
    rows: dict[str, Row] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    #: Whether it is written as a comment, because the settings would refuse it.
    out: bool = False

    def set(
        self, key: str, value: Any, place: Place, *, placeholder: bool = False, spare: bool = False
    ) -> None:
        """Write a key, where it is not there yet."""
        self.rows.setdefault(key, Row(value, place, placeholder, spare, "fill in" if placeholder else ""))

    def remark(self, kind: Kind, place: Place, name: str, text: str, found: str | Element = "") -> None:
        """Note what became of `name`, an element or attribute below the table's.

        `found` is its value, or the element itself: it is shown with everything in it, and counts as read.
        """
        what = ": ".join(part for part in (self.what, name) if part)
        if isinstance(found, Element):
            found.mark_read()
            shown = shown_content(found, what)
        else:  # of several names the caller leaves secrets out
            shown = shown_text("" if ", " in name else name, found)
        self.remarks.append(Remark(place, kind, one_line(what), text, one_line(shown)))

    def values(self) -> dict[str, Any]:
        """The keys and values."""
        return {key: row.value for key, row in self.rows.items()}


class Draft:
    """All tables."""

    def __init__(self, place: Place) -> None:
        self.tables: list[Table] = []
        self._alone: dict[tuple[str, ...], Table] = {}
        #: Of what belongs to no table.
        self.general = Table((), "", place)

    def add(self, path: tuple[str, ...], what: str, place: Place) -> Table:
        """A new table; or the one of this path, where the settings have one alone."""
        if path in self._alone:
            return self._alone[path]
        table = Table(path, what, place)
        self.tables.append(table)
        if path[0] not in LISTS:
            self._alone[path] = table
        return table

    def remarks(self) -> list[Remark]:
        """All remarks, in the order of the file."""
        found = (remark for table in (*self.tables, self.general) for remark in table.remarks)
        return in_order(dict.fromkeys(found))

    def remark_unread(self, root: Element) -> None:
        """Name every part of the document that no converter has read: nothing is dropped in silence."""
        waiting = [(root, "")]
        while waiting:
            element, what = waiting.pop()
            self._remark_unread_parts(element, what)
            for child in element.children:
                name = _named(child)
                path = name if element.name in _UNNAMED else f"{what}: {name}"
                if child.is_read:
                    waiting.append((child, path))
                else:
                    self.general.remark(Kind.LEFT, child.place, path, _why_unread(element, child), child)

    def _remark_unread_parts(self, element: Element, what: str) -> None:
        """Name the attributes and the text of one element that no converter has read."""
        for name, value in element.attributes.items():
            if name not in element.read_attributes:
                path = ": ".join(part for part in (what, name) if part)
                self.general.remark(Kind.LEFT, element.place, path, _NO_ATTRIBUTE, value)
        if element.text and not element.is_text_read:
            self.general.remark(Kind.LEFT, element.place, what or element.name, _NO_TEXT, element.text)

    def settle(self, directory: Path) -> None:
        """Take back what the settings refuse, with a remark each, until they refuse placeholders alone."""
        again = True
        while again:
            written = [table for table in self.tables if not table.out]
            lists = {top: [table for table in written if table.path[0] == top] for top in LISTS}
            again = False
            for finding in find_problems(_tree(written), directory):
                again |= _take_back(*self._table_at(finding.path, lists), finding.rule)
            for table in written:
                _drop_taken(table)

    def _table_at(self, path: KeyPath, lists: Mapping[str, Sequence[Table]]) -> tuple[Table, KeyPath]:
        """The table that a path leads to, and the steps below it."""
        top, *rest = path
        if top in lists and rest and isinstance(rest[0], int):
            return lists[str(top)][rest[0]], path[2:]
        length = 1 if (top,) in self._alone else 2
        return self._alone[tuple(map(str, path[:length]))], path[length:]


def _tree(tables: Sequence[Table]) -> dict[str, Any]:
    """The settings that the tables make."""
    tree: dict[str, Any] = {"node": {"name": _ANY_NODE}}
    for table in tables:
        top = table.path[0]
        if top in LISTS:
            tree.setdefault(top, []).append(table.values())
        elif len(table.path) == 1:
            tree.setdefault(top, {}).update(table.values())
        else:
            tree.setdefault(top, {})[table.path[1]] = table.values()
    return tree


def _take_back(table: Table, rest: KeyPath, rule: str) -> bool:
    """Take back what breaks a rule, the key at `rest` or the whole table; whether anything was."""
    key = str(rest[0]) if rest else ""
    if key not in table.rows and _PARTNERS.get(key) in table.rows:
        key, rule = _PARTNERS[key], f"{key} {rule}"
    row = table.rows.get(key)
    if table.out or (row is not None and (row.placeholder or row.value is _TAKEN)):
        return False
    place, found = (row.place, row.value) if row is not None else (table.place, "")
    if row is not None and isinstance(row.value, list) and len(rest) > 1 and isinstance(rest[1], int):
        found, row.value[rest[1]] = row.value[rest[1]], _TAKEN
        place = row.places[rest[1]] if row.places else place
        if found is _TAKEN:
            return False
    elif row is not None and row.spare:
        row.value = _TAKEN
    else:
        table.out = True
    table.remark(Kind.LEFT, place, key, f"the settings refuse it: {rule}", _shown(found))
    return True


class _Taken:
    """Stands for a value that was taken back."""


_TAKEN: Final = _Taken()


def _drop_taken(table: Table) -> None:
    for key, row in [*table.rows.items()]:
        if row.value is _TAKEN:
            del table.rows[key]
        elif isinstance(row.value, list) and _TAKEN in row.value:
            if row.places:
                kept = zip(row.places, row.value, strict=True)
                row.places = [place for place, item in kept if item is not _TAKEN]
            row.value = [item for item in row.value if item is not _TAKEN]
            if not row.value:
                del table.rows[key]  # a required one is missing in the next round


def in_order(remarks: Iterable[Remark]) -> list[Remark]:
    """Remarks by their line."""
    return sorted(remarks, key=lambda remark: (remark.place.file, remark.place.line))


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        value = ", ".join(map(str, value.values()))
    elif isinstance(value, list):
        value = ", ".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def values_of(element: Element) -> Iterator[tuple[str, str | Element, Place]]:
    """What is below an element: name, text and place of its attributes, then the elements in it."""
    for name, text in element.attributes.items():
        yield name, text, element.place
    for child in element.children:
        yield child.name, child, child.place


def carry(table: Table, scope: str, element: Element, skip: Set[str] = frozenset()) -> None:
    """Write the keys that are single values, and a remark on each of the others; those in `skip` are done."""
    seen: set[str] = set()
    for name, found, place in values_of(element):
        if name in skip:
            continue
        if isinstance(found, Element):
            found.is_read = True
        else:
            element.read_attributes.add(name)
        if name in seen:
            table.remark(Kind.LEFT, place, name, TWICE, found)
            continue
        seen.add(name)
        row = SCOPES[scope].get(name)
        if row is None:
            why = unknown(name) if isinstance(found, Element) else _NO_ATTRIBUTE
            table.remark(Kind.LEFT, place, name, why, found)
        else:
            carry_row(table, row, found, place)


def carry_row(table: Table, row: ArtemisKey, found: str | Element, place: Place) -> None:
    """Write the key of a row, or a remark; neither where its value changes nothing."""
    text = found.content() if isinstance(found, Element) else found
    if text.lower() in row.same:
        return
    known = not row.becomes or row.becomes in known_keys(_path(table))
    if row.form is not Form.COMPOSED and known:
        try:
            value = read(row.form, text)
        except ValueError as error:
            table.remark(Kind.LEFT, place, row.name, str(error), text)
            return
        if row.becomes in table.rows:
            table.remark(Kind.LEFT, place, row.name, TWICE, text)
        table.set(row.becomes, value, place, spare=row.form is not Form.TEXT)
    elif row.answer:
        table.remark(Kind.IDLE if row.idle else Kind.LEFT, place, row.name, row.answer, found)


def unknown(name: str) -> str:
    """The remark on an element that Artemis's schema does not have."""
    return (
        "not followed: only small files beside or below this one are"
        if name == "xi:include"
        else "not known: Artemis's schema has no such element here"
    )


def _why_unread(element: Element, child: Element) -> str:
    """Why an element was not read: another one of its name was, or none has a meaning there."""
    if any(other.is_read and other.name == child.name for other in element.children):
        return TWICE
    return unknown(child.name)


def _named(element: Element) -> str:
    """An element in words: ``bridge my-bridge``."""
    name = next((element.attributes[key] for key in NAMING if element.attributes.get(key)), "")
    return f"{element.name} {name}".rstrip()


def _path(table: Table) -> KeyPath:
    return (table.path[0], 0) if table.path[0] in LISTS else table.path
