"""The document and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.link import limits
from bridge.link.codec import LIMITS, Limit
from bridge.link.frames import CloseCode, Frame, name_of
from dedup.verdict import Verdict

TEXT = (Path(__file__).parents[3] / "docs" / "wire-protocol.md").read_text()
FRAMES = {name_of(frame): frame for frame in Frame.__subclasses__()}
NUMBERS = {2**53: "2^53", 2**50: "2^50", 2**32 - 1: "2^32-1"}


def rows(section: str) -> list[list[str]]:
    """The cells of the table in the section under this heading, without the table's head."""
    part = re.split(rf"^##+ {re.escape(section)}$", TEXT, flags=re.MULTILINE)[1]
    part = re.split(r"^##", part, flags=re.MULTILINE)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_document_describes_exactly_the_frames_there_are() -> None:
    assert re.findall(r"^### (\w+)$", TEXT, re.MULTILINE) == list(FRAMES)


@pytest.mark.parametrize("name", FRAMES)
def test_a_frames_table_names_its_fields_in_their_order(name: str) -> None:
    fields = [field.rstrip("_") for field in FRAMES[name].__struct_fields__]
    assert [row[0] for row in rows(name)] == fields


@pytest.mark.parametrize("name", FRAMES)
def test_a_frames_table_names_its_limits(name: str) -> None:
    def written(limit: Limit) -> str:
        return f"{limit.least} to {NUMBERS.get(limit.most, limit.most)}"

    documented = {row[0]: row[2] for row in rows(name)}
    expected = {field.rstrip("_"): written(limit) for field, limit in LIMITS[FRAMES[name]].items()}
    assert {field: documented[field] for field in expected} == expected


@pytest.mark.parametrize("name", FRAMES)
def test_a_frames_table_says_which_fields_have_a_default(name: str) -> None:
    frame = FRAMES[name]
    with_default = frame.__struct_fields__[len(frame.__struct_fields__) - len(frame.__struct_defaults__) :]
    assert [row[0] for row in rows(name) if "Default" in row[3]] == list(with_default)


def test_the_document_lists_exactly_the_close_codes_there_are() -> None:
    assert {row[0] for row in rows("Close codes")} == set(CloseCode)


def test_the_document_names_the_verdicts_and_the_limits_of_work() -> None:
    (verdicts,) = [row[3] for row in rows("RECEIPT") if row[0] == "verdict"]
    assert re.findall(r"`([a-z-]+)`", verdicts) == [verdict.value for verdict in Verdict]
    assert f"at most {limits.DELIVERIES_MOST} before the first is done" in TEXT
    assert f"more than {limits.UNANSWERED_MOST} batches" in " ".join(TEXT.split())
    assert f"Sec-WebSocket-Protocol: {limits.SUBPROTOCOL}" in TEXT
    assert f"GET {limits.PATH}" in TEXT
    assert f"version {limits.VERSION}\n" in TEXT.splitlines(keepends=True)[0]
