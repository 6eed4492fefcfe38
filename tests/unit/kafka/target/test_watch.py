"""A lane is watched while nothing is sent; an error that nobody has foreseen does not end that in silence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.kafka.target.lane import TargetLane
from bridge.kafka.target.target import KafkaTarget
from tests.fakes.virtual_time import in_virtual_time


@in_virtual_time
async def test_a_lane_whose_watch_fails_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    error, failed = RuntimeError("a defect"), list[Exception]()

    async def refresh() -> None:
        raise error

    target = KafkaTarget.__new__(KafkaTarget)
    monkeypatch.setattr(target, "_fail", failed.append)
    monkeypatch.setattr(target, "_rules", (), raising=False)
    await target._watch(cast(TargetLane, cast(Any, SimpleNamespace(refresh=refresh))))
    assert failed == [error]
