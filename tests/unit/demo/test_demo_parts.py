"""The demo's parts without a node: rows and their IDs, the judge, and the link that breaks."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridge.client.input_lines import Line
from bridge.demo import rows as rows_module
from bridge.demo.compare import Comparison, Proof
from bridge.demo.proxy import LinkProxy
from bridge.demo.rows import BadInput, Row, natural_key, read_input, to_rows
from bridge.demo.traffic import sender_of

DEPARTURE = b'{"id":"x","time_hour":"2013-01-01T10:00:00Z","carrier":"UA","flight":1545}'


def test_the_departures_are_20000_rows_with_different_natural_keys() -> None:
    rows = read_input("")
    assert len(rows) == 20_000
    assert len({row.id for row in rows}) == 20_000
    assert all(json.loads(row.body)["id"] == row.id for row in rows)
    assert rows[0].id == "2013-01-01T10:00:00Z/UA/1545"


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (DEPARTURE, "2013-01-01T10:00:00Z/UA/1545"),
        (b'{"time_hour":"t","carrier":"UA"}', None),
        (b'{"time_hour":"t","carrier":null,"flight":1}', None),
        (b'{"time_hour":"two words","carrier":"UA","flight":1}', None),
        (b'{"time_hour":"%s","carrier":"UA","flight":1}' % (b"x" * 300), None),
        (b'["time_hour","carrier","flight"]', None),
        (b"{not json", None),
        (b"\xff", None),
    ],
)
def test_a_natural_key_is_used_where_there_is_one_that_a_header_can_carry(
    body: bytes, key: str | None
) -> None:
    assert natural_key(body) == key


def test_equal_lines_are_different_rows_with_different_ids() -> None:
    rows = to_rows([Line(1, b"same"), Line(3, b"same"), Line(4, DEPARTURE), Line(5, DEPARTURE)])
    assert len({row.id for row in rows}) == 4
    assert rows[2].id == "2013-01-01T10:00:00Z/UA/1545"
    assert rows == to_rows([Line(1, b"same"), Line(3, b"same"), Line(4, DEPARTURE), Line(5, DEPARTURE)])


def test_an_input_without_rows_or_above_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"\n\n")
    with pytest.raises(BadInput, match="no rows"):
        read_input(str(path))
    monkeypatch.setattr(rows_module, "MAX_INPUT_BYTES", 1)
    with pytest.raises(BadInput, match="at most 1 bytes"):
        read_input(str(path))


# ---------------------------------------------------------------- the judge


def some_rows(number: int) -> list[Row]:
    return [Row(index, b"body %d" % index, f"id-{index}") for index in range(number)]


def judge(rows: list[Row], arrivals: list[int], positions: list[int | None] | None = None) -> Comparison:
    comparison = Comparison(rows, sender_of, positions or [None] * len(rows))
    for index in arrivals:
        comparison.take(rows[index].key, rows[index].body)
    return comparison


def verdict(comparison: Comparison) -> tuple[int, int, int]:
    return comparison.lost, comparison.doubled, comparison.out_of_order


def test_every_row_once_is_clean_however_the_clients_interleave(rng: random.Random) -> None:
    rows = some_rows(1000)
    streams: dict[object, list[int]] = {}
    for row in rows:
        streams.setdefault(sender_of(row.index), []).append(row.index)
    arrivals = []
    while streams:
        sender = rng.choice(list(streams))
        arrivals.append(streams[sender].pop(0))
        if not streams[sender]:
            del streams[sender]
    positions: list[int | None] = [None] * 1000
    for position, index in enumerate(arrivals):
        positions[index] = position
    assert verdict(judge(rows, arrivals, positions)) == (0, 0, 0)


def test_a_row_that_never_came_is_lost() -> None:
    comparison = judge(some_rows(4), [0, 1, 3])
    assert verdict(comparison) == (1, 0, 0)
    assert comparison.missing(5) == [2]


def test_a_row_that_came_three_times_is_doubled_twice_and_not_out_of_order() -> None:
    assert verdict(judge(some_rows(4), [0, 1, 2, 0, 3, 0])) == (0, 2, 0)


def test_odd_rows_out_of_file_order_are_counted() -> None:
    assert verdict(judge(some_rows(4), [0, 3, 1, 2])) == (0, 0, 1)


def test_rows_of_different_clients_may_overtake_each_other_only_as_they_did_at_the_edge() -> None:
    rows = some_rows(6)  # 0, 2 and 4 are three clients' rows
    assert verdict(judge(rows, [4, 2, 0, 1, 3, 5])) == (0, 0, 0)
    assert verdict(judge(rows, [4, 2, 0, 1, 3, 5], [7, 8, 4, None, 5, 9])) == (0, 0, 1)


def test_a_message_with_another_body_is_no_row_and_its_row_is_lost() -> None:
    rows = some_rows(2)
    comparison = judge(rows, [0])
    comparison.take(rows[1].key, b"something else")
    comparison.take(None, rows[1].body)
    comparison.take(b"7", rows[1].body)
    assert verdict(comparison) == (1, 3, 0)
    assert comparison.arrived == 4


PROOF = Proof(
    sent=20000,
    repeated=2000,
    duplicates=2000,
    arrived=20000,
    lost=0,
    doubled=0,
    out_of_order=0,
    kills=1,
    cuts=1,
    seconds=6.3,
)


def test_the_proof_line_has_the_contracts_form() -> None:
    line = (
        "sent 20000 repeated 2000 duplicates 2000 arrived 20000 lost 0 doubled 0 out-of-order 0 "
        "kills 1 cuts 1 seconds 6.3 messages/s 3174"
    )
    assert PROOF.line("text") == line
    words = line.split()
    assert json.loads(PROOF.line("json")) == {
        name: float(value) if "." in value else int(value)
        for name, value in zip(words[0::2], words[1::2], strict=True)
    }
    assert PROOF.holds


@pytest.mark.parametrize(
    "change", [{"lost": 1}, {"doubled": 1}, {"out_of_order": 1}, {"arrived": 19999}, {"duplicates": 1999}]
)
def test_a_proof_does_not_hold_with_anything_amiss(change: dict[str, int]) -> None:
    assert not dataclasses.replace(PROOF, **change).holds


# ---------------------------------------------------------------- the link


class Echo:
    """A target that says everything twice, and remembers what it heard."""

    def __init__(self) -> None:
        self.heard = b""
        self.changed = asyncio.Event()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1000):
                self.heard += chunk
                self.changed.set()
                writer.write(chunk)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[tuple[Echo, LinkProxy]]:
    target = Echo()
    server = await asyncio.start_server(target.connected, "127.0.0.1", 0)
    async with server, LinkProxy(server.sockets[0].getsockname()[1]) as link:
        yield target, link


async def test_bytes_pass_both_ways_until_the_cut_and_again_after_healing(
    echo: tuple[Echo, LinkProxy],
) -> None:
    _, link = echo
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    link.cut()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()

    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()

    link.heal()
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(b"again")
    assert await reader.readexactly(5) == b"again"
    writer.close()
    assert link.cuts == 1


async def test_a_one_way_link_carries_everything_and_swallows_the_answers(
    echo: tuple[Echo, LinkProxy],
) -> None:
    target, link = echo
    link.swallow_answers_after(10)
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(b"12345")
    assert await reader.readexactly(5) == b"12345"
    writer.write(b"67890")
    while target.heard != b"1234567890":
        target.changed.clear()
        await target.changed.wait()
    link.heal()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()


async def test_a_target_that_is_away_resets_the_connection() -> None:
    server = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with LinkProxy(port) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
