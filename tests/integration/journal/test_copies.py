"""Copies of a node and restored backups: what is on disk is copied, and nothing may vanish without a word."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bridge.journal import source as source_module
from bridge.journal.batching import Cutter
from bridge.journal.source import JournalSource
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import BridgeQueue, BridgeSelection
from bridge.relay.backoff import Backoff
from bridge.relay.lifecycle import Command, State
from bridge.relay.ports import StreamState
from bridge.relay.relay import LaneEnds, RelayOptions
from bridge.runtime.clock import SystemClock
from tests.fakes.backup import copy_journal
from tests.fakes.one_lane import OneLane
from tests.harness.eventually import until
from tests.integration.relay.rig import MAX_MESSAGE, Nodes, bodies


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        made = Nodes(tmp_path, stack)
        await made.open()
        yield made
        for relay in made.relays:
            await relay.command(Command.STOP)


def back_up(nodes: Nodes, name: str, copy: str = "backup") -> None:
    """Copy a node's journal while the node is open."""
    copy_journal(nodes.directory / name, nodes.directory / copy)


async def restore(nodes: Nodes, name: str, copy: str = "backup") -> None:
    """End both nodes, put the copy in the place of one, and start both again."""
    for relay in nodes.relays:
        await relay.command(Command.STOP)
    await nodes.edge.close()
    await nodes.hub.close()
    shutil.rmtree(nodes.directory / name)
    shutil.copytree(nodes.directory / copy, nodes.directory / name)
    await nodes.open()


async def relayed(nodes: Nodes) -> None:
    """One whole life of the bridge, until nothing is left."""
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)


async def failed(nodes: Nodes) -> str:
    """Start the bridge, which must fail; answers why."""
    relay = nodes.relay()
    await relay.command(Command.START)
    await until(lambda: nodes.failed(relay), "the relay has failed")
    assert relay.counts.sent == 0
    return relay.reason


def stream_state(nodes: Nodes, name: str = "first") -> StreamState:
    """What the hub has stored of the bridge's stream."""
    ((_, position),) = [
        (key, position) for key, position in nodes.hub._writer.state.positions.items() if key[0] == name
    ]
    return StreamState(position.next, position.run, position.checksum)


# -- the sender ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 10])
async def test_a_restored_sender_whose_positions_pass_the_targets_next_loses_nothing(
    nodes: Nodes, before: int
) -> None:
    """B13: without the check, those below next count as delivered and vanish as `recovered`."""
    await nodes.put(bodies(0, before))
    await relayed(nodes)
    back_up(nodes, "edge")  # with nothing stored yet in this run where `before` is 0
    await nodes.put(bodies(before, before + 10))
    await relayed(nodes)
    await restore(nodes, "edge")
    await nodes.put(bodies(100, 130))
    run = nodes.edge.identity.session_id
    reason = await failed(nodes)
    for part in ("DIVERGED", f"up to {before + 10} ", f"ended at {before} ", run, "empty data directory"):
        assert part in reason
    for _ in range(2):
        await nodes.restart()
        assert "DIVERGED" in await failed(nodes)
    assert await nodes.arrived() == bodies(0, before + 10)
    assert await nodes.backlog() == 30
    assert [m.message.body for m in await nodes.at(nodes.edge)][-30:] == bodies(100, 130)
    assert not any(line["recovered"] for line in await nodes.lines(nodes.edge, "sent"))


async def test_without_the_check_that_sender_would_lose_messages(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is real: this is what the tests here would miss if they could not fail."""
    back_up(nodes, "edge")
    await nodes.put(bodies(0, 10))
    await relayed(nodes)
    await restore(nodes, "edge")
    await nodes.put(bodies(100, 130))
    monkeypatch.setattr(source_module, "check_past", lambda *_: None)
    await relayed(nodes)
    assert await nodes.arrived() == bodies(0, 10) + bodies(110, 130)
    (recovered,) = [line for line in await nodes.lines(nodes.edge, "sent") if line["recovered"]]
    assert (recovered["runs"], recovered["count"]) == ([[0, 9]], 10)


async def test_a_restored_sender_that_is_still_behind_the_target_says_so_first(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 10))
    back_up(nodes, "edge")
    await nodes.put(bodies(10, 20))
    await relayed(nodes)
    await restore(nodes, "edge")
    assert "DIVERGED" in await failed(nodes)
    await nodes.put(bodies(100, 105))
    assert "DIVERGED" in await failed(nodes)
    await nodes.put(bodies(105, 150))
    assert "DIVERGED" in await failed(nodes)
    assert await nodes.backlog() == 60


async def test_a_restored_sender_of_which_nothing_was_delivered_meanwhile_goes_on(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 10))
    await relayed(nodes)
    back_up(nodes, "edge")
    await restore(nodes, "edge")
    await nodes.put(bodies(10, 20))
    await relayed(nodes)
    assert await nodes.arrived() == bodies(0, 20)


async def test_of_two_copies_the_first_to_deliver_goes_on_and_the_other_is_refused_loudly(
    nodes: Nodes,
) -> None:
    """B12"""
    await nodes.put(bodies(0, 10))
    await relayed(nodes)
    back_up(nodes, "edge", "copy")
    first = nodes.relay()
    await first.command(Command.START)
    queue = BridgeQueue("first", ["orders"], lambda address: address == "orders")
    original, nodes.edge = nodes.edge, await nodes._journal("copy", bridges=[queue])
    second = nodes.relay()
    await nodes.put(bodies(100, 110))  # stored in the copy, at the positions of what comes next
    nodes.edge = original
    await nodes.put(bodies(10, 20))
    await nodes.idle()
    await second.command(Command.START)
    await until(lambda: nodes.failed(second), "the second has failed")
    assert "DIVERGED" in second.reason
    await nodes.put(bodies(20, 40))
    await nodes.idle()
    assert await nodes.arrived() == bodies(0, 40)
    assert first.state is State.RUNNING


async def test_two_copies_that_are_connected_at_once_never_mix(nodes: Nodes) -> None:
    """B12: both found nothing wrong when they opened; the older link is fenced, and opens again."""
    await nodes.put(bodies(0, 10))
    await relayed(nodes)
    back_up(nodes, "edge", "copy")
    queue = BridgeQueue("first", ["orders"], lambda address: address == "orders")
    original, copy = nodes.edge, await nodes._journal("copy", bridges=[queue])
    relays = []
    for nodes.edge in (original, copy):
        relays.append(nodes.relay())
        await relays[-1].command(Command.START)
        await until(lambda: _is(relays[-1], State.RUNNING), "it relays again")
    for nodes.edge, first in ((original, 100), (copy, 200)):
        await nodes.put(bodies(first, first + 10))
    await until(lambda: _any(relays, State.FAILED), "one of them has failed")
    (winner,) = [number for number, relay in enumerate(relays) if relay.state is not State.FAILED]
    nodes.edge = (original, copy)[winner]
    await nodes.idle()
    assert await nodes.arrived() == bodies(0, 10) + bodies(100 * winner + 100, 100 * winner + 110)
    nodes.edge = (copy, original)[winner]
    assert await nodes.backlog() == 10


async def _is(relay: OneLane, state: State) -> bool:
    return relay.state is state


async def _any(relays: list[OneLane], state: State) -> bool:
    return any(relay.state is state for relay in relays)


# -- the target ------------------------------------------------------------------------------------------


async def test_a_restored_target_gets_again_what_the_sender_still_has(nodes: Nodes) -> None:
    await nodes.edge.create_queue("orders", "reader", "earliest")
    await nodes.put(bodies(0, 10))
    await relayed(nodes)
    back_up(nodes, "hub")
    await nodes.put(bodies(10, 20))
    await relayed(nodes)
    await restore(nodes, "hub")
    assert await nodes.arrived() == bodies(0, 10)
    await nodes.put(bodies(20, 30))
    relay = nodes.relay()
    await relay.command(Command.START)

    async def all_there() -> bool:
        return await nodes.arrived() == bodies(0, 30)

    await until(all_there, "all are there")
    await nodes.idle()
    await relay.command(Command.STOP)
    await nodes.restart()
    await nodes.put(bodies(30, 31))
    await relayed(nodes)
    assert await nodes.arrived() == bodies(0, 31)


async def test_a_restored_target_that_asks_for_what_is_gone_stops_the_bridge(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 10))
    await relayed(nodes)
    back_up(nodes, "hub")
    await nodes.put(bodies(10, 20))
    await relayed(nodes)
    await restore(nodes, "hub")
    await nodes.put(bodies(20, 30))
    for _ in range(2):
        reason = await failed(nodes)
        assert "SOURCE_GAP" in reason
        assert "asks for 10" in reason
        assert "nothing below 20" in reason
        await nodes.restart()
    assert await nodes.arrived() == bodies(0, 10)
    assert await nodes.backlog() == 10


async def test_target_and_sender_restored_together_go_on_together(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 10))
    await relayed(nodes)
    back_up(nodes, "hub", "hub-backup")
    back_up(nodes, "edge", "edge-backup")
    await nodes.put(bodies(10, 20))
    await relayed(nodes)
    await restore(nodes, "hub", "hub-backup")
    await restore(nodes, "edge", "edge-backup")
    await nodes.put(bodies(20, 40))
    await relayed(nodes)
    assert await nodes.arrived() == bodies(0, 10) + bodies(20, 40)


# -- what is no divergence -------------------------------------------------------------------------------


async def test_a_backlog_that_many_runs_take_up_is_no_divergence(nodes: Nodes) -> None:
    """Runs begin above next, receipts are lost, batches end inside of blocks."""
    await nodes.put(bodies(0, 100))
    for number in range(8):
        relay = nodes.relay(batch_bytes=40 + 13 * number, pending_ack_timeout_ms=0)
        await relay.command(Command.START)
        nodes.links["first"].loses = number % 2 == 0
        await nodes.stored(10 * number + 5)
        await relay.command(Command.STOP)
        assert relay.state is State.STOPPED, relay.reason
        for _ in range(3):
            await nodes.restart()
        assert stream_state(nodes).run not in {"", nodes.edge.identity.session_id}
    await nodes.put(bodies(100, 110))
    await relayed(nodes)
    assert await nodes.arrived() == bodies(0, 110)


async def test_a_refused_message_at_the_end_of_what_is_covered_is_no_divergence(nodes: Nodes) -> None:
    """What is compared is the last message of the source, stored or not."""
    large = b"x" * (MAX_MESSAGE + 1)
    for number in range(4):
        await nodes.put([b"m%d" % number, large], together=1 + number % 2)
        await relayed(nodes)
        await nodes.restart()
        relay = nodes.relay()
        await relay.command(Command.START)
        await until(lambda relay=relay: _is(relay, State.RUNNING), "it relays")  # type: ignore[misc]
        await relay.command(Command.STOP)
    assert await nodes.arrived() == bodies(0, 4)
    assert len(await nodes.at(nodes.edge, "dead")) == 4


async def test_two_bridges_on_one_address_restart_without_a_divergence(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        nodes.bridges = ["first", "second"]
        await nodes.open()
        for number in range(4):
            await nodes.put(bodies(3 * number, 3 * number + 3))
            names = nodes.bridges if number % 2 else ["first"]
            for name in names:
                await nodes.relay(name, batch_bytes=10).command(Command.START)
            for name in names:
                await until(lambda name=name: nodes.nothing_of(name), "nothing is left")  # type: ignore[misc]
            await nodes.restart()
        assert sorted(body or b"" for body in await nodes.arrived()) == sorted(bodies(0, 12) * 2)


def hop(nodes: Nodes, bridge: str, address: str, further: str) -> OneLane:
    """A bridge from one address of the edge to another."""
    source = JournalSource(
        nodes.edge,
        BridgeSelection(bridge, address.__eq__, lambda _: further),
        Cutter(20, 100_000, stamp=True),
        target_name="journal",
    )
    target = JournalTarget(nodes.edge, bridge, check_producer_ids=False)
    options = RelayOptions(bridge, Backoff(20, 1.0, 20))
    relay = OneLane(options, LaneEnds(source, target), clock=SystemClock())
    nodes.relays.append(relay)
    return relay


async def test_a_chain_over_one_node_restarts_and_is_restored_without_a_divergence(tmp_path: Path) -> None:
    """journal -> journal: source and target are one file, and go back together."""
    queues = [BridgeQueue("first", ["a"], "a".__eq__), BridgeQueue("second", ["b"], "b".__eq__)]
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        sent = 0
        for number in range(6):
            nodes.edge = await nodes._journal("edge", bridges=queues, addresses={"c": []})
            relays = [hop(nodes, "first", "a", "b"), hop(nodes, "second", "b", "c")]
            for relay in relays:
                await relay.command(Command.START)
            await nodes.put_at("a", bodies(sent, sent + 7))
            sent += 7

            async def there(sent: int = sent) -> bool:
                return len(await nodes.at(nodes.edge, "c")) >= sent

            await until(there, "they are there")
            assert [one.message.body for one in await nodes.at(nodes.edge, "c")] == bodies(0, sent)
            for relay in relays:
                await relay.command(Command.STOP)
                assert relay.state is State.STOPPED, relay.reason
            if number == 2:
                back_up(nodes, "edge")
            await nodes.edge.close()
            if number == 3:
                shutil.rmtree(tmp_path / "edge")
                shutil.copytree(tmp_path / "backup", tmp_path / "edge")
                sent = 21


async def test_a_wall_clock_that_goes_back_between_openings_is_no_divergence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that began at one position are told apart in the order in which they were opened."""
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        await nodes.open()
        for number, now_ms in enumerate((5_000_000, 4_000_000, 4_000_000, 3_000_000)):
            monkeypatch.setattr(SystemClock, "wall_ms", lambda _, now_ms=now_ms: now_ms)
            await nodes.restart()  # where the last run began
            await nodes.restart()
            await nodes.put(bodies(number, number + 1))
            await relayed(nodes)
        await nodes.restart()
        await relayed(nodes)
        assert await nodes.arrived() == bodies(0, 4)
