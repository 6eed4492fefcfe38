"""A broker.xml as elements with their line numbers, read by expat, within limits.

Documents that could name other files or grow while they are read are refused: a DOCTYPE, and with it every
entity. ``xi:include`` is followed where it names a small file beside or below the including one.

An element remembers which of its parts a converter has read, so that the rest can be reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final
from xml.parsers import expat

from bridge.errors import BridgeError
from bridge.migrate.values import Filled, fill

#: Largest file, in bytes; of the included ones each.
MAX_FILE_BYTES: Final = 1024 * 1024
#: Elements within elements.
MAX_DEPTH: Final = 32
#: Elements of a file and of what it includes.
MAX_ELEMENTS: Final = 50_000
#: Files that are included, all together.
MAX_INCLUDES: Final = 64
#: Files that include each other.
MAX_INCLUDE_DEPTH: Final = 4

_XINCLUDE: Final = "http://www.w3.org/2001/XInclude"
#: Attributes of this namespace are for the XML reader alone.
_INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
#: Namespaces whose elements are Artemis's; an element without any is, too.
_NAMESPACES: Final = frozenset({"", "urn:activemq", "urn:activemq:core", "urn:activemq:jms"})
#: Between a namespace and a name.
_SEPARATOR: Final = " "


class NotBrokerXml(BridgeError):
    """The file cannot be read as a broker.xml."""

    code = "NOT_BROKER_XML"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Element:
    """An element and what is in it."""

    #: Without its namespace where that is Artemis's, else in full.
    name: str
    place: Place
    #: Without those for the XML reader, as ``xsi:schemaLocation``.
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    #: The text directly in it, without blanks around.
    text: str = ""
    #: Whether a converter has read the element itself.
    is_read: bool = False
    #: Whether a converter has read the text.
    is_text_read: bool = False
    #: The attributes that a converter has read.
    read_attributes: set[str] = field(default_factory=set)

    def attribute(self, name: str) -> str:
        """An attribute, marked as read; empty where there is none."""
        self.read_attributes.add(name)
        return self.attributes.get(name, "")

    def content(self) -> str:
        """The text, marked as read."""
        self.is_text_read = True
        return self.text

    def child(self, name: str) -> Element | None:
        """The first element of this name directly in it, marked as read."""
        return next(self.named(name), None)

    def named(self, name: str) -> Iterator[Element]:
        """The elements of this name directly in it, each marked as read when it is reached."""
        for child in self.children:
            if child.name == name:
                child.is_read = True
                yield child

    def each(self) -> Iterator[Element]:
        """The elements directly in it, each marked as read when it is reached."""
        for child in self.children:
            child.is_read = True
            yield child

    def has(self, name: str) -> bool:
        """Whether an element of this name is directly in it; marks nothing."""
        return any(child.name == name for child in self.children)

    def mark_read(self) -> None:
        """Mark it and everything in it as read."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            element.is_read = element.is_text_read = True
            element.read_attributes.update(element.attributes)
            waiting += element.children


@dataclass(frozen=True, slots=True)
class Document:
    """A file and what it includes."""

    root: Element
    #: The names of the included files, with the place of each ``xi:include`` that was followed.
    includes: Sequence[tuple[Place, Filled]]


def read(path: Path, properties: Mapping[str, str] = MappingProxyType({})) -> Document:
    """The file at `path`; `properties` are filled in where an ``xi:include`` names a file.

    Raises:
        NotBrokerXml: it cannot be read, is no XML, or breaks a limit; with file, line and rule.
    """
    reader = _Reader(properties)
    return Document(reader.read(path, str(path)), reader.includes)


class _Reader:
    """Reads one file and what it includes."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._elements = 0
        self.includes: list[tuple[Place, Filled]] = []

    def read(self, path: Path, name: str, outer: tuple[Path, ...] = ()) -> Element:
        """The root of a file, which is called `name` in places; `outer` are the files that include it."""
        root = self._parse(_content(path, name), name)
        self._include(root, path, name, (*outer, path.resolve()))
        return root

    def _parse(self, content: bytes, name: str) -> Element:
        parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        parser.buffer_text = True
        open_elements: list[Element] = []
        texts: list[list[str]] = []
        roots: list[Element] = []

        def refuse(rule: str, found: str) -> NotBrokerXml:
            return NotBrokerXml(f"{name}:{parser.CurrentLineNumber}: {rule}; found {found}")

        def start(tag: str, attributes: dict[str, str]) -> None:
            self._elements += 1
            if self._elements > MAX_ELEMENTS:
                raise refuse(f"must have at most {MAX_ELEMENTS} elements", "more")
            if len(open_elements) == MAX_DEPTH:
                raise refuse(f"must be at most {MAX_DEPTH} elements deep", "more")
            plain = {
                key: value for key, value in attributes.items() if key.rpartition(_SEPARATOR)[0] != _INSTANCE
            }
            element = Element(_local(tag), Place(name, parser.CurrentLineNumber), plain)
            (open_elements[-1].children if open_elements else roots).append(element)
            open_elements.append(element)
            texts.append([])

        def text(data: str) -> None:
            texts[-1].append(data)

        def end(_tag: str) -> None:
            open_elements.pop().text = "".join(texts.pop()).strip()

        def doctype(*_: object) -> None:
            raise refuse("must have no DOCTYPE, and so no entities", "<!DOCTYPE")

        parser.StartElementHandler = start
        parser.EndElementHandler = end
        parser.CharacterDataHandler = text
        parser.StartDoctypeDeclHandler = doctype
        parser.EntityDeclHandler = doctype
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            place = f"{name}:{error.lineno}"
            raise NotBrokerXml(f"{place}: must be XML; found {expat.ErrorString(error.code)}") from None
        except (
            LookupError,
            ValueError,
        ) as error:  # an encoding that Python does not know, or not as expat wants it
            raise NotBrokerXml(f"{name}: must be UTF-8 or another encoding that is known; {error}") from None
        return roots[0]

    def _include(self, element: Element, path: Path, name: str, outer: tuple[Path, ...]) -> None:
        """Put the roots of included files in the place of the elements that name them, all the way down."""
        for index, child in enumerate(element.children):
            if child.name == f"{_XINCLUDE}{_SEPARATOR}include":
                included = self._included(child, path, name, outer)
                if included is not None:
                    element.children[index] = included
            else:
                self._include(child, path, name, outer)

    def _included(self, child: Element, path: Path, name: str, outer: tuple[Path, ...]) -> Element | None:
        """The root of the file that an ``xi:include`` names; None where it is not followed."""
        child.name = "xi:include"
        filled = fill(child.attributes.get("href", ""), self._properties)
        href = filled.text
        if not href or set(child.attributes) - {"href"}:  # as text, or a part of it
            return None
        directory = path.resolve().parent
        try:
            target = (directory / href).resolve()
            if ":" in href or not target.is_relative_to(directory) or not target.is_file():
                return None
        except (OSError, RuntimeError):  # too long a name, links in a circle
            return None
        if target in outer or len(outer) > MAX_INCLUDE_DEPTH or len(self.includes) == MAX_INCLUDES:
            return None
        self.includes.append((child.place, filled))
        return self.read(target, str(Path(name).parent / href), outer)


def _content(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise NotBrokerXml(f"{name}: must be a file that can be read; found {why.lower()}") from None
    if len(content) > MAX_FILE_BYTES:
        raise NotBrokerXml(f"{name}: must be at most {MAX_FILE_BYTES} bytes; found more")
    return content


def _local(tag: str) -> str:
    namespace, _, local = tag.rpartition(_SEPARATOR)
    return local if namespace in _NAMESPACES else tag
