from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.messages.addresses import _matches, matches
from bridge.settings import SettingsInvalid, load
from bridge.settings.names import check_name, check_pattern, check_user_name, specificity

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
    assert check_name(name) == check_user_name(name) == check_pattern(name) == name


@pytest.mark.parametrize("name", ["", "x" * 250, "a b", "é", "a/b", "a\n", "a*"])
def test_names_that_do_not_hold(name: str) -> None:
    with pytest.raises(ValueError, match="must be 1 to 249 of"):
        check_name(name)
    with pytest.raises(ValueError, match="must be words between dots"):
        check_pattern(name)


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_paths_lose_holds_nowhere(name: str) -> None:
    for check in (check_name, check_user_name):
        with pytest.raises(ValueError, match=r"must be neither \. nor \.\."):
            check(name)


@pytest.mark.parametrize(
    "table",
    [
        'bridges = [{ name = "NAME", queue-name = "a", static-connectors = ["hub"] }]',
        'bridges = [{ name = "b", previous-name = "NAME", queue-name = "a", static-connectors = ["hub"] }]',
        'cluster-connections = [{ name = "NAME", connector-ref = "hub", static-connectors = ["there"] }]',
        'addresses.orders.queues = ["NAME"]',
    ],
)
@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("..", "must be neither . nor .."),
        ("core-bridge.x", "must not begin with $ or core-bridge., which are the node's own"),
    ],
)
def test_bridges_clusters_and_queues_have_the_same_rule_of_names(
    settings_file: Path, table: str, name: str, rule: str
) -> None:
    connectors = 'connectors.hub.url = "ws://hub:1"\nconnectors.there.url = "ws://there:1"\n'
    settings_file.write_text(connectors + table.replace("NAME", name) + "\n")
    with pytest.raises(SettingsInvalid) as invalid:
        load(settings_file, {})
    assert [problem.rule for problem in invalid.value.problems] == [rule]


def test_a_node_may_have_the_name_of_a_host_and_a_group_its_default(settings_file: Path) -> None:
    settings_file.write_text(
        '[node]\nname = "core-bridge.example.com"\n[connectors.eu]\nurl = "kafka://eu:1"\n[[bridges]]\n'
        'name = "b"\nsource-connector = "eu"\nqueue-name = "a"\nstatic-connectors = ["journal"]\n'
        'group-id = "core-bridge.former"\n'
    )
    load(settings_file, {})
    settings_file.write_text('[node]\nname = ".."\n')
    with pytest.raises(SettingsInvalid, match=r"node\.name: must be neither"):
        load(settings_file, {})


@pytest.mark.parametrize("name", ["$sf.node-2", "core-bridge.", "core-bridge.x"])
def test_names_of_the_nodes_own_are_nobody_elses(name: str) -> None:
    with pytest.raises(ValueError, match="are the node's own"):
        check_user_name(name)


def test_a_name_that_only_looks_like_the_nodes_own_is_anybodys() -> None:
    assert check_user_name("core-bridge") == "core-bridge"
