from __future__ import annotations

import pytest

from bridge.settings.selectors import forwarded, plain_names, selects


@pytest.mark.parametrize(
    ("selectors", "address", "read"),
    [
        (("orders",), "orders", True),
        (("orders",), "orders.eu", False),
        (("orders", "payments"), "payments", True),
        ((r"/orders\..*/",), "orders.eu", True),
        ((r"/orders\..*/",), "my.orders.eu", False),  # the whole name, not a part of it
        ((r"/orders\..*/", "!orders.eu"), "orders.eu", False),
        ((r"/orders\..*/", "!orders.eu"), "orders.us", True),
        ((r"/.*/", r"!/.*\.test/"), "orders.test", False),
        (("orders", "!orders"), "orders", False),
        (("/.*/",), "$sf.node-2", False),
        (("/.*/",), "core-bridge.x.journal", False),
        (("/.*/",), "__consumer_offsets", False),
    ],
)
def test_what_a_bridge_reads(selectors: tuple[str, ...], address: str, read: bool) -> None:
    assert selects(selectors, "", address) is read


def test_a_regex_never_means_what_the_bridge_forwards_to() -> None:
    assert not selects(("/.*/",), "all", "all")
    assert selects(("/.*/",), "all", "orders")
    assert not selects(("/.*/",), "us.{address}", "us.orders")
    assert selects(("/.*/",), "us.{address}", "orders")
    assert selects(("/.*/",), "{address}", "orders")


def test_names_are_those_written_outright_and_not_excluded() -> None:
    assert plain_names(("b", "a", "/c.*/", "b", "!d", "d")) == ("b", "a")


def test_forwarding_keeps_the_name_replaces_it_or_uses_it() -> None:
    assert forwarded("", "orders") == "orders"
    assert forwarded("all", "orders") == "all"
    assert forwarded("us.{address}.copy", "orders") == "us.orders.copy"
