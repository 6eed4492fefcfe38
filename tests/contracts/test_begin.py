"""Where a source begins by a person's decision: `bounds` and `begin`, by the fake and by the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.errors import SourceGap
from bridge.journal.journal import Journal
from bridge.relay.ports import Bounds, Receipt
from bridge.relay.stays import Remembered, Stays
from dedup.verdict import Verdict
from tests.contracts.test_source import (
    FakeOrigin,
    JournalOrigin,
    Origin,
    bodies,
    identities,
    messages,
    opened,
    read,
)


@pytest.fixture(params=[FakeOrigin, JournalOrigin], ids=["fake", "journal"])
async def origin(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Origin]:
    made = request.param(tmp_path)
    if isinstance(made, JournalOrigin):
        made.journal = await Journal.open(made.options)
    yield made
    await made.close()


async def orders(origin: Origin) -> str:
    return (await identities(origin.source()))["orders"]


async def test_bounds_are_where_a_stream_begins_and_ends_before_it_is_open(origin: Origin) -> None:
    stream = await orders(origin)
    assert (await origin.source().bounds())[stream] == Bounds(0, 0)
    await origin.put("orders", bodies(0, 20))
    assert (await origin.source().bounds())[stream] == Bounds(0, 20)


@pytest.mark.parametrize("at", [0, 7, 20])
async def test_a_source_goes_on_where_it_is_told_to(origin: Origin, at: int) -> None:
    await origin.put("orders", bodies(0, 20))
    stream = await orders(origin)
    await origin.source().begin(stream, at, "store-2")
    assert (await origin.source().remembered())[stream] == Remembered(at, "store-2")
    assert await origin.backlog("orders") == 20 - at
    source = await opened(origin, {"orders": at}, "store-2")
    await origin.put("orders", bodies(20, 25))
    expected = [(place, b"m%d" % place) for place in range(at, 25)]
    assert messages(await read(source, 25 - at), stream) == expected
    await source.close()


async def test_it_goes_back_as_well_and_over_a_restart(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 20))
    await origin.put("other", [b"x"])
    source = await opened(origin, {"orders": 0})
    stream = await orders(origin)
    (batch,) = [one for one in await source.read() if one.stream == stream][:1]
    await source.settled(batch, Receipt(stream, Verdict.STORED, batch.upto))
    await source.close()
    await origin.source().begin(stream, batch.upto - 1, "store-2")
    await origin.restart()
    assert (await origin.source().remembered())[stream] == Remembered(batch.upto - 1, "store-2")


async def test_twice_is_as_once(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 20))
    stream = await orders(origin)
    for _ in range(2):
        await origin.source().begin(stream, 7, "store-2")
        assert (await origin.source().remembered())[stream] == Remembered(7, "store-2")
        assert await origin.backlog("orders") == 13


async def test_beyond_the_end_nothing_begins(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 5))
    stream = await orders(origin)
    with pytest.raises(SourceGap):
        await origin.source().begin(stream, 6, "store-2")
    assert await origin.source().remembered() == {}


async def test_an_open_stream_of_which_nothing_is_settled_is_recorded_and_goes_on(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 20))
    source = await opened(origin, {})
    stream = await orders(origin)
    batches = await source.read()
    (batch,) = [one for one in batches if one.stream == stream]
    await source.begin(stream, batch.from_, "store-1")
    assert (await source.remembered())[stream] == Remembered(batch.from_, "store-1")
    await source.settled(batch, Receipt(stream, Verdict.STORED, batch.upto))
    await source.close()
    assert (await origin.source().remembered())[stream].upto == batch.upto


async def test_what_other_stores_confirmed_is_remembered_while_the_stream_goes_on(origin: Origin) -> None:
    await origin.put("orders", bodies(0, 20))
    stream = await orders(origin)
    stays = Stays(7, {"store-1": ((0, 6),)}, 9)
    await origin.source().begin(stream, 7, "store-2", stays)
    assert (await origin.source().remembered())[stream] == Remembered(7, "store-2", stays)
    source = await opened(origin, {"orders": 7}, "store-2")
    batch = (await source.read())[0]
    await source.settled(batch, Receipt(stream, Verdict.STORED, batch.upto))
    await source.close()
    await origin.restart()
    assert (await origin.source().remembered())[stream] == Remembered(batch.upto, "store-2", stays)
    await origin.source().begin(stream, 7, "store-2")
    assert (await origin.source().remembered())[stream] == Remembered(7, "store-2")
