"""Values of broker.xml as values of the settings: properties filled in, units and flags read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bridge.settings.artemis import Form
from bridge.settings.units import SIZE_UNITS_BYTES

#: ``${name}`` or ``${name:default}``, as Artemis's XMLUtil has it.
_PROPERTY: Final = re.compile(r"\$\{([^}:]*)(?::([^}]*))?\}")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
#: As Artemis's ByteUtil has it: K, M and G are powers of 1024, with or without "i" and "B".
_SIZE: Final = re.compile(r"(-?[0-9]{1,12})\s*(?:([kmg])i?)?b?", re.IGNORECASE)
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True, slots=True)
class Filled:
    """A text with its properties filled in."""

    text: str
    #: Names of properties that were not given, and whose default was taken.
    by_default: list[str] = field(default_factory=list)
    #: Names of properties without a value: as in Artemis, an empty text stands in their place.
    unset: list[str] = field(default_factory=list)


def fill(text: str, properties: Mapping[str, str]) -> Filled:
    """The text with the values of `properties`, else with defaults."""
    filled = Filled(text)
    return Filled("".join(_pieces(filled, properties)), filled.by_default, filled.unset)


def _pieces(filled: Filled, properties: Mapping[str, str]) -> Iterator[str]:
    end = 0
    for place in _PROPERTY.finditer(filled.text):
        yield filled.text[end : place.start()]
        end = place.end()
        name, otherwise = place[1].strip(), place[2]
        if name in properties:
            yield properties[name]
        elif otherwise is not None:
            filled.by_default.append(name)
            yield otherwise.strip()
        else:
            filled.unset.append(name)
    yield filled.text[end:]


def read(form: Form, text: str) -> Any:
    """A text of this form as a value of the settings.

    Raises:
        ValueError: the rule that it breaks.
    """
    match form:
        case Form.TIME | Form.COUNT:
            if not _WHOLE.fullmatch(text):
                raise ValueError("must be a whole number")
            return int(text)
        case Form.NUMBER:
            if not _NUMBER.fullmatch(text):
                raise ValueError("must be a number")
            return float(text)
        case Form.FLAG:
            if text.lower() not in ("true", "false"):
                raise ValueError("must be true or false")
            return text.lower() == "true"
        case Form.SIZE:
            return shown_size(size_bytes(text))
        case _:
            return text


def size_bytes(text: str) -> int:
    """Bytes of a text such as ``10M``; -1 stays. Raises: ValueError: it is none."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("must be bytes, perhaps with K, M or G")
    return int(found[1]) * _FACTORS[(found[2] or "").lower()]


def shown_size(size: int) -> int | str:
    """A size as the settings write it: in the largest unit that it is a whole number of."""
    for unit in ("GiB", "MiB", "KiB"):
        if size > 0 and size % SIZE_UNITS_BYTES[unit] == 0:
            return f"{size // SIZE_UNITS_BYTES[unit]}{unit}"
    return size
