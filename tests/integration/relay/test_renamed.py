"""A bridge that gets another name: what it has left, and where it goes on, in two real journals."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bridge.journal.dead_letters import DeadLetterService, Route
from bridge.journal.journal import Journal
from bridge.journal.sqlite.reader import Orphan
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import BridgeQueue
from bridge.messages.batch import Batch
from bridge.relay.backoff import Backoff
from bridge.relay.dead_letters import DeadLetters
from bridge.relay.lifecycle import Command, State
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.relay.stays import Remembered
from bridge.runtime.clock import SystemClock
from tests.fakes.one_lane import OneLane
from tests.harness.eventually import until
from tests.integration.relay.rig import MAX_MESSAGE, Link, Nodes, bodies


class Renaming(Nodes):
    """Nodes whose bridge has a previous name, from the next opening on."""

    previous = ""

    async def open(self) -> None:
        queues = [
            BridgeQueue(name, ["orders"], lambda address: address == "orders", self.previous)
            for name in self.bridges
        ]
        self.edge = await self._journal("edge", bridges=queues)
        self.hub = await self._journal("hub", max_message_bytes=MAX_MESSAGE)

    async def rename(self, name: str, previous: str) -> None:
        self.bridges, self.previous = [name], previous
        await self.restart()

    def relay(self, name: str = "first", **options: Any) -> OneLane:
        previous = self.previous
        link = self.links[name] = Link(
            JournalTarget(self.hub, name, check_producer_ids=False, previous=previous)
        )
        edge = self.edge

        def letters_of(named: str) -> JournalTarget:
            before = previous and f"{previous}/dead"
            return JournalTarget(edge, named, check_producer_ids=False, previous=before)

        relay = OneLane(
            RelayOptions(name, Backoff(20, 1.0, 20)),
            LaneEnds(self.source(name), link, DeadLetters(name, "dead", letters_of)),
            clock=SystemClock(),
        )
        self.relays.append(relay)
        return relay

    async def relayed(self, name: str) -> None:
        relay = self.relay(name)
        await relay.command(Command.START)
        await self.idle()
        await relay.command(Command.STOP)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Renaming]:
    async with AsyncExitStack() as stack:
        made = Renaming(tmp_path, stack)
        await made.open()
        yield made
        for relay in made.relays:
            await relay.command(Command.STOP)


async def queues_of(journal: Journal) -> dict[str, tuple[str, int]]:
    """By queue name: its bridge and next."""
    rows = await journal.read(
        lambda connection: connection.execute("SELECT name, bridge, next FROM queues").fetchall()
    )
    return {name: (bridge, at) for name, bridge, at in rows}


async def test_a_renamed_bridge_delivers_the_rest_once_and_leaves_no_orphan(nodes: Renaming) -> None:
    await nodes.put(bodies(0, 20))
    await nodes.relayed("first")
    await nodes.put(bodies(20, 40))
    await nodes.rename("second", "first")
    assert await queues_of(nodes.edge) == {"$bridge.second": ("second", 20)}
    assert await nodes.edge.orphans() == []
    await nodes.relayed("second")
    assert await nodes.arrived() == bodies(0, 40)


async def test_what_was_delivered_and_never_confirmed_is_not_delivered_again(nodes: Renaming) -> None:
    """The receipts of the old name were lost: only the target knows."""
    await nodes.put(bodies(0, 20))
    relay = nodes.relay("first")
    nodes.links["first"].loses = True
    await relay.command(Command.START)
    await nodes.stored(20)
    nodes.links["first"].cut()
    await nodes.rename("second", "first")
    assert await nodes.backlog("second") == 20
    await nodes.relayed("second")
    assert await nodes.arrived() == bodies(0, 20)


async def test_the_source_remembers_under_the_new_name_what_was_confirmed(nodes: Renaming) -> None:
    await nodes.put(bodies(0, 20))
    await nodes.relayed("first")
    await nodes.rename("second", "first")
    (known,) = (await nodes.source("second").remembered()).values()
    assert known == Remembered(20, nodes.hub.store)
    assert await nodes.source("first").remembered() == {}


async def test_started_again_with_its_previous_name_it_changes_nothing(nodes: Renaming) -> None:
    await nodes.put(bodies(0, 20))
    await nodes.relayed("first")
    await nodes.rename("second", "first")
    before = await queues_of(nodes.edge)
    for number in range(2):
        await nodes.restart()
        assert await queues_of(nodes.edge) == {"$bridge.second": ("second", 20 + 5 * number)}
        await nodes.put(bodies(20 + 5 * number, 25 + 5 * number))
        await nodes.relayed("second")
    assert before == {"$bridge.second": ("second", 20)}
    assert await nodes.arrived() == bodies(0, 30)


async def test_where_both_have_a_queue_the_new_names_wins_and_the_old_is_an_orphan(nodes: Renaming) -> None:
    nodes.bridges = ["first", "second"]
    await nodes.restart()
    await nodes.put(bodies(0, 20))
    for name in nodes.bridges:
        await nodes.relay(name).command(Command.START)
    await nodes.idle()
    for relay in nodes.relays:
        await relay.command(Command.STOP)
    await nodes.put(bodies(20, 25))
    await nodes.rename("second", "first")
    assert await queues_of(nodes.edge) == {"$bridge.first": ("first", 20), "$bridge.second": ("second", 20)}
    (orphan,) = await nodes.edge.orphans()
    assert orphan == Orphan("first", "orders", 5, "the bridge is not in the settings")


async def test_the_old_name_that_comes_back_is_refused_and_doubles_nothing(nodes: Renaming) -> None:
    await nodes.edge.create_queue("orders", "keeps", "earliest")  # what was delivered stays in the journal
    await nodes.put(bodies(0, 20))
    await nodes.relayed("first")
    await nodes.rename("second", "first")
    await nodes.put(bodies(20, 25))
    await nodes.relayed("second")
    await nodes.rename("first", "")
    relay = nodes.relay("first")
    await relay.command(Command.START)
    await until(lambda: nodes.failed(relay), "the relay has failed")
    assert relay.state is State.FAILED
    assert "adopted by the bridge second" in relay.reason
    assert await nodes.arrived() == bodies(0, 25)


async def test_the_old_name_that_comes_back_before_the_new_one_connected_goes_on(nodes: Renaming) -> None:
    await nodes.edge.create_queue("orders", "keeps", "earliest")
    await nodes.put(bodies(0, 20))
    await nodes.relayed("first")
    await nodes.rename("second", "first")
    await nodes.rename("first", "")
    await nodes.put(bodies(20, 25))
    await nodes.relayed("first")
    assert await nodes.arrived() == bodies(0, 25)


async def test_renamed_back_it_goes_on_again(nodes: Renaming) -> None:
    await nodes.put(bodies(0, 20))
    await nodes.relayed("first")
    await nodes.rename("second", "first")
    await nodes.put(bodies(20, 25))
    await nodes.relayed("second")
    await nodes.rename("first", "second")
    await nodes.put(bodies(25, 30))
    await nodes.relayed("first")
    assert await nodes.arrived() == bodies(0, 30)


async def test_a_letter_is_not_written_again_under_the_new_name(nodes: Renaming) -> None:
    """The target forgets that the position was covered; the letter is known all the same."""
    large = b"x" * (MAX_MESSAGE + 1)
    await nodes.edge.create_queue("orders", "keeps", "earliest")  # what was delivered stays in the journal
    await nodes.put([b"a", large])
    await nodes.relayed("first")
    await nodes.rename("second", "first")
    relay = nodes.relay("second")
    source = nodes.source("second")
    stream = (await source.streams())[0]
    await source.begin(stream.identity, 0, nodes.hub.store)
    assert await nodes.backlog("second") == 2
    nodes.hub._writer.state.positions.clear()
    went_back = JournalTarget(nodes.hub, "second", check_producer_ids=False)
    await went_back.open([stream])
    await went_back.deliver([Batch(stream.identity, 0, 0)])
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    assert [m.message.body for m in await nodes.at(nodes.edge, "dead")] == [large]


async def test_what_waits_to_be_sent_again_goes_along(nodes: Renaming) -> None:
    await nodes.put([b"a", b"x" * (MAX_MESSAGE + 1)])
    await nodes.relayed("first")
    dead_letters = DeadLetterService(nodes.edge, ["dead"], {"first": Route("first")})
    (letter,) = await dead_letters.list()
    await dead_letters.replay([letter.position])
    await nodes.rename("second", "first")
    assert {row[0] for row in (await queues_of(nodes.edge)).values()} == {"second", None}
    relay = nodes.relay("second")
    await relay.command(Command.START)
    again = DeadLetterService(nodes.edge, ["dead"], {"first": Route("second")})

    async def listed() -> bool:
        return len(await again.list()) == 1

    await until(listed, "the old name is listed")
    (back,) = await again.list()
    assert (back.bridge, back.address) == ("second", "orders"), "tried once more, and refused again"
