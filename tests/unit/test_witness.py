from __future__ import annotations

import pytest

from bridge import witness
from bridge.errors import TargetRefused
from bridge.ports import Opened, Remembered, Stream, StreamState

STREAM = Stream("journal:i:orders:0", "orders", "orders")


def opened(store: str, next_position: int | None) -> Opened:
    return Opened(store, {STREAM.identity: StreamState(next_position)})


def test_a_bridge_that_never_ran_begins_at_any_target() -> None:
    witness.check(STREAM, None, opened("store-1", None))


def test_the_target_that_confirmed_it_is_gone_on_with() -> None:
    witness.check(STREAM, Remembered(10, "store-1"), opened("store-1", 10))


def test_a_target_whose_next_went_back_is_served_again_from_there() -> None:
    witness.check(STREAM, Remembered(10, "store-1"), opened("store-1", 3))


def test_another_store_is_refused_by_both_names_and_the_key() -> None:
    with pytest.raises(TargetRefused) as raised:
        witness.check(STREAM, Remembered(10, "store-1"), opened("store-2", 10))
    assert (raised.value.key, raised.value.limit, raised.value.found) == ("failover", "store-1", "store-2")
    for part in ("store-1", "store-2", "failover", "up to 10", STREAM.identity):
        assert part in raised.value.detail


def test_a_target_that_has_forgotten_everything_is_refused_and_the_command_named() -> None:
    with pytest.raises(TargetRefused) as raised:
        witness.check(STREAM, Remembered(10, "store-1"), opened("store-1", None))
    for part in ("core-bridge positions", "store-1", "up to 10", STREAM.identity):
        assert part in raised.value.detail
