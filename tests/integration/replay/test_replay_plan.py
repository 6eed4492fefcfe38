"""What a hub lost, sent again out of the edge's journal by a plan: two real journals in one process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import Conflict, NotFound, TargetUnavailable
from bridge.journal.batching import Cutter
from bridge.journal.node_ends import present_here
from bridge.journal.plan_source import JournalPlanSource
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import AddressPolicy, BridgeSelection
from bridge.journal.values.store import Sent, Transaction
from bridge.messages import positions as run_arithmetic
from bridge.messages.batch import Batch
from bridge.messages.block import encode_message, pack
from bridge.messages.message import Message
from bridge.messages.positions import Runs
from bridge.messages.stream_names import plan_stream
from bridge.relay.lifecycle import Command
from bridge.relay.ports import Stream
from bridge.relay.stages import LoopGuard
from bridge.replay.node_presence import NodePresence
from bridge.replay.plans import Ends, ReplayService, Route
from bridge.replay.sending import PlanState, Resent, Wanted
from dedup.ids import Stamp
from tests.harness.eventually import until
from tests.integration.relay.rig import MAX_MESSAGE, Link, Nodes, bodies

PLAN = "0123456789abcdef"
#: What the hub loses of the first 20 messages.
LOST: Runs = ((2, 3), (7, 7), (12, 12))
PLACES = list(run_arithmetic.positions(LOST))
KEPT = [place for place in range(20) if place not in PLACES]


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        made = Nodes(tmp_path, stack)
        made.policies["orders"] = AddressPolicy(retain_time_ms=-1)
        await made.open()
        yield made
        for relay in made.relays:
            await relay.command(Command.STOP)


@pytest.fixture
def losing(nodes: Nodes) -> None:
    nodes.lost = {"orders": LOST}


async def relayed(nodes: Nodes, count: int = 20, batch_bytes: int = 400) -> None:
    """All are sent and settled, and the hub has lost some."""
    await nodes.put(bodies(0, count), together=3)
    relay = nodes.relay(batch_bytes=batch_bytes)
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)


def source_of(nodes: Nodes, batch_bytes: int = 400) -> JournalPlanSource:
    return JournalPlanSource(
        nodes.edge,
        BridgeSelection("first", lambda address: address == "orders", lambda address: address),
        Cutter(batch_bytes, 100_000, stamp=True),
    )


def replays(
    nodes: Nodes, link: Link | None = None, batch_bytes: int = 400, *, checks_ids: bool = False
) -> ReplayService:
    def ends(*, force: bool) -> Ends:
        target = link or JournalTarget(nodes.hub, "first", check_producer_ids=checks_ids)
        source = source_of(nodes, batch_bytes)
        presence = NodePresence("first", present_here(nodes.hub), source, checks_ids=checks_ids)
        return Ends(source, target, presence, (LoopGuard("first", 8, lambda: source.store),))

    return ReplayService({"first": [ends]})


async def wanted(nodes: Nodes, positions: Runs = LOST, **changes: Any) -> Wanted:
    (stream,) = await nodes.source("first").streams()
    given = {"plan": PLAN, "bridge": "first", "stream": stream.identity, "store": nodes.hub.store}
    return Wanted(**{**given, "positions": positions, **changes})


async def arrived(nodes: Nodes) -> list[int]:
    """Numbers of the bodies at the hub, in order."""
    return [int((body or b"m-1")[1:]) for body in await nodes.arrived()]


@pytest.mark.usefixtures("losing")
async def test_exactly_what_was_lost_comes_once_with_the_ids_it_had(nodes: Nodes) -> None:
    await relayed(nodes)
    assert await arrived(nodes) == KEPT
    plan = await wanted(nodes)
    assert await replays(nodes).look(plan) == Resent(sent=4)
    assert await arrived(nodes) == KEPT
    assert await replays(nodes).send(plan) == Resent(sent=4)
    assert await arrived(nodes) == [*KEPT, *PLACES]
    assert await replays(nodes).send(plan) == await replays(nodes).look(plan) == Resent(earlier=4)
    assert await arrived(nodes) == [*KEPT, *PLACES]
    delivered = (await nodes.at(nodes.hub))[-4:]
    assert [one.duplicate_id for one in delivered] == [Stamp(plan.stream).text(p).encode() for p in PLACES]


@pytest.mark.usefixtures("losing")
async def test_the_log_says_for_which_stream_the_positions_stand(nodes: Nodes) -> None:
    await relayed(nodes)
    plan = await wanted(nodes)
    await replays(nodes).send(plan)
    lines = await nodes.lines(nodes.hub, "received")
    first, *again = [line for line in lines if "replays" in line]
    assert again == []
    assert (first["replays"], first["stream"]) == (plan.stream, plan_stream(plan.stream, PLAN, force=False))
    assert (first["runs"], first["from"], first["upto"]) == ([[2, 3], [7, 7], [12, 12]], 2, 13)
    own = [line for line in lines if "replays" not in line]
    assert [place for line in own for place in run_arithmetic.positions(map(tuple, line["runs"]))] == KEPT
    assert not any(line["duplicates"] for line in own), "what is lost is lost in silence"
    sent = [
        line
        for line in await nodes.lines(nodes.edge, "sent")
        if "replays" in line or ":replay:" in line["stream"]
    ]
    assert sent == []


@pytest.mark.usefixtures("losing")
async def test_cut_behind_the_store_the_next_run_goes_on_there(nodes: Nodes) -> None:
    await relayed(nodes)
    plan = await wanted(nodes)
    link = Link(JournalTarget(nodes.hub, "first", check_producer_ids=False))
    link.loses = True
    sending = asyncio.create_task(replays(nodes, link).send(plan))
    await nodes.stored(len(KEPT) + 1)
    link.cut()
    with pytest.raises(TargetUnavailable):
        await sending
    outcome = await replays(nodes).send(plan)
    assert (outcome.sent + outcome.earlier, outcome.earlier > 0) == (4, True)
    assert await arrived(nodes) == [*KEPT, *PLACES]


@pytest.mark.usefixtures("losing")
async def test_a_restart_of_both_changes_nothing(nodes: Nodes) -> None:
    await relayed(nodes)
    plan = await wanted(nodes)
    await replays(nodes).send(plan)
    await nodes.restart()
    assert await replays(nodes).send(plan) == Resent(earlier=4)
    assert await arrived(nodes) == [*KEPT, *PLACES]


@pytest.mark.usefixtures("losing")
async def test_two_services_at_once_send_it_once(nodes: Nodes) -> None:
    await relayed(nodes)
    plan = await wanted(nodes)
    await asyncio.gather(*(replays(nodes).send(plan) for _ in range(3)), return_exceptions=True)
    await replays(nodes).send(plan)
    assert await arrived(nodes) == [*KEPT, *PLACES]


@pytest.mark.usefixtures("losing")
async def test_what_the_address_holds_is_not_sent_by_another_plan_unless_forced(nodes: Nodes) -> None:
    await relayed(nodes)
    every = await wanted(nodes, ((0, 19),))
    assert await replays(nodes).look(every) == Resent(sent=4, known=16)
    assert await replays(nodes).send(every) == Resent(sent=4, known=16)
    other = await wanted(nodes, plan="f" * 16)
    assert await replays(nodes).look(other) == await replays(nodes).send(other) == Resent(known=4)
    line = (await nodes.lines(nodes.hub, "received"))[-1]
    assert (line["runs"], line["count"], line["duplicates"]) == ([[2, 3], [7, 7], [12, 12]], 4, 4)
    forced = await wanted(nodes, plan="f" * 16, force=True)
    assert await replays(nodes).look(forced) == await replays(nodes).send(forced) == Resent(sent=4)
    assert await arrived(nodes) == [*KEPT, *PLACES, *PLACES]


@pytest.mark.usefixtures("losing")
async def test_a_producers_id_that_the_target_knows_is_not_sent_where_the_bridge_checks(nodes: Nodes) -> None:
    sent = [Sent.of("orders", Message(b"m%d" % n), b"id-%d" % n) for n in range(5)]
    await nodes.edge.commit(Transaction(sent))
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    await nodes.hub.commit(Transaction([Sent.of("orders", Message(b"m99"), b"id-2")], plain=True))
    plan = await wanted(nodes, ((2, 3),))
    checking = replays(nodes, checks_ids=True)
    assert await checking.look(plan) == await checking.send(plan) == Resent(sent=1, known=1)
    assert await arrived(nodes) == [0, 1, 4, 99, 3]
    again = await nodes.hub.commit(Transaction([Sent.of("orders", Message(b"x"), b"id-3")], plain=True))
    assert not again.stored, "the target remembers the ID of what was sent again"
    # Where it does not, an ID says nothing: m2 has not come because another message has its ID.
    other = await wanted(nodes, ((2, 2),), plan="f" * 16)
    assert await replays(nodes).look(other) == await replays(nodes).send(other) == Resent(sent=1)
    assert await arrived(nodes) == [0, 1, 4, 99, 3, 2]


@pytest.mark.usefixtures("losing")
async def test_messages_of_one_id_are_sent_each_where_the_bridge_does_not_check(nodes: Nodes) -> None:
    """An address without a cache takes an ID twice."""
    nodes.policies["orders"] = AddressPolicy(retain_time_ms=-1, id_cache_size=0)
    await nodes.restart()
    sent = [Sent.of("orders", Message(b"m%d" % n), b"again") for n in range(5)]
    await nodes.edge.commit(Transaction(sent[:3], plain=True))
    for one in sent[3:]:
        await nodes.edge.commit(Transaction([one], plain=True))
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    assert await arrived(nodes) == [0, 1, 4]
    plan = await wanted(nodes, ((2, 3),))
    assert await replays(nodes).look(plan) == await replays(nodes).send(plan) == Resent(sent=2)
    assert await arrived(nodes) == [0, 1, 4, 2, 3]


async def brought(nodes: Nodes, bridge: str) -> None:
    """Three messages of another node come to the edge by this bridge."""
    stream = Stream("journal:far:orders:0", "orders", "orders")
    runs: Runs = ((0, 2),)
    block = pack([encode_message(Message(b"m%d" % at)) for at in range(3)]).stamped(stream.identity, runs)
    target = JournalTarget(nodes.edge, bridge, check_producer_ids=False)
    await target.open([stream])
    await target.deliver([Batch(stream.identity, 0, 3, runs, block)])
    await target.close()


async def test_a_message_that_came_by_two_ways_is_counted(nodes: Nodes) -> None:
    """0 to 2 came by one, 3 to 5 are the same by another: 2 and 3 are lost, 5 and 0 are not."""
    for bridge in ("by-land", "by-sea"):
        await brought(nodes, bridge)
    nodes.lost = {"orders": ((2, 3),)}
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    assert await arrived(nodes) == [0, 1, 1, 2]
    plan = await wanted(nodes, ((2, 3),))
    for batch_bytes in (20, 10_000):
        assert await replays(nodes, batch_bytes=batch_bytes).look(plan) == Resent(sent=2)
    assert await replays(nodes, batch_bytes=20).send(plan) == Resent(sent=2)
    assert await arrived(nodes) == [0, 1, 1, 2, 2, 0]
    every = await wanted(nodes, ((0, 5),), plan="f" * 16)
    assert await replays(nodes).look(every) == await replays(nodes).send(every) == Resent(known=6)
    assert await arrived(nodes) == [0, 1, 1, 2, 2, 0]


async def test_what_may_be_a_copy_that_the_source_no_longer_has_is_unknown(nodes: Nodes) -> None:
    """The edge has passed on what came by land, and keeps nothing; what came by sea has just come."""
    nodes.policies["orders"] = AddressPolicy()
    await nodes.restart()
    await brought(nodes, "by-land")
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)

    async def trimmed() -> bool:
        return (await nodes.edge.address("orders")).messages == 0

    await until(trimmed, "they are trimmed")
    await brought(nodes, "by-sea")
    plan = await wanted(nodes, ((3, 5),))
    at_once = replays(nodes, batch_bytes=10_000)
    assert await at_once.look(plan) == await at_once.send(plan) == Resent(unknown=[(3, 5)])
    line = (await nodes.lines(nodes.hub, "received"))[-1]
    assert (line["upto"], line["runs"], line["count"]) == (6, [], 0), (
        "it is covered, and not said to be there"
    )
    assert await arrived(nodes) == [0, 1, 2]


@pytest.mark.usefixtures("losing")
async def test_what_the_journal_no_longer_has_is_listed(nodes: Nodes) -> None:
    nodes.policies["orders"] = AddressPolicy()
    await nodes.restart()
    await relayed(nodes)

    async def trimmed() -> bool:
        return (await nodes.edge.address("orders")).messages == 0

    await until(trimmed, "they are trimmed")
    plan = await wanted(nodes)
    assert await replays(nodes).look(plan) == Resent(gone=list(LOST))
    assert await replays(nodes).send(plan) == Resent(gone=list(LOST))
    assert await arrived(nodes) == KEPT


async def test_what_the_target_refuses_is_listed_and_the_rest_is_sent(nodes: Nodes) -> None:
    await nodes.put([b"m0", b"m1" + b"x" * MAX_MESSAGE, b"m2"])
    outcome = await replays(nodes).send(await wanted(nodes, ((0, 2),)))
    ((position, reason),) = outcome.refused
    assert (outcome.sent, position, reason.startswith("MESSAGE_TOO_LARGE")) == (2, 1, True)
    assert await nodes.arrived() == [b"m0", b"m2"]


async def test_what_is_not_this_nodes_is_refused(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 3))
    for change, kind in (
        ({"bridge": "second"}, NotFound),
        ({"stream": "journal:another:orders:0"}, NotFound),
        ({"store": "another"}, Conflict),
    ):
        plan = await wanted(nodes, ((0, 0),), **change)
        for act in (replays(nodes).send, replays(nodes).look):
            with pytest.raises(kind):
                await act(plan)
    assert (await nodes.hub.addresses()) == []


async def test_positions_that_are_another_addresses_are_gone(nodes: Nodes) -> None:
    """One sequence for the whole journal: a run of a stream may have holes."""
    await nodes.put(bodies(0, 2))
    await nodes.put_at("invoices", bodies(100, 103))
    await nodes.put(bodies(5, 7))
    outcome = await replays(nodes).send(await wanted(nodes, ((1, 6),)))
    assert outcome == Resent(sent=3, gone=[(2, 4)])
    assert await arrived(nodes) == [1, 5, 6]


@pytest.mark.parametrize("seed", range(5))
async def test_any_positions_of_blocks_of_any_size(nodes: Nodes, seed: int) -> None:
    chance = random.Random(seed)
    while (await _count(nodes)) < 300:
        start = await _count(nodes)
        await nodes.put(bodies(start, start + chance.randint(1, 40)), together=chance.randint(1, 40))
    chosen = sorted(chance.sample(range(300), chance.randint(1, 200)))
    positions = run_arithmetic.join((place, place) for place in chosen)
    outcome = await replays(nodes, batch_bytes=chance.randint(20, 2000)).send(await wanted(nodes, positions))
    assert outcome == Resent(sent=len(chosen))
    assert await arrived(nodes) == chosen


async def _count(nodes: Nodes) -> int:
    return (await nodes.edge.address("orders")).messages


class Elsewhere:
    """The presence check of a connector that leads to another store; None: to nothing that answers."""

    def __init__(self, store: str | None) -> None:
        self.store = store

    async def plan_state(self, planned: Stream) -> PlanState:
        del planned
        if self.store is None:
            raise TargetUnavailable("connection refused")
        return PlanState(self.store, None)


def elsewhere(nodes: Nodes, store: str | None) -> Route:
    """The route of a connector that leads to this store; None: to nothing that answers."""
    (route,) = replays(nodes).routes["first"]

    def ends(*, force: bool) -> Ends:
        presence: Any = Elsewhere(store)
        return replace(route(force=force), presence=presence)

    return ends


@pytest.mark.usefixtures("losing")
async def test_of_several_connectors_a_plan_goes_to_the_one_with_its_store(nodes: Nodes) -> None:
    """A bridge that failed over: what its first store lost is sent there again, and so for the second."""
    await relayed(nodes)
    plan, service = await wanted(nodes), replays(nodes)
    (here,) = service.routes["first"]
    service.routes = {"first": [elsewhere(nodes, None), elsewhere(nodes, "another:1"), here]}
    assert await service.look(plan) == Resent(sent=4)
    assert await service.send(plan) == Resent(sent=4)
    assert await arrived(nodes) == [*KEPT, *PLACES]
    assert await service.send(plan) == Resent(earlier=4)


@pytest.mark.usefixtures("losing")
async def test_a_plan_whose_store_no_connector_leads_to_is_refused_and_names_them(nodes: Nodes) -> None:
    await relayed(nodes)
    plan, service = await wanted(nodes), replays(nodes)
    service.routes = {"first": [elsewhere(nodes, "one:1"), elsewhere(nodes, "two:1")]}
    for call in (service.look, service.send):
        with pytest.raises(Conflict, match="delivers to one:1 or two:1 now") as raised:
            await call(plan)
        assert raised.value.limit == plan.store
    service.routes = {"first": [elsewhere(nodes, None), elsewhere(nodes, "two:1")]}
    for call in (service.look, service.send):
        with pytest.raises(TargetUnavailable, match=r"without an answer: .*connection refused"):
            await call(plan)
    assert await arrived(nodes) == KEPT
