"""What the documents cite is there: tests by name, files by link or path, sections by anchor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
]
#: Folders whose files documents name by path.
_PATH: Final = re.compile(
    r"(?<![\w/.$-])(?:bridge|cluster|dedup|tests|docs|benchmarks|examples)/[\w./-]*\w/?"
)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def every_test() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text("utf-8"), re.MULTILINE)
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    broken = []
    for link in _LINK.findall(path.read_text("utf-8")):
        file, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = path.parent / file if file else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_tests_that_documents_cite_exist() -> None:
    known = every_test()
    cited = {
        (path.name, name)
        for path in DOCUMENTS
        for name in re.findall(r"`(?:\S+::)?(test_\w+)`", path.read_text("utf-8"))
    }
    assert cited, "nothing is cited: the pattern must be wrong"
    assert {(document, name) for document, name in cited if name not in known} == set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_paths_that_a_document_names_exist(path: Path) -> None:
    text = re.sub(r"```.*?```|\bhttps?://\S+", "", path.read_text("utf-8"), flags=re.DOTALL)
    roots = (ROOT, ROOT / "tests")  # semantics.md names tests as `cluster/test_hops.py`
    missing = {named for named in _PATH.findall(text) if not any((root / named).exists() for root in roots)}
    assert missing == set()
