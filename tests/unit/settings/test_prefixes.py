"""Prefixes of cluster connections."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.settings import load
from bridge.settings.prefixes import Prefixes


@pytest.mark.parametrize(
    ("text", "covered", "others"),
    [
        ("", "a jms.eu x", ""),
        (" jms.eu ", "jms.eu jms.europe jms.eu.uk", "jms jms.us"),
        ("jms.eu,!jms.eu.uk,jms.us,!jms.us.bos", "jms.eu.de jms.usa", "jms.eu.uk jms.us.boston jms"),
        ("!jms.eu.uk,jms.eu", "jms.eu", "jms.eu.uk other"),
        ("!a", "b", "a ab"),
        ("a_b,c%", "a_b.c c%", "axb cxx"),
    ],
)
def test_c14_prefixes_are_plain_and_exclusions_win(text: str, covered: str, others: str) -> None:
    """C14: in any order; only exclusions mean all others; '_' and '%' are letters."""
    prefixes = Prefixes.of(text)
    assert all(map(prefixes.covers, covered.split()))
    assert not any(map(prefixes.covers, others.split()))


@pytest.mark.parametrize("text", ["jms.eu,,", ",", "a,!", "a, ,b"])
def test_c14_an_empty_entry_is_no_prefix(text: str) -> None:
    """C14: upstream it takes every address."""
    with pytest.raises(ValueError, match="no empty entry"):
        Prefixes.of(text)


ENTRIES = st.tuples(st.booleans(), st.text("ab", min_size=1, max_size=3)).map(
    lambda entry: ("!" if entry[0] else "") + entry[1]
)
LISTS = st.lists(ENTRIES, max_size=4).map(",".join)
#: Longer than any entry by more than one letter, and those themselves.
ADDRESSES = [
    "".join("abc"[number // 3**place % 3] for place in range(length))
    for length in range(1, 5)
    for number in range(3**length)
]


@given(LISTS, LISTS)
def test_c16_two_lists_overlap_where_an_address_is_in_both(first: str, second: str) -> None:
    """C16: what both cover is found, and nothing else is."""
    one, other = Prefixes.of(first), Prefixes.of(second)
    common = one.common(other)
    both = [address for address in ADDRESSES if one.covers(address) and other.covers(address)]
    assert (common is not None) == bool(both)
    assert common is None or any(address.startswith(common) for address in both)
    assert (other.common(one) is None) == (common is None)


def test_c15_connections_that_share_no_address_stand_side_by_side(settings_file: Path) -> None:
    """C15: an exclusion keeps them apart."""
    connections = "".join(
        f'[[cluster-connections]]\nname = "c{number}"\nconnector-ref = "hub"\n'
        f'static-connectors = ["hub"]\naddress = "{address}"\n'
        for number, address in enumerate(("jms,!jms.eu", "jms.eu", "q2", "q3"))
    )
    settings_file.write_text(f'[connectors.hub]\nurl = "ws://hub:61616"\n{connections}')
    assert len(load(settings_file, {}).cluster_connections) == 4
