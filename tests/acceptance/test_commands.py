"""The contract's "Command line" against real nodes: what `test_cli.py` does not tell already."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.demo.ports import free_ports
from tests.harness.api import titles
from tests.harness.certificates import client_tls
from tests.harness.commands import command, environment
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode, Node, bridge_to, start_together

COMMANDS = [
    "run",
    "validate",
    "demo",
    "send",
    "receive",
    "status",
    "ready",
    "start",
    "stop",
    "pause",
    "resume",
    "failback",
    "cache",
]
CACHE = ["cache show", "cache clear", "cache resize"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_with_an_example_and_exit_codes(name: str) -> None:
    ended = command(name, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert f"core-bridge {name}" in ended.out
    assert "example" in ended.out
    assert "exit codes" in ended.out


CALL = ["--settings", "--token", "--ca", "--certificate", "--key", "--format"]


@pytest.mark.parametrize("name", [*(name for name in COMMANDS if name != "cache"), *CACHE])
def test_every_command_takes_the_common_options_that_mean_something_for_it(name: str) -> None:
    ended = command(*name.split(), "--help")
    assert ended.code == 0
    taken = {
        "run": ["--settings"],
        "validate": ["--settings", "--format"],
        "demo": ["--format"],
        "send": [*CALL, "--url"],
        "receive": [*CALL, "--url"],
        "status": [*CALL, "--url", "--operations"],
    }.get(name, [*CALL, "--operations"])
    for option in [*CALL, "--url", "--operations"]:
        assert (f"\n  {option} " in ended.out) == (option in taken), option


def test_help_lists_every_command() -> None:
    ended = command("--help")
    assert ended.code == 0
    assert all(name in ended.out for name in COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["send"], ["receive"], ["start"], ["status", "--format", "xml"],
     ["send", "--adress", "a"],
     ["cache", "resize", "orders"], ["send", "--address", "a", "--batch", "0"], ["dead-letters", "replay"]],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    ended = command(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_send_and_receive_by_either_scheme(node: Node, address: str, scheme: str) -> None:
    where = ("--url", f"{scheme}://127.0.0.1:{node.port}", "--address", address)
    sent = command("send", *where, data=b"a\n\nb\r\nlast without newline")
    assert (sent.code, sent.out) == (0, "stored 3 duplicates 0\n")
    got = command("receive", *where, "--queue", "q", "--create", "--count", "3")
    assert (got.code, got.out) == (0, "a\nb\r\nlast without newline\n")
    assert node.api.lease(address, "q") == (None, []), "acknowledged"


def test_empty_lines_are_kept_on_request_and_a_file_is_read(node: Node, address: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"a\n\nb\n")
    where = ("--url", node.url, "--address", address)
    assert command("send", *where, "--keep-empty", str(tmp_path / "lines")).out == "stored 3 duplicates 0\n"
    assert titles(node.api.browse(address)) == ["a", "", "b"]
    assert command("send", *where, "-", data=b"c\n").out == "stored 1 duplicates 0\n"


def test_an_input_that_is_no_file_is_wrong_usage_and_named(tmp_path: Path) -> None:
    nowhere = ("--url", f"http://127.0.0.1:{free_ports(1)[0]}", "--address", "a")
    missing = tmp_path / "missing"
    ended = command("send", *nowhere, str(missing))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"core-bridge: {missing}: no such file or directory\n"
    ended = command("send", *nowhere, str(tmp_path))
    assert (ended.code, ended.out, ended.err) == (2, "", f"core-bridge: {tmp_path}: is a directory\n")


def test_results_as_json(node: Node, address: str) -> None:
    where = ("--url", node.url, "--address", address, "--format", "json")
    lines = b'{"id":"a"}\n{"id":"b"}\n{"id":"a"}\n'
    sent = command("send", *where, "--duplicate-id-from", "id", data=lines)
    assert json.loads(sent.out) == {"stored": 2, "duplicates": 1}
    got = command("receive", *where, "--queue", "q", "--create", "--timeout", "0")
    messages = [json.loads(line) for line in got.out.splitlines()]
    assert [(m["body"], m["duplicate-id"]) for m in messages] == [('{"id":"a"}', "a"), ('{"id":"b"}', "b")]
    fewer = command("receive", *where, "--queue", "q", "--create", "--count", "1", "--timeout", "0.1")
    assert (fewer.code, fewer.out) == (1, "")


def test_a_node_that_is_not_there_ends_with_1_and_is_named() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    for arguments in (
        ["receive", "--url", url, "--address", "a", "--timeout", "0"],
        ["status", "--operations", url],
        ["stop", "orders-to-hub", "--operations", url],
        ["cache", "show", "orders", "--operations", url],
    ):
        ended = command(*arguments)
        assert (ended.code, ended.out) == (1, "")
        assert url.removeprefix("http://") in ended.err


@pytest.mark.parametrize(
    "how", [["--queue", "q"], ["--queue", "q", "--create", "--count", "1"], []], ids=" ".join
)
def test_a_reader_takes_no_dead_node_for_an_empty_queue(how: list[str]) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    ended = command("receive", "--url", url, "--address", "a", "--timeout", "0.5", *how)
    assert (ended.code, ended.out) == (1, "")
    first, last = ended.err.splitlines()
    for line in (first.removesuffix("; trying again"), last):
        assert line.startswith(f"core-bridge: UNREACHABLE: GET {url}/v1/addresses/a")
        assert line.endswith(": Connection refused")
    assert first.endswith("; trying again")


@pytest.mark.parametrize("table", ["acceptor", "operations"])
def test_an_address_that_cannot_be_listened_on_is_named_with_its_key(
    table: str, make_node: MakeNode, node: Node
) -> None:
    tokens = 'tokens = ["a-token-that-is-long-enough-for-it"]'
    other = make_node("other", acceptor=f"insecure = true\n{tokens}", operations=tokens)
    settings = other.write().read_text(encoding="utf-8")
    own, scheme = {
        "acceptor": (other.port, "ws"),
        "operations": (other.operations_port, "http"),
    }[table]
    for address, rule in (
        (f"127.0.0.1:{node.port}", "must be free: something listens there (address already in use)"),
        # TEST-NET-1 is nobody's
        ("192.0.2.1:61616", "must be an address of this machine (cannot assign requested address)"),
        ("no-such-host.invalid:61616", "must be an address of this machine ("),
    ):
        other.file.write_text(settings.replace(f"127.0.0.1:{own}", address), encoding="utf-8")
        ended = other.run_to_its_end()
        assert ended.code == 1, ended.err
        last = ended.err.splitlines()[-1]
        assert last.startswith(f"core-bridge: {table}.url: {rule}"), ended.err
        assert last.endswith(f"; found {scheme}://{address}"), ended.err


def test_a_bridge_is_operated_and_seen(make_node: MakeNode) -> None:
    hub = make_node("hub")
    edge = make_node("edge", rest=bridge_to(hub))
    start_together(hub, edge)
    edge.await_state("orders-to-hub", "RUNNING")
    where = ("--operations", f"http://127.0.0.1:{edge.operations_port}")
    for verb, state in (("pause", "PAUSED"), ("stop", "STOPPED")):
        ended = command(verb, "orders-to-hub", *where)
        assert (ended.code, ended.out, ended.err) == (0, f"orders-to-hub: {state}\n", "")
    forbidden = command("resume", "orders-to-hub", *where)
    assert (forbidden.code, forbidden.out) == (1, "")
    assert forbidden.err.startswith("core-bridge: CONFLICT: ")
    started = command("start", "orders-to-hub", *where, "--format", "json")
    assert started.code == 0
    assert json.loads(started.out)["bridge"] == "orders-to-hub"
    edge.await_state("orders-to-hub", "RUNNING")
    shown = command("status", *where, "--url", edge.url)
    assert shown.code == 0
    assert (
        "bridge orders-to-hub RUNNING journal:orders -> hub sent 0 acknowledged 0 in-flight 0 lag 0"
        in shown.out
    )
    as_json = json.loads(command("status", *where, "--url", edge.url, "--format", "json").out)
    assert as_json["bridges"][0]["state"] == "RUNNING"


def test_a_token_and_tls_open_the_node(make_node: MakeNode, certificates: Path) -> None:
    acceptor = (
        f'certificate = "{certificates}/node.pem"\nkey = "{certificates}/node.key"\ntokens = ["s3cret"]\n'
    )
    node = make_node(scheme="wss", acceptor=acceptor, tls=client_tls(certificates), token="s3cret").start()
    for scheme in ("wss", "https"):
        where = ("--url", f"{scheme}://localhost:{node.port}", "--address", "orders")
        trusted = (*where, "--ca", str(certificates / "authority.pem"))
        assert command("send", *trusted, "--token", "s3cret", data=b"a\n").code == 0
        assert command("send", *trusted, data=b"b\n", variables={"CORE_BRIDGE_TOKEN": "s3cret"}).code == 0
        refused = command("send", *trusted, "--token", "wrong", data=b"c\n")
        assert (refused.code, refused.out) == (1, "stored 0 duplicates 0\n")
        assert "UNAUTHENTICATED" in refused.err
    assert titles(node.api.browse("orders")) == ["a", "b", "a", "b"]


def test_results_go_to_stdout_and_logs_to_stderr(make_node: MakeNode) -> None:
    node = make_node()
    node.write()
    process = subprocess.Popen(
        [sys.executable, "-m", "bridge", "run", "--settings", str(node.file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        eventually(lambda: node.ops.get("/ready").status == 200, "it is ready")
        process.terminate()
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, b"")
    assert [json.loads(line)["event"] for line in err.splitlines()] == ["listening", "stopped"]


PROXY = dict.fromkeys(("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"), "http://127.0.0.1:9")


def test_ready_asks_the_node_of_the_settings_and_no_proxy(make_node: MakeNode) -> None:
    node = make_node()
    where = ["--settings", str(node.write())]
    ended = command("ready", "--alive", *where, variables=PROXY)
    assert (ended.code, ended.out) == (1, "")
    assert "UNREACHABLE" in ended.err
    node.start()
    for arguments, text, value in (
        (["ready"], "ready", {"ready": True, "reasons": [], "bridges": {}}),
        (["ready", "--alive"], "alive", {"alive": True}),
    ):
        assert command(*arguments, *where, variables=PROXY).out == f"{text}\n"
        assert json.loads(command(*arguments, *where, "--format", "json").out) == value


def test_a_node_without_operations_is_alive_by_its_acceptor(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(
        acceptor='tokens = ["t"]',
    ).start()
    settings = tmp_path / "other.toml"
    settings.write_text(
        node.file.read_text().replace("[operations]", "[connectors.x]").replace("http://", "ws://")
    )
    where = ["--settings", str(settings)]
    assert command("ready", "--alive", *where, variables=PROXY).out == "alive\n"
    ended = command("ready", *where)
    assert (ended.code, ended.out) == (2, "")
    assert "[operations] is absent" in ended.err


def test_a_refused_transaction_names_the_line_that_is_too_large(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node(acceptor='max-message-size = "64KiB"').start()
    lines = tmp_path / "lines"
    lines.write_text(f"a\n\n{'z' * 70_000}\nc\n")
    for batch in ("500", "1"):
        where = ["--address", "o", "--settings", str(node.file), "--batch", batch]
        ended = command("send", *where, str(lines))
        assert ended.code == 1
        assert ended.err.startswith("core-bridge: MESSAGE_TOO_LARGE: line 3: ")
        assert "65536 bytes; found 70000" in ended.err


def test_a_reader_whose_output_is_closed_says_so_and_releases_its_lease(make_node: MakeNode) -> None:
    node = make_node().start()
    assert node.api.send("orders", b"x").status == 200
    receive = f"{sys.executable} -m bridge receive --settings {node.file} --address orders --queue q --create"
    ended = subprocess.run(
        ["sh", "-c", f"{receive} --count 1 >&-"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[1:] == ["core-bridge: [Errno 9] standard output is closed"]
    got = command(
        "receive", "--settings", str(node.file), "--address", "orders", "--queue", "q", "--count", "1"
    )
    assert got.out == "x\n"


def test_a_data_directory_that_is_none_is_named_for_what_it_is(make_node: MakeNode) -> None:
    node = make_node()
    node.write()
    node.data.symlink_to("not-mounted")
    for what in (
        "it is a link to not-mounted, which is not there; mount its volume",
        "it is a file; move it away",
    ):
        ended = node.run_to_its_end()
        assert ended.code == 1
        assert f"cannot write in the data directory {node.data}: {what}" in ended.err
        node.data.unlink()
        node.data.touch()
