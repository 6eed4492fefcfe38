"""The commands against a real node: processes, files, pipes and signals, as a user has them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.demo.nodes import DemoFailed, Node
from bridge.demo.ports import free_ports
from tests.harness.commands import environment, to_its_end

#: Longest that any command of these tests may take, in seconds.
PATIENCE_S = 30.0
#: Of a reader whose queue was not there.
MADE = "core-bridge: made queue billing of orders, from its earliest message on\n"

Send = Callable[..., Awaitable["Ended"]]


@dataclass(frozen=True)
class Ended:
    code: int
    out: bytes
    err: str


async def start(*arguments: str, **environment: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bridge", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | environment,
    )


async def finish(process: asyncio.subprocess.Process, data: bytes = b"") -> Ended:
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate(data)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    assert "Traceback" not in err.decode()
    return Ended(process.returncode, out, err.decode())


async def command(*arguments: str, data: bytes = b"") -> Ended:
    code, out, err = await asyncio.to_thread(
        to_its_end, arguments, environment(), data=data, timeout_s=PATIENCE_S
    )
    return Ended(code, out, err.decode())


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    port, operations_port = free_ports(2)
    node = Node("node", tmp_path, operations_port, port=port)
    node.configure(id_cache_size=20_000)
    try:
        await node.start()
    except DemoFailed as failed:
        pytest.fail(f"{failed}\n{failed.log}")
    try:
        yield node
        assert await node.stop() == 0
    finally:
        node.kill_now()


def url(node: Node) -> tuple[str, str]:
    return "--url", node.connection.url


def operations(node: Node) -> tuple[str, str]:
    return "--operations", f"http://127.0.0.1:{node.operations_port}"


async def send(node: Node, data: bytes, *options: str) -> Ended:
    return await command("send", *url(node), "--address", "orders", *options, data=data)


async def receive(node: Node, *options: str) -> Ended:
    return await command("receive", *url(node), "--address", "orders", *options)


BODIES = [b"plain", b"with \r", b"\xff\xfe\x00", "Zürich".encode(), b'{"json":1}']


@pytest.mark.parametrize("batch", ["1", "2", "500"])
async def test_what_is_sent_is_received_byte_for_byte_and_in_order(node: Node, batch: str) -> None:
    sent = await send(node, b"\n".join([*BODIES, b"", b"last"]), "--batch", batch)
    assert (sent.code, sent.out, sent.err) == (0, b"stored 6 duplicates 0\n", "")
    got = await receive(node, "--queue", "billing", "--create", "--timeout", "0")
    assert (got.code, got.out, got.err) == (0, b"\n".join([*BODIES, b"last", b""]), MADE)
    again = await receive(node, "--queue", "billing", "--create", "--timeout", "0")
    assert (again.code, again.out) == (0, b"")
    other = await receive(node, "--queue", "shipping", "--create", "--count", "6")
    assert other.out == got.out


async def test_a_file_sent_twice_by_its_ids_is_stored_once(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_bytes(b"".join(b'{"id":"order-%d","n":%d}\n' % (number, number) for number in range(1200)))
    arguments = ("send", *url(node), "--address", "orders", "--duplicate-id-from", "id", str(path))
    first = await command(*arguments)
    assert first.out == b"stored 1200 duplicates 0\n"
    with path.open("ab") as file:
        file.write(b'{"id":"order-new"}\n')
    second = await command(*arguments, "--format", "json", "--batch", "7")
    assert json.loads(second.out) == {"stored": 1, "duplicates": 1200}
    one_by_one = await command("send", *url(node), "--address", "orders", "--batch", "1", data=b"")
    assert one_by_one.out == b"stored 0 duplicates 0\n"
    got = await receive(node, "--queue", "billing", "--create", "--timeout", "0")
    assert got.out == path.read_bytes()


async def test_an_id_is_the_same_in_a_plain_post_and_in_a_transaction(node: Node) -> None:
    """D3: one canonical form, however the ID travels."""
    lines = '{"id":"plain"}\n{"id":"Zürich/1 2"}\n{"id":"a\\"b\\\\c"}\n'.encode()
    assert (await send(node, lines, "--duplicate-id-from", "id")).out == b"stored 3 duplicates 0\n"
    again = await send(node, lines, "--duplicate-id-from", "id", "--batch", "1")
    assert (again.out, again.err) == (b"stored 0 duplicates 3\n", "")


async def test_lines_without_an_id_end_the_sending_with_their_number(node: Node) -> None:
    ended = await send(node, b'{"id":"a"}\n{"no":1}\n', "--duplicate-id-from", "id")
    assert (ended.code, ended.out) == (1, b"stored 0 duplicates 0\n")
    assert ended.err == "core-bridge: BAD_LINE: line 2 is no JSON object with a field 'id'\n"


async def test_lines_go_while_the_input_stays_open(node: Node) -> None:
    sender = await start("send", *url(node), "--address", "orders")
    reader = await start(
        "receive", *url(node), "--address", "orders", "--queue", "billing", "--create", "--count", "2"
    )
    assert sender.stdin is not None
    assert reader.stdout is not None
    sender.stdin.write(b"first\n")
    assert await asyncio.wait_for(reader.stdout.readline(), PATIENCE_S) == b"first\n"
    sender.stdin.write(b"second\n")
    assert (await finish(reader)).out == b"second\n"
    ended = await finish(sender)
    assert (ended.code, ended.out) == (0, b"stored 2 duplicates 0\n")


async def test_sending_and_receiving_survive_the_death_of_the_node(node: Node) -> None:
    sender = await start("send", *url(node), "--address", "orders", "--batch", "50")
    reader = await start(
        "receive", *url(node), "--address", "orders", "--queue", "billing", "--create", "--count", "3000"
    )
    assert sender.stdin is not None
    assert reader.stdout is not None
    lines = [b"%d\n" % number for number in range(3000)]
    sender.stdin.writelines(lines[:1000])
    received = [await asyncio.wait_for(reader.stdout.readline(), PATIENCE_S) for _ in range(500)]
    sender.stdin.writelines(lines[1000:2000])
    await node.kill()
    sender.stdin.writelines(lines[2000:])
    await node.start()
    sent = await finish(sender)
    assert (sent.code, sent.out) == (0, b"stored 3000 duplicates 0\n")
    rest = await finish(reader)
    assert rest.code == 0
    assert received + rest.out.splitlines(keepends=True) == lines
    browsed = await receive(node, "--format", "json", "--timeout", "0")
    assert browsed.code == 0


async def test_a_page_skips_nothing_where_other_addresses_have_messages_in_between(node: Node) -> None:
    lines = [b"%d\n" % number for number in range(24)]
    for start_at in range(0, 24, 4):
        await send(node, b"".join(lines[start_at : start_at + 4]))
        await command("send", *url(node), "--address", "others", data=b"x\n" * 5)
    browsed = await receive(node, "--count", "9")
    assert browsed.out == b"".join(lines[:9])
    taken = await receive(node, "--queue", "billing", "--create", "--count", "9")
    assert taken.out == b"".join(lines[:9])
    rest = await receive(node, "--queue", "billing", "--create", "--timeout", "0")
    assert rest.out == b"".join(lines[9:])


async def test_fewer_messages_than_asked_for_end_with_1(node: Node) -> None:
    await send(node, b"only one\n")
    ended = await receive(node, "--queue", "billing", "--create", "--count", "2", "--timeout", "0.1")
    assert (ended.code, ended.out) == (1, b"only one\n")
    assert ended.err == f"{MADE}core-bridge: 1 of 2 messages came in time\n"


async def test_browsing_shows_everything_as_json_and_takes_nothing(node: Node) -> None:
    await send(node, b'{"id":"a"}\n', "--duplicate-id-from", "id")
    await send(node, b"\xff\n")
    for _ in range(2):
        ended = await receive(node, "--format", "json")
        first, second = map(json.loads, ended.out.splitlines())
        assert (first["position"], first["body"], first["duplicate-id"]) == (0, '{"id":"a"}', "a")
        assert (second["position"], second["body-base64"]) == (1, "/w==")


async def test_ctrl_c_ends_a_waiting_reader_with_130(node: Node) -> None:
    await send(node, b"before\n")
    reader = await start("receive", *url(node), "--address", "orders", "--queue", "billing", "--create")
    assert reader.stdout is not None
    assert await asyncio.wait_for(reader.stdout.readline(), PATIENCE_S) == b"before\n"
    reader.send_signal(signal.SIGINT)
    ended = await finish(reader)
    assert (ended.code, ended.err) == (130, MADE)


async def test_an_operator_sees_and_changes_the_node(node: Node) -> None:
    await send(node, b'{"id":"a"}\n{"id":"b"}\n', "--duplicate-id-from", "id")
    shown = await command("cache", "show", "orders", *operations(node))
    assert shown.out == b"entries 2 capacity 20000 persisted true\n"
    resized = await command("cache", "resize", "orders", "1", *operations(node), "--format", "json")
    assert json.loads(resized.out) == {"size": 1, "dropped": 1}
    assert resized.err == (
        "orders: capacity 20000 -> 1; forgets the oldest 1 of 2 duplicate IDs; "
        "messages that carry them are stored again\n"
    )
    tried = await command("cache", "clear", "orders", *operations(node), "--dry-run")
    plan = "orders: forgets the oldest 1 of 1 duplicate IDs; messages that carry them are stored again\n"
    assert (tried.code, tried.out, tried.err) == (0, b"", plan)
    cleared = await command("cache", "clear", "orders", *operations(node))
    assert (cleared.out, cleared.err) == (b"removed 1\n", plan)
    await receive(node, "--queue", "billing", "--create", "--count", "1")
    status = await command("status", *operations(node), *url(node), "--format", "json")
    found = json.loads(status.out)
    assert (status.code, found["ready"], found["addresses"][0]["address"]) == (0, True, "orders")
    text = await command("status", *operations(node), *url(node))
    first, *lines = text.out.decode().splitlines()
    assert first == "node node ready"
    assert "queue orders/billing next 1 lag 1 leased 0" in lines
    half = await command("status", *operations(node), "--url", "http://127.0.0.1:1")
    assert (half.code, half.out.splitlines()[0]) == (0, b"node node ready")
    assert b"address" not in half.out
    assert "the addresses are not shown: UNREACHABLE" in half.err
    missing = await command("stop", "no-such-bridge", *operations(node))
    assert (missing.code, missing.out) == (1, b"")
    assert missing.err.startswith("core-bridge: NOT_FOUND: ")


async def test_a_second_node_on_the_same_port_says_so_and_ends_with_1(node: Node, tmp_path: Path) -> None:
    directory = tmp_path / "second"
    directory.mkdir()
    second = Node("second", directory, free_ports(1)[0], port=node.port)
    second.configure(id_cache_size=100)
    ended = await command("run", "--settings", str(directory / "second.toml"))
    assert ended.code == 1
    assert str(node.port) in ended.err


async def test_settings_that_do_not_hold_end_run_with_2(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("[acceptor]\nurl = 17\n")
    ended = await command("run", "--settings", str(path))
    assert (ended.code, ended.out) == (2, b"")
    assert ended.err.endswith("1 problem\n")
    missing = await command("run", "--settings", str(tmp_path / "nowhere.toml"))
    assert missing.code == 2
