"""A bridge between two real journals, in one process: what it leaves behind in both."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import SourceGap
from bridge.journal import source as source_module
from bridge.journal.values.options import AddressPolicy
from bridge.journal.values.store import Acknowledgement
from bridge.messages.message import Message
from bridge.relay.lifecycle import Command, State
from bridge.relay.ports import StreamState
from tests.harness.eventually import until
from tests.integration.relay.rig import LONGEST_S, MAX_MESSAGE, Nodes, bodies


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        made = Nodes(tmp_path, stack)
        await made.open()
        yield made
        for relay in made.relays:
            await relay.command(Command.STOP)
        left = {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("relay-")}
        assert left == set()


async def test_a_backlog_arrives_in_order_frees_its_blocks_and_is_logged_at_both_sides(nodes: Nodes) -> None:
    """B1, B2, B3"""
    await nodes.put(bodies(0, 200))
    relay = nodes.relay(batch_bytes=300)
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    assert await nodes.arrived() == bodies(0, 200)
    status = await nodes.status(nodes.edge)
    assert (status.messages, status.bytes) == (0, 0)
    assert (relay.counts.sent, relay.counts.acknowledged, relay.window.messages) == (200, 200, 0)
    sent, received = await nodes.lines(nodes.edge, "sent"), await nodes.lines(nodes.hub, "received")
    assert [(line["from"], line["upto"], line["runs"]) for line in sent] == [
        (line["from"], line["upto"], line["runs"]) for line in received
    ]
    assert sum(line["count"] for line in sent) == 200
    assert {(line["store"], line["target"], line["recovered"]) for line in sent} == {
        (nodes.hub.store, "hub", False)
    }


async def test_what_lost_receipts_confirmed_is_logged_as_recovered_and_frees_its_blocks(nodes: Nodes) -> None:
    """R12"""
    await nodes.put(bodies(0, 100))
    relay = nodes.relay(batch_bytes=300)
    await relay.command(Command.START)
    await nodes.confirmed(relay)
    nodes.links["first"].loses = True
    await nodes.put(bodies(100, 200))
    await nodes.stored(200)
    assert relay.window.messages > 0
    nodes.links["first"].loses = False
    nodes.links["first"].cut()
    await nodes.idle()
    await relay.command(Command.STOP)
    assert await nodes.arrived() == bodies(0, 200)
    assert (await nodes.status(nodes.edge)).bytes == 0
    sent = await nodes.lines(nodes.edge, "sent")
    assert [line["from"] for line in sent] == [0, *(line["upto"] for line in sent[:-1])]
    assert sum(line["count"] for line in sent) == 200
    assert sum(line["count"] for line in sent if line["recovered"]) >= 100
    assert not sent[0]["recovered"]


async def test_receipts_lost_in_a_crash_are_recovered_by_the_next_process(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 50))
    relay = nodes.relay(pending_ack_timeout_ms=0)
    await relay.command(Command.START)
    nodes.links["first"].loses = True
    await nodes.stored(50)
    await nodes.restart()
    assert await nodes.backlog() == 50
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    assert await nodes.arrived() == bodies(0, 50)
    assert [line["recovered"] for line in await nodes.lines(nodes.edge, "sent")] == [True]
    assert relay.counts.sent == 0


async def test_the_stamped_ids_name_the_first_place_whatever_happens_on_the_way(nodes: Nodes) -> None:
    """B10"""
    await nodes.put(bodies(0, 30))
    relay = nodes.relay(batch_bytes=60, pending_ack_timeout_ms=0)
    await relay.command(Command.START)
    await nodes.confirmed(relay)
    await nodes.restart()
    await nodes.relay(batch_bytes=100).command(Command.START)
    await nodes.idle()
    ids = [delivered.duplicate_id for delivered in await nodes.at(nodes.hub)]
    assert await nodes.arrived() == bodies(0, 30)
    assert None not in ids
    assert len(set(ids)) == 30
    numbers = [int(duplicate_id.decode()[-12:], 16) for duplicate_id in ids if duplicate_id is not None]
    assert numbers == list(range(30))


async def test_another_queues_copy_is_as_it_was_sent(nodes: Nodes) -> None:
    """B8"""
    await nodes.edge.create_queue("orders", "reader", "earliest")
    await nodes.put(bodies(0, 100))
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    page = await nodes.edge.lease("orders", "reader", most=1000, wait_ms=0, lease_ms=1000, most_bytes=1 << 20)
    assert [(one.message, one.duplicate_id) for one in page.messages] == [
        (Message(body), None) for body in bodies(0, 100)
    ]
    assert page.lease is not None
    await nodes.edge.acknowledge(Acknowledgement("orders", "reader", page.lease))
    assert (await nodes.status(nodes.edge)).bytes == 0


async def test_two_bridges_of_one_address_deliver_a_copy_each(tmp_path: Path) -> None:
    """B11"""
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        nodes.bridges = ["first", "second"]
        await nodes.open()
        await nodes.put(bodies(0, 10))
        for name in nodes.bridges:
            await nodes.relay(name).command(Command.START)
        await nodes.idle()
        for relay in nodes.relays:
            await relay.command(Command.STOP)
        assert sorted(body or b"" for body in await nodes.arrived()) == sorted(bodies(0, 10) * 2)


async def test_one_bridge_that_stops_leaves_another_that_waits_alone(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        nodes = Nodes(tmp_path, stack)
        nodes.bridges = ["first", "second"]
        await nodes.open()
        first, second = (nodes.relay(name) for name in nodes.bridges)
        await first.command(Command.START)
        await second.command(Command.START)
        await nodes.put(bodies(0, 1))
        await nodes.idle()
        await asyncio.sleep(0.05)
        await first.command(Command.STOP)
        await nodes.put(bodies(1, 2))
        await until(lambda: nodes.nothing_of("second"), "nothing of the second is left")
        assert (second.state, second.counts.reconnects) == (State.RUNNING, 0)
        await second.command(Command.STOP)


async def test_without_duplicate_detection_nothing_is_stamped_and_positions_are_obeyed_all_the_same(
    nodes: Nodes,
) -> None:
    """B25"""
    await nodes.put(bodies(0, 50))
    relay = nodes.relay(stamp=False)
    await relay.command(Command.START)
    nodes.links["first"].loses = True
    await nodes.stored(50)
    nodes.links["first"].loses = False
    nodes.links["first"].cut()
    await nodes.idle()
    arrived = await nodes.at(nodes.hub)
    assert [(one.message.body, one.duplicate_id) for one in arrived] == [
        (body, None) for body in bodies(0, 50)
    ]


@pytest.mark.parametrize("policy", ["FAIL", "BLOCK"])
async def test_a_full_target_is_filled_drained_and_filled_again_with_each_message_once(
    nodes: Nodes, policy: Any
) -> None:
    """B23, B24"""
    nodes.policies["orders"] = AddressPolicy(1 << 30)
    await nodes.put(bodies(0, 300))
    nodes.policies["orders"] = AddressPolicy(400, policy)
    await nodes.restart()
    await nodes.hub.create_queue("orders", "reader", "earliest")
    relay = nodes.relay(batch_bytes=100, confirmation_window_size=400)
    await relay.command(Command.START)
    got: list[bytes | None] = []
    async with asyncio.timeout(LONGEST_S):
        while len(got) < 300:
            page = await nodes.hub.lease(
                "orders", "reader", most=30, wait_ms=100, lease_ms=60_000, most_bytes=1 << 20
            )
            if page.lease is not None:
                got += [delivered.message.whole for delivered in page.messages]
                await nodes.hub.acknowledge(Acknowledgement("orders", "reader", page.lease))
    assert got == bodies(0, 300)
    await nodes.idle()
    assert relay.counts.reconnects == 0
    if policy == "BLOCK":  # there was room within call-timeout each time: nothing was sent twice
        assert relay.counts.sent == 300


async def test_an_address_that_is_not_there_yet_is_waited_for_and_gets_everything(nodes: Nodes) -> None:
    """B20"""
    await nodes.put(bodies(0, 10))
    nodes.policies["orders"] = AddressPolicy(auto_create=False)
    relay = nodes.relay()
    await relay.command(Command.START)

    async def waits() -> bool:
        return relay.state is State.WAITING and "ADDRESS_NOT_FOUND" in relay.counts.trouble

    await until(waits, "the bridge waits")
    assert await nodes.backlog() == 10
    nodes.policies["orders"] = AddressPolicy()
    await nodes.idle()
    assert await nodes.arrived() == bodies(0, 10)
    assert (relay.state, relay.counts.trouble, relay.counts.reconnects) == (State.RUNNING, "", 0)


async def test_a_journal_that_fails_for_a_moment_is_tried_again(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 10))
    relay = nodes.relay()
    read = nodes.edge.read
    failures = iter(range(3))

    async def fails(function: Any, *args: Any, **kwargs: Any) -> Any:
        if function is source_module._read_cursors and next(failures, None) is not None:
            raise sqlite3.OperationalError("disk I/O error")
        return await read(function, *args, **kwargs)

    nodes.edge.read = fails
    await relay.command(Command.START)
    await nodes.idle()
    assert await nodes.arrived() == bodies(0, 10)
    assert relay.counts.reconnects == 3


async def test_a_message_above_the_targets_limit_is_a_dead_letter_at_home(
    nodes: Nodes,
) -> None:
    """B17"""
    large = b"x" * (MAX_MESSAGE + 1)
    await nodes.put([b"m0", b"m1", large, b"m3", large])
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    assert await nodes.arrived() == [b"m0", b"m1", b"m3"]
    dead = await nodes.at(nodes.edge, "dead")
    assert [one.message.body for one in dead] == [large, large]
    stream = f"journal:{nodes.edge.identity.incarnation}:orders:0"
    for one, position in zip(dead, (b"2", b"4"), strict=True):
        assert one.message.header("core-bridge-bridge") == b"first"
        assert one.message.header("core-bridge-address") == b"orders"
        assert one.message.header("core-bridge-stream") == stream.encode()
        assert one.message.header("core-bridge-position") == position
        reason = one.message.header("core-bridge-reason")
        assert reason is not None
        assert reason.startswith(b"MESSAGE_TOO_LARGE: ")
        assert one.duplicate_id is not None
    lines = await nodes.lines(nodes.edge, "sent")  # the first batches of a connection are small
    assert [run for line in lines for run in line["runs"]] == [[0, 1], [3, 3]]
    assert [position for line in lines for position in line["refused"]] == [2, 4]
    assert lines[-1]["upto"] == 5
    assert relay.counts.refused == 2


async def test_a_batch_of_refused_messages_alone_is_covered_and_frees_its_blocks(nodes: Nodes) -> None:
    await nodes.put([b"x" * (MAX_MESSAGE + 1)])
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    assert (await nodes.status(nodes.edge)).bytes == 0
    assert len(await nodes.at(nodes.edge, "dead")) == 1
    (line,) = await nodes.lines(nodes.hub, "received")
    assert (line["from"], line["upto"], line["count"], line["refused"]) == (0, 1, 0, [0])


async def test_a_target_that_asks_for_what_is_gone_stops_the_bridge_with_the_numbers(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 10))
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    await nodes.hub.close()
    for file in (nodes.directory / "hub").iterdir():
        file.unlink()
    nodes.hub = await nodes._journal("hub")
    source = nodes.source("first")
    (stream,) = await source.streams()
    with pytest.raises(SourceGap) as raised:
        await source.open({stream.identity: StreamState(4)}, nodes.hub.store)
    assert (raised.value.limit, raised.value.found) == (10, 4)


async def test_what_is_trimmed_while_it_is_read_again_stops_the_bridge_and_is_not_skipped(
    nodes: Nodes,
) -> None:
    await nodes.edge.create_queue("orders", "reader", "earliest")
    await nodes.put(bodies(0, 20))
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    source = nodes.source("first", batch_bytes=100)
    (stream,) = await source.streams()
    # a backup of the target was restored
    await source.open({stream.identity: StreamState(4)}, nodes.hub.store)
    (batch,) = await source.read()
    page = await nodes.edge.lease("orders", "reader", most=20, wait_ms=0, lease_ms=1000, most_bytes=1 << 20)
    assert page.lease is not None
    await nodes.edge.acknowledge(Acknowledgement("orders", "reader", page.lease))
    with pytest.raises(SourceGap) as raised:
        await source.read()
    assert (raised.value.limit, raised.value.found) == (20, batch.upto)


async def test_an_empty_store_in_the_targets_place_is_refused_by_both_identities(nodes: Nodes) -> None:
    await nodes.put(bodies(0, 10))
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.idle()
    await relay.command(Command.STOP)
    before = nodes.hub.store
    await nodes.hub.close()
    for file in (nodes.directory / "hub").iterdir():
        file.unlink()
    nodes.hub = await nodes._journal("hub")
    relay = nodes.relay()
    await relay.command(Command.START)
    await until(lambda: nodes.failed(relay), "the relay has failed")
    assert before in relay.reason
    assert nodes.hub.store in relay.reason
    assert "failover" in relay.reason
