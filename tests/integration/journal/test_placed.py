"""Messages for some queues of their address only: placed by a router, or by another node of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from bridge.errors import Malformed
from bridge.journal.batching import Cutter
from bridge.journal.dead_letters import DeadLetterService
from bridge.journal.journal import Journal
from bridge.journal.rules.commands import DropLogCommand, MoveCommand
from bridge.journal.rules.moves import read_movable
from bridge.journal.source import JournalSource
from bridge.journal.values.options import AddressPolicy, BridgeQueue, BridgeSelection
from bridge.journal.values.routing import Destination, Placement, Routing
from bridge.messages.batch import Batch
from bridge.messages.block import Queues
from bridge.messages.stream_names import forward_log
from bridge.relay.ports import Receipt, StreamState
from dedup.verdict import Verdict
from tests.fakes.routing import Alone
from tests.integration.journal.failing import file, memory
from tests.integration.journal.helpers import (
    acknowledgement,
    batch,
    bodies,
    browsed,
    check_file,
    consume,
    deliver,
    lease,
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

LOG = forward_log("0b", "orders")
PEER = "$cluster.0b"


class Split(Alone):
    """Even messages are for queue `a` here, odd ones for `a` at the peer; all are for the other queues."""

    def __call__(self, routing: Routing) -> Sequence[Placement] | None:
        if routing.address != "orders":
            return None
        even, odd = routing.indices[::2], routing.indices[1::2]
        return [
            Placement(Destination("orders"), even),
            Placement(Destination("orders", besides=("a",)), odd),
            Placement(Destination(LOG, PEER, only=("a",)), odd),
        ]


async def send_four(journal: Journal, first: int = 0) -> None:
    await transact(journal, *(submission(str(number)) for number in range(first, first + 4)))


def named(some: Batch, *queues: tuple[int, tuple[str, ...]]) -> Batch:
    """The batch, its messages for these queues only."""
    assert some.block is not None
    return replace(some, block=some.block.for_queues(queues))


async def bring(journal: Journal, queues: Queues, texts: str, at: int = 0) -> Receipt:
    """Messages of a peer, one a character."""
    end = target(journal, PEER, places=True)
    await open_stream(end)
    some = batch(dict(enumerate(texts, at)), at + len(texts))
    return (await deliver(end, named(some, *queues)))[0]


async def test_a_queue_gets_what_is_placed_there_in_order_and_one_made_later_what_is_for_every_queue(
    tmp_path: Path,
) -> None:
    async with opened(options(tmp_path, router=Split())) as journal:
        for queue in ("a", "b"):
            await journal.create_queue("orders", queue, "earliest")
        await send_four(journal)
        first = await lease(journal, queue="a", most=1)
        assert bodies(first.messages) == ["0"]
        await send_four(journal, 4)
        assert memory(journal) == file(journal)
        await journal.create_queue("orders", "later", "earliest")
        lags = {one.name: one.lag for one in (await journal.address("orders")).queues}
        assert lags == {"a": 4, "b": 8, "later": 8}
        check_file(tmp_path)
    async with opened(options(tmp_path, router=Split())) as journal:
        await journal.acknowledge(acknowledgement(first, queue="a"))
        assert await consume(journal, queue="a") == ["2", "4", "6"]
        assert await consume(journal, queue="later") == list("01234567")
        assert await consume(journal, queue="b") == list("01234567")
        assert await browsed(journal, LOG) == ["1", "3", "5", "7"]
        check_file(tmp_path)
        assert (await journal.address("orders")).messages == 0, "nothing is kept that no queue needs"


async def test_a_queue_that_has_read_everything_takes_all_again_and_counts_no_more(tmp_path: Path) -> None:
    async with opened(options(tmp_path, router=Split())) as journal:
        await journal.create_queue("orders", "a", "earliest")
        await send_four(journal)
        assert await consume(journal, queue="a") == ["0", "2"]
        await send(journal, "x")
        counted = "SELECT messages FROM queues WHERE name = 'a'"
        assert rows(tmp_path, counted) == [(None,)], "one message alone is for every queue"
        assert await consume(journal, queue="a") == ["x"]


async def test_a_copy_is_put_at_the_queues_that_it_names_and_at_no_other(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        for queue in ("a", "b", "c"):
            await journal.create_queue("orders", queue, "earliest")
        receipt = await bring(journal, ((2, ("a",)), (1, ("a", "b")), (1, ())), "0123")
        assert receipt.verdict is Verdict.STORED
        await journal.create_queue("orders", "later", "earliest")
        got = {name: await consume(journal, queue=name) for name in ("a", "b", "c", "later")}
        assert got == {"a": list("0123"), "b": list("23"), "c": ["3"], "later": ["3"]}
        check_file(tmp_path)


async def test_a_filter_is_asked_for_a_copy_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "a", "earliest", "colour = 'red'")
        await journal.create_queue("orders", "b", "earliest")
        await bring(journal, ((2, ("a", "b")),), "01")
        assert [await consume(journal, queue=name) for name in ("a", "b")] == [[], ["0", "1"]]
        assert (await journal.address("orders")).unrouted == 0


async def test_a_copy_for_a_queue_that_is_gone_becomes_a_dead_letter_with_its_place(tmp_path: Path) -> None:
    """C46: Artemis drops it."""
    async with opened(tmp_path) as journal:
        for queue in ("a", "b"):
            await journal.create_queue("orders", queue, "earliest")
        await bring(journal, ((1, ("a",)),), "0")
        await journal.delete_queue("orders", "a")
        receipt = await bring(journal, ((1, ("a",)), (1, ("a", "b")), (1, ("b",))), "123", at=1)
        assert (receipt.verdict, receipt.next) == (Verdict.STORED, 4)
        assert await consume(journal, queue="b") == ["2", "3"]
        letters = DeadLetterService(journal, ["dead-letters"], {})
        found = await letters.list()
        assert [(one.address, one.source_position) for one in found] == [("orders", 1), ("orders", 2)]
        assert {one.reason for one in found} == {"QUEUE_GONE: orders has no queue a here any more"}
        again = await bring(journal, ((1, ("a",)), (1, ("a", "b")), (1, ("b",))), "123", at=1)
        assert again.verdict is Verdict.DUPLICATE
        assert len(await letters.list()) == 2, "the letters are in the transaction of the position"
        skipped = (await letters.replay(None)).skipped
        assert [reason for _, reason in skipped] == ["there is no queue a of orders"] * 2
        await journal.create_queue("orders", "a", "latest")
        assert len((await letters.replay(None)).replayed) == 2
        assert await consume(journal, queue="a") == ["1", "2"]
        assert await consume(journal, queue="b") == []


async def test_a_copy_for_an_address_that_is_gone_becomes_a_dead_letter_and_makes_nothing(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        await bring(journal, ((1, ("orders",)),), "0")
        assert [one.address for one in await journal.addresses()] == ["dead-letters"]
        assert await browsed(journal, "dead-letters") == ["0"]


@pytest.mark.parametrize("policy", ["BLOCK", "FAIL"])
async def test_a_batch_whose_dead_letters_fill_its_address_is_stored_whole_and_once(
    tmp_path: Path, policy: Literal["BLOCK", "FAIL"]
) -> None:
    """A node hands a dead letter over, and a message behind it: below its limit, an address takes both."""
    small = AddressPolicy(max_size_bytes=600, full_policy=policy)
    async with opened(options(tmp_path, small)) as journal:
        await journal.create_queue("orders", "a", "earliest")
        end = target(journal, PEER, places=True)
        await open_stream(end)
        both = named(batch({0: "l" * 550, 1: "m"}, 2), (1, ("/letter", "a")), (1, ("a",)))
        assert [one.verdict for one in await deliver(end, both)] == [Verdict.STORED]
        assert await browsed(journal) == ["l" * 550, "m"]


async def test_a_batch_for_which_not_all_addresses_may_be_made_leaves_no_dead_letter(tmp_path: Path) -> None:
    async with opened(options(tmp_path, max_addresses=1)) as journal:
        receipt = await bring(journal, ((1, ("gone",)), (1, ())), "01")
        assert (receipt.verdict, receipt.reason.split(":")[0]) == (Verdict.NOT_NOW, "ADDRESS_NOT_FOUND")
        assert await journal.addresses() == []


async def test_a_message_that_no_place_of_it_can_hold_is_refused_with_its_position(tmp_path: Path) -> None:
    small = policies(AddressPolicy(), orders=AddressPolicy(max_size_bytes=100))
    async with opened(options(tmp_path, small)) as journal:
        await journal.create_queue("orders", "a", "earliest")
        end = target(journal, PEER, places=True)
        await open_stream(end)
        some = batch({0: "m", 1: "l" * 200}, 2)
        (receipt,) = await deliver(end, named(some, (2, ("a",))))
        assert (receipt.verdict, receipt.position) == (Verdict.REFUSED, 1)
        assert "orders holds at most 100" in receipt.reason
        await open_stream(end)
        (receipt,) = await deliver(end, named(some, (1, ("a",)), (1, ("gone",))))
        assert receipt.verdict is Verdict.STORED
        assert await browsed(journal) == ["m"]
        assert await browsed(journal, "dead-letters") == ["l" * 200], "it goes where there is room for it"


async def test_ids_are_checked_for_the_copies_that_stay_and_no_other_copy_is_put_with_them(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path) as journal:
        await journal.create_queue("orders", "a", "earliest")
        await send(journal, "known", "1")
        end = target(journal, PEER, places=True, check_ids=True)
        await open_stream(end)
        some = batch({0: "gone", 1: "known", 2: "m"}, 3, ids={0: "0", 1: "1", 2: "2"})
        (receipt,) = await deliver(end, named(some, (1, ("gone",)), (2, ("a",))))
        assert (receipt.verdict, receipt.duplicates) == (Verdict.STORED, 1)
        assert await browsed(journal) == ["known", "m"]
        assert await browsed(journal, "dead-letters") == ["gone"]


async def test_only_a_clusters_node_may_name_queues(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        end = target(journal)
        await open_stream(end)
        with pytest.raises(Malformed, match="edge-to-hub is no node of a cluster"):
            await deliver(end, named(batch({0: "m"}, 1), (1, ("gone",))))
        assert [one.address for one in await journal.addresses()] == []


async def test_a_bridge_passes_over_what_is_placed_at_other_queues(tmp_path: Path) -> None:
    reads = BridgeQueue("to-hub", ["orders"], lambda name: name == "orders")
    async with opened(options(tmp_path, bridges=[reads])) as journal:
        await journal.create_queue("orders", "a", "earliest")
        await send(journal, "x")
        await bring(journal, ((1, ("a",)), (1, ("$bridge.to-hub",)), (1, ("a",))), "012")
        source = _source(journal, "to-hub")
        (stream,) = await source.streams()
        await source.open({stream.identity: _nothing()}, "hub")
        read = list(await source.read())
        texts = [(m.whole or b"").decode() for one in read if one.block for m in one.block.messages()]
        assert texts == ["x", "1"]
        assert read[-1].upto == (await journal.address("orders")).next, "the others' positions are covered"
        assert all(one.block is None or not one.block.queues for one in read)
        await source.close()


async def test_a_forward_log_hands_on_the_queues_that_its_messages_are_for(tmp_path: Path) -> None:
    async with opened(options(tmp_path / "here", router=Split())) as here, opened(tmp_path / "peer") as there:
        for journal in (here, there):
            await journal.create_queue("orders", "a", "earliest")
        await there.create_queue("orders", "b", "earliest")
        await send_four(here)
        movable = await here.look(read_movable, ("orders", "a"), Destination(LOG, PEER, only=("a", "b")), "i")
        await here.submit(MoveCommand, address="orders", queue="a", messages=movable.messages)
        source = _source(here, PEER)
        (stream,) = await source.streams()
        assert (stream.address, stream.target_address) == ("orders", "orders")
        await source.open({stream.identity: _nothing()}, "there")
        end = target(there, PEER, places=True)
        await end.open([stream])
        for one in await source.read():
            await end.deliver([one])
        await source.close()
        assert await consume(there, queue="a") == ["1", "3", "0", "2"]
        assert await consume(there, queue="b") == ["0", "2"], "moved ones name both"


async def test_a_forward_log_is_dropped_only_once_nothing_waits_in_it(tmp_path: Path) -> None:
    drop = {"address": LOG, "bridge": PEER}
    async with (
        opened(options(tmp_path / "here", router=Split())) as here,
        opened(tmp_path / "peer") as there,
    ):
        for journal in (here, there):
            await journal.create_queue("orders", "a", "earliest")
        await send_four(here)
        assert await here.submit(DropLogCommand, **drop) is False
        source, end = _source(here, PEER), target(there, PEER, places=True)
        (stream,) = await source.streams()
        await source.open({stream.identity: _nothing()}, "there")
        await end.open([stream])
        for one in await source.read():
            (receipt,) = await end.deliver([one])
            await source.settled(one, receipt)
        await source.close()
        assert await here.submit(DropLogCommand, address=LOG, bridge="$cluster.other") is False
        assert await here.submit(DropLogCommand, **drop) is True
        assert await here.submit(DropLogCommand, **drop) is False, "it is gone, which is no error"
        await send_four(here, 4)
        assert memory(here) == file(here)
        assert await browsed(here, LOG) == ["5", "7"], "a new log of the name"
        assert await consume(there, queue="a") == ["1", "3"]


def _source(journal: Journal, bridge: str) -> JournalSource:
    selection = BridgeSelection(bridge, lambda name: name == "orders", lambda name: name)
    cutter = Cutter(batch_bytes=1 << 20, large_bytes=100 << 10, stamp=True)
    return JournalSource(journal, selection, cutter, target_name="peer")


def _nothing() -> StreamState:
    return StreamState(None, "", 0, 1, False)
