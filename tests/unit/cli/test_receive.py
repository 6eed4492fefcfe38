"""Receiving: printed, flushed, acknowledged; and what a lost answer or an ended lease changes."""

from __future__ import annotations

import asyncio
import errno
import io
import itertools
import json
from typing import Any

import pytest
from aiohttp import web

from bridge.cli import main
from bridge.cli.encode import encode_json, encode_text
from bridge.cli.readers import Browser, Deadline, Printer, QueueReader
from bridge.client.node_client import Connection, NodeClient, Problem, Unreachable
from tests.fakes.node import FakeNode
from tests.harness.eventually import until


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.retry.FIRST_RETRY_S", 0.001)
    monkeypatch.setattr("bridge.cli.readers.LOOK_AGAIN_S", 0.001)


def fill(node: FakeNode, *bodies: bytes) -> None:
    for body in bodies:
        node._store(node._address("orders"), body, None)


def reader(
    client: NodeClient, *, count: int | None = None, timeout_s: float | None = 0.0
) -> tuple[QueueReader, io.BytesIO]:
    out = io.BytesIO()
    printer, deadline = Printer(out, count=count), Deadline(timeout_s)
    return QueueReader(client, "orders", "billing", printer, deadline, create=True), out


async def test_a_missing_queue_is_made_from_the_earliest_message() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"a", b"b\xff")
        found, out = reader(client)
        await found.read()
        assert out.getvalue() == b"a\nb\xff\n"
        assert node.addresses["orders"].settled["billing"] == {0, 1}


async def test_messages_beyond_the_count_are_neither_leased_nor_acknowledged() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"a", b"b", b"c")
        found, out = reader(client, count=2, timeout_s=None)
        await found.read()
        assert out.getvalue() == b"a\nb\n"
        assert node.addresses["orders"].settled["billing"] == {0, 1}
        assert node.addresses["orders"].leases["billing"] == {}


async def test_a_missing_queue_is_an_error_where_none_is_to_be_made() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"a")
        found, _ = reader(client)
        found.create = False
        with pytest.raises(Problem, match="queue"):
            await found.read()
        assert "billing" not in node.addresses["orders"].settled


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(errno.ENOSPC, "no room"), OSError(errno.EBADF, "")]
)
async def test_nothing_is_acknowledged_before_it_has_been_flushed(error: OSError) -> None:
    class Disk(io.BytesIO):
        def flush(self) -> None:
            assert node.addresses["orders"].settled["billing"] == set()
            raise error

    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"a")
        found = QueueReader(client, "orders", "billing", Printer(Disk()), Deadline(0.0), create=True)
        with pytest.raises(type(error)):
            await found.read()
        assert node.addresses["orders"].settled["billing"] == set()
        assert node.addresses["orders"].leases["billing"] == {}, "not released for the next reader"


async def test_a_lease_that_ended_prints_nothing_twice() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"a", b"b")
        endings = itertools.chain([True], itertools.repeat(False))

        def before(request: web.Request) -> None:
            if request.path.endswith("/acknowledge") and next(endings):
                node.end_leases("orders", "billing")

        node.before = before
        found, out = reader(client)
        await found.read()
        assert out.getvalue() == b"a\nb\n"
        assert node.addresses["orders"].settled["billing"] == {0, 1}
        assert sum(call.endswith("/acknowledge") for call in node.calls) == 2


async def test_what_another_reader_gave_back_is_printed_although_its_position_is_lower() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"theirs", b"ours")
        node.addresses["orders"].settled["billing"] = set()
        node.addresses["orders"].leases["billing"] = {"other": [0]}
        found, out = reader(client, count=2, timeout_s=5.0)
        reading = asyncio.create_task(found.read())
        await until(lambda: bool(node.addresses["orders"].settled["billing"]), "they are acknowledged")
        node.end_leases("orders", "billing")
        await reading
        assert out.getvalue() == b"ours\ntheirs\n"


async def test_an_acknowledgement_whose_answer_is_lost_is_sent_again() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"a")
        losses = itertools.chain(["lose"], itertools.repeat("answer"))
        node.after = lambda request: next(losses) if request.path.endswith("/acknowledge") else "answer"
        found, out = reader(client)
        await found.read()
        assert out.getvalue() == b"a\n"
        assert node.addresses["orders"].settled["billing"] == {0}


async def test_a_reader_that_waits_goes_on_after_the_node_was_away() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"a")
        answers = itertools.chain(["answer"] * 4, ["lose"] * 3, itertools.repeat("answer"))

        def after(_: web.Request) -> str:
            verdict = next(answers)
            if verdict == "lose":
                node.end_leases("orders", "billing")  # the lease died with the answer
            return verdict

        node.after = after
        found, out = reader(client, count=2, timeout_s=None)
        reading = asyncio.create_task(found.read())
        await until(lambda: bool(node.addresses["orders"].settled.get("billing")), "they are acknowledged")
        fill(node, b"b")
        await reading
        assert out.getvalue() == b"a\nb\n"


async def test_a_page_whose_answer_was_lost_comes_before_what_follows_it() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"a")
        found, out = reader(client, count=3, timeout_s=None)
        losses = iter(["answer"] * 3 + ["lose"])  # the queue is made, a page, its end; the next page is lost
        node.after = lambda _: next(losses, "answer")
        reading = asyncio.create_task(found.read())
        await until(lambda: bool(node.addresses["orders"].settled.get("billing")), "they are acknowledged")
        fill(node, b"b")
        await until(
            lambda: any(call == "GET /v1/addresses/orders" for call in node.calls), "the address is asked for"
        )
        fill(node, b"c")
        asked = len(node.calls)
        await until(lambda: len(node.calls) > asked + 2, "it asks again")
        assert out.getvalue() == b"a\n"
        node.end_leases("orders", "billing")
        await reading
        assert out.getvalue() == b"a\nb\nc\n"


async def test_a_node_that_was_never_there_is_an_error() -> None:
    async with FakeNode() as node:
        url = node.url
    async with NodeClient(Connection(url)) as client:
        found, _ = reader(client, timeout_s=0.0)
        with pytest.raises(Unreachable, match="Connection refused"):
            await found.read()


def arguments_for(node: FakeNode, *more: str) -> list[str]:
    return ["receive", "--url", node.url, "--address", "orders", *more]


@pytest.mark.parametrize(
    "how", [["--queue", "billing", "--create"], ["--timeout", "5"]], ids=["queue", "browse"]
)
async def test_a_node_without_an_answer_is_told_once_and_asked_again(
    how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeNode() as node:
        fill(node, b"a")
        refusals = itertools.chain([(503, "STOPPING")] * 3, itertools.repeat(None))
        node.before = lambda _: next(refusals)
        assert await asyncio.to_thread(main, arguments_for(node, "--count", "1", *how)) == 0
    told = capsys.readouterr()
    assert told.out == "a\n"
    assert told.err == "core-bridge: STOPPING: stopping; trying again\n"


@pytest.mark.parametrize("how", [["--queue", "billing", "--create"], []], ids=["queue", "browse"])
async def test_a_node_that_is_gone_at_the_end_of_the_timeout_is_no_empty_queue(
    how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    async with FakeNode() as node:
        fill(node, b"a")
        # the queue: missing, made, a page, its end; the address: a page
        answers = itertools.chain(["answer"] * (3 if how else 1), itertools.repeat("lose"))
        node.after = lambda _: next(answers)
        assert await asyncio.to_thread(main, arguments_for(node, "--timeout", "0.1", *how)) == 1
    told = capsys.readouterr()
    assert told.out == "a\n"
    assert told.err.splitlines()[-1].startswith("core-bridge: UNREACHABLE: GET ")


async def test_a_timeout_on_an_empty_queue_ends_well_after_the_node_was_away() -> None:
    asked = 0

    def answer(_: object) -> tuple[int, str] | None:
        nonlocal asked
        asked += 1
        return (503, "STOPPING") if asked <= 3 else None

    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        node.before = answer
        found, out = reader(client)
        # All the time passes once the node is back, however slow this machine is.
        found.deadline = Deadline(0.3, clock=lambda: float(asked > 3))
        await found.read()
        assert asked > 3
        assert out.getvalue() == b""


async def test_a_refusal_ends_the_reading() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        node.before = lambda _: (403, "FORBIDDEN")
        found, _ = reader(client)
        with pytest.raises(Problem, match="forbidden"):
            await found.read()


async def test_browsing_changes_nothing_and_ends_with_what_is_there() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, *(b"%d" % number for number in range(1200)))
        out = io.BytesIO()
        await Browser(client, "orders", Printer(out), Deadline(0.0)).read()
        assert out.getvalue().split() == [b"%d" % number for number in range(1200)]
        assert {call.split()[0] for call in node.calls} == {"GET"}


async def test_browsing_with_a_count_waits_for_more() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        fill(node, b"a")
        out = io.BytesIO()
        browser = Browser(client, "orders", Printer(out, count=2), Deadline(5.0))
        reading = asyncio.create_task(browser.read())
        await until(lambda: len(node.calls) >= 3, "it has asked three times")
        fill(node, b"b", b"c")
        await reading
        assert out.getvalue() == b"a\nb\n"


def test_the_deadline_counts_from_the_last_message() -> None:
    now = 100.0
    deadline = Deadline(2.0, clock=lambda: now)
    now = 101.5
    deadline.restart()
    now = 103.0
    assert deadline.left_s == 0.5
    assert not deadline.over
    now = 103.5
    assert deadline.over


def test_without_a_timeout_there_is_no_deadline() -> None:
    assert not Deadline(None, clock=lambda: 1e12).over


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ({"body": b"text"}, {"body": "text"}),
        ({"body": b"\xff"}, {"body-base64": "/w=="}),
        ({"body": None}, {"body": None}),
        ({"body": "from JSON"}, {"body": "from JSON"}),
        ({"body-base64": "/w=="}, {"body-base64": "/w=="}),
        (
            {"body": b"", "key": b"k", "headers": {"a": b"\xfe", "b": [b"1", None]}, "duplicate-id": b"id"},
            {
                "body": "",
                "key": "k",
                "headers": {"a": {"base64": "/g=="}, "b": ["1", None]},
                "duplicate-id": "id",
            },
        ),
    ],
)
def test_json_output_keeps_every_byte(message: dict[str, Any], shown: dict[str, Any]) -> None:
    line = encode_json({"position": 3} | message)
    assert line.endswith(b"\n")
    assert json.loads(line) == {"position": 3} | shown


def test_text_output_is_the_body_and_a_newline_whatever_the_body_holds() -> None:
    assert encode_text({"position": 0, "body": b"\x00\xff"}) == b"\x00\xff\n"
    assert encode_text({"position": 0, "body": None}) == b"\n"
