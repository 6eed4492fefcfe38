"""What Artemis 2.44 answered: 1,238 conditions with messages, asked of its own `FilterImpl`.

A line of ``cases.jsonl`` is a message as `core-bridge filter` reads it, with ``filter``, ``result`` (true,
false or "error": refused when it is made) and, where it is so: ``raised`` (evaluating it raised: no match),
``translated`` (the condition as a JMS client sends it), ``size`` (of the encoded message).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bridge.cli.filter_lines import read_line
from bridge.filters import System, Value

FILE: Final = Path(__file__).with_name("cases.jsonl")


class Case(NamedTuple):
    condition: str
    properties: dict[str, Value]
    system: System
    result: bool | str
    raised: bool

    @property
    def looks_into_body(self) -> bool:
        """Whether the condition has XPATH or XQUERY, which Artemis takes and this bridge refuses."""
        return re.search(r"\bX(PATH|QUERY)\b", self.condition, re.IGNORECASE) is not None

    def __str__(self) -> str:
        return f"{self.condition[:200]!r} of {self.properties} {self.system}: {self.result}"


def cases() -> Iterator[Case]:
    for line in FILE.read_bytes().splitlines():
        read = json.loads(line)
        properties, system = read_line(line)
        system = dataclasses.replace(system, size=read.get("size", 0))
        yield Case(
            read.get("translated", read["filter"]), properties, system, read["result"], "raised" in read
        )
