"""A draft as TOML, with its remarks as comments where they belong."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

from bridge.migrate.draft import LISTS, Draft, Kind, Remark, Table, in_order

#: Most remarks that are written as comments; all are on stderr.
MAX_COMMENTS: Final = 2000
_WIDTH: Final = 108
#: Tables in this order.
_ORDER: Final = (
    "node", "acceptor", "duplicate-detection", "address-settings", "addresses", "connectors", *LISTS,
)  # fmt: skip
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")

_HEAD: Final = """\
Settings of a core bridge node, written by core-bridge migrate from {source} of Apache ActiveMQ Artemis. \
{counts} "left" is what broker.xml does and these settings do not, "check" what a person decides; each \
stands below its table, with its line of {source}. docs/migration.md says more.
"""
_OPERATIONS: Final = """\
# Probes, metrics and management, in the place of Artemis's console.
[operations]
url = "http://127.0.0.1:8161"
"""


def written(draft: Draft, remarks: Sequence[Remark], source: str) -> str:
    """The settings as text; `source` is the name of the broker.xml."""
    counted = {kind: sum(remark.kind is kind for remark in remarks) for kind in Kind}
    left, check, idle = (counted[kind] for kind in Kind)
    counts = f"{left} left, {check} to check, {idle} without a meaning here."
    room = MAX_COMMENTS
    parts = ["\n".join(_comment(_HEAD.format(source=PurePath(source).name, counts=counts)))]
    parts.append(_OPERATIONS.rstrip())
    for table in sorted(draft.tables, key=lambda table: _ORDER.index(table.path[0])):
        lines = [*_table(table)]
        for remark in in_order(table.remarks):
            if remark.kind is not Kind.IDLE and room > 0:
                room -= 1
                lines += _remark(remark, source)
        parts.append("\n".join(lines))
    rest = [remark for remark in in_order(draft.general.remarks) if remark.kind is not Kind.IDLE][:room]
    if rest:
        lines = ["# Of no table:"]
        for remark in rest:
            lines += _remark(remark, source)
        parts.append("\n".join(lines))
    groups = [*_idle([remark for remark in remarks if remark.kind is Kind.IDLE][:MAX_COMMENTS], source)]
    if groups:
        parts.append(
            "\n".join(["# Without a meaning here, because it concerns Artemis's own machinery:", *groups])
        )
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> Iterator[str]:
    name = ".".join(step if _BARE.fullmatch(step) else _text(step) for step in table.path)
    lines = [f"[[{name}]]" if table.path[0] in LISTS else f"[{name}]"]
    for key, row in table.rows.items():
        mark = f"  # {row.note}" if row.note else ""
        lines.append(f"{key} = {_value(row.value, escape=not row.placeholder)}{mark}")
    yield from (f"#{line}" if table.out else line for line in lines)


def _value(value: Any, *, escape: bool) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _text(value.replace("${", "$${") if escape else value)
        case list():
            return f"[{', '.join(_value(item, escape=escape) for item in value)}]"
        case dict():
            items = (f"{_key(key)} = {_value(item, escape=escape)}" for key, item in value.items())
            return f"{{ {', '.join(items)} }}"
        case _:
            return str(value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    """As TOML quotes it: JSON does the same but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _remark(remark: Remark, source: str) -> Iterable[str]:
    found = f"; found {remark.found}" if remark.found else ""
    return _comment(f"{remark.kind.value}: {_line(remark, source)}: {remark.what}: {remark.text}{found}")


def _idle(remarks: Iterable[Remark], source: str) -> Iterator[str]:
    """A comment for each answer."""
    answers: dict[str, list[str]] = {}
    for remark in remarks:
        answers.setdefault(remark.text, []).append(f"{remark.what} ({_line(remark, source)})")
    for answer, places in answers.items():
        yield from _comment(f"{answer}: {', '.join(places)}")


def _line(remark: Remark, source: str) -> str:
    place = f"line {remark.place.line}"
    return place if remark.place.file == source else f"{place} of {remark.place.file}"


def _comment(text: str) -> list[str]:
    """Lines of a comment; what a comment must not hold is left out."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return textwrap.wrap(plain, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False)
