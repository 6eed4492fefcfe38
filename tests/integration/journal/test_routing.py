"""A router of the test decides where clients' messages are stored, in the transaction that stores them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from bridge.errors import AddressFull, AddressNotFound, JournalUnavailable
from bridge.http.acceptor import Acceptor, AcceptorOptions
from bridge.journal.values.options import AddressPolicy
from bridge.journal.values.routing import Destination, Placement, Routing
from bridge.journal.values.store import Sent, Transaction
from bridge.messages.message import Message
from tests.fakes.http_client import http_client
from tests.fakes.routing import Alone, Routed, Rule
from tests.harness.eventually import until
from tests.integration.journal.failing import caught_up, file, memory, together
from tests.integration.journal.helpers import (
    QUEUE,
    bodies,
    browsed,
    consume,
    opened,
    options,
    policies,
    send,
    submission,
    transact,
)

HERE = Destination("orders")
#: Addresses that one bridge each reads, as a cluster keeps the messages for its peers.
PEERS = (Destination("$peer.a/orders", "peer-a"), Destination("$peer.b/orders", "peer-b"))


class Turns(Alone):
    """Messages for `orders` go to the places in turn; those for other addresses stay."""

    def __init__(self, *places: Destination) -> None:
        self.places = places
        self.turn = 0

    def __call__(self, routing: Routing) -> Sequence[Placement] | None:
        if routing.address != "orders":
            return None
        number, places = len(self.places), self.places
        placements = [
            Placement(places[(self.turn + offset) % number], routing.indices[offset::number])
            for offset in range(number)
        ]
        self.turn += len(routing.indices)
        return placements


async def test_messages_are_stored_where_the_router_says_and_nowhere_else(tmp_path: Path) -> None:
    async with opened(options(tmp_path, router=Turns(*PEERS))) as journal:
        await journal.create_queue("orders", QUEUE, "earliest")
        for body in "0123":
            assert (await send(journal, body, body)).stored
        await transact(journal, *(submission(body) for body in "456"), submission("x", address="other"))
        assert await browsed(journal, "$peer.a/orders") == ["0", "2", "4", "6"]
        assert await browsed(journal, "$peer.b/orders") == ["1", "3", "5"]
        assert await browsed(journal, "other") == ["x"]
        assert await consume(journal) == []
        assert memory(journal) == file(journal)
        (lag,) = [
            one.lag for one in (await journal.address("$peer.a/orders")).bridges if one.name == "peer-a"
        ]
        assert lag == 4, "the bridge's queue was made with the address"
    async with opened(tmp_path) as journal:
        assert await browsed(journal, "$peer.a/orders") == ["0", "2", "4", "6"]


async def test_an_id_is_known_where_the_client_sent_it_wherever_the_message_went(tmp_path: Path) -> None:
    async with opened(options(tmp_path, router=Turns(*PEERS))) as journal:
        first = await send(journal, "m", "a")
        assert (first.stored, first.positions, first.elsewhere) == (True, {}, {"orders": 1})
        assert not (await send(journal, "m", "a")).stored
        given = [submission("n", "b"), submission("m", "a"), submission("o", "c")]
        second = await transact(journal, *given, on_duplicate="skip")
        assert (second.skipped, second.elsewhere) == ([1], {"orders": 2})
        assert [await browsed(journal, peer.address) for peer in PEERS] == [["m", "o"], ["n"]]
        found = await journal.browse("$peer.a/orders", after=-1, most=9, most_bytes=1 << 20)
        assert [one.duplicate_id for one in found] == [b"a", b"c"], "producers' IDs travel with the messages"
        assert journal.counts.of_address["orders"].stored == 3
    async with opened(tmp_path) as journal:
        assert not (await send(journal, "m", "a")).stored, "without the router, and after a restart"


async def test_a_message_may_be_stored_at_several_addresses_and_by_its_headers(tmp_path: Path) -> None:
    def by_header(routing: Routing) -> Sequence[Placement]:
        eu = [index for index in routing.indices if routing.message(index).header("region") == b"eu"]
        return [Placement(HERE, routing.indices), Placement(PEERS[0], eu)]

    async with opened(options(tmp_path, router=Routed(by_header))) as journal:
        regions = ["eu", "us", "eu"]
        given = [
            Sent.of("orders", Message(str(number).encode(), None, (("region", region.encode()),)))
            for number, region in enumerate(regions)
        ]
        answer = await journal.commit(Transaction(given))
        first, last = answer.positions["orders"]
        assert (last - first + 1, answer.elsewhere) == (3, {}), "all of them are at orders, too"
        found = await journal.browse("orders", after=first - 1, most=9, most_bytes=1 << 20)
        assert [one.position for one in found] == list(range(first, last + 1))
        assert bodies(found) == ["0", "1", "2"]
        assert await browsed(journal, "$peer.a/orders") == ["0", "2"]


async def test_a_full_destination_refuses_the_whole_transaction(tmp_path: Path) -> None:
    full = AddressPolicy(max_size_bytes=300, full_policy="FAIL")
    given = options(tmp_path, policies(AddressPolicy(), **{"$peer.b/orders": full}), router=Turns(*PEERS))
    async with opened(given) as journal:
        await transact(journal, submission("0"), submission("1" * 200))
        with pytest.raises(AddressFull, match="holds"):
            await transact(journal, submission("2", "c"), submission("3", "d"))
        assert await browsed(journal, "$peer.a/orders") == ["0"]
        journal._writer._options.router.places = (HERE,)  # type: ignore[union-attr]
        assert (await send(journal, "2", "c")).stored, "its ID was not remembered"


async def test_a_blocked_transaction_is_routed_again_when_it_is_decided_again(tmp_path: Path) -> None:
    small = AddressPolicy(max_size_bytes=300)
    router = Turns(HERE)
    async with opened(options(tmp_path, policies(AddressPolicy(), orders=small), router=router)) as journal:
        while journal.full_addresses().keys() != {"orders"}:
            await send(journal, "." * 100)
        waiting = asyncio.create_task(send(journal, "m"))
        await until(lambda: journal._writer.blocked_bytes > 0, "a message is blocked")
        router.places = PEERS[:1]
        assert (await waiting).elsewhere == {"orders": 1}
        assert await browsed(journal, "$peer.a/orders") == ["m"]


async def test_a_router_sees_which_addresses_have_room(tmp_path: Path) -> None:
    def where_there_is_room(routing: Routing) -> Sequence[Placement]:
        place = next(one for one in PEERS if routing.has_room(one.address))
        return [Placement(place, routing.indices)]

    small = AddressPolicy(max_size_bytes=300)
    given = options(
        tmp_path, policies(AddressPolicy(), **{"$peer.a/orders": small}), router=Routed(where_there_is_room)
    )
    async with opened(given) as journal:
        for _ in range(4):
            await send(journal, "." * 100)
        counts = [len(await browsed(journal, one.address)) for one in PEERS]
        assert sum(counts) == 4
        assert min(counts) > 0


def fails(_routing: Routing) -> Sequence[Placement]:
    raise LookupError("no such peer")


def forgets(routing: Routing) -> Sequence[Placement]:
    return [Placement(HERE, routing.indices[1:])]


def doubles(routing: Routing) -> Sequence[Placement]:
    return [Placement(HERE, routing.indices), Placement(HERE, routing.indices)]


@pytest.mark.parametrize("rule", [fails, forgets, doubles])
async def test_a_faulty_router_fails_its_transaction_alone(tmp_path: Path, rule: Rule) -> None:
    def only_orders(routing: Routing) -> Sequence[Placement] | None:
        return rule(routing) if routing.address == "orders" else None

    async with opened(options(tmp_path, router=Routed(only_orders))) as journal:
        refused, stored = await together(
            journal, lambda _sql: None, send(journal, "m", "a"), send(journal, "n", address="other")
        )
        assert isinstance(refused, JournalUnavailable)
        assert "router" in refused.detail
        assert not isinstance(stored, BaseException)
        await caught_up(journal)
        assert await browsed(journal, "other") == ["n"]
        with pytest.raises(AddressNotFound):
            await journal.address("orders")


async def test_a_router_makes_no_more_addresses_than_there_may_be(tmp_path: Path) -> None:
    async with opened(options(tmp_path, router=Turns(*PEERS), max_addresses=2)) as journal:
        with pytest.raises(AddressNotFound, match="max-addresses"):
            await transact(journal, submission("0"), submission("1"))
        assert await journal.addresses() == []


async def test_a_client_gets_null_for_positions_at_other_addresses(tmp_path: Path) -> None:
    async with opened(options(tmp_path, router=Turns(*PEERS))) as journal:
        acceptor = Acceptor(journal, AcceptorOptions(url="ws://127.0.0.1:0"))
        bound = await acceptor.start()
        try:
            async with http_client(str(bound)) as client:
                one = await client.call("POST", "/v1/addresses/orders/messages", b"m")
                assert one.value == {"verdict": "stored", "positions": None}
                many = await client.commit({"address": "orders", "body": "n"}, {"address": "x", "body": "o"})
                assert many.value["positions"].keys() == {"orders", "x"}
                assert many.value["positions"]["orders"] is None
        finally:
            await acceptor.stop(100)
