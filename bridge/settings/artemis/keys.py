"""The row of the table of Artemis's elements: where a value goes here, or what stands for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Form(Enum):
    """How broker.xml writes a value."""

    TEXT = "text"
    #: Whole milliseconds.
    TIME = "ms"
    #: Bytes, perhaps with K, M or G.
    SIZE = "bytes"
    COUNT = "whole number"
    NUMBER = "number"
    FLAG = "true or false"
    #: Not a single value, or one that depends on others: `bridge.migrate` has code for it.
    COMPOSED = "composed"


@dataclass(frozen=True, slots=True)
class ArtemisKey:
    """An element or attribute of broker.xml, or a parameter of a URL there."""

    name: str
    #: The key here, in the table that stands for the element's parent; with dots: in the table that it names.
    #: Empty: there is none.
    becomes: str = ""
    form: Form = Form.COMPOSED
    #: What stands for it here, as a clause that begins in lower case; of a key that is carried over empty.
    answer: str = ""
    #: Values, in small letters, with which a node does the same without any key.
    same: frozenset[str] = frozenset()
    #: Whether it concerns Artemis's own machinery alone, so that nothing is lost without it.
    idle: bool = False
    #: What stands for single values.
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def here(self) -> str:
        """The text that says what it is here, whether it is carried over or not."""
        return self.answer or f"here it is {self.becomes}"


Rows = Mapping[str, ArtemisKey]


def carried(form: Form, *names: str) -> Iterable[ArtemisKey]:
    """Rows of keys that have the same name and meaning here; names may have blanks between."""
    return (ArtemisKey(name, name, form) for name in _split(names))


def answered(answer: str, *names: str, same: str = "") -> Iterable[ArtemisKey]:
    """Rows of keys that have one answer; `same` is values with which nothing is lost, with blanks between."""
    return (ArtemisKey(name, answer=answer, same=frozenset(same.split())) for name in _split(names))


def idle(answer: str, *names: str) -> Iterable[ArtemisKey]:
    """Rows of keys of Artemis's machinery."""
    return (ArtemisKey(name, answer=answer, idle=True) for name in _split(names))


def table(*rows: Iterable[ArtemisKey]) -> Rows:
    """Rows by their name."""
    found: dict[str, ArtemisKey] = {}
    for row in (row for part in rows for row in part):
        assert row.name not in found, row.name
        found[row.name] = row
    return found


#: Values that switch a key off.
OFF: Final = "false -1 0"


def _split(names: Iterable[str]) -> Iterable[str]:
    return (name for text in names for name in text.split())
