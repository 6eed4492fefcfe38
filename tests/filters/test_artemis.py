"""The same conditions and messages here and at Artemis's own filter (`make test-filters-long`)."""

from __future__ import annotations

import json
import math
import os
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from bridge.cli.filter_lines import read_line
from bridge.filters import Filter, FilterRefused, parse
from bridge.filters.arithmetic import java_text
from tests.filters.artemis import Artemis
from tests.filters.chance import Conditions, message

pytestmark = [pytest.mark.filters_long, pytest.mark.processes]

#: `FILTER_CONDITIONS` takes another number.
CONDITIONS: Final = int(os.environ.get("FILTER_CONDITIONS", "100000"))
#: Messages for each of them.
MESSAGES: Final = 3
#: Conditions with something broken, and doubles that are written as texts.
BROKEN: Final = CONDITIONS * 2 // 5
NUMBERS: Final = CONDITIONS // 10
#: Conditions that are asked at a time.
PART: Final = 20_000

#: Classes of differences (docs/semantics.md), by name: whether a condition may belong to one.
CLASSES: Final[dict[str, Callable[[str], bool]]] = {
    # Java's text of bytes is their place in its memory; before Java 19 some doubles have too many digits.
    "the text of bytes or a double, joined to a text": lambda condition: "'+" in condition.replace(" ", ""),
}


@pytest.fixture(scope="module")
def artemis(tmp_path_factory: pytest.TempPathFactory) -> Artemis:
    return Artemis(tmp_path_factory.mktemp("oracle"))


def here(question: dict[str, Any]) -> list[bool] | str:
    """The results, or why the condition is refused; what is explained must give the same."""
    try:
        condition = parse(question["filter"])
    except FilterRefused as refused:
        return str(refused)
    if condition is None:
        return [True for _ in question["messages"]]
    found = _asked(condition, question["messages"])
    again = parse(condition.explain())
    assert again is not None
    assert again.explain() == condition.explain()
    assert (_asked(again, question["messages"]), again.raised) == (found, condition.raised)
    return found


def _asked(condition: Filter, messages: Sequence[dict[str, Any]]) -> list[bool]:
    return [condition.matches(*read_line(json.dumps(one).encode())) for one in messages]


def differs(there: list[bool] | str, found: list[bool] | str) -> bool:
    """Whether the answers differ; two refusals may do so in their words."""
    return there != found and not (isinstance(there, str) and isinstance(found, str))


def test_a_hundred_thousand_random_conditions(artemis: Artemis, rng: random.Random) -> None:
    conditions = Conditions(rng)
    wrong: list[str] = []
    seen = {"refused": 0, "matched": 0, "not matched": 0, **dict.fromkeys(CLASSES, 0)}
    for start in range(0, CONDITIONS, PART):
        questions = [
            {"filter": conditions.condition(), "messages": [message(rng) for _ in range(MESSAGES)]}
            for _ in range(min(PART, CONDITIONS - start))
        ]
        for question, there in zip(questions, artemis.answers(questions), strict=True):
            found, text = here(question), str(question["filter"])
            if isinstance(there, str):
                seen["refused"] += 1
            else:
                seen["matched"] += sum(there)
                seen["not matched"] += len(there) - sum(there)
            if differs(there, found):
                known = next((name for name, holds in CLASSES.items() if holds(text)), None)
                if known is None:
                    wrong.append(f"{question}: Artemis {there}; here {found}")
                else:
                    seen[known] += 1
    print(seen)
    assert wrong == []
    assert min(seen["refused"], seen["matched"], seen["not matched"]) > CONDITIONS // 10


def test_broken_conditions_are_refused_alike(artemis: Artemis, rng: random.Random) -> None:
    conditions = Conditions(rng)
    questions = [{"filter": conditions.broken(), "messages": [message(rng)]} for _ in range(BROKEN)]
    answers = artemis.answers(questions)
    wrong = [
        f"{question}: Artemis {there}; here {found}"
        for question, there in zip(questions, answers, strict=True)
        if differs(there, found := here(question))
    ]
    taken = sum(not isinstance(there, str) for there in answers)
    print({"refused": BROKEN - taken, "taken": taken})
    assert wrong == []
    assert BROKEN // 20 < taken < BROKEN // 2


def test_texts_of_numbers(artemis: Artemis, rng: random.Random) -> None:
    """Java 17 writes a few doubles with more digits than they need (docs/semantics.md)."""
    numbers = [number for _ in range(NUMBERS) if math.isfinite(number := double(rng))]
    questions = [
        {
            "filter": "'' + x = y",
            "messages": [
                {"properties": {"x": number, "y": java_text(number)}, "types": {"x": "double"}, "system": {}}
            ],
        }
        for number in numbers
    ]
    different = [
        number for number, there in zip(numbers, artemis.answers(questions), strict=True) if there != [True]
    ]
    print({"doubles": len(numbers), "written otherwise": len(different)})
    assert len(different) < len(numbers) // 50


def double(rng: random.Random) -> float:
    """Any double of all, or one of those that people write."""
    if rng.random() < 0.5:
        return float(struct.unpack("<d", rng.randbytes(8))[0])
    return rng.choice((rng.uniform(-100, 100), 10.0 ** rng.randrange(-20, 25), rng.randrange(1000) / 1000))
