"""Commands act on the node whose settings file they are given, with the tokens and certificate in it."""

from __future__ import annotations

from pathlib import Path

from tests.harness.certificates import client_tls
from tests.harness.commands import command
from tests.harness.eventually import eventually
from tests.harness.node import MakeNode

BRIDGE = "orders-to-copy"
COPY = (
    f'[[bridges]]\nname = "{BRIDGE}"\nqueue-name = "orders"\nstatic-connectors = ["journal"]\n'
    'forwarding-address = "copy"\n'
)


def test_every_command_finds_the_node_by_its_settings_file(make_node: MakeNode, certificates: Path) -> None:
    """The file's ports, its operator's tokens, and its certificate, signed by no authority of the system."""
    acceptor = f'certificate = "{certificates}/node.pem"\nkey = "{certificates}/node.key"\n'
    node = make_node(
        scheme="wss",
        acceptor=f'{acceptor}tokens = ["of-clients"]\n',
        operations='tokens = ["of-operators"]',
        tls=client_tls(certificates),
        token="of-clients",
        rest=COPY,
    ).start()
    file = ("--settings", str(node.file))
    for verb, state in (("pause", "PAUSED"), ("stop", "STOPPED")):
        ended = command(verb, BRIDGE, *file)
        assert (ended.code, ended.out, ended.err) == (0, f"{BRIDGE}: {state}\n", "")
    assert node.bridge_state(BRIDGE) == "STOPPED"
    sent = command("send", "--address", "orders", *file, data=b"a\nb\n")
    assert (sent.code, sent.out, sent.err) == (0, "stored 2 duplicates 0\n", "")
    got = command("receive", "--address", "orders", "--queue", "q", "--create", "--count", "2", *file)
    assert (got.code, got.out) == (0, "a\nb\n")
    assert command("start", BRIDGE, *file).code == 0
    eventually(lambda: node.lag("orders") == 0, "it relays again")
    status = command("status", *file)
    assert (status.code, status.err) == (0, "")
    first, *lines = status.out.splitlines()
    assert first == "node node ready"
    assert any(line.startswith(f"bridge {BRIDGE} ") for line in lines)
    assert any(line.startswith("address orders ") for line in lines)
    assert command("cache", "show", "orders", *file).out == "entries 1 capacity 20000 persisted true\n"
    assert command("dead-letters", "list", *file).code == 0


def test_a_file_in_the_working_directory_and_one_that_the_environment_names(
    make_node: MakeNode, tmp_path: Path
) -> None:
    node = make_node().start()
    variable = {"CORE_BRIDGE_SETTINGS": str(node.file)}
    assert command("status", variables=variable).out.startswith("node node ready\n")
    directory = tmp_path / "etc"
    directory.mkdir()
    (directory / "settings.toml").write_bytes(node.file.read_bytes())
    assert command("status", cwd=directory).out.startswith("node node ready\n")


def test_a_file_that_does_not_exist_is_named_and_no_node_is_asked(make_node: MakeNode) -> None:
    node = make_node()
    missing = node.directory / "hub.toml"
    for arguments in (["status"], ["pause", "b"], ["send", "--address", "a"], ["cache", "clear", "a"]):
        ended = command(*arguments, "--settings", str(missing))
        assert (ended.code, ended.out) == (2, "")
        told = f"{missing}: must be a file that can be read; found no such file or directory\n1 problem\n"
        assert ended.err == told


def test_an_option_that_means_nothing_for_a_command_is_refused(make_node: MakeNode) -> None:
    node = make_node()
    ended = command("run", "--settings", str(node.write()), "--url", "http://127.0.0.1:1")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("core-bridge run: error: --url means nothing for 'run'\n")
