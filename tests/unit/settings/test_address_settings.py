from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.settings import Settings
from bridge.settings.addresses import AddressSettings


def settings(patterns: dict[str, Any], **tables: Any) -> Settings:
    return Settings.model_validate({"node": {"name": "n"}, "address-settings": patterns, **tables})


def test_an_address_that_nothing_is_said_of_has_the_defaults() -> None:
    assert settings({}).for_address("orders") == AddressSettings(
        id_cache_size=20_000,
        max_size_bytes=1 << 30,
        address_full_policy="BLOCK",
        retain_time_ms=0,
        auto_create_addresses=True,
        auto_create_queues=False,
        auto_delete_queues=False,
        auto_delete_queues_delay_ms=60_000,
        auto_delete_queues_message_count=0,
        auto_delete_queues_skip_usage_check=False,
        auto_delete_created_queues=False,
        auto_delete_addresses=False,
        auto_delete_addresses_delay_ms=600_000,
        auto_delete_addresses_skip_usage_check=False,
        redistribution_delay_ms=-1,
    )


def test_id_cache_size_of_one_address_leaves_the_others_alone() -> None:
    """D8: global n=2, one destination n=1."""
    found = settings({"orders": {"id-cache-size": 1}}, **{"duplicate-detection": {"id-cache-size": 2}})
    assert [found.for_address(name).id_cache_size for name in ("orders", "payments")] == [1, 2]


@pytest.mark.parametrize(("written", "size"), [({}, 7), ({"id-cache-size": 0}, 0), ({"id-cache-size": 3}, 3)])
def test_id_cache_size_unset_inherits_and_zero_disables(written: dict[str, int], size: int) -> None:
    """D9: unset inherits the global size, 0 disables that address only (-1 is in wrong/values.txt)."""
    found = settings({"orders": written}, **{"duplicate-detection": {"id-cache-size": 7}})
    assert found.for_address("orders").id_cache_size == size
    assert found.for_address("payments").id_cache_size == 7


def test_keys_are_taken_one_by_one_exact_over_star_over_hash() -> None:
    found = settings(
        {
            "#": {"id-cache-size": 1, "max-size-bytes": "1MiB", "address-full-policy": "FAIL"},
            "orders.*": {"id-cache-size": 2, "max-size-bytes": "2MiB"},
            "orders.eu": {"id-cache-size": 3},
        }
    )
    shown = {
        name: (
            found.for_address(name).id_cache_size,
            found.for_address(name).max_size_bytes,
            found.for_address(name).address_full_policy,
        )
        for name in ("orders.eu", "orders.us", "orders")
    }
    assert shown == {
        "orders.eu": (3, 2 << 20, "FAIL"),
        "orders.us": (2, 2 << 20, "FAIL"),
        "orders": (1, 1 << 20, "FAIL"),
    }


def test_a_key_written_at_its_default_counts_as_written() -> None:
    found = settings({"#": {"address-full-policy": "FAIL"}, "orders": {"address-full-policy": "BLOCK"}})
    assert found.for_address("orders").address_full_policy == "BLOCK"


@given(st.permutations(["#", "orders.#", "orders.*", "*.eu", "*.*", "orders.eu", "eu.#"]))
def test_the_order_in_the_file_does_not_matter(order: list[str]) -> None:
    sizes = {"#": 1, "orders.#": 2, "orders.*": 3, "*.eu": 4, "*.*": 5, "orders.eu": 6, "eu.#": 7}
    found = settings({pattern: {"id-cache-size": sizes[pattern]} for pattern in order})
    names = ["orders.eu", "orders.us", "payments.eu", "a.b", "orders", "orders.eu.west", "payments"]
    assert [found.for_address(name).id_cache_size for name in names] == [6, 3, 4, 5, 2, 2, 1]
