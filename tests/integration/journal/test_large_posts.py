"""Large bodies by HTTP over a journal: stored as they come, read as they are taken."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from bridge.cli.readers import Browser, Deadline, Printer, QueueReader
from bridge.client.node_client import Connection, NodeClient, Problem, Unreachable
from bridge.errors import NotFound
from bridge.http.acceptor import Acceptor, AcceptorOptions
from bridge.http.limits import Limits
from bridge.journal.journal import Journal
from bridge.journal.sqlite import pages
from bridge.journal.values.options import AddressPolicy
from bridge.messages.message import CHUNK_BYTES
from tests.harness.eventually import until
from tests.integration.journal.helpers import KIB, MIB, opened, options, stored
from tests.integration.journal.test_large_bodies import chunks_in, gone

MESSAGES = "/v1/addresses/orders/messages"
BODY = os.urandom(3 * MIB - 5)
LIMITS = Limits(max_message_size=4 * MIB)


@asynccontextmanager
async def serving(
    journal: Journal, limits: Limits = LIMITS, call_timeout_ms: int = 30_000
) -> AsyncIterator[str]:
    acceptor = Acceptor(
        journal, AcceptorOptions(url="ws://127.0.0.1:0", limits=limits, call_timeout_ms=call_timeout_ms)
    )
    bound = await acceptor.start()
    try:
        yield f"http://{bound.host}:{bound.port}"
    finally:
        await acceptor.stop(100)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with opened(options(tmp_path, max_message_bytes=4 * MIB)) as one:
        yield one


@pytest.fixture
async def client(journal: Journal) -> AsyncIterator[aiohttp.ClientSession]:
    async with serving(journal) as url, aiohttp.ClientSession(url) as session:
        yield session


async def in_pieces(body: bytes = BODY, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def test_from_min_large_message_size_on_a_body_is_stored_in_chunks(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    small = BODY[: CHUNK_BYTES - 1]
    for body, chunks in ((small, 0), (BODY, 3)):
        headers = {"Message-Header-Kind": "film", "Content-Type": "video/mp4"}
        async with client.post(MESSAGES, data=io.BytesIO(body), headers=headers) as answer:
            assert (await answer.json())["verdict"] == "stored"
        assert chunks_in(tmp_path) == (chunks, 0)
    for position, body in enumerate((small, BODY)):
        async with client.get(f"{MESSAGES}/{position}") as answer:
            assert answer.headers["Content-Type"] == "video/mp4"
            assert await answer.read() == body


async def test_a_body_whose_length_is_not_said_beforehand_is_stored_in_chunks_too(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with client.post(MESSAGES, data=in_pieces()) as answer:
        assert (await answer.json())["verdict"] == "stored"
    async with client.post(MESSAGES, data=in_pieces(b"short")) as answer:
        assert (await answer.json())["verdict"] == "stored"
    assert chunks_in(tmp_path) == (3, 0)
    async with client.get(f"{MESSAGES}/0") as answer:
        assert await answer.read() == BODY
    async with client.get(f"{MESSAGES}/1") as answer:
        assert await answer.read() == b"short"


@pytest.mark.parametrize("accept", ["application/json", "application/msgpack"])
async def test_a_page_has_the_size_of_a_body_that_is_too_large_for_it(
    client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    monkeypatch.setattr(pages, "LARGE_IN_PAGE_BYTES", 0)

    async def page() -> list[dict[str, object]]:
        async with client.get(MESSAGES, headers={"Accept": accept}) as answer:
            content = await answer.read()
        decoded = msgspec.json.decode(content) if "json" in accept else msgspec.msgpack.decode(content)
        found: list[dict[str, object]] = decoded["messages"]
        return found

    for body in (BODY, b"small"):
        async with client.post(
            MESSAGES, data=io.BytesIO(body), headers={"Message-Header-Kind": "film"}
        ) as answer:
            assert answer.status == 200
    large, small = await page()
    assert (large["body-size"], "body" in large, "body-base64" in large) == (len(BODY), False, False)
    assert set(large) == {"position", "body-size", "key", "headers", "duplicate-id", "timestamp"}
    assert "body-size" not in small


async def test_a_repeated_large_send_is_a_duplicate_and_its_body_goes(
    client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    verdicts = []
    for _ in range(2):
        async with client.post(MESSAGES, data=io.BytesIO(BODY), headers={"Duplicate-Id": "film-1"}) as answer:
            verdicts.append((await answer.json())["verdict"])
    assert verdicts == ["stored", "duplicate"]
    await until(lambda: chunks_in(tmp_path) == (3, 0), "the second body is gone")


async def test_an_upload_that_breaks_off_leaves_nothing(
    client: aiohttp.ClientSession, tmp_path: Path, journal: Journal
) -> None:
    async def breaks() -> AsyncIterator[bytes]:
        yield BODY[: 2 * MIB]
        await until(lambda: chunks_in(tmp_path) == (2, 1), "two chunks are stored")
        raise ConnectionError

    with pytest.raises(aiohttp.ClientError):
        async with client.post(MESSAGES, data=breaks()):
            pass
    await gone(tmp_path)
    assert journal.views.address("orders") is None


@pytest.mark.parametrize("said", [True, False])
async def test_a_body_above_max_message_size_is_refused_and_leaves_nothing(
    client: aiohttp.ClientSession, tmp_path: Path, said: bool
) -> None:
    body = bytes(5 * MIB)
    async with client.post(MESSAGES, data=io.BytesIO(body) if said else in_pieces(body)) as answer:
        assert answer.status == 413
        assert (await answer.json())["title"] == "MESSAGE_TOO_LARGE"
    await gone(tmp_path)


async def test_each_chunk_has_call_timeout_to_arrive(journal: Journal, tmp_path: Path) -> None:
    async def stalls() -> AsyncIterator[bytes]:
        yield BODY[: CHUNK_BYTES + 10]
        await asyncio.Event().wait()

    async with serving(journal, call_timeout_ms=200) as url, aiohttp.ClientSession(url) as session:
        async with session.post(MESSAGES, data=stalls()) as answer:
            problem = await answer.json()
        assert (answer.status, problem["title"]) == (408, "BODY_TOO_SLOW")
        assert "the body came too slowly" in problem["detail"]
    await gone(tmp_path)


async def test_a_full_address_refuses_a_large_body_before_it_is_read(tmp_path: Path) -> None:
    policy = AddressPolicy(max_size_bytes=2 * MIB, full_policy="FAIL")
    async with (
        opened(options(tmp_path, policy, max_message_bytes=4 * MIB)) as journal,
        serving(journal) as url,
        aiohttp.ClientSession(url) as session,
    ):
        async with session.post(MESSAGES, data=io.BytesIO(BODY)) as answer:
            assert (answer.status, (await answer.json())["title"]) == (413, "MESSAGE_TOO_LARGE")
        for _ in range(2):
            async with session.post(MESSAGES, data=io.BytesIO(BODY[: 1000 * KIB])) as answer:
                assert answer.status == 200
        async with session.post(MESSAGES, data=io.BytesIO(BODY[: 2000 * KIB])) as answer:
            assert answer.status == 200
        async with session.post(MESSAGES, data=io.BytesIO(BODY[: 2000 * KIB])) as answer:
            assert (answer.status, (await answer.json())["title"]) == (503, "ADDRESS_FULL")
        assert chunks_in(tmp_path) == (2, 0)


async def test_a_client_that_leaves_while_its_chunk_waits_leaves_nothing(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk is not stored, and its bytes are released once: `max-transit-size` holds afterwards, too."""
    acceptor = Acceptor(journal, AcceptorOptions(url="ws://127.0.0.1:0", limits=LIMITS))
    bound = await acceptor.start()
    assert acceptor._listener._server is not None
    transit = acceptor._listener._server.transit
    waiting: list[Any] = []
    submit = journal._writer.submit
    monkeypatch.setattr(journal._writer, "submit", waiting.append)
    try:
        _, writer = await asyncio.open_connection(bound.host, bound.port)
        writer.write(
            f"POST {MESSAGES} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {3 * MIB}\r\n\r\n".encode()
        )
        writer.write(bytes(CHUNK_BYTES))
        await until(lambda: len(waiting) == 1, "the chunk waits")
        assert transit.bytes == CHUNK_BYTES
        writer.transport.abort()
        await until(lambda: len(waiting) == 2, "it is given up")
        assert transit.bytes == 0
        for command in waiting:
            submit(command)
        monkeypatch.setattr(journal._writer, "submit", submit)
        await journal.create_queue("orders", "q", "earliest")
        assert chunks_in(tmp_path) == (0, 0)
    finally:
        await acceptor.stop(100)


async def test_bodies_in_transit_count_a_chunk_at_a_time(journal: Journal) -> None:
    """Two at a time, where both bodies together are far above `max-transit-size`."""
    limits = Limits(max_message_size=4 * MIB, max_transit_size=2 * CHUNK_BYTES + MIB // 2)

    async def send(session: aiohttp.ClientSession) -> int:
        async with session.post(MESSAGES, data=in_pieces()) as answer:
            return answer.status

    async with serving(journal, limits) as url, aiohttp.ClientSession(url) as session:
        assert list(await asyncio.gather(send(session), send(session))) == [200, 200]
        async with session.get(f"{MESSAGES}/0") as answer:
            assert await answer.read() == BODY


async def test_a_reader_learns_that_the_rest_of_a_body_is_gone(
    client: aiohttp.ClientSession, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LARGE_IN_PAGE_BYTES", 0)
    async with client.post(MESSAGES, data=io.BytesIO(BODY)) as answer:
        assert answer.status == 200
    read_chunk = journal.read_chunk

    async def deletes(kept: object, number: int) -> bytes:
        if number == 2:
            await journal.delete_address("orders")
            await until(lambda: not journal._writer.state.loose_bodies, "its chunks are gone")
        return await read_chunk(kept, number)  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "read_chunk", deletes)
    with pytest.raises(aiohttp.ClientError):
        async with client.get(f"{MESSAGES}/0") as answer:
            await answer.read()


@pytest.mark.parametrize("form", ["text", "json"])
async def test_receive_prints_a_large_body_piece_by_piece_and_acknowledges_behind_it(
    journal: Journal, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(pages, "LARGE_IN_PAGE_BYTES", 0)
    for body in (b"first", BODY, b"last"):
        async with client.post(MESSAGES, data=io.BytesIO(body)) as answer:
            assert answer.status == 200
    out = io.BytesIO()
    async with NodeClient(Connection(str(client._base_url).rstrip("/"))) as node:
        await QueueReader(node, "orders", "reader", Printer(out, form), Deadline(0.0), create=True).read()
        browsed = io.BytesIO()
        await Browser(node, "orders", Printer(browsed, form), Deadline(0.0)).read()
    if form == "text":
        assert out.getvalue() == b"first\n" + BODY + b"\nlast\n"
    else:
        first, large, last = [msgspec.json.decode(line) for line in out.getvalue().splitlines()]
        assert (first["body"], last["body"]) == ("first", "last")
        assert (large["body-size"], "body" in large) == (len(BODY), False)
    await until(lambda: not stored(journal, "orders"), "all are acknowledged")
    assert browsed.getvalue() in (b"", out.getvalue())


async def test_receive_says_when_the_rest_of_a_large_body_does_not_come(
    journal: Journal, client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LARGE_IN_PAGE_BYTES", 0)
    async with client.post(MESSAGES, data=io.BytesIO(BODY)) as answer:
        assert answer.status == 200

    async def gone_by_now(_kept: object, _number: int) -> bytes:
        raise NotFound("it is gone")

    monkeypatch.setattr(journal, "read_chunk", gone_by_now)
    async with NodeClient(Connection(str(client._base_url).rstrip("/"))) as node:
        with pytest.raises(Unreachable):
            await Browser(node, "orders", Printer(io.BytesIO()), Deadline(0.0)).read()
        with pytest.raises(Problem, match="no message"):
            _ = [piece async for piece in node.pieces(f"{MESSAGES}/7")]
