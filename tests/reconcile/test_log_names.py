"""What a file's name says of a delivery log, and which files are missing."""

from __future__ import annotations

import pytest

from dedup.reconcile.log_names import Hole, holes, is_like_a_log, place_in_log, stem

NAME = "eu-20261121T185800-000007"


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.open", ".jsonl.gz", ".jsonl.zst"])
def test_a_file_is_the_same_one_whatever_has_become_of_it(ending: str) -> None:
    assert place_in_log(f"/logs/{NAME}{ending}") == ("eu", 7)
    assert stem(f"/logs/{NAME}{ending}") == f"/logs/{NAME}"
    assert is_like_a_log(NAME + ending)


@pytest.mark.parametrize(
    ("name", "is_like"),
    [
        (f"{NAME}.jsonl.bz2", True),
        (f"{NAME}.jsonl.gz.part", True),
        (f"{NAME}.jsonl.open-0", True),
        (f"{NAME}.jsonl~", True),
        ("other.jsonl", True),
        (f".{NAME}.jsonl.crc", False),
        (f"{NAME}.jsonlines", False),
        (".eu.lock", False),
        ("summary.json", False),
    ],
)
def test_what_looks_like_a_log_is_told_from_what_stands_beside_it(name: str, is_like: bool) -> None:
    assert is_like_a_log(name) == is_like
    assert is_like_a_log(name) or place_in_log(name) is None


def test_files_that_are_missing_between_others_are_found_for_each_node() -> None:
    def path(node: str, number: int, ending: str = ".jsonl") -> str:
        return f"/logs/{node}-20261121T185800-{number:06}{ending}"

    there = [
        path("eu", 3),
        path("eu", 4, ".jsonl.gz"),
        path("eu", 7),
        path("us", 1),
        path("us", 9, ".jsonl.open"),
    ]
    assert holes([*there, path("eu", 3), "/logs/other.jsonl"]) == [Hole("eu", 5, 6), Hole("us", 2, 8)]
    assert holes([path("eu", 8), path("eu", 9)]) == holes([]) == []
