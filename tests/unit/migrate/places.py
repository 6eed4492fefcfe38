"""The places of a broker.xml, each of which can be taken out, and the oracle: what was dropped in silence.

A place is an element, an attribute, or a parameter of a URL. It was dropped in silence where the settings and
the report are the same with and without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.parsers import expat

from bridge.migrate.document import NotBrokerXml
from bridge.migrate.migration import migrate
from bridge.settings.artemis import SCOPES

_ATTRIBUTE: Final = re.compile(rb"""\s+([\w:.-]+)\s*=\s*("[^"]*"|'[^']*')""")
_PARAMETER: Final = re.compile(rb"(?:[;&]|&amp;)?([^;&?=<>\"#]+)=([^;&<>\"#]*)")
#: Elements that say nothing where nothing is in them.
CONTAINERS: Final = frozenset(
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
        *("bridges", "diverts", "cluster-connections", "static-connectors"),
    }
)


@dataclass(frozen=True, slots=True)
class Spot:
    """Something in a document that can be taken out."""

    #: The names of the elements down to it.
    path: tuple[str, ...]
    #: The name of an element, attribute or parameter.
    name: str
    #: The text of an element without others in it, of an attribute or parameter.
    value: str
    #: Its bytes in the document.
    start: int
    end: int
    kind: str
    has_attributes: bool = False
    #: Whether other elements or attributes are in it.
    filled: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join((*self.path, self.name))} = {self.value!r}"


def spots(document: bytes, outer: tuple[str, ...] = ()) -> list[Spot]:
    """Every element below the root, attribute and URL parameter, in the order of the document.

    The root of an included file is a place, too: `outer` are the elements that it comes to be in.
    """
    found: list[Spot] = []
    parser = expat.ParserCreate()
    #: Name, start, attributes, children so far, and the index in `found` of each open element.
    names = [*outer]
    starts: list[tuple[int, int, bool]] = []
    inner: list[int] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        index = parser.CurrentByteIndex
        if inner:
            inner[-1] += 1
        end = _end_of_tag(document, index)
        for attribute in _ATTRIBUTE.finditer(document, index, end):
            name = attribute[1].decode()
            if not name.startswith(("xmlns", "xsi:")):
                value = attribute[2][1:-1]
                found.append(
                    Spot((*names, tag), name, value.decode(), attribute.start(), attribute.end(), "attribute")
                )
                if b"://" in value:
                    found.extend(
                        _parameters(document, (*names, tag), attribute.start(2), attribute.end(2) - 1)
                    )
        names.append(tag)
        starts.append((index, end, bool(attributes)))
        inner.append(0)

    def end(tag: str) -> None:
        begin, end_of_start, has_attributes = starts.pop()
        names.pop()
        filled = bool(inner.pop()) or has_attributes
        is_empty = document[:end_of_start].endswith(b"/>")
        close = end_of_start if is_empty else parser.CurrentByteIndex
        stop = end_of_start if is_empty else document.index(b">", close) + 1
        text = document[end_of_start:close].decode().strip()
        if names:
            found.append(Spot((*names,), tag, text, begin, stop, "element", has_attributes, filled))
        if tag in ("connector", "acceptor"):
            found.extend(_parameters(document, (*names, tag), end_of_start, close))

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.Parse(document, True)
    return sorted(found, key=lambda spot: (spot.start, -spot.end))


def _end_of_tag(document: bytes, start: int) -> int:
    """Behind the ``>`` of the tag that starts at `start`."""
    return re.compile(rb"""<(?:[^>"']|"[^"]*"|'[^']*')*>""").match(document, start).end()  # type: ignore[union-attr]


def _parameters(document: bytes, path: tuple[str, ...], start: int, end: int) -> Iterator[Spot]:
    question = document.find(b"?", start, end)
    if question < 0:
        return
    for one in _PARAMETER.finditer(document, question + 1, end):
        yield Spot(
            path, one[1].decode().strip(), one[2].decode().strip(), one.start(), one.end(), "parameter"
        )


def without(document: bytes, spot: Spot) -> bytes:
    """The document without a spot; every line stays where it is."""
    taken = document[spot.start : spot.end]
    return document[: spot.start] + b"\n" * taken.count(b"\n") + document[spot.end :]


def changes_nothing(spot: Spot) -> bool:
    """Whether a place says only what holds without it: a default of Artemis's, or an empty container."""
    if spot.kind == "element" and spot.name in CONTAINERS and not spot.has_attributes:
        return CONTAINERS.issuperset(re.findall(r"</?([^\s/>]+)", spot.value)) and "=" not in spot.value
    if not spot.path or spot.filled:
        return False
    row = SCOPES.get(spot.path[-1], {}).get(spot.name)
    return row is not None and spot.value.lower() in row.same


Files = dict[str, bytes]


def outcome(files: Files) -> tuple[str, ...]:
    """Settings and report of the first of some files, which are written here; or the line that refuses it."""
    for name, content in files.items():
        Path(name).write_bytes(content)
    try:
        found = migrate(Path(next(iter(files))), {})
    except NotBrokerXml as refused:
        return (str(refused),)
    return (found.text, *map(str, found.remarks))


def is_dropped(files: Files, name: str, spot: Spot, whole: tuple[str, ...]) -> bool:
    """Whether a place of the file `name` was dropped in silence; `whole` is the outcome with it."""
    return outcome({**files, name: without(files[name], spot)}) == whole


def dropped(document: bytes) -> list[Spot]:
    """The places that were dropped in silence; the current directory is written to."""
    files = {"broker.xml": document}
    whole = outcome(files)
    return [
        spot
        for spot in spots(document)
        if not changes_nothing(spot) and is_dropped(files, "broker.xml", spot, whole)
    ]
