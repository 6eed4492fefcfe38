"""Sending against a node that loses answers, is busy, or refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from bridge.cli import main
from bridge.cli.line_ids import BadLine, duplicate_id
from bridge.cli.send import Sender
from bridge.client.input_lines import Line
from bridge.client.node_client import Connection, NodeClient, Problem, Unreachable
from bridge.client.retry import RETRY_FOR_S
from tests.fakes.node import FakeNode


def lines(*bodies: bytes) -> list[Line]:
    return [Line(number, body) for number, body in enumerate(bodies, 1)]


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.client.retry.FIRST_RETRY_S", 0.001)


async def test_a_transaction_whose_answer_is_lost_is_sent_again_and_stored_once() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        losses = itertools.chain(["lose", "lose"], itertools.repeat("answer"))
        node.after = lambda _: next(losses)
        sender = Sender(client, "orders")
        await sender.send(lines(b"a", b"b"))
        await sender.send(lines(b"c"))
        assert node.bodies("orders") == [b"a", b"b", b"c"]
        assert len(node.calls) == 4
        assert (sender.totals.stored, sender.totals.duplicates) == (3, 0)


async def test_equal_lines_and_equal_batches_are_different_messages() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        sender = Sender(client, "orders")
        await sender.send(lines(b"same", b"same"))
        await sender.send(lines(b"same", b"same"))
        await Sender(client, "orders").send(lines(b"same"))
        assert node.bodies("orders") == [b"same"] * 5


async def test_ids_from_a_field_are_skipped_where_the_node_knows_them() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        await Sender(client, "orders", "id").send(lines(b'{"id":"a"}', b'{"id":"b"}'))
        again = Sender(client, "orders", "id")
        await again.send(lines(b'{"id":"b"}', b'{"id":17}', b'{"id":"a"}'))
        assert (again.totals.stored, again.totals.duplicates) == (1, 2)
        assert node.bodies("orders") == [b'{"id":"a"}', b'{"id":"b"}', b'{"id":17}']


async def test_a_busy_node_is_asked_again() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        refusals = itertools.chain([(503, "TOO_BUSY")] * 3, itertools.repeat(None))
        node.before = lambda _: next(refusals)
        sender = Sender(client, "orders")
        await sender.send(lines(b"a"))
        assert node.bodies("orders") == [b"a"]


async def test_duplicates_after_a_lost_answer_may_be_this_runs_own_and_are_told_apart() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        losses = itertools.chain(["lose"], itertools.repeat("answer"))
        node.after = lambda _: next(losses)
        sender = Sender(client, "orders", "id")
        await sender.send(lines(b'{"id":"a"}', b'{"id":"b"}'))
        await sender.send(lines(b'{"id":"a"}', b'{"id":"c"}'))
        assert node.bodies("orders") == [b'{"id":"a"}', b'{"id":"b"}', b'{"id":"c"}']
        totals = sender.totals
        assert (totals.stored, totals.duplicates, totals.uncertain) == (1, 3, 2)


async def test_a_refusal_is_not_tried_again() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        node.before = lambda _: (413, "MESSAGE_TOO_LARGE")
        with pytest.raises(Problem) as refused:
            await Sender(client, "orders").send(lines(b"a"))
        assert refused.value.code == "MESSAGE_TOO_LARGE"
        assert len(node.calls) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    """Another server's word does not move messages and token there."""
    async with FakeNode() as node, FakeNode() as other, NodeClient(Connection(node.url, "s3cret")) as client:
        node.before = lambda _: (status, "ELSEWHERE")
        node.leads_to = other.url
        with pytest.raises(Problem, match=f"it redirects to {other.url}, which is not followed"):
            await Sender(client, "orders").send(lines(b"a"))
        assert other.calls == []


async def test_a_node_that_never_answers_is_given_up() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        node.after = lambda _: "lose"
        with pytest.raises(Unreachable):
            await Sender(client, "orders", retry_for_s=0.02).send(lines(b"a"))
        assert node.bodies("orders") == [b"a"]  # once, however often there was time to ask


def test_help_and_readme_say_when_the_node_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    limit = f"{RETRY_FOR_S:g} s"
    assert main(["send", "--help"]) == 0
    assert f"{limit} without one `send` gives up with 1" in capsys.readouterr().out
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert f"The sender asks again until the node is back, for {limit} at most" in readme


async def test_plain_posts_are_retried_safely_too() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        losses = itertools.chain(["lose"], itertools.repeat("answer"))
        node.after = lambda _: next(losses)
        sender = Sender(client, "orders", plain=True)
        await sender.send(lines(b"a\xff"))
        await sender.send(lines(b"a\xff"))
        assert node.bodies("orders") == [b"a\xff", b"a\xff"]
        assert (sender.totals.stored, sender.totals.duplicates) == (2, 0)


async def test_a_plain_post_with_a_known_id_counts_as_duplicate() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        sender = Sender(client, "orders", "id", plain=True)
        await sender.send(lines(b'{"id":"a"}'))
        await sender.send(lines(b'{"id":"a","x":1}'))
        assert node.bodies("orders") == [b'{"id":"a"}']
        assert sender.totals.line("text") == "stored 1 duplicates 1"
        assert sender.totals.line("json") == '{"stored": 1, "duplicates": 1}'


async def test_nothing_of_a_batch_is_sent_when_a_line_has_no_id() -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        with pytest.raises(BadLine, match="line 2"):
            await Sender(client, "orders", "id").send(lines(b'{"id":"a"}', b"{}"))
        assert node.calls == []


@pytest.mark.parametrize(
    "body",
    [b"no json", b"[1]", b'{"id":""}', b'{"id":1.5}', b'{"id":true}', b'{"id":null}', b"\xff", b'"id"'],
)
def test_what_holds_no_id_is_refused_with_its_line(body: bytes) -> None:
    """D3: an empty ID, or one that is no text, is refused (whole numbers: their decimal text)."""
    with pytest.raises(BadLine, match="line 7"):
        duplicate_id(Line(7, body), "id")


@pytest.mark.parametrize("line_id", [" a", "a\tb", "a\n"])
async def test_an_id_that_a_header_would_change_is_refused(line_id: str) -> None:
    async with FakeNode() as node, NodeClient(Connection(node.url)) as client:
        body = b'{"id":"%s"}' % line_id.encode("unicode_escape")
        with pytest.raises(BadLine, match="printable"):
            await Sender(client, "orders", "id", plain=True).send(lines(body))
        assert node.calls == []
