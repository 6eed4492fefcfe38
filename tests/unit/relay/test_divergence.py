from __future__ import annotations

import pytest

from bridge.errors import TargetRefused
from bridge.relay import divergence
from bridge.relay.divergence import Past
from bridge.relay.ports import Opened, Stream, StreamState
from bridge.relay.stays import Remembered

STREAM = Stream("journal:i:orders:0", "orders", "orders")


def opened(store: str, next_position: int | None) -> Opened:
    return Opened(store, {STREAM.identity: StreamState(next_position)})


def test_a_bridge_that_never_ran_begins_at_any_target() -> None:
    divergence.check(STREAM, None, opened("store-1", None))


def test_the_target_that_confirmed_it_is_gone_on_with() -> None:
    divergence.check(STREAM, Remembered(10, "store-1"), opened("store-1", 10))


def test_a_target_whose_next_went_back_is_served_again_from_there() -> None:
    divergence.check(STREAM, Remembered(10, "store-1"), opened("store-1", 3))


def test_another_store_is_refused_by_both_names_and_the_key() -> None:
    with pytest.raises(TargetRefused) as raised:
        divergence.check(STREAM, Remembered(10, "store-1"), opened("store-2", 10))
    assert (raised.value.key, raised.value.limit, raised.value.found) == ("failover", "store-1", "store-2")
    for part in ("store-1", "store-2", "failover", "up to 10", STREAM.identity):
        assert part in raised.value.detail


def test_a_target_that_has_forgotten_everything_is_refused_and_the_command_named() -> None:
    with pytest.raises(TargetRefused) as raised:
        divergence.check(STREAM, Remembered(10, "store-1"), opened("store-1", None))
    for part in ("core-bridge positions", "store-1", "up to 10", STREAM.identity):
        assert part in raised.value.detail


# -- the source's past -----------------------------------------------------------------------------------


def past(run_end: int | None = None, *, known: bool = True, checksum: int = 0xAB) -> Past:
    return Past("run-3", known, run_end, 120, checksum)


@pytest.mark.parametrize(
    ("state", "its"),
    [
        (StreamState(None, "run-x", 1), past(known=False)),
        (StreamState(100, "run-3", 0xAB), past()),
        (StreamState(100, "run-1", 0xAB), past(100)),
        (StreamState(100, "run-1", 0), past(100)),
        (StreamState(100, "run-1", 0xAB), past(100, checksum=0)),
        (StreamState(100, "", 0xAB), past(known=False)),
    ],
    ids=["never seen", "this run", "all of a run", "no checksum there", "none here", "no run there"],
)
def test_what_this_source_sent_itself_is_gone_on_with(state: StreamState, its: Past) -> None:
    divergence.check_past(STREAM.identity, state, its)


@pytest.mark.parametrize(
    ("state", "its", "limit", "found"),
    [
        (StreamState(100, "run-x", 0xAB), past(known=False), "run-3", "run-x"),
        (StreamState(0, "run-x", 0), past(known=False, checksum=0), "run-3", "run-x"),
        (StreamState(100, "run-1", 0xAB), past(99), 99, 100),
        (StreamState(100, "run-3", 0xAC), past(), "000000ab", "000000ac"),
        (StreamState(100, "", 0xAC), past(known=False), "000000ab", "000000ac"),
    ],
    ids=["another run", "that covered nothing", "more than the run", "another message", "no run there"],
)
def test_what_another_source_sent_is_a_divergence_with_both_sides_numbers(
    state: StreamState, its: Past, limit: object, found: object
) -> None:
    with pytest.raises(divergence.Diverged) as raised:
        divergence.check_past(STREAM.identity, state, its)
    error = raised.value
    assert (error.code, error.key, error.limit, error.found) == ("DIVERGED", STREAM.identity, limit, found)
    for part in (f"up to {state.next}", state.run, its.run, f"ends at {its.end}", "docs/operations.md"):
        assert part in error.detail
