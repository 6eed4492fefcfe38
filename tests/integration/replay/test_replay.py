"""Dead letters that are sent again: once, to whom they were for, in one transaction."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bridge.errors import AddressFull, QueueNotFound
from bridge.journal.dead_letters import DeadLetterService, Replayed, Route
from bridge.journal.journal import Journal
from bridge.journal.target import JournalTarget
from bridge.journal.values.options import AddressPolicy, BridgeQueue, JournalOptions
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.batch import Batch
from bridge.messages.block import IndexedId, encode_message, pack
from bridge.messages.message import Message
from bridge.messages.stream_names import LETTERS, replay_address
from bridge.relay.dead_letters import letter
from bridge.relay.lifecycle import Command
from bridge.relay.ports import Stream
from dedup.ids import Stamp
from tests.harness.eventually import until
from tests.integration.relay.rig import Nodes, bodies

#: Above what the hub takes at first.
LARGE = [b"%d" % n + b"x" * 10_000 for n in range(3)]


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        made = Nodes(tmp_path, stack)
        await made.open()
        yield made
        for relay in made.relays:
            await relay.command(Command.STOP)


def dead_letters(nodes: Nodes) -> DeadLetterService:
    return DeadLetterService(nodes.edge, ["dead"], {"first": Route("first")})


async def with_letters(nodes: Nodes) -> list[int]:
    """Three messages that the hub refused, among others; it takes them from now on. Their letters."""
    await nodes.edge.create_queue("orders", "another", "earliest")
    values: Sequence[bytes] = [*bodies(0, 2), LARGE[0], *bodies(2, 4), *LARGE[1:], *bodies(4, 5)]
    sent = [
        Sent.of("orders", Message(value, b"key", (("mine", b"1"),)), b"mine-0" if value == LARGE[0] else None)
        for value in values
    ]
    await nodes.edge.commit(Transaction(sent))
    await nodes.relay().command(Command.START)
    await nodes.idle()
    await nodes.relays[-1].command(Command.STOP)
    found = [one.position for one in await dead_letters(nodes).list()]
    assert len(found) == 3
    nodes.hub.options = nodes.hub._writer._options = _roomier(nodes.hub.options)
    return found


def _roomier(options: JournalOptions) -> JournalOptions:
    return JournalOptions(**{**_fields(options), "max_message_bytes": 1 << 20})


def _fields(options: JournalOptions) -> dict[str, Any]:
    return {name: getattr(options, name) for name in JournalOptions.__dataclass_fields__}


async def delivered(nodes: Nodes, messages: int) -> list[bytes | None]:
    relay = nodes.relay()
    await relay.command(Command.START)
    await nodes.stored(messages)
    await nodes.idle()
    await relay.command(Command.STOP)
    return await nodes.arrived()


async def test_the_list_says_why_and_from_where(nodes: Nodes) -> None:
    first, _, _ = await with_letters(nodes)
    one = (await dead_letters(nodes).list())[0]
    (stream,) = await nodes.source("first").streams()
    assert (one.position, one.bridge, one.address, one.stream) == (first, "first", "orders", stream.identity)
    assert (one.source_position, one.size, one.duplicate_id) == (2, 10_001, b"mine-0")
    assert one.reason.startswith("MESSAGE_TOO_LARGE")
    assert one.dead_letter_address == "dead"
    stamped = (await dead_letters(nodes).list(after=first))[0]
    assert stamped.duplicate_id == Stamp(stream.identity).text(5).encode()
    assert [len(await dead_letters(nodes).list(after=first, most=most)) for most in (1, 2, 3)] == [1, 2, 2]


async def test_a_letter_is_delivered_once_as_it_was_by_its_bridge_alone(nodes: Nodes) -> None:
    """D54: with its own ID and body, and to no other reader of the address."""
    first, second, third = await with_letters(nodes)
    assert await dead_letters(nodes).replay([first]) == Replayed([first], [])
    assert await delivered(nodes, 6) == [*bodies(0, 5), LARGE[0]]
    again = (await nodes.at(nodes.hub))[-1]
    assert (again.duplicate_id, again.message.key) == (b"mine-0", b"key")
    assert again.message.headers == (("mine", b"1"),)
    assert [one.position for one in await dead_letters(nodes).list()] == [second, third]
    assert len(await nodes.at(nodes.edge)) == 8, "no other reader gets it"


async def test_a_stamped_id_is_the_same_again(nodes: Nodes) -> None:
    _, second, _ = await with_letters(nodes)
    (stream,) = await nodes.source("first").streams()
    await dead_letters(nodes).replay([second])
    await delivered(nodes, 6)
    assert (await nodes.at(nodes.hub))[-1].duplicate_id == Stamp(stream.identity).text(5).encode()


async def test_all_of_them_in_order_and_asked_for_again_none(nodes: Nodes) -> None:
    positions = await with_letters(nodes)
    assert await dead_letters(nodes).replay(None) == Replayed(positions, [])
    assert await dead_letters(nodes).replay(None) == Replayed([], [])
    assert await dead_letters(nodes).replay(positions) == Replayed(
        [], [(position, "no dead letter, or sent again before") for position in positions]
    )
    assert await dead_letters(nodes).list() == []
    assert await delivered(nodes, 8) == [*bodies(0, 5), *LARGE]


async def test_two_who_ask_at_once_send_it_once(nodes: Nodes) -> None:
    positions = await with_letters(nodes)
    outcomes = await asyncio.gather(*(dead_letters(nodes).replay(positions) for _ in range(5)))
    assert sorted(position for outcome in outcomes for position in outcome.replayed) == positions
    assert await delivered(nodes, 8) == [*bodies(0, 5), *LARGE]


async def test_what_was_sent_again_stays_so_over_a_restart(nodes: Nodes) -> None:
    first, second, third = await with_letters(nodes)
    await dead_letters(nodes).replay([second])
    await nodes.restart()
    nodes.hub._writer._options = _roomier(nodes.hub.options)
    assert [one.position for one in await dead_letters(nodes).list()] == [first, third]
    assert (await dead_letters(nodes).replay([first, second, third])).replayed == [first, third]
    assert await delivered(nodes, 8) == [*bodies(0, 5), LARGE[1], LARGE[0], LARGE[2]]


async def test_letters_that_were_all_sent_again_leave_no_message_behind(nodes: Nodes) -> None:
    first, second, third = await with_letters(nodes)
    await dead_letters(nodes).replay([first, third])

    async def left(messages: int) -> bool:
        return (await nodes.edge.address("dead")).messages == messages

    await until(lambda: left(2), "two are left")
    await dead_letters(nodes).replay([second])
    await until(lambda: left(0), "none is left")
    assert (await nodes.edge.address("dead")).queues == []


async def test_a_readers_queue_keeps_its_copy_and_decides_alone_when_a_letter_goes(nodes: Nodes) -> None:
    positions = await with_letters(nodes)
    await nodes.edge.create_queue("dead", "alerts", "earliest")
    await dead_letters(nodes).replay(positions)
    page = await nodes.edge.lease("dead", "alerts", most=10, wait_ms=0, lease_ms=1000, most_bytes=1 << 20)
    assert [one.position for one in page.messages] == positions
    with pytest.raises(QueueNotFound):
        await nodes.edge.lease("dead", "$replayed", most=1, wait_ms=0, lease_ms=1000, most_bytes=1)


async def test_a_letter_that_dies_again_is_a_new_one(nodes: Nodes) -> None:
    first, _, _ = await with_letters(nodes)
    nodes.hub.options = nodes.hub._writer._options = JournalOptions(
        **{**_fields(nodes.hub.options), "max_message_bytes": 100}
    )
    await dead_letters(nodes).replay([first])
    relay = nodes.relay()
    await relay.command(Command.START)

    async def back() -> bool:
        return len(await dead_letters(nodes).list()) == 3

    await until(back, "it is back")
    await relay.command(Command.STOP)
    again = (await dead_letters(nodes).list())[-1]
    assert (again.address, again.bridge) == ("orders", "first")
    assert again.stream.startswith(f"journal:{nodes.edge.identity.incarnation}:$replay/first/orders:")
    assert (await nodes.at(nodes.edge, "dead"))[-1].message.headers[0] == ("mine", b"1")
    assert len((await nodes.at(nodes.edge, "dead"))[-1].message.headers) == 6


async def test_an_id_that_the_target_knows_does_not_keep_it_out(nodes: Nodes) -> None:
    """D54: the bridge has its target check producers' IDs; a replay is not checked."""
    first, _, _ = await with_letters(nodes)
    await nodes.hub.commit(Transaction([Sent.of("orders", Message(b"before"), b"mine-0")], plain=True))
    await dead_letters(nodes).replay([first])
    source = nodes.source("first")
    target = JournalTarget(nodes.hub, "first", check_producer_ids=True)
    streams = [stream for stream in await source.streams() if "$replay" in stream.identity]
    opened = await target.open(streams)
    await source.open({**opened.streams, **(await _others(nodes, target))}, opened.store)
    (batch,) = await source.read()
    (receipt,) = await target.deliver([batch])
    assert receipt.duplicates == 0
    assert (await nodes.at(nodes.hub))[-1].message.body == LARGE[0]


async def _others(nodes: Nodes, target: JournalTarget) -> Any:
    streams = [one for one in await nodes.source("first").streams() if "$replay" not in one.identity]
    return (await target.open(streams)).streams


async def store(journal: Journal, letters: Sequence[Message], ids: tuple[IndexedId, ...] = ()) -> None:
    """Store letters as a bridge of the journal's node does."""
    stream = Stream(f"kafka:c:t:0{LETTERS}", "orders", "dead")
    target = JournalTarget(journal, "k/dead", check_producer_ids=False)
    await target.open([stream])
    block = pack([encode_message(one) for one in letters], ids)
    end = len(letters)
    await target.deliver([Batch(stream.identity, 0, end, ((0, end - 1),), block, block.checksum)])


async def test_what_cannot_be_sent_again_says_why_and_stays(nodes: Nodes) -> None:
    await nodes.put_at("dead", [b"no letter"])
    alien = letter(Message(b"body"), "another", "orders", "kafka:c:t:0", 3, "WHY: so")
    reduced = Message(b"{}", None, (("core-bridge-reduced", b"1"),))
    gone = letter(reduced, "first", "orders", "journal:i:orders:0", 4, "WHY: so")
    await store(nodes.edge, [alien, gone])
    first, last = [one.position for one in await nodes.at(nodes.edge, "dead")][1:]
    assert await dead_letters(nodes).replay(None) == Replayed(
        [],
        [
            (first, "the bridge another is not one of this node's"),
            (last, "its message did not fit here: only its coordinates are known"),
        ],
    )
    assert [one.position for one in await dead_letters(nodes).list()] == [first, last]


async def test_a_letter_from_kafka_goes_to_where_its_bridge_would_have_stored_it(nodes: Nodes) -> None:
    """D54: unchecked, although the address knows the ID; and the address learns one that it does not."""
    await nodes.put_at("us.orders", [b"x"])
    await nodes.edge.commit(Transaction([Sent.of("us.orders", Message(b"y"), b"id-1")]))
    dead = [letter(Message(b"m%d" % n), "k", "orders", "kafka:c:t:0", n, "WHY: so") for n in (1, 2)]
    await store(nodes.edge, dead, ((0, b"id-1"), (1, b"id-2")))
    of_kafka = DeadLetterService(nodes.edge, ["dead"], {"k": Route("k", lambda address: f"us.{address}")})
    assert len((await of_kafka.replay(None)).replayed) == 2
    stored = await nodes.at(nodes.edge, "us.orders")
    assert [one.message.body for one in stored] == [b"x", b"y", b"m1", b"m2"]
    answer = await nodes.edge.commit(
        Transaction([Sent.of("us.orders", Message(b"again"), b"id-2")], plain=True)
    )
    assert not answer.stored


async def test_without_room_nothing_is_settled(nodes: Nodes) -> None:
    first, _, _ = await with_letters(nodes)
    to = replay_address("first", "orders")
    nodes.policies[to] = AddressPolicy(max_size_bytes=20_000, full_policy="FAIL")
    await nodes.edge.commit(Transaction([Sent.of(to, Message(b"x" * 9_999)) for _ in range(2)]))
    with pytest.raises(AddressFull):
        await dead_letters(nodes).replay([first])
    assert first in [one.position for one in await dead_letters(nodes).list()]


_DRIVER = """
import asyncio, sys
from pathlib import Path
from bridge.journal.journal import Journal
from bridge.journal.values.options import BridgeQueue, JournalOptions
from bridge.journal.dead_letters import DeadLetterService, Route

async def main():
    queue = BridgeQueue("first", ["orders"], lambda address: address == "orders")
    journal = await Journal.open(JournalOptions(Path(sys.argv[1]), bridges=[queue], delivery_log=False))
    print("open", flush=True)
    await DeadLetterService(journal, ["dead"], {"first": Route("first")}).replay(None)
    print("done", flush=True)

asyncio.run(main())
"""


@pytest.mark.processes
@pytest.mark.parametrize("point", ["journal.before-commit", "journal.after-commit"])
async def test_killed_while_it_sends_again_it_has_sent_all_or_nothing(tmp_path: Path, point: str) -> None:
    queue = BridgeQueue("first", ["orders"], lambda address: address == "orders")
    options = JournalOptions(tmp_path, bridges=[queue], delivery_log=False)
    journal = await Journal.open(options)
    dead = [
        letter(Message(b"m%d" % n), "first", "orders", "journal:i:orders:0", n, "WHY: so") for n in range(5)
    ]
    await store(journal, dead)
    await journal.close()

    def killed() -> int:
        environment = {**os.environ, "CORE_BRIDGE_CRASH_AT": f"{point}:1"}
        return subprocess.run(
            [sys.executable, "-c", _DRIVER, str(tmp_path)], env=environment, check=False, capture_output=True
        ).returncode

    assert await asyncio.to_thread(killed) == -signal.SIGKILL
    journal = await Journal.open(options)
    try:
        dead_letters = DeadLetterService(journal, ["dead"], {"first": Route("first")})
        left = len(await dead_letters.list())
        assert left == (5 if point == "journal.before-commit" else 0)
        await dead_letters.replay(None)
        to = replay_address("first", "orders")
        found = await journal.browse(to, after=-1, most=100, most_bytes=1 << 20)
        assert [one.message.body for one in found] == bodies(0, 5)
        assert await dead_letters.list() == []
    finally:
        await journal.close()
