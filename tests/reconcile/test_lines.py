"""What is read of the delivery logs, what is counted as unreadable, and what is refused by name."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import cramjam
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from dedup.reconcile import files, foreign
from dedup.reconcile.errors import BadInput
from dedup.reconcile.files import LogFile
from dedup.reconcile.line_format import is_ours, parse
from dedup.reconcile.lines import COLUMNS, Read, read
from dedup.reconcile.local import table
from tests.reconcile.conftest import line, write_log

#: One of everything that is no line, without being a line of something else.
UNREADABLE = ['{"v":1,"side":"se', "", "null", "17", '{"v":1}{"v":1}', '{"v":1,"node":"\0\0\0"}', "}"]

#: What makes a good line one of something else, and how the message about it begins.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"v": 2}, "v: this version of core-bridge reads line format 1; found 2"),
    ({"v": "1"}, "v: must be a whole number of at most 64 bits; found 1"),
    ({"side": "both"}, "side: must be sent or received; found both"),
    ({"store": None}, "store: a line of a delivery log must have it; found "),
    ({"from": 8}, "from: must not be above upto; found 8 above 5"),
    ({"upto": 2**60}, f"upto: must be a whole number in 0..{2**50}; found {2**60}"),
    ({"runs": [[0, 5]]}, "runs: each must be [first,last] within 0..4; found [0, 5]"),
    ({"runs": [[3]]}, "runs: each must be [first,last] within 0..4; found [3]"),
    ({"runs": [7]}, "runs: must be a list of runs; found [7]"),
    ({"refused": [-1]}, "refused: must be a list of positions; found [-1]"),
    ({"events": [0]}, "events: must be two times; found [0]"),
    ({"events": ["2026", 1]}, 'events: must be two times; found ["2026", 1]'),
    ({"committed": 2**63}, f"committed: must be a whole number of at most 64 bits; found {2**63}"),
    ({"recovered": 1}, "recovered: must be true or false; found 1"),
]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Names that file systems, Hadoop and Spark each could take for something else."""
    logs = tmp_path_factory.mktemp("a b [1] {x} %20")
    write_log(logs, [line("sent", 0, 5), *UNREADABLE, line("sent", 5, 9)], node="_hidden%20node")
    write_log(logs / "below", [line("received", 0, 5), '{"v":1,"si'], number=12, suffix=".jsonl.open")
    write_log(logs / "below", [line("received", 5, 6), '{"v":1,"si'], number=11)
    (logs / "empty-20261121T185800-000001.jsonl").touch()
    (logs / "own-name.jsonl").write_text(json.dumps(line("received", 6, 9, clock_offset=-3)))
    (logs / "notes.txt").write_text("no log")
    return logs


@pytest.fixture(scope="module")
def found(spark: SparkSession, logs: Path) -> Read:
    return read(spark, [str(logs), str(logs / "own-name.jsonl")])


def test_each_file_is_an_input_with_its_hash_and_what_was_read(found: Read, logs: Path) -> None:
    inputs = {Path(row.path).relative_to(logs).as_posix(): row for row in found.inputs.collect()}
    assert {name: (row.lines, row.unreadable) for name, row in inputs.items()} == {
        "_hidden%20node-20261121T185800-000001.jsonl": (2, len(UNREADABLE)),
        "below/us-20261121T185800-000011.jsonl": (1, 1),
        # Its last line is being written.
        "below/us-20261121T185800-000012.jsonl.open": (1, 0),
        "empty-20261121T185800-000001.jsonl": (0, 0),
        "own-name.jsonl": (1, 0),
    }
    for name, row in inputs.items():
        content = (logs / name).read_bytes()
        assert (row.sha256, row.bytes) == (hashlib.sha256(content).hexdigest(), len(content))


@pytest.mark.parametrize("by", ["Python", "Hadoop"])
def test_a_hash_is_of_the_bytes_that_were_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "Hadoop":
        monkeypatch.setattr("dedup.reconcile.storage.local", lambda _: None)
    path = tmp_path / "eu-20261121T185800-000001.jsonl.open"
    path.write_bytes(b"read" * 300_000 + b"appended since")
    file = LogFile(f"file:{path}", 1_200_000)
    assert files.sha256(spark, file, 1_200_000) == hashlib.sha256(b"read" * 300_000).hexdigest()
    path.rename(tmp_path / "eu-20261121T185800-000001.jsonl")
    with pytest.raises(FileNotFoundError):
        files.sha256(spark, file, 1_200_000)


def test_what_cannot_be_hashed_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=rf"^{tmp_path}: cannot be read: Is a directory$"):
        files.sha256(spark, LogFile(f"file:{tmp_path}", 10), 10)


def test_each_line_is_told_where_it_stands(found: Read, logs: Path) -> None:
    rows = found.lines.collect()
    assert found.lines.columns == list(COLUMNS)
    assert {(row.log_node, row.file_number, row.line_number, row["from"]) for row in rows} == {
        ("_hidden%20node", 1, 1, 0),
        ("_hidden%20node", 1, 2 + len(UNREADABLE), 5),
        ("us", 11, 1, 5),
        ("us", 12, 1, 0),
        # Not named as the contract says: a log of its own.
        (f"file:{logs}/own-name.jsonl", 0, 1, 6),
    }
    assert [row.clock_offset for row in rows if row["from"] == 6] == [-3]


@pytest.mark.parametrize(("changes", "complaint"), WRONG)
def test_a_line_of_something_else_breaks_a_rule_that_has_a_name(
    changes: dict[str, Any], complaint: str
) -> None:
    assert foreign.complaint(json.dumps(line("sent", 0, 5) | changes)).startswith(complaint)


def test_what_is_a_line_and_what_is_not_agrees_with_what_is_said_of_it(spark: SparkSession) -> None:
    """Spark tells them apart with one piece of code, the message is made by another."""
    good = [line("sent", 0, 5), line("sent", 5, 5), line("received", 0, 5, bridge=None, verdict="duplicate")]
    texts = [json.dumps(each) for each in good] + [json.dumps(good[0] | wrong) for wrong, _ in WRONG]
    rows = table(spark, "number long, value string", enumerate(texts)).select(
        "number", parse(col("value")).alias("line")
    )
    ours = rows.select("number", is_ours("line").alias("ours")).collect()
    assert [row.number for row in ours if row.ours] == list(range(len(good)))
    assert len(ours) == len(texts)


def test_a_file_of_something_else_is_refused_by_its_first_line_of_that(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = write_log(tmp_path, [line("sent", 0, 5), "", line("sent", 5, 9) | {"v": 2}, '{"v":3}'])
    with pytest.raises(BadInput, match=rf"/{path.name}: line 3: v: .* reads line format 1; found 2"):
        read(spark, [str(tmp_path)])


def test_a_line_with_bytes_that_are_no_text_is_unreadable(spark: SparkSession, tmp_path: Path) -> None:
    good = json.dumps(line("sent", 0, 5)).encode()
    damaged = good.replace(b"journal:", b"jour\xff\xfel:")
    (tmp_path / "log.jsonl").write_bytes(b"\n".join([good, damaged, b""]))
    assert [(row.lines, row.unreadable) for row in read(spark, [str(tmp_path)]).inputs.collect()] == [(1, 1)]


@pytest.mark.parametrize("rows", [b"hello\n\nworld\n", gzip.compress(b'{"v":1}\n' * 9)], ids=["text", "gzip"])
def test_a_file_without_a_line_is_refused(spark: SparkSession, tmp_path: Path, rows: bytes) -> None:
    write_log(tmp_path, [line("sent", 0, 5)])
    other = tmp_path / "eu-20130101T000000-000009.jsonl"
    other.write_bytes(rows)
    with pytest.raises(BadInput, match=rf"/{other.name}: none of its \d lines is one of a delivery log"):
        read(spark, [str(tmp_path)])


@pytest.mark.parametrize("rows", [b'{"v":1,"si\n', b"\0" * 100 + b"\n", b"{"], ids=["torn", "zeros", "brace"])
def test_a_file_with_nothing_but_what_a_crash_left_is_read(
    spark: SparkSession, tmp_path: Path, rows: bytes
) -> None:
    other = tmp_path / "eu-20130101T000000-000009.jsonl"
    other.write_bytes(rows)
    assert [(row.lines, row.unreadable) for row in read(spark, [str(tmp_path)]).inputs.collect()] == [(0, 1)]


def test_without_a_log_there_is_nothing_to_read(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere: no such file or directory"):
        read(spark, [str(tmp_path / "nowhere")])
    with pytest.raises(
        BadInput, match=r"no delivery log \(\*\.jsonl, \*\.jsonl\.open, \*\.jsonl\.gz, \*\.jsonl\.zst\) in "
    ):
        read(spark, [str(tmp_path)])
    with pytest.raises(BadInput, match=r"zzz://x: cannot be read: No FileSystem for scheme"):
        read(spark, ["zzz://x"])


def test_files_that_are_given_their_final_names_are_looked_for_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node completes its file between the look at the directory and the reading of the files."""
    path = write_log(tmp_path, [line("sent", 0, 5)], suffix=".jsonl.open")
    from dedup.reconcile import files

    look = files.find

    def find_then_rename(spark: SparkSession, paths: list[str]) -> files.Found:
        found = look(spark, paths)
        if path.exists():
            path.rename(path.with_suffix(""))
        return found

    monkeypatch.setattr(files, "find", find_then_rename)
    again = read(spark, [str(tmp_path)])
    assert [row.path for row in again.inputs.collect()] == [str(path.with_suffix(""))]
    again.release()


def test_compressed_files_are_read_as_what_they_were(spark: SparkSession, tmp_path: Path) -> None:
    """Also where a program has put several compressed parts behind each other."""
    texts = [write_log(tmp_path / "plain", [line("sent", at, at + 5)]).read_bytes() for at in (0, 5, 10, 15)]
    name = "eu-20261121T185800-00000{}.jsonl.{}"
    packed = {
        tmp_path / name.format(1, "gz"): gzip.compress(texts[0]) + gzip.compress(texts[1]),
        tmp_path / name.format(2, "zst"): b"".join(bytes(cramjam.zstd.compress(text)) for text in texts[2:]),
    }
    for path, data in packed.items():
        path.write_bytes(data)
    (tmp_path / name.format(3, "bz2")).write_bytes(b"BZh9")
    found = read(spark, [str(path) for path in (*packed, tmp_path / name.format(3, "bz2"))])
    assert found.left_out == (str(tmp_path / name.format(3, "bz2")),)
    inputs = [(row.path, row.sha256, row.lines, row.unreadable) for row in found.inputs.collect()]
    assert inputs == [(str(path), hashlib.sha256(data).hexdigest(), 2, 0) for path, data in packed.items()]
    places = found.lines.select("from", "log_node", "file_number", "line_number").orderBy("from").collect()
    assert [tuple(row) for row in places] == [
        (0, "eu", 1, 1),
        (5, "eu", 1, 2),
        (10, "eu", 2, 1),
        (15, "eu", 2, 2),
    ]
    found.release()


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_compressed_file_that_is_damaged_is_named(spark: SparkSession, tmp_path: Path, ending: str) -> None:
    text = write_log(tmp_path / "plain", [line("sent", at, at + 5) for at in range(0, 500, 5)]).read_bytes()
    packed = gzip.compress(text) if ending == "gz" else bytes(cramjam.zstd.compress(text))
    path = tmp_path / f"eu-20261121T185800-000001.jsonl.{ending}"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(BadInput, match=rf"^{path}: cannot be decompressed: it is damaged, or not all"):
        read(spark, [str(path)])
