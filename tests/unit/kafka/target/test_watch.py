"""A lane is watched while nothing is sent; an error that nobody has foreseen does not end that in silence."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from bridge.errors import TargetUnavailable
from bridge.kafka.target.lane import TargetLane
from bridge.kafka.target.pace import Pace
from bridge.kafka.target.target import KafkaTarget
from bridge.relay.counts import Counts
from tests.fakes.virtual_time import VirtualClock, in_virtual_time, now_ms


@in_virtual_time
async def test_a_lane_whose_watch_fails_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    error, failed = RuntimeError("a defect"), list[Exception]()

    async def refresh() -> None:
        raise error

    target = KafkaTarget.__new__(KafkaTarget)
    monkeypatch.setattr(target, "_fail", failed.append)
    monkeypatch.setattr(target, "_rules", (), raising=False)
    pace = Pace(Counts(), structlog.get_logger(), VirtualClock())
    monkeypatch.setattr(target, "_pace", pace, raising=False)
    await target._watch(cast(TargetLane, cast(Any, SimpleNamespace(refresh=refresh, waits_ms=0))))
    assert failed == [error]


@in_virtual_time
async def test_a_question_behind_records_on_a_slow_line_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transaction has a time limit of its own; once its records are answered the question counts."""
    error, failed, asked = TargetUnavailable("no broker answers"), list[Exception](), list[int]()

    async def check_reachable() -> None:
        await refresh()

    async def refresh() -> None:
        asked.append(now_ms())
        lane.waits_ms = 0 if len(asked) > 1 else 40_000
        if len(asked) == 1:
            asyncio.get_running_loop().call_later(30, setattr, lane, "waits_ms", 0)
        raise error

    lane: Any = SimpleNamespace(waits_ms=0, refresh=refresh, check_reachable=check_reachable)
    target = KafkaTarget.__new__(KafkaTarget)
    monkeypatch.setattr(target, "_fail", failed.append)
    monkeypatch.setattr(target, "_rules", (), raising=False)
    monkeypatch.setattr(target, "_queue", SimpleNamespace(is_idle=False), raising=False)
    pace = Pace(Counts(), structlog.get_logger(), VirtualClock())
    monkeypatch.setattr(target, "_pace", pace, raising=False)
    await target._watch(lane)
    assert failed == [error]
    assert len(asked) == 2
    assert asked[1] >= 31_000
