"""What a bridge does about messages that its journal no longer has: stop, or pass over them and count."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bridge.errors import SourceGap
from bridge.journal.source import JournalSource
from bridge.journal.target import JournalTarget
from bridge.relay.ports import StreamState
from tests.harness.eventually import until
from tests.integration.relay.rig import Nodes, bodies


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        made = Nodes(tmp_path, stack)
        await made.open()
        yield made


def source(nodes: Nodes, gap_policy: str = "continue") -> JournalSource:
    made = nodes.source("first")
    made._passes_gaps = gap_policy == "continue"
    return made


async def trimmed(nodes: Nodes, upto: int) -> str:
    """Everything below `upto` was confirmed once, and is gone; the stream's identity."""
    one = nodes.source("first")
    (stream,) = await one.streams()
    await one.begin(stream.identity, upto, nodes.hub.store)

    async def gone() -> bool:
        return (await nodes.edge.address("orders")).first >= upto

    await until(gone, "they are gone")
    return stream.identity


async def test_with_stop_the_numbers_are_said_and_nothing_is_read(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 30))
    stream = await trimmed(nodes, 20)
    with pytest.raises(SourceGap) as raised:
        await source(nodes, "stop").open({stream: StreamState(7)}, nodes.hub.store)
    assert (raised.value.limit, raised.value.found) == (20, 7)


async def test_with_continue_the_gap_is_covered_with_what_comes_behind_it(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 30))
    stream = await trimmed(nodes, 20)
    reading = source(nodes)
    with capture_logs() as logs:
        await reading.open({stream: StreamState(7)}, nodes.hub.store)
        (batch,) = await reading.read()
    assert (batch.from_, batch.upto, batch.runs) == (7, 30, ((20, 29),))
    assert [entry for entry in logs if entry["event"] == "source-gap"] == [
        {
            "event": "source-gap", "log_level": "warning", "bridge": "first", "stream": stream,
            "first": 7, "end": 20, "positions": 13,
        }
    ]  # fmt: skip
    assert reading.gaps.positions == 13


async def test_the_target_takes_it_and_asks_for_it_never_again(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 30))
    stream = await trimmed(nodes, 20)
    target = JournalTarget(nodes.hub, "first", check_producer_ids=False)
    reading = source(nodes)
    await target.open(await reading.streams())
    await reading.open({stream: StreamState(7)}, nodes.hub.store)
    (batch,) = await reading.read()
    (receipt,) = await target.deliver([batch])
    assert receipt.next == 30
    await reading.settled(batch, receipt)
    await reading.close()
    assert await nodes.arrived() == bodies(20, 30)
    lines = [line for line in await nodes.lines(nodes.edge, "sent") if line["count"]]
    assert [(line["from"], line["runs"], line["count"]) for line in lines] == [(7, [[20, 29]], 10)], (
        json.dumps(lines)
    )


async def test_opened_again_before_anything_was_delivered_it_is_counted_once(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 30))
    stream = await trimmed(nodes, 20)
    reading = source(nodes)
    for _ in range(3):
        await reading.open({stream: StreamState(7)}, nodes.hub.store)
        await reading.read()
    assert reading.gaps.positions == 13


async def test_what_goes_while_it_is_being_read_is_a_gap_as_well(nodes: Nodes) -> None:
    """A restored target asks for what no queue keeps any more: it may be trimmed under the reader."""
    await nodes.edge.create_queue("orders", "keeps", "earliest")
    await nodes.put(bodies(0, 10))
    await nodes.put(bodies(10, 30))
    one = nodes.source("first")
    (stream,) = await one.streams()
    await one.begin(stream.identity, 20, nodes.hub.store)
    for policy in ("stop", "continue"):
        reading = source(nodes, policy)
        await reading.open({stream.identity: StreamState(3)}, nodes.hub.store)
        if policy == "stop":
            await nodes.edge.delete_queue("orders", "keeps")

            async def gone() -> bool:
                return (await nodes.edge.address("orders")).first >= 20

            await until(gone, "they are gone")
            with pytest.raises(SourceGap):
                await reading.read()
        else:
            (batch,) = await reading.read()
            assert (batch.from_, batch.runs) == (3, ((20, 29),))
            assert reading.gaps.positions == 17
        await reading.close()


async def test_an_end_before_what_the_target_asks_for_is_no_gap_that_continues(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 10))
    (stream,) = await nodes.source("first").streams()
    with pytest.raises(SourceGap, match="ends at 10"):
        await source(nodes).open({stream.identity: StreamState(11)}, nodes.hub.store)


async def test_what_is_gone_and_at_another_store_is_no_gap(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 30))
    stream = await trimmed(nodes, 20)
    with pytest.raises(SourceGap) as raised:
        await source(nodes, "stop").open({stream: StreamState(7, elsewhere=((10, 24),))}, nodes.hub.store)
    assert (raised.value.limit, raised.value.found) == (10, 7)
    reading = source(nodes, "stop")
    await reading.open({stream: StreamState(7, elsewhere=((7, 24),))}, nodes.hub.store)
    (batch,) = await reading.read()
    assert (batch.from_, batch.runs) == (7, ((20, 29),))
    assert reading.gaps.positions == 0
    await reading.close()
