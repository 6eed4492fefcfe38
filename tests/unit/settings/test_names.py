from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.messages.addresses import _matches, matches
from bridge.settings.names import check_address, check_name, check_pattern, specificity

WORDS = st.sampled_from(["a", "b", "orders"])
PATTERNS = st.lists(st.one_of(WORDS, st.just("*"), st.just("#")), min_size=1, max_size=6).map(".".join)
ADDRESSES = st.lists(WORDS, min_size=1, max_size=6).map(".".join)


def as_regex(pattern: str) -> str:
    """The plain model: each word with a dot before it, '#' as any number of such."""
    parts = {"*": r"\.[^.]*", "#": r"(\.[^.]*)*"}
    return "".join(parts.get(word, rf"\.{re.escape(word)}") for word in pattern.split("."))


@given(PATTERNS, ADDRESSES)
def test_wildcards_mean_what_the_plain_model_means(pattern: str, address: str) -> None:
    assert matches(pattern, address) == bool(re.fullmatch(as_regex(pattern), f".{address}"))


@pytest.mark.parametrize(
    ("pattern", "address", "meant"),
    [
        ("#", "orders", True),
        ("#", "orders.eu.west", True),
        ("orders.#", "orders", True),
        ("orders.#", "orders.eu.west", True),
        ("orders.#", "orders2", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.west", False),
        ("*.eu", "orders.eu", True),
        ("orders.#.west", "orders.eu.north.west", True),
        ("$sf.#", "$sf.node-2", True),
    ],
)
def test_wildcards_by_example(pattern: str, address: str, meant: bool) -> None:
    assert matches(pattern, address) is meant


class Counted(list[str]):
    """Words that count how often one of them is looked at."""

    looked = 0

    def __getitem__(self, index: Any) -> Any:
        self.looked += 1
        return super().__getitem__(index)


@given(st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=40), st.integers(1, 80))
@example(["#", "a"] * 20 + ["b"], 80)
@example(["#"] * 39 + ["b"], 80)
@example(["#", *["a"] * 38, "b"], 80)
def test_a_pattern_is_matched_in_at_most_as_many_steps_as_the_product_of_the_words(
    pattern: list[str], words: int
) -> None:
    counted = Counted(["a"] * words)
    _matches(pattern, counted)
    assert counted.looked <= (words + 1) * len(pattern)


def test_patterns_sort_from_the_most_to_the_least_specific() -> None:
    patterns = ["#", "orders.#", "orders.*", "*.eu", "*", "orders.eu", "orders.#.eu", "*.*"]
    assert sorted(patterns, key=specificity) == [
        "orders.eu",
        "orders.*",
        "*.eu",
        "*",
        "*.*",
        "orders.#.eu",
        "orders.#",
        "#",
    ]


@pytest.mark.parametrize("name", ["a", "A-Z_0.9", "x" * 249, "-", "..."])
def test_names_that_hold(name: str) -> None:
    assert check_name(name) == check_address(name) == check_pattern(name) == name


@pytest.mark.parametrize("name", ["", "x" * 250, "a b", "é", "a/b", "a\n", "a*"])
def test_names_that_do_not_hold(name: str) -> None:
    with pytest.raises(ValueError, match="must be 1 to 249 of"):
        check_name(name)
    with pytest.raises(ValueError, match="must be words between dots"):
        check_pattern(name)


@pytest.mark.parametrize("name", ["$sf.node-2", "core-bridge.", "core-bridge.x"])
def test_names_of_the_nodes_own_are_nobody_elses(name: str) -> None:
    with pytest.raises(ValueError, match="are the node's own"):
        check_address(name)


def test_a_name_that_only_looks_like_the_nodes_own_is_anybodys() -> None:
    assert check_address("core-bridge") == "core-bridge"
