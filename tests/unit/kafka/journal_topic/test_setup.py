from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.errors import TargetUnavailable
from bridge.kafka.client import topic_admin
from bridge.kafka.journal_topic.setup import JournalSetup

UNKNOWN, KNOWN = 3, 0


class FakeConnection:
    """A cluster whose brokers answer DescribeConfigs with these codes, one after the other."""

    name = "hub"

    def __init__(self, codes: Sequence[int]) -> None:
        self.codes = list(codes)

    @asynccontextmanager
    async def administering(self) -> AsyncIterator[Any]:
        yield self

    async def describe_configs(self, _asked: object) -> Sequence[Any]:
        code = self.codes.pop(0)
        entries = [] if code else [("cleanup.policy", "compact", False, 5)]
        return [SimpleNamespace(resources=[(code, "", 2, "journal", entries)])]


async def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_admin, "LOOK_PAUSE_MS", 0)
    connection = FakeConnection([UNKNOWN, UNKNOWN, KNOWN])
    made = JournalSetup(connection, replication_factor=-1)  # type: ignore[arg-type]
    assert await made._config("journal") == {"cleanup.policy": "compact"}
    assert connection.codes == []


async def test_a_topic_that_no_broker_knows_is_not_asked_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_admin, "LOOK_PAUSE_MS", 0)
    connection = FakeConnection([UNKNOWN] * topic_admin.LOOKS)
    made = JournalSetup(connection, replication_factor=-1)  # type: ignore[arg-type]
    with pytest.raises(TargetUnavailable, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await made._config("journal")
    assert connection.codes == []
