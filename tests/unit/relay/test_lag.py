"""The lag of a bridge: real, or what was last seen to wait with its age, or not known; never 0 instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bridge.errors import SourceUnavailable, TargetUnavailable
from bridge.relay.lag import KNOWN_FOR_MS, MEASURE_INTERVAL_MS, LaneLags, PartitionStatus, total
from bridge.relay.lifecycle import State
from tests.fakes.lanes import Bridge, FakeOwnership, failing
from tests.fakes.virtual_time import VirtualClock, in_virtual_time
from tests.harness.eventually import until


class FakeProbe:
    """`LagProbe` of a source with what a test says."""

    def __init__(self, **lags: int) -> None:
        self.lags: dict[int, int] = {int(lane[1:]): lag for lane, lag in lags.items()}
        self.fails: SourceUnavailable | None = None
        self.measured = self.closed = 0

    async def measure(self) -> Mapping[int, Sequence[PartitionStatus]]:
        self.measured += 1
        if self.fails is not None:
            raise self.fails
        return {lane: [PartitionStatus("orders", lane, 0, end)] for lane, end in self.lags.items()}

    async def close(self) -> None:
        self.closed += 1


# -- what was measured -----------------------------------------------------------------------------------


def test_nothing_was_measured_and_nothing_is_known() -> None:
    assert LaneLags().of(0, 5) is None


def test_what_waits_keeps_its_age_when_it_is_not_measured_again() -> None:
    lags = LaneLags()
    lags.measured(0, (50, 1_000), 2_000)
    assert lags.of(0, 2_000 + 100 * KNOWN_FOR_MS) == (50, 1_000)


def test_that_nothing_waits_is_not_known_any_more_after_a_while() -> None:
    lags = LaneLags()
    lags.measured(0, (0, None), 2_000)
    assert lags.of(0, 2_000 + KNOWN_FOR_MS) == (0, None)
    assert lags.of(0, 2_001 + KNOWN_FOR_MS) is None


def test_what_has_no_age_has_waited_since_it_was_first_seen() -> None:
    lags = LaneLags()
    lags.measured(0, (3, None), 2_000)
    lags.measured(0, (4, None), 7_000)
    assert lags.of(0, 9_000) == (4, 2_000)
    lags.measured(0, (0, None), 10_000)
    lags.measured(0, (1, None), 11_000)
    assert lags.of(0, 11_000) == (1, 11_000)


def test_an_age_that_was_known_goes_on_when_only_the_number_is_measured() -> None:
    lags = LaneLags()
    lags.measured(0, (3, 500), 2_000)
    lags.measured(0, (90, None), 7_000)
    assert lags.of(0, 7_000) == (90, 500)


def test_a_sum_of_which_a_part_is_not_known_is_not_known() -> None:
    assert total([]) == (0, None)
    assert total([(1, 700), (2, 600), (0, None)]) == (3, 600)
    assert total([(1, 700), None]) is None


# -- a bridge --------------------------------------------------------------------------------------------


@in_virtual_time
async def test_the_source_is_asked_while_the_target_is_away_at_the_first_start() -> None:
    """No lane is known: whoever divides them is at the target."""
    ownership, probe = FakeOwnership(0, 1), FakeProbe(l0=100, l1=50)
    ownership.refuses = TargetUnavailable("connection refused")
    bridge = Bridge(ownership, probe=probe)
    await bridge.start()
    began_ms = VirtualClock().wall_ms()
    await until(lambda: bridge.relay.lag is not None, "the lag is known")
    assert bridge.relay.lag == (150, began_ms)
    assert not bridge.relay.lanes_known
    probe.lags = {0: 200, 1: 50}
    await until(lambda: (bridge.relay.lag or (0, None))[0] == 250, "it grows")
    assert bridge.relay.lag == (250, began_ms), "with its age"
    rows = await bridge.relay.partitions()
    assert [(row.partition, row.position, row.end, row.lag) for row in rows] == [
        (0, 0, 200, 200),
        (1, 0, 50, 50),
    ]
    await bridge.stop()


@in_virtual_time
async def test_the_source_is_asked_for_the_lanes_that_were_ours_when_the_target_is_lost() -> None:
    ownership, probe = FakeOwnership(0, 2), FakeProbe(l0=7, l1=1_000, l2=9)
    bridge = Bridge(ownership, probe=probe)
    await bridge.start()
    await bridge.own(0, 2)
    assert bridge.relay.lag == (2, 2_000), "as the lanes say"
    assert probe.measured <= 1, "nobody asks while they are connected"
    bridge.store.down = True
    ownership.refuses = TargetUnavailable("connection refused")
    ownership.lose(ownership.refuses)
    await until(lambda: (bridge.relay.lag or (0, None))[0] == 16, "the source has said")
    assert bridge.relay.lag == (16, 2_000), "the age goes on"
    await bridge.stop()


@in_virtual_time
async def test_a_source_that_was_never_reached_has_no_lag() -> None:
    ownership, probe = FakeOwnership(0), FakeProbe()
    ownership.refuses = probe.fails = SourceUnavailable("connection refused")
    bridge = Bridge(ownership, probe=probe)
    await bridge.start()
    await until(lambda: probe.measured == 3, "it is asked again and again")
    assert bridge.relay.lag is None
    assert probe.closed >= 2, "each time anew"
    await bridge.stop()


@in_virtual_time
async def test_a_source_that_is_lost_keeps_what_waited_and_forgets_that_nothing_did() -> None:
    for messages, kept in ((5, (5, 1_000)), (0, None)):
        ownership, probe = FakeOwnership(0), FakeProbe()
        ownership.refuses = probe.fails = SourceUnavailable("connection refused")
        bridge = Bridge(ownership, probe=probe)
        bridge.relay._lags.measured(0, (messages, 1_000 if messages else None), VirtualClock().wall_ms())
        await bridge.start()
        rounds = probe.measured + 2 + KNOWN_FOR_MS // MEASURE_INTERVAL_MS
        await until(lambda: probe.measured >= rounds, "time has passed", 60)  # noqa: B023
        assert bridge.relay.lag == kept
        await bridge.stop()


@in_virtual_time
async def test_the_lag_of_a_lane_that_failed_is_measured_on() -> None:
    probe = FakeProbe(l0=74)
    bridge = Bridge(FakeOwnership(0), probe=probe)
    bridge.prepare = failing(0)
    await bridge.start()
    await bridge.until(State.FAILED)
    await until(lambda: (bridge.relay.lag or (0, None))[0] == 74, "the source has said")
    probe.lags = {0: 80}
    await until(lambda: (bridge.relay.lag or (0, None))[0] == 80, "it goes on")
    await bridge.stop()
    closed = probe.closed
    assert closed, "a bridge that is stopped asks nobody"
    assert bridge.relay.lag is not None
    assert bridge.relay.lag[0] == 80
