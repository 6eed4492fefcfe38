"""The file that says how far a journal had come: written by turns, in two lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import JournalDamaged
from bridge.journal.sqlite.identity_file import (
    FILE_BYTES,
    FILE_NAME,
    LINE_BYTES,
    IdentityFile,
    Reached,
    read_reached,
)

NODE = "6f0c7f1e-4d0c-4b0b-9f5c-7f1f0e4d3c2b"
BEGUN = Reached(NODE, 10, 2)


def written(directory: Path, *sequences: int) -> bytes:
    """The file's content after commits that came to these positions; it is not closed in between."""
    file = IdentityFile(directory)
    file.begin(BEGUN)
    for sequence in sequences:
        file.reached(sequence, 3, (7, sequence))
    content = (directory / FILE_NAME).read_bytes()
    file.close()
    return content


@pytest.mark.parametrize("sequences", [(), (11,), (11, 12), (11, 12, 13)])
def test_the_newest_commit_counts(tmp_path: Path, sequences: tuple[int, ...]) -> None:
    assert len(written(tmp_path, *sequences)) == FILE_BYTES
    newest = Reached(NODE, sequences[-1], 3, 7, sequences[-1]) if sequences else BEGUN
    assert read_reached(tmp_path) == newest


@pytest.mark.parametrize("sequences", [(11,), (11, 12)])
def test_a_line_that_a_kill_left_half_written_leaves_the_one_before(
    tmp_path: Path, sequences: tuple[int, ...]
) -> None:
    content = bytearray(written(tmp_path, *sequences))
    before = written(tmp_path, *sequences[:-1])
    at = len(sequences) % 2 * LINE_BYTES
    for cut in range(LINE_BYTES):
        torn = content[:]
        torn[at + cut : at + LINE_BYTES] = before[at + cut : at + LINE_BYTES]
        (tmp_path / FILE_NAME).write_bytes(torn)
        found = read_reached(tmp_path)
        assert found is not None
        whole = torn == content  # the newline alone was missing
        assert found.sequence == (BEGUN.sequence, *sequences)[-1 if whole else -2]


def test_a_file_without_a_whole_line_is_damaged(tmp_path: Path) -> None:
    content = bytearray(written(tmp_path, 11))
    content[30] ^= 1
    content[LINE_BYTES + 30] ^= 1
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(JournalDamaged, match="is damaged"):
        read_reached(tmp_path)


def test_a_file_that_is_opened_again_goes_on_from_there(tmp_path: Path) -> None:
    written(tmp_path, 11, 12, 13)
    file = IdentityFile(tmp_path)
    file.begin(Reached(NODE, 13, 3))
    assert read_reached(tmp_path) == Reached(NODE, 13, 3)
    file.reached(14, 3, None)
    file.close()
    file.reached(15, 3, None)  # closed: nothing is written
    assert read_reached(tmp_path) == Reached(NODE, 14, 3)
