"""Messages for `core-bridge filter`: a JSON object a line, with ``properties``, ``types`` and ``system``."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from bridge.errors import Malformed
from bridge.filters import Byte, Char, Float, HeaderText, Long, Short, System, Value
from bridge.filters.values import LONG_LEAST, LONG_MOST, as_double, narrowed

#: Bytes of a line.
LINE_BYTES_MOST: Final = 16 * 1024 * 1024
#: Characters of a value that an error shows.
SHOWN_CHARS: Final = 80
#: Values of a float or double that JSON has no number for.
NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
#: The time that a message has where the line gives none, in milliseconds since the epoch.
TIMESTAMP_MS: Final = 1_700_000_000_000
#: The address that a message has where the line gives none.
ADDRESS: Final = "a"

#: By field of ``system``: the argument of `System`, and what its value must be. None: a field of an Artemis
#: message that no condition reads.
_SYSTEM: Final[dict[str, tuple[str | None, type]]] = {
    "priority": ("priority", int),
    "durable": ("durable", bool),
    "timestamp": ("timestamp", int),
    "expiration": ("expiration", int),
    "size": ("size", int),
    "userID": ("user_id", str),
    "groupID": ("group_id", str),
    "address": ("address", str),
    "body": (None, str),
    "type": (None, int),
}

_NAMES: Final = {int: "a whole number within 64 bits", bool: "true or false", str: "a text"}


def _whole(make: Callable[[int], Value], bits: int) -> Callable[[Any], Value]:
    def read(value: Any) -> Value:
        if type(value) is not int or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError(f"a whole number of {bits} bits")
        return make(value)

    return read


def _float(value: Any) -> Value:
    return Float(narrowed(_double(value)))


def _double(value: Any) -> float:
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    if type(value) not in (int, float):
        raise ValueError(f"a number or one of {', '.join(NOT_FINITE)}")
    return as_double(value)


def _bytes(value: Any) -> Value:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise ValueError("an even number of hexadecimal digits") from None


def _char(value: Any) -> Value:
    if not isinstance(value, str) or len(value) != 1 or ord(value) > 0xFFFF:
        raise ValueError("one character")
    return Char(value)


def _text(make: Callable[[str], Value]) -> Callable[[Any], Value]:
    def read(value: Any) -> Value:
        if not isinstance(value, str):
            raise ValueError("a text")
        return make(value)

    return read


#: By name of a type, what reads a JSON value as one. Raises ValueError: what it must be.
TYPES: Final[dict[str, Callable[[Any], Value]]] = {
    "byte": _whole(Byte, 8),
    "short": _whole(Short, 16),
    "int": _whole(int, 32),
    "long": _whole(Long, 64),
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "char": _char,
    "header": _text(HeaderText),
}


def read_line(line: bytes) -> tuple[dict[str, Value], System]:
    """A line's properties and fields.

    Raises:
        Malformed: what is wrong with it: the key, the rule and the value.
    """
    try:
        read = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"must be JSON; found {_shown(line)}: {error}") from None
    if not isinstance(read, dict):
        raise Malformed(f"must be a JSON object; found {_shown(line)}")
    properties, types = _table(read, "properties"), _table(read, "types")
    for name in types.keys() - properties.keys():
        raise Malformed(f"types.{name}: there is no property of this name; found {_shown(types[name])}")
    values = {name: _value(name, value, types.get(name)) for name, value in properties.items()}
    return values, _system(_table(read, "system"))


def _is_long(value: Any) -> bool:
    return isinstance(value, int) and LONG_LEAST <= value <= LONG_MOST


def _shown(value: Any) -> str:
    text = (
        repr(value.strip().decode("utf-8", "replace"))[1:-1]
        if isinstance(value, bytes)
        else json.dumps(value)
    )
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "..."


def _table(read: dict[str, Any], key: str) -> dict[str, Any]:
    table = read.get(key, {})
    if not isinstance(table, dict):
        raise Malformed(f"{key}: must be an object; found {_shown(table)}")
    return table


def _value(name: str, value: Any, kind: Any) -> Value:
    if value is None:
        return None
    key = f"properties.{name}"
    if kind is None:
        return _untyped(key, value)
    read = TYPES.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise Malformed(f"types.{name}: must be one of {', '.join(TYPES)}; found {_shown(kind)}")
    try:
        return read(value)
    except ValueError as error:
        raise Malformed(f"{key}: must be {error}; found {_shown(value)}") from None


def _untyped(key: str, value: Any) -> Value:
    if isinstance(value, str | bool | float | int) and (type(value) is not int or _is_long(value)):
        return value
    raise Malformed(
        f"{key}: must be a text, true, false, null or a number within 64 bits; found {_shown(value)}"
    )


def _system(table: dict[str, Any]) -> System:
    known = dict[str, Any](timestamp=TIMESTAMP_MS, address=ADDRESS)
    for key, value in table.items():
        if key not in _SYSTEM:
            raise Malformed(f"system.{key}: must be one of {', '.join(_SYSTEM)}; found {_shown(key)}")
        argument, kind = _SYSTEM[key]
        if type(value) is not kind or (kind is int and not _is_long(value)):
            raise Malformed(f"system.{key}: must be {_NAMES[kind]}; found {_shown(value)}")
        if argument is not None:
            known[argument] = value
    if (user := known.get("user_id")) is not None and not user.startswith("ID:"):
        known["user_id"] = f"ID:{user}"
    return System(**known)
