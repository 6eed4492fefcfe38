from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from bridge.messages.addresses import NAME_LENGTH_MAX
from bridge.settings.selectors import check_selector, forwarded, plain_names, selects


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


#: Expressions for which an engine that backtracks takes exponential time on the name beside them.
NESTED: Final = (
    (r"/([a-z]+)+\.orders/", "a" * 28 + "-"),
    (r"/([a-z0-9]+[-.]?)+-events/", "customer12345orderstatuschanged.even_"),
    ("/(a|a)*b/", "a" * NAME_LENGTH_MAX),
    ("/(a*)*b/", "a" * NAME_LENGTH_MAX),
    ("/" + "a?" * 120 + "a" * 120 + "b/", "a" * NAME_LENGTH_MAX),
    ("!/(.*.*.*.*x)+/", "a" * NAME_LENGTH_MAX),
)


@pytest.mark.processes
def test_no_name_keeps_a_regex_busy() -> None:
    # In a process of its own: what hangs in an engine of C ends by a kill alone.
    code = f"from bridge.settings.selectors import selects\nfor regex, name in {NESTED!r}:\n"
    code += "    assert selects((regex, 'orders'), '', name) is False, regex\n"
    code += "    assert selects((regex, 'orders'), '', 'orders') is True, regex\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    "regex", [r"/(a)\1/", "/(?=a)b/", "/(?<!x)a/", "/a++/", "/((a{999}){999}){9}/", "!/(/"]
)
def test_a_regex_that_re2_does_not_know_is_refused(regex: str) -> None:
    with pytest.raises(ValueError, match="must be a regular expression of RE2, without backreferences"):
        check_selector(regex)


@pytest.mark.parametrize(
    "regex", [r"/orders\..*/", "/(?i)ORDERS.eu/", "/[^_].*?/", r"/(?P<a>o)rders\.\w{1,200}/"]
)
def test_a_usual_regex_means_what_it_means_in_python(regex: str) -> None:
    assert check_selector(regex) == regex
    assert selects((regex,), "", "orders.eu")
    assert not selects((regex,), "", "_orders.eu\n")
