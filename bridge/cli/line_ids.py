"""Duplicate IDs of lines: reads them from a JSON field, and writes them into a header. Pure."""

from __future__ import annotations

import json

from bridge.client.input_lines import Line
from bridge.errors import BridgeError


class BadLine(BridgeError):
    """A line that holds no ID where --duplicate-id-from says there is one."""

    code = "BAD_LINE"


def duplicate_id(line: Line, name: str) -> str:
    """The ID in field `name` of a JSON line; a whole number is taken as its decimal text.

    Raises:
        BadLine: no JSON object, no such field, or nothing that can be an ID.
    """
    try:
        value = json.loads(line.body)[name]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise BadLine(f"line {line.number} is no JSON object with a field {name!r}") from error
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise BadLine(f"line {line.number}: field {name!r} must be text or a whole number; found {value!r}")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON writes it as "\ud800"
        half = ascii(text)
        raise BadLine(
            f"line {line.number}: field {name!r} must be text without half a surrogate pair; found {half}"
        ) from None
    return text


def header_value(line_id: str) -> str:
    """An ID as the value of a header.

    Raises:
        BadLine: the ID holds what a header cannot carry as it is.
    """
    if not line_id.isprintable() or line_id != line_id.strip():
        raise BadLine(f"a plain POST's ID must be printable (--batch 2 or more takes any); found {line_id!r}")
    return line_id
