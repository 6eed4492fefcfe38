"""Queues: made, deleted, leased, acknowledged, released; readers that wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.http_client import Client
from tests.harness.api import titles
from tests.harness.eventually import LOOK_AGAIN_S, PATIENCE_S, until


async def test_a_queue_is_made_once_and_starts_where_it_is_told(client: Client, address: str) -> None:
    sent = [await client.send(address, b"%d" % number) for number in range(3)]
    assert await client.make_queue(address, "all") == 201
    assert await client.make_queue(address, "all") == 200
    starts: dict[str, Any] = {"early": "earliest", "late": "latest", "third": sent[2].positions[0]}
    for queue, start in starts.items():
        assert await client.make_queue(address, queue, **{"from": start}) == 201
    assert await client.make_queue(address, "early", **{"from": "latest"}) == 200, "it stays where it is"
    await client.send(address, b"3")
    found = {queue: titles((await client.lease(address, queue))[1]) for queue in ("all", *starts)}
    assert found == {"all": list("0123"), "early": list("0123"), "late": ["3"], "third": ["2", "3"]}


async def test_a_queue_gets_what_its_filter_takes(client: Client, address: str) -> None:
    assert await client.make_queue(address, "eu", filter="region = 'eu'") == 201
    assert await client.make_queue(address, "all") == 201
    await send_to_regions(client, address, "0 eu", "1 us", "2 eu")
    assert await client.make_queue(address, "eu", filter="region = 'us'") == 200
    assert await client.make_queue(address, "eu") == 200, "it keeps its filter"
    await send_to_regions(client, address, "3 eu", "4 us")
    described = (await client.get(f"/v1/addresses/{address}")).value
    shown = {queue["name"]: (queue.get("filter"), queue["lag"]) for queue in described["queues"]}
    assert shown == {"eu": ("region = 'us'", 3), "all": (None, 5)}
    lease, messages = await client.lease(address, "eu")
    assert titles(messages) == ["0", "2", "4"]
    assert (await client.settle("acknowledge", address, "eu", lease=lease)).status == 204
    assert await client.lease(address, "eu") == (None, [])


async def send_to_regions(client: Client, address: str, *messages: str) -> None:
    """Messages "body region" in one transaction."""
    split = [message.split() for message in messages]
    await client.commit(
        *({"address": address, "body": body, "headers": {"region": region}} for body, region in split)
    )


async def test_a_refused_filter_makes_no_queue(client: Client, address: str) -> None:
    reply = await client.call("PUT", f"/v1/addresses/{address}/queues/q", json={"filter": "region ="})
    assert reply.is_problem(400, "FILTER_REFUSED")["column"] == 9
    (await client.get(f"/v1/addresses/{address}")).is_problem(404, "ADDRESS_NOT_FOUND")


@pytest.mark.parametrize(
    "content_type", ["", "application/x-www-form-urlencoded", "text/plain", "application/msgpack"]
)
async def test_a_queue_is_made_without_a_body_whatever_its_content_type(
    client: Client, address: str, content_type: str
) -> None:
    """As `curl -X PUT -d ''` and browsers send it."""
    path = f"/v1/addresses/{address}/queues/q"
    headers = {"Content-Type": content_type} if content_type else {}
    assert (await client.call("PUT", path, b"", headers=headers)).status == 201
    wrong = await client.call("PUT", path, b"{}", headers={"Content-Type": "text/plain"})
    wrong.is_problem(415, "UNSUPPORTED_MEDIA_TYPE")


async def test_a_queue_that_is_deleted_is_gone(client: Client, address: str) -> None:
    await client.make_queue(address, "q")
    path = f"/v1/addresses/{address}/queues/q"
    assert (await client.call("DELETE", path)).status == 204
    (await client.get(f"{path}/messages")).is_problem(404, "QUEUE_NOT_FOUND")
    (await client.call("DELETE", path)).is_problem(404, "QUEUE_NOT_FOUND")


async def test_leased_messages_are_nobody_elses_until_they_are_released(client: Client, address: str) -> None:
    await client.make_queue(address, "q")
    await client.commit(*({"address": address, "body": f"{number}"} for number in range(6)))
    first_lease, first = await client.lease(address, "q", "max=2")
    second_lease, second = await client.lease(address, "q", "max=2")
    assert (titles(first), titles(second)) == (["0", "1"], ["2", "3"])
    assert first_lease != second_lease
    assert (await client.settle("release", address, "q", lease=first_lease)).status == 204
    third_lease, third = await client.lease(address, "q")
    assert titles(third) == ["0", "1", "4", "5"], "returned messages are next again, in order"
    assert await client.lease(address, "q") == (None, [])
    for lease in (second_lease, third_lease):
        assert (await client.settle("acknowledge", address, "q", lease=lease)).status == 204
    assert await client.lease(address, "q") == (None, [])


async def test_an_acknowledgement_upto_a_position_returns_the_rest_in_order(
    client: Client, address: str
) -> None:
    await client.make_queue(address, "q")
    await client.commit(*({"address": address, "body": f"{number}"} for number in range(4)))
    lease, messages = await client.lease(address, "q")
    upto = messages[1]["position"]
    assert (await client.settle("acknowledge", address, "q", lease=lease, upto=upto)).status == 204
    (await client.settle("acknowledge", address, "q", lease=lease)).is_problem(409, "STALE_LEASE")
    lease, messages = await client.lease(address, "q")
    assert titles(messages) == ["2", "3"]
    assert (await client.settle("release", address, "q", lease=lease)).status == 204
    assert titles((await client.lease(address, "q"))[1]) == ["2", "3"]


@pytest.mark.parametrize("verb", ["acknowledge", "release"])
async def test_a_lease_that_has_ended_is_stale(client: Client, address: str, verb: str) -> None:
    await client.make_queue(address, "q")
    await client.send(address, b"x")
    lease, _ = await client.lease(address, "q")
    assert (await client.settle(verb, address, "q", lease=lease)).status == 204
    (await client.settle(verb, address, "q", lease=lease)).is_problem(409, "STALE_LEASE")
    (await client.settle(verb, address, "q", lease="never-was")).is_problem(409, "STALE_LEASE")


async def test_messages_of_a_lease_that_times_out_are_next_again_in_order(
    client: Client, address: str
) -> None:
    await client.make_queue(address, "q")
    await client.commit(*({"address": address, "body": f"{number}"} for number in range(4)))
    lease, messages = await client.lease(address, "q", "lease=300")
    assert titles(messages) == list("0123")
    assert await client.lease(address, "q") == (None, [])
    again, messages = await client.lease(address, "q", "wait=10000")
    assert titles(messages) == list("0123"), "a waiting reader gets them when the lease ends"
    (await client.settle("acknowledge", address, "q", lease=lease)).is_problem(409, "STALE_LEASE")
    assert (await client.settle("acknowledge", address, "q", lease=again)).status == 204


async def test_a_lease_that_timed_out_counts_no_more(client: Client, address: str) -> None:
    async def leased() -> int:
        (queue,) = (await client.get(f"/v1/addresses/{address}")).value["queues"]
        found: int = queue["leased"]
        return found

    async def nothing_is_leased() -> bool:
        return await leased() == 0

    await client.make_queue(address, "q")
    await client.send(address, b"x")
    await client.lease(address, "q", "lease=300")
    assert await leased() == 1
    await until(nothing_is_leased, "nothing is leased", PATIENCE_S, LOOK_AGAIN_S)


async def test_a_waiting_reader_gets_the_message_when_it_comes(client: Client, address: str) -> None:
    await client.make_queue(address, "q")
    waiting = asyncio.create_task(client.lease(address, "q", "wait=60000"))
    assert (await client.get("/v1/addresses")).status == 200
    assert not waiting.done()
    await client.send(address, b"here")
    async with asyncio.timeout(5):
        _, messages = await waiting
    assert titles(messages) == ["here"]


async def test_a_wait_without_a_message_ends_with_no_lease(client: Client, address: str) -> None:
    await client.make_queue(address, "q")
    loop = asyncio.get_running_loop()
    before = loop.time()
    reply = await client.get(f"/v1/addresses/{address}/queues/q/messages?wait=300")
    assert reply.content == b'{"lease":null,"messages":[]}'
    assert 0.29 <= loop.time() - before < 5
