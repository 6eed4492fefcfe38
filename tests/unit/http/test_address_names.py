"""Names and wildcards."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.errors import InvalidAddress
from bridge.messages.addresses import check_name, check_readable, matches


@pytest.mark.parametrize("name", ["orders", "a", "A-Z_09.eu", "x" * 249, "...", "core-bridge", "..a"])
def test_a_name_of_allowed_characters_is_taken(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "$sf.node", "core-bridge.x.journal"]
)
def test_another_name_is_refused_with_the_place_it_stood_in(name: str) -> None:
    with pytest.raises(InvalidAddress) as caught:
        check_name(name, "messages[3].address")
    assert caught.value.key == "messages[3].address"


def test_the_nodes_own_addresses_can_be_looked_at() -> None:
    assert check_readable("$sf.node-2") == "$sf.node-2"
    with pytest.raises(InvalidAddress):
        check_readable("a b")


@pytest.mark.parametrize(
    ("pattern", "address", "covered"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.de", False),
        ("orders.#", "orders", True),
        ("orders.#", "orders.eu.de", True),
        ("orders.#", "ordersx", False),
        ("#", "anything.at.all", True),
        ("#.de", "orders.eu.de", True),
        ("#.de", "de", True),
        ("*.eu.*", "orders.eu.de", True),
        ("a.#.z", "a.z", True),
        ("a.#.z", "a.b.z.c.z", True),
        ("a.#.z", "a.b", False),
        ("o*", "orders", False),
        ("a.*.#", "a", False),
    ],
)
def test_wildcards_cover_whole_words(pattern: str, address: str, covered: bool) -> None:
    assert matches(pattern, address) is covered


words = st.text("ab", min_size=0, max_size=2)


@given(
    st.lists(st.one_of(words, st.sampled_from(["*", "#"])), min_size=1, max_size=6),
    st.lists(words, min_size=1, max_size=6),
)
@example(["#", "a", "#"], ["b", "a", "b"])
def test_matching_agrees_with_a_regular_expression(pattern: list[str], address: list[str]) -> None:
    # Each word ends with a separator in the model, so that '#' needs no special case at the ends.
    of_word = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    model = "".join(of_word.get(word, re.escape(word) + r"\.") for word in pattern)
    expected = re.fullmatch(model, "".join(f"{word}." for word in address)) is not None
    assert matches(".".join(pattern), ".".join(address)) is expected


def test_many_hashes_do_not_take_for_ever() -> None:
    assert not matches(".".join(["#", "a"] * 20), ".".join("b" * 120))


@given(st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249))
def test_every_name_of_the_alphabet_is_taken_unless_it_is_the_nodes_own(name: str) -> None:
    if name.startswith("core-bridge.") or name in (".", ".."):
        return
    assert check_name(name) == name
