"""How long a member waits for its group, told by a coordinator without a network."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from aiokafka.client import AIOKafkaClient

from bridge.errors import TargetRefused, TargetUnavailable
from bridge.kafka.client.connection import KafkaConnection
from bridge.kafka.lanes.group_member import SESSION_TIMEOUT_MS
from bridge.kafka.lanes.group_ownership import LEAST_JOIN_MS
from bridge.kafka.lanes.groups import JournalTopicOwnership
from tests.fakes.virtual_time import in_virtual_time, now_ms

INVALID_SESSION_TIMEOUT = 26


class Coordinator:
    """Refuses each session `answers_after_s` after the question."""

    def __init__(self, answers_after_s: float) -> None:
        self._answers_after_s = answers_after_s

    async def coordinator_lookup(self, *_question: object) -> int:
        return 0

    async def send(self, *_request: object, **_how: object) -> object:
        await asyncio.sleep(self._answers_after_s)
        return SimpleNamespace(error_code=INVALID_SESSION_TIMEOUT)

    async def close(self) -> None:
        pass


class Connection(KafkaConnection):
    async def connected(self) -> AIOKafkaClient:
        return cast(AIOKafkaClient, self.consumer_options["coordinator"])


def member(session_timeout_ms: int, answers_after_s: float) -> JournalTopicOwnership:
    options = {"session_timeout_ms": session_timeout_ms, "coordinator": Coordinator(answers_after_s)}
    connection = Connection("cluster", "none:1", consumer_options=options)
    return JournalTopicOwnership(connection, group="lanes", topic="journal", lanes=4)


@in_virtual_time
async def test_a_session_that_is_too_short_is_refused_by_a_coordinator_that_takes_longer_than_it() -> None:
    with pytest.raises(TargetRefused, match="session-timeout-ms"):
        await member(10, answers_after_s=LEAST_JOIN_MS / 1000 - 1).open()


@pytest.mark.parametrize(
    ("session_timeout_ms", "given_up_ms"), [(10, LEAST_JOIN_MS), (SESSION_TIMEOUT_MS, 2 * SESSION_TIMEOUT_MS)]
)
def test_a_coordinator_that_does_not_answer_is_given_up(session_timeout_ms: int, given_up_ms: int) -> None:
    @in_virtual_time
    async def given_up() -> None:
        with pytest.raises(TargetUnavailable, match="Read group lanes: timed out"):
            await member(session_timeout_ms, answers_after_s=3_600).open()
        assert now_ms() == given_up_ms

    given_up()
