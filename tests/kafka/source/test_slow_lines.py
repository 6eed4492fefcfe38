"""A source behind a slow line: everything comes, once and in order, and no answer is given up midway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import pytest
from structlog.testing import capture_logs

from bridge.kafka.client import connection
from bridge.kafka.source import lane_reader, stall_detection
from bridge.messages.batch import Batch
from tests.kafka.cluster.far import Far
from tests.kafka.source.rig import open_new, produce, rigged

Unique = Callable[[str], str]
#: Longest that all of it may take, seconds.
PATIENCE_S: Final = 120.0


def values(batches: Sequence[Batch]) -> list[bytes]:
    return [
        bytes(message.body or b"")  # type: ignore[arg-type]
        for batch in batches
        if batch.block is not None
        for message in batch.block.messages()
    ]


async def read(far: Far, bridge: str, topic: str, count: int) -> list[bytes]:
    """So many bodies of a topic, read over the line."""
    batches: list[Batch] = []
    async with rigged(far.reached, bridge) as sources, asyncio.timeout(PATIENCE_S):
        source = await sources.start(topic)
        while len(values(batches)) < count:
            more = await source.read()
            batches += more
            if not more:
                await open_new(source)
    return values(batches)


@pytest.mark.parametrize(
    ("count", "size"),
    [
        pytest.param(40, 10_000, id="many"),
        pytest.param(2, 150_000, id="large"),
    ],
)
async def test_what_takes_longer_than_an_answer_may_is_read_once_and_in_order(
    far: Far, unique: Unique, monkeypatch: pytest.MonkeyPatch, count: int, size: int
) -> None:
    """A fetch of all of it takes 6 to 8 s; silence is one of 1 s, and an answer may stand still for 2 s."""
    monkeypatch.setattr(connection, "REQUEST_TIMEOUT_MS", 2_000)
    monkeypatch.setattr(stall_detection, "STUCK_AFTER_MS", 1_000)
    monkeypatch.setattr(lane_reader, "METADATA_INTERVAL_MS", 500)
    topic = unique("orders")
    far.cluster.create_topic(topic)
    sent = [(b"%d:" % number).ljust(size, b"x") for number in range(count)]
    produce(far.cluster, topic, sent)
    with far.line(50_000) as line:
        with capture_logs() as logs:
            assert await read(far, unique("bridge"), topic, count) == sent
        assert line.down.carried < 1.3 * count * size
    assert [log for log in logs if log["event"] == "consumer-replaced"] == []
