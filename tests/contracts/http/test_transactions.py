"""Transactions: all or nothing over several addresses, duplicate IDs, acknowledgements in the same step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.http_client import Client
from tests.harness.api import titles

DUPLICATE = {"verdict": "duplicate"}


def held(address: str, lease: str | None) -> list[dict[str, Any]]:
    """What acknowledges a lease of the address's queue ``q``."""
    return [{"address": address, "queue": "q", "lease": lease}]


async def test_a_transaction_stores_over_several_addresses_and_says_where(
    client: Client, address: str
) -> None:
    other = f"{address}.other"
    reply = await client.commit(
        {"address": address, "body": "text", "key": "k", "headers": {"h": "v"}, "timestamp": 5},
        {"address": address, "body-base64": "/w=="},
        {"address": other, "body": None},
    )
    first, last = reply.positions[address]
    assert reply.value == {
        "verdict": "stored",
        "positions": {address: [first, first + 1], other: [last + 1, last + 1]},
    }
    text, data = await client.browse(address)
    assert (text["body"], text["key"], text["headers"], text["timestamp"]) == ("text", "k", {"h": "v"}, 5)
    assert data["body-base64"] == "/w=="
    (tombstone,) = await client.browse(other)
    assert "body" in tombstone
    assert tombstone["body"] is None


async def test_a_transaction_stores_in_order_and_names_positions_by_address(
    client: Client, address: str
) -> None:
    other = f"{address}.other"
    places = [address, address, other, address]
    reply = await client.commit(
        *({"address": place, "body": str(number)} for number, place in enumerate(places))
    )
    sizes = {place: last - first + 1 for place, (first, last) in reply.positions.items()}
    assert sizes == {address: 3, other: 1}
    assert (await client.bodies(address), await client.bodies(other)) == (["0", "1", "3"], ["2"])


async def test_a_transactions_own_id_makes_its_repetition_a_duplicate(client: Client, address: str) -> None:
    """D33: its ID is remembered at every address it touched."""
    other, new = f"{address}.other", f"{address}.new"
    both = ({"address": address, "body": "a"}, {"address": other, "body": "b"})
    assert (await client.commit(*both, duplicate_id="t-1")).value["verdict"] == "stored"
    assert (await client.commit(*both, duplicate_id="t-1")).value == DUPLICATE
    assert (await client.commit({"address": other, "body": "c"}, duplicate_id="t-1")).value == DUPLICATE
    assert (await client.send(address, b"d", Duplicate_Id="t-1")).value == DUPLICATE
    partly_new = ({"address": new, "body": "e"}, {"address": other, "body": "f"})
    assert (await client.commit(*partly_new, duplicate_id="t-1")).value == DUPLICATE
    assert await client.browse(new) == []
    assert (await client.bodies(address), await client.bodies(other)) == (["a"], ["b"])


async def test_known_single_ids_fail_the_whole_and_are_all_named(client: Client, address: str) -> None:
    """D34: nothing is stored, remembered or acknowledged."""
    await client.make_queue(address, "q")
    await client.send(address, b"0", Duplicate_Id="a")
    await client.send(address, b"1", Duplicate_Id="b")
    lease, _ = await client.lease(address, "q")
    ids = ["fresh", "a", None, "b"]
    reply = await client.commit(
        *({"address": address, "body": "x", "duplicate-id": one} for one in ids),
        duplicate_id="t",
        acknowledge=held(address, lease),
    )
    assert reply.is_problem(409, "DUPLICATE_ID_REJECTED")["duplicates"] == [
        {"index": 1, "address": address, "duplicate-id": "a"},
        {"index": 3, "address": address, "duplicate-id": "b"},
    ]
    assert (await client.settle("release", address, "q", lease=lease)).status == 204
    assert titles((await client.lease(address, "q"))[1]) == ["0", "1"]
    for free in ("fresh", "t"):
        assert (await client.send(address, b"2", Duplicate_Id=free)).value["verdict"] == "stored"


async def test_one_id_twice_in_a_transaction_is_rejected(client: Client, address: str) -> None:
    """D38: never two copies."""
    twice = [{"address": address, "body": str(number), "duplicate-id": "same"} for number in range(2)]
    problem = (await client.commit(*twice)).is_problem(409, "DUPLICATE_ID_REJECTED")
    assert problem["duplicates"] == [{"index": 1, "address": address, "duplicate-id": "same"}]
    assert await client.browse(address) == []


@pytest.mark.parametrize("name", ["_AMQ_DUPL_ID", "_HQ_DUPL_ID"])
async def test_an_id_among_the_headers_of_a_message_is_its_duplicate_id(
    client: Client, address: str, name: str
) -> None:
    """D57: as in Artemis, where it is a property. It was stored unchecked beside the ID: two copies."""
    named = {"address": address, "body": "0", "headers": {name: "k", "region": "eu"}}
    assert (await client.commit(named)).value["verdict"] == "stored"
    (found,) = await client.browse(address)
    assert (found["duplicate-id"], found["headers"]) == ("k", {name: "k", "region": "eu"})
    both = named | {"headers": {"_AMQ_DUPL_ID": "k", "_HQ_DUPL_ID": "k"}, "duplicate-id": "k"}
    for again in (named, both):
        (await client.commit(again)).is_problem(409, "DUPLICATE_ID_REJECTED")
    assert (await client.send(address, b"1", Duplicate_Id="k")).value == DUPLICATE


@pytest.mark.parametrize(
    "ids",
    [
        {"headers": {"_AMQ_DUPL_ID": "a", "_HQ_DUPL_ID": "b"}},
        {"headers": {"_AMQ_DUPL_ID": ["a", "b"]}},
        {"headers": {"_HQ_DUPL_ID": "a"}, "duplicate-id": "b"},
        {"headers": {"_AMQ_DUPL_ID": ""}},
        {"headers": {"_AMQ_DUPL_ID": None}},
        {"headers": {"_AMQ_DUPL_ID": "x" * 1025}},
    ],
    ids=str,
)
async def test_headers_that_name_no_one_id_are_refused(
    client: Client, address: str, ids: dict[str, Any]
) -> None:
    messages = [{"address": address, "body": "0"}, {"address": address, "body": "1"} | ids]
    problem = (await client.commit(*messages)).is_problem(400, "INVALID_DUPLICATE_ID")
    assert problem["key"] == "messages[1].headers"
    assert await client.browse(address) == []


async def test_skip_leaves_out_what_is_known_and_stores_the_rest(client: Client, address: str) -> None:
    old, _ = (await client.send(address, b"old", Duplicate_Id="known")).positions
    ids = ["new", "known", "twice", "twice", "last"]
    messages = [{"address": address, "body": str(n), "duplicate-id": one} for n, one in enumerate(ids)]
    problem = (await client.commit(*messages, duplicate_id="t")).is_problem(409, "DUPLICATE_ID_REJECTED")
    assert [entry["index"] for entry in problem["duplicates"]] == [1, 3]
    reply = await client.commit(*messages, duplicate_id="t", on_duplicate="skip")
    assert reply.value == {
        "verdict": "stored",
        "positions": {address: [old + 1, old + 3]},
        "duplicates": [1, 3],
    }
    assert await client.bodies(address) == ["old", "0", "2", "4"]


async def test_acknowledging_and_sending_are_one_step(client: Client, address: str) -> None:
    target = f"{address}.done"
    await client.make_queue(address, "q")
    await client.send(address, b"job")
    lease, _ = await client.lease(address, "q")
    acknowledge = held(address, lease)
    await client.send(target, b"other", Duplicate_Id="known")
    known = {"address": target, "body": "result", "duplicate-id": "known"}
    (await client.commit(known, acknowledge=acknowledge)).is_problem(409, "DUPLICATE_ID_REJECTED")
    done = await client.commit({"address": target, "body": "result"}, acknowledge=acknowledge)
    assert done.value["verdict"] == "stored"
    assert await client.lease(address, "q") == (None, [])
    again = await client.commit({"address": target, "body": "result again"}, acknowledge=acknowledge)
    again.is_problem(409, "STALE_LEASE")
    assert await client.bodies(target) == ["other", "result"]


async def test_a_transaction_may_acknowledge_and_send_nothing(client: Client, address: str) -> None:
    await client.make_queue(address, "q")
    await client.send(address, b"in")
    lease, _ = await client.lease(address, "q")
    reply = await client.commit(acknowledge=held(address, lease))
    assert (reply.status, reply.value) == (200, {"verdict": "stored", "positions": {}})


async def test_a_repeated_transaction_of_acknowledgements_is_a_duplicate(
    client: Client, address: str
) -> None:
    """Whoever sends it again because its answer was lost learns that it was done, as with messages."""
    await client.make_queue(address, "q")
    await client.send(address, b"in")
    lease, _ = await client.lease(address, "q")
    acknowledge = held(address, lease)
    refused = await client.commit(acknowledge=held(address, "another"), duplicate_id="done-1")
    assert refused.problem == (409, "STALE_LEASE"), "and nothing of it is remembered"
    first = await client.commit(acknowledge=acknowledge, duplicate_id="done-1")
    assert first.value == {"verdict": "stored", "positions": {}}
    again = await client.commit(acknowledge=acknowledge, duplicate_id="done-1")
    assert (again.status, again.value) == (200, DUPLICATE)
    (await client.commit(acknowledge=acknowledge)).is_problem(409, "STALE_LEASE")


async def test_a_transaction_may_hold_ten_thousand_messages_and_no_more(client: Client, address: str) -> None:
    messages = [{"address": address, "body": "x"}] * 10_000
    first, last = (await client.commit(*messages)).positions[address]
    assert last - first == 9_999
    problem = (await client.commit(*messages, messages[0])).is_problem(400, "MALFORMED")
    assert (problem["key"], problem["limit"], problem["found"]) == ("messages", 10_000, 10_001)
