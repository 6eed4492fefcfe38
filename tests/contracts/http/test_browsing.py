"""Looking without taking: pages of an address, one raw body, what an address says of itself."""

from __future__ import annotations

from tests.fakes.http_client import Client
from tests.harness.api import titles


async def test_browsing_changes_nothing(client: Client, address: str) -> None:
    await client.make_queue(address, "q")
    positions = [(await client.send(address, b"%d" % number)).positions[0] for number in range(4)]
    assert titles(await client.browse(address, f"after={positions[0]}&max=2")) == ["1", "2"]
    assert titles(await client.browse(address, f"after={positions[3]}")) == []
    assert [message["position"] for message in await client.browse(address)] == positions
    assert titles((await client.lease(address, "q"))[1]) == list("0123")
    assert titles(await client.browse(address)) == list("0123"), "leased messages are browsed too"


async def test_one_raw_body_by_its_position(client: Client, address: str) -> None:
    body = bytes(range(256))
    position, _ = (await client.send(address, body, Content_Type="image/x-test; v=1")).positions
    reply = await client.get(f"/v1/addresses/{address}/messages/{position}")
    assert (reply.status, reply.content) == (200, body)
    assert reply.headers["Content-Type"] == "image/x-test; v=1"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    nothing = await client.get(f"/v1/addresses/{address}/messages/{position + 1}")
    nothing.is_problem(404, "NOT_FOUND")


async def test_a_stored_type_cannot_forge_headers(client: Client, address: str) -> None:
    evil = {"content-type": "text/html\r\nSet-Cookie: a=b"}
    reply = await client.commit(
        {"address": address, "body": "x", "headers": evil}, {"address": address, "body": "y"}
    )
    for position in reply.positions[address]:
        reply = await client.get(f"/v1/addresses/{address}/messages/{position}")
        assert reply.status == 200
        assert reply.headers["Content-Type"] == "application/octet-stream"
        assert "Set-Cookie" not in reply.headers


async def test_a_tombstones_raw_body_is_no_content(client: Client, address: str) -> None:
    position, _ = (await client.commit({"address": address, "body": None})).positions[address]
    assert await client.bodies(address) == [None]
    reply = await client.get(f"/v1/addresses/{address}/messages/{position}")
    assert (reply.status, reply.content) == (204, b"")


async def test_an_address_describes_itself_with_exactly_the_contracts_keys(
    client: Client, address: str
) -> None:
    other = f"{address}.other"
    await client.make_queue(address, "q")
    first, _ = (await client.send(address, b"a", Duplicate_Id="1")).positions
    await client.send(address, b"b", Duplicate_Id="2")
    await client.send(address, b"c")
    await client.lease(address, "q", "max=1")
    described = (await client.get(f"/v1/addresses/{address}")).value
    keys = set(described)
    (queue,) = described["queues"]
    assert 0 <= queue.pop("idle-ms") < 60_000
    assert described.pop("bytes") > 0
    assert described == {
        "address": address,
        "routing-type": "MULTICAST",
        "messages": 3,
        "max-bytes": 1 << 30,
        "first": first,
        "next": first + 3,
        "id-cache": {"entries": 2, "capacity": 20_000},
        "queues": [{"name": "q", "next": first, "lag": 3, "leased": 1}],
        "bridges": [],
    }
    await client.send(other, b"x")
    every = {entry["address"]: entry for entry in (await client.get("/v1/addresses")).value["addresses"]}
    assert list(every) == sorted(every)
    assert (set(every[address]), set(every[other])) == (keys, keys)
