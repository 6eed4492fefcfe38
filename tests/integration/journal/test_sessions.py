"""Received lines name the opening of the journal that wrote them, and the line that it went on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.fakes.backup import copy_journal
from tests.integration.journal.helpers import batch, deliver, open_stream, opened, options, rows, target


async def deliver_to(directory: Path, from_: int, upto: int) -> None:
    """Open the journal, let it receive a batch, close it."""
    async with opened(options(directory)) as journal:
        end = target(journal)
        await open_stream(end)
        await deliver(end, batch(dict.fromkeys(range(from_, upto), "x"), upto))


def received(directory: Path) -> list[dict[str, Any]]:
    """The received lines in the outbox, in order, each at the number that it says."""
    found = rows(directory, "SELECT line_id, line FROM outbox ORDER BY line_id")
    lines = [(number, json.loads(line)) for number, line in found]
    assert all(line["number"] == number for number, line in lines if line["side"] == "received")
    return [line for _, line in lines if line["side"] == "received"]


async def test_an_opening_goes_on_from_the_newest_line_whatever_wrote_nothing_between(tmp_path: Path) -> None:
    await deliver_to(tmp_path, 0, 3)
    async with opened(options(tmp_path)):
        pass
    await deliver_to(tmp_path, 3, 5)
    await deliver_to(tmp_path, 5, 6)
    first, second, third = received(tmp_path)
    assert "after" not in first
    assert [second["after"], third["after"]] == [[first["session"], 1], [second["session"], 2]]
    assert len({line["session"] for line in (first, second, third)}) == 3


async def test_lines_of_a_restored_journal_and_of_its_lost_copy_part_at_the_backup(tmp_path: Path) -> None:
    lost, backup = tmp_path / "lost", tmp_path / "backup"
    await deliver_to(lost, 0, 3)
    copy_journal(lost, backup)
    await deliver_to(lost, 3, 5)
    await deliver_to(backup, 3, 4)
    of_lost, of_backup = received(lost), received(backup)
    assert of_lost[0] == of_backup[0]
    assert of_lost[1]["session"] != of_backup[1]["session"]
    assert of_lost[1]["after"] == of_backup[1]["after"] == [of_lost[0]["session"], 1]
    assert of_lost[1]["number"] == of_backup[1]["number"] == 2


async def test_a_line_says_which_messages_were_known_and_whether_ids_were_looked_up(tmp_path: Path) -> None:
    async with opened(options(tmp_path)) as journal:
        twice = batch({0: "x", 1: "y", 2: "z"}, 3, ids={0: "a", 1: "a"})
        for bridge, check_ids in (("one", True), ("two", False)):
            end = target(journal, bridge, check_ids=check_ids)
            await open_stream(end)
            await deliver(end, twice)
    checked, of_ids, unchecked = received(tmp_path)
    assert (checked["known"], checked["ids"], "unchecked" in checked) == ([[1, 1]], [[0, "a"]], False)
    assert (of_ids["verdict"], of_ids["ids"], of_ids["number"]) == ("duplicate", [[None, "a"]], 2)
    assert ("known" in unchecked, unchecked["ids"], unchecked["unchecked"]) == (
        False,
        [[0, "a"], [1, "a"]],
        True,
    )


async def test_lines_that_the_disk_has_taken_keep_their_numbers(tmp_path: Path) -> None:
    async with opened(options(tmp_path)) as journal:
        end = target(journal)
        await open_stream(end)
        await deliver(end, batch({0: "x"}, 3))
        await journal.forget_lines(1)
    await deliver_to(tmp_path, 3, 4)
    assert [(line["number"], line["after"][1]) for line in received(tmp_path)] == [(2, 1)]
