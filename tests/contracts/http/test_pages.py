"""Pages of a queue and of an address: how many messages, bytes and characters one has at most."""

from __future__ import annotations

import pytest

from tests.contracts.http.conftest import MEMORY_AND_PROCESS
from tests.fakes.http_client import Client

MIB = 1024 * 1024


@MEMORY_AND_PROCESS
@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("max=0", "max"),
        ("max=1001", "max"),
        ("wait=-1", "wait"),
        ("wait=60001", "wait"),
        ("lease=0", "lease"),
        ("max=many", "max"),
        ("limit=5", "limit"),
    ],
)
async def test_numbers_of_a_page_have_limits(client: Client, address: str, query: str, key: str) -> None:
    await client.make_queue(address, "q")
    reply = await client.get(f"/v1/addresses/{address}/queues/q/messages?{query}")
    assert reply.is_problem(400, "MALFORMED")["key"] == key


async def test_a_page_has_1000_messages_at_most(client: Client, address: str) -> None:
    await client.make_queue(address, "q")
    await client.commit(*([{"address": address, "body": "x"}] * 1100))
    assert len((await client.lease(address, "q"))[1]) == 100
    assert len((await client.lease(address, "q", "max=1000"))[1]) == 1000
    assert len(await client.browse(address, "max=1000")) == 1000


@MEMORY_AND_PROCESS
async def test_a_page_has_16_mib_at_most_but_one_message_at_least(client: Client, address: str) -> None:
    await client.make_queue(address, "q")
    for size in (7 * MIB, 7 * MIB, 7 * MIB, 16 * MIB):
        assert (await client.send(address, b"x" * size)).status == 200
    pages = [(await client.lease(address, "q"))[1] for _ in range(4)]
    assert [[len(message["body"]) // MIB for message in page] for page in pages] == [[7, 7], [7], [16], []]


@MEMORY_AND_PROCESS
async def test_the_text_of_a_page_has_24_mib_at_most_whatever_it_escapes(
    client: Client, address: str
) -> None:
    """A control character is six in JSON: a page of 16 MiB was 96 MiB of text."""
    await client.make_queue(address, "q")
    for size in (MIB, MIB, MIB, MIB, 5 * MIB):
        assert (await client.send(address, b"\x01" * size)).status == 200
    browsed = await client.get(f"/v1/addresses/{address}/messages")
    assert (len(browsed.value["messages"]), len(browsed.content) <= 24 * MIB) == (3, True)
    counts = []
    for _ in range(3):
        lease, page = await client.lease(address, "q")
        counts.append(len(page))
        (queue,) = (await client.get(f"/v1/addresses/{address}")).value["queues"]
        assert queue["leased"] == len(page)
        assert (await client.settle("acknowledge", address, "q", lease=lease)).status == 204
    assert counts == [3, 1, 1]


@MEMORY_AND_PROCESS
async def test_a_page_and_a_message_count_keys_and_headers_too(client: Client, address: str) -> None:
    """148 MiB of them went into one page."""
    message = {"address": address, "body": "x" * 1000, "key": "k" * 8000, "headers": {"h": "v" * 8000}}
    for _ in range(4):
        assert (await client.commit(*([message] * 250))).status == 200
    assert 900 < len(await client.browse(address)) <= 16 * MIB // 17_001
    refused = await client.commit(message, {**message, "key": "k" * 8400})
    problem = refused.is_problem(413, "MESSAGE_TOO_LARGE")
    assert (problem["key"], problem["limit"], problem["found"]) == ("messages[1].headers", 16_384, 16_401)
