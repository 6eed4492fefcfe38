"""The `ids` of a line, JSON text as Spark has written it again (without blanks), taken apart.

Where there are many they are most of a log, so the usual form is cut with string functions. Only a line with
a backslash, with an ID that is bytes, or with one that may begin like the end of an entry is parsed.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

#: An ID that is bytes begins so. Text never contains this: within it the quotes have a backslash before them.
_BYTES: Final = '{"base64":'
_BYTES_ENTRY: Final = r'\{"base64":"([^"\\]*)"\}\]'
#: The text between the ID of one entry and the position of the next.
_BETWEEN: Final = r'"\],\['
#: The quote before an ID, and one that begins with what comes between: cutting there would part the ID. An ID
#: that ends with a comma looks the same, and is only parsed for nothing.
_BETWEEN_WITHIN: Final = ',"],['


def cells(ids: Column) -> Column:
    """The line's IDs as texts ``<position or null>,"<id>``, for `position_of` and `id_of`."""
    # ``[[17,"x"],[18,"y"]]`` without its ends is ``17,"x"],[18,"y``.
    plain = F.split(F.substring(ids, F.lit(3), F.length(ids) - 5), _BETWEEN)
    parsed = F.transform(
        entries(ids),
        lambda entry: F.concat(
            F.coalesce(F.get(entry, F.lit(0)), F.lit("null")),
            F.lit(',"'),
            shown(F.get(entry, F.lit(1)), F.get(entry, F.lit(2))),
        ),
    )
    return F.when(_is_plain(ids), plain).otherwise(parsed)


def number(ids: Column) -> Column:
    """Number of IDs in the line."""
    quotes = F.octet_length(ids) - F.octet_length(F.replace(ids, F.lit('"')))
    return F.when(_is_plain(ids), F.floor(quotes / 2)).otherwise(F.size(entries(ids))).cast("long")


def position_of(cell: Column) -> Column:
    """The position, null where the line does not have it."""
    return F.substring_index(cell, ",", 1).try_cast("long")


def id_of(cell: Column) -> Column:
    """The ID, as `shown`."""
    return F.substr(cell, F.instr(cell, '"') + 1)


def entries(ids: Column) -> Column:
    """The IDs parsed: each ``[position, text]``, or ``[position, null, base64]`` where it is bytes."""
    marked = F.when(ids.contains(_BYTES), F.regexp_replace(ids, F.lit(_BYTES_ENTRY), F.lit('null,"$1"]')))
    return F.from_json(F.coalesce(marked, ids), "array<array<string>>")


def shown(text: Column, base64: Column) -> Column:
    """An ID as one text that no other ID has: text as it is, bytes as the log writes them.

    Text that looks like bytes gets a backslash before it, and so does what looks like that.
    """
    escaped = F.when(text.rlike(r'^\\*\{"base64":'), F.concat(F.lit("\\"), text)).otherwise(text)
    return F.coalesce(escaped, F.concat(F.lit('{"base64":"'), base64, F.lit('"}')))


def _is_plain(ids: Column) -> Column:
    return ~ids.contains("\\") & ~ids.contains(_BYTES) & ~ids.contains(_BETWEEN_WITHIN)
