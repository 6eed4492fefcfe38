"""Messages that several logs get at once are stored once, and go with the last log that needs them."""

from __future__ import annotations

import itertools
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from bridge.errors import AddressFull, JournalDamaged, JournalUnavailable
from bridge.journal.batching import Cutter
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import MoveCommand
from bridge.journal.rules.moves import read_movable
from bridge.journal.source import JournalSource
from bridge.journal.sqlite.database import FILE_NAME
from bridge.journal.values.options import AddressPolicy, BridgeSelection, JournalOptions
from bridge.journal.values.routing import Destination, Placement, Routing
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message
from bridge.messages.origins import duplicate_ids
from bridge.messages.stream_names import forward_log
from bridge.relay.ports import Stream, StreamState
from dedup.verdict import Verdict
from tests.fakes.routing import Routed
from tests.harness.eventually import until
from tests.integration.journal.failing import caught_up, fail_with, file, memory, once, together
from tests.integration.journal.helpers import (
    KIB,
    MIB,
    QUEUE,
    batch,
    browsed,
    check_file,
    consume,
    deliver,
    number,
    open_stream,
    opened,
    options,
    policies,
    rows,
    send,
    submission,
    target,
    transact,
)

LOGS = ("orders", "second", "third")
STORED = """
SELECT (SELECT sum(length(body)) FROM blocks) + (SELECT coalesce(sum(length(body)), 0) FROM bodies)
"""
SHARED = "SELECT address_id, count, body_id FROM blocks WHERE body_id IS NOT NULL ORDER BY first"
PEERS = ("0a", "0b")


def to_all(*logs: str) -> Routed:
    """Clients' messages for `orders` go to all of these logs."""

    def rule(routing: Routing) -> Sequence[Placement] | None:
        if routing.address != "orders":
            return None
        return [Placement(Destination(log), routing.indices) for log in logs]

    return Routed(rule)


def shared(directory: Path) -> JournalOptions:
    return options(directory, router=to_all(*LOGS))


async def make_queues(journal: Journal) -> None:
    for log in LOGS:
        await journal.create_queue(log, QUEUE, "earliest")


async def fill(journal: Journal, count: int = 100) -> list[str]:
    """Messages of a KiB, in one transaction; answers their bodies."""
    sent = [f"{place}".ljust(KIB, ".") for place in range(count)]
    await transact(journal, *map(submission, sent))
    return sent


async def test_an_address_and_what_waits_for_two_nodes_hold_a_body_once_and_each_gets_all_in_order(
    tmp_path: Path,
) -> None:
    """P5: an address and the backlogs of two links hold 100 messages, that is, their body once."""
    logs = [Destination(forward_log(peer, "orders"), f"$cluster.{peer}", only=(QUEUE,)) for peer in PEERS]
    router = Routed(lambda routing: [Placement(to, routing.indices) for to in (Destination("orders"), *logs)])
    async with opened(options(tmp_path / "here", router=router)) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        sent = await fill(journal)
        assert 100 * KIB < number(tmp_path / "here", STORED) < 103 * KIB
        assert len(rows(tmp_path / "here", SHARED)) == 3
        check_file(tmp_path / "here")
    async with opened(options(tmp_path / "here", router=router)) as journal:
        for peer in PEERS:
            assert await sent_on(journal, peer, tmp_path / peer) == sent
        assert await consume(journal) == sent
        await until(lambda: number(tmp_path / "here", "SELECT count(*) FROM bodies") == 0, "the body goes")
        check_file(tmp_path / "here")


async def test_copies_for_two_nodes_are_stamped_by_the_logs_that_have_them_and_keep_a_producers_id(
    tmp_path: Path,
) -> None:
    logs = [Destination(forward_log(peer, "orders"), f"$cluster.{peer}", only=(QUEUE,)) for peer in PEERS]
    router = Routed(lambda routing: [Placement(to, routing.indices) for to in logs])
    async with opened(options(tmp_path, router=router)) as journal:
        await transact(journal, submission("a"), submission("b", "own"))
        found = []
        for peer in PEERS:
            source, _ = await opened_source(journal, peer)
            blocks = [one.block for one in await source.read() if one.block is not None]
            found += [one for block in blocks for one in duplicate_ids(block, stamp=True)]
            await source.close()
    assert (len(found), found.count(b"own"), len(set(found))) == (4, 2, 3)
    assert None not in found


async def opened_source(journal: Journal, peer: str) -> tuple[JournalSource, Stream]:
    """The source of the bridge to a peer, open from the beginning on, and its stream."""
    selection = BridgeSelection(f"$cluster.{peer}", lambda name: name == "orders", lambda name: name)
    cutter = Cutter(batch_bytes=MIB, large_bytes=100 * KIB, stamp=True)
    source = JournalSource(journal, selection, cutter, target_name=peer)
    (stream,) = await source.streams()
    await source.open({stream.identity: StreamState(None, "", 0, 1, False)}, peer)
    return source, stream


async def sent_on(journal: Journal, peer: str, directory: Path) -> list[str]:
    """The messages that the link brings to the peer's queue."""
    source, stream = await opened_source(journal, peer)
    async with opened(directory) as there:
        await there.create_queue("orders", QUEUE, "earliest")
        end = target(there, f"$cluster.{peer}", places=True)
        await end.open([stream])
        for one in await source.read():
            (receipt,) = await end.deliver([one])
            assert receipt.verdict is Verdict.STORED
            await source.settled(one, receipt)
        await source.close()
        return await consume(there)


@pytest.mark.parametrize("order", list(itertools.permutations(LOGS)))
async def test_the_body_goes_with_the_last_log_that_needs_it(tmp_path: Path, order: tuple[str, ...]) -> None:
    async with opened(shared(tmp_path)) as journal:
        await make_queues(journal)
        sent = await fill(journal)
        for place, log in enumerate(order):
            assert number(tmp_path, "SELECT count(*) FROM bodies") == 1
            assert await consume(journal, log) == sent
            left = len(order) - place - 1
            await until(
                lambda left=left: len(rows(tmp_path, SHARED)) == left,  # type: ignore[misc]
                "what was read goes",
            )
            check_file(tmp_path)
            assert memory(journal) == file(journal)
        assert number(tmp_path, "SELECT count(*) FROM bodies") == 0
        assert rows(tmp_path, "SELECT bytes FROM addresses ORDER BY name") == [(0,), (0,), (0,)]


async def test_a_body_goes_when_an_address_is_deleted_only_with_its_last_block(tmp_path: Path) -> None:
    async with opened(shared(tmp_path)) as journal:
        await make_queues(journal)
        sent = await fill(journal)
        for log in LOGS[:2]:
            await journal.delete_address(log)
        await until(lambda: len(rows(tmp_path, SHARED)) == 1, "the deleted ones are trimmed")
        assert await consume(journal, LOGS[2]) == sent
        await until(lambda: number(tmp_path, "SELECT count(*) FROM bodies") == 0, "the body goes")
        check_file(tmp_path)


async def test_a_log_that_got_other_messages_has_its_own_body(tmp_path: Path) -> None:
    def rule(routing: Routing) -> Sequence[Placement] | None:
        return [Placement(Destination("orders"), routing.indices), Placement(Destination("second"), [0])]

    async with opened(options(tmp_path, router=Routed(rule))) as journal:
        await transact(journal, submission("a" * KIB), submission("b" * KIB))
        assert rows(tmp_path, SHARED) == []
        assert [await browsed(journal, log) for log in ("orders", "second")] == [
            ["a" * KIB, "b" * KIB],
            ["a" * KIB],
        ]


async def test_transactions_of_one_commit_share_a_body_although_a_bridge_brings_others_between(
    tmp_path: Path,
) -> None:
    async with opened(shared(tmp_path)) as journal:
        end = target(journal)
        await open_stream(end)
        await together(
            journal,
            lambda _: None,
            send(journal, "a"),
            send(journal, "b"),
            deliver(end, batch({0: "relayed"}, 1)),
            send(journal, "c"),
        )
        assert [count for _, count, _ in rows(tmp_path, SHARED)] == [2, 1] * 3
        assert number(tmp_path, "SELECT count(*) FROM bodies") == 2
        assert [await browsed(journal, log) for log in LOGS] == [
            ["a", "b", "relayed", "c"],
            ["a", "b", "c"],
            ["a", "b", "c"],
        ]
        check_file(tmp_path)


async def test_ids_and_queues_are_each_logs_own_beside_the_body(tmp_path: Path) -> None:
    router = Routed(
        lambda routing: [
            Placement(Destination("orders", besides=("a",)), routing.indices),
            Placement(Destination("second", only=("a",)), routing.indices),
        ]
    )
    async with opened(options(tmp_path, router=router)) as journal:
        for log, queue in itertools.product(("orders", "second"), "ab"):
            await journal.create_queue(log, queue, "earliest")
        await send(journal, "m", "id")
        assert len(rows(tmp_path, SHARED)) == 2
        got = {
            (log, queue): await consume(journal, log, queue) for log in ("orders", "second") for queue in "ab"
        }
        assert [key for key, found in got.items() if found] == [("orders", "b"), ("second", "a")]
        assert not (await send(journal, "m", "id")).stored
        check_file(tmp_path)


async def test_each_log_is_limited_by_what_it_would_take_alone(tmp_path: Path) -> None:
    small = AddressPolicy(max_size_bytes=50 * KIB, full_policy="FAIL")
    given = options(tmp_path, policies(AddressPolicy(), third=small), router=to_all(*LOGS))
    async with opened(given) as journal:
        await fill(journal)
        assert len(set(rows(tmp_path, "SELECT bytes FROM addresses"))) == 1
        assert rows(tmp_path, "SELECT bytes > 100 * 1024 FROM addresses LIMIT 1") == [(1,)]
        with pytest.raises(AddressFull, match="third holds"):
            await send(journal, "more")


async def test_a_message_that_is_moved_lets_go_of_the_body(tmp_path: Path) -> None:
    async with opened(shared(tmp_path)) as journal:
        await make_queues(journal)
        sent = await fill(journal, 3)
        to = Destination("parked")
        movable = await journal.look(read_movable, ("second", QUEUE), to, journal.identity.incarnation)
        await journal.submit(MoveCommand, address="second", queue=QUEUE, messages=movable.messages)
        for log in ("orders", "third"):
            assert await consume(journal, log) == sent
        await until(lambda: number(tmp_path, "SELECT count(*) FROM bodies") == 0, "the body goes")
        assert await browsed(journal, "parked") == sent
        check_file(tmp_path)


@pytest.mark.parametrize("word", ["INSERT INTO bodies", "INSERT INTO blocks", "COMMIT"])
async def test_a_failed_commit_leaves_no_body(tmp_path: Path, word: str) -> None:
    async with opened(shared(tmp_path)) as journal:
        await make_queues(journal)
        fail_with(journal, once(word, sqlite3.SQLITE_IOERR))
        with pytest.raises(JournalUnavailable):
            await fill(journal)
        await caught_up(journal)
        assert number(tmp_path, "SELECT count(*) FROM bodies") == 0
        sent = await fill(journal)
        assert [await consume(journal, log) for log in LOGS] == [sent] * 3
        check_file(tmp_path)


async def test_a_failed_trimming_keeps_the_body_and_is_tried_again(tmp_path: Path) -> None:
    async with opened(shared(tmp_path)) as journal:
        await make_queues(journal)
        await fill(journal)
        for log in LOGS[:2]:
            await consume(journal, log)
        await until(lambda: len(rows(tmp_path, SHARED)) == 1, "what was read goes")
        fail_with(journal, once("DELETE FROM bodies", sqlite3.SQLITE_FULL))
        await consume(journal, LOGS[2])
        await until(lambda: number(tmp_path, "SELECT count(*) FROM bodies") == 0, "the body goes")
        check_file(tmp_path)


async def test_a_body_that_is_missing_is_named_and_not_served_as_nothing(tmp_path: Path) -> None:
    async with opened(shared(tmp_path)) as journal:
        await make_queues(journal)
        await fill(journal)
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute("DELETE FROM bodies")
    connection.commit()
    connection.close()
    async with opened(shared(tmp_path)) as journal:
        with pytest.raises(JournalDamaged, match=r"positions 0 to 99 cannot be read .*bodies: it is missing"):
            await consume(journal)


async def test_a_node_without_a_router_has_no_bodies_beside_its_blocks(tmp_path: Path) -> None:
    statements: list[str] = []
    async with opened(tmp_path) as journal:
        await make_queues(journal)
        journal._writer.connection.set_trace_callback(statements.append)
        same = os.urandom(KIB)
        await journal.commit(Transaction([Sent.of(log, Message(same)) for log in LOGS]))
        for log in LOGS:
            (page,) = [await journal.lease(log, QUEUE, most=9, wait_ms=0, lease_ms=9, most_bytes=MIB)]
            assert [one.message.body for one in page.messages] == [same]
    assert rows(tmp_path, SHARED) == []
    assert not any("bodies" in sql for sql in statements)
