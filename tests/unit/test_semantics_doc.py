"""docs/semantics.md says of every case whether a test shows it; held against the tests' docstrings.

``python tests/unit/test_semantics_doc.py`` brings the document up to date after tests have come or gone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

TESTS: Final = Path(__file__).parents[1]
DOCUMENT: Final = TESTS.parent / "docs" / "semantics.md"

#: The cases there are. A number that is missing was folded into another case.
CASES: Final = {
    "D": "1-6 8-18 20-35 37-46 49-58",
    "B": "1-20 23-31",
    "R": "1 3-9 11-13 15-16 18-27",
    "C": "1-36 38-44 46",
    "P": "1 3-10",
    "S": "1-14",
    "O": "1-8",
}
STATUSES: Final = ("tested", "n/a")
#: What `make test` leaves out; a test with such a mark shows no case.
LEFT_OUT: Final = re.compile(r"pytest\.mark\.(crash|hostile|\w+_long)\b")
#: Most tests that the program names in a row: those of the first of these folders, and of other folders last.
MOST_NAMED: Final = 2
FOLDERS: Final = (
    "acceptance",
    "cluster",
    "fault",
    "integration",
    "kafka",
    "reconcile",
    "verdicts",
    "contracts",
    "property",
    "unit",
    "hostile",
)

_ROW: Final = re.compile(r"\| ([A-Z]\d+) \| (.+?) \| (\S+) \| (.*?) ?\|")
_CASE: Final = re.compile(r"\b[DBRCPSO]\d{1,2}\b")
_FUNCTION: Final = re.compile(r"^ *(?:async )?def (\w+)\(", re.MULTILINE)
_NAMED: Final = re.compile(r"`(\S+?)::(test_\w+)`")


class Row(NamedTuple):
    case: str
    about: str
    status: str
    #: What a person has written, and the tests by file and name.
    note: str
    named: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        tests = "; ".join(f"`{file}::{name}`" for file, name in self.named)
        return (
            f"| {self.case} | {self.about} | {self.status} | {' '.join(filter(None, (self.note, tests)))} |"
        )


def rows(text: str) -> Iterator[Row]:
    for case, about, status, last in _ROW.findall(text):
        named = _NAMED.findall(last)
        note = _NAMED.sub("", last).rstrip("; ")
        yield Row(case, about, status, note, tuple(named))


def _rank(path: Path) -> tuple[int, Path]:
    folder = path.relative_to(TESTS).parts[0]
    return (FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS)), path


def _is_run(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a test that `make test` runs."""
    return function.name.startswith("test_") and not any(
        LEFT_OUT.match(ast.unparse(mark)) for mark in function.decorator_list
    )


def _is_left_out(statement: ast.stmt) -> bool:
    """Whether it marks the whole module as one that `make test` leaves out."""
    if not isinstance(statement, ast.Assign):
        return False
    text = ast.unparse(statement)
    return text.startswith("pytestmark") and LEFT_OUT.search(text) is not None


@cache
def shown() -> dict[str, list[tuple[str, str]]]:
    """By case, the tests of `make test` whose docstrings name it: those nearest to a user first."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(TESTS.rglob("test_*.py"), key=_rank):
        text = path.read_text("utf-8")
        for node in ast.parse(text).body if _CASE.search(text) else ():
            if _is_left_out(node):
                break
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_run(node):
                for case in dict.fromkeys(_CASE.findall(ast.get_docstring(node) or "")):
                    found.setdefault(case, []).append((path.relative_to(TESTS).as_posix(), node.name))
    return found


@cache
def _tests_of(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    return frozenset(_FUNCTION.findall(path.read_text("utf-8")))


def every_case() -> list[str]:
    cases = []
    for letter, ranges in CASES.items():
        for some in ranges.split():
            first, _, last = some.partition("-")
            cases += [f"{letter}{number}" for number in range(int(first), int(last or first) + 1)]
    return cases


def test_every_case_has_one_row_and_a_status() -> None:
    found = list(rows(DOCUMENT.read_text("utf-8")))
    assert [row.case for row in found] == every_case()
    assert {row.status for row in found} <= set(STATUSES)


def test_a_case_is_called_tested_where_a_test_names_it_and_nowhere_else() -> None:
    by_case = shown()
    wrong = []
    for row in rows(DOCUMENT.read_text("utf-8")):
        tests = by_case.get(row.case, [])
        if (row.status == "tested") != bool(tests):
            wrong.append(f"{row.case} is {row.status}; tests that name it: {tests or 'none'}")
        wrong += [
            f"{row.case}: {name} in {file} does not name it" for file, name in set(row.named) - set(tests)
        ]
        if tests and not row.named:
            wrong.append(f"{row.case} names no test")
    assert wrong == [], f"run `python tests/unit/{Path(__file__).name}`, then read the notes of these rows"


def test_every_test_that_the_document_names_is_there() -> None:
    """In its other tables, too."""
    named = _NAMED.findall(DOCUMENT.read_text("utf-8"))
    assert named
    gone = [f"{file}::{name}" for file, name in named if name not in _tests_of(TESTS / file)]
    assert gone == []


def test_a_case_that_is_not_tested_says_why() -> None:
    assert [
        row.case for row in rows(DOCUMENT.read_text("utf-8")) if row.status != "tested" and not row.note
    ] == []


def test_no_test_names_a_case_that_does_not_exist() -> None:
    assert set(shown()) - set(every_case()) == set()


def update(text: str) -> str:
    """The document with the tests there are now; a row that names some that hold keeps them."""
    by_case = shown()
    lines = []
    for line in text.splitlines():
        for row in rows(line):
            tests = by_case.get(row.case, [])
            status = "tested" if tests else row.status
            kept = tuple(one for one in row.named if one in tests)
            line = str(row._replace(status=status, named=kept or tuple(tests[:MOST_NAMED])))  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(update(DOCUMENT.read_text("utf-8")), "utf-8")
