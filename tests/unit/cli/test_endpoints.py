"""Which node a command talks to: options, then the environment, then the settings file."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.cli import TAKES, build_parser, main, options
from bridge.cli.endpoints import node_connection, operations_connection
from bridge.client.node_client import Connection

FILE = """
[acceptor]
url = "ws://[::]:7001"
insecure = true
tokens = ["of-clients", "another"]
[operations]
url = "http://0.0.0.0:7002"
tokens = ["of-operators"]
[connectors.hub]
url = "wss://hub:61616"
token = "${NOBODY_SET_THIS}"
"""
PORT_0 = "with port 0 the file cannot tell which it is"
#: What each command needs besides options, as far as the parser looks.
VERBS = {"cache": "show", "dead-letters": "list", "journal": "new-incarnation", "cluster": "forget"}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in (options.SETTINGS_VARIABLE, options.TOKEN_VARIABLE):
        monkeypatch.delenv(variable, raising=False)


def chosen(*arguments: str) -> tuple[Connection, Connection]:
    """The acceptor and the operations that `status` asks."""
    parsed = build_parser("status").parse_args(["status", *arguments])
    return node_connection(parsed), operations_connection(parsed)


def urls_and_tokens(*arguments: str) -> list[tuple[str, str]]:
    return [(connection.url, connection.token) for connection in chosen(*arguments)]


def test_without_file_and_option_it_is_the_node_at_the_default_ports() -> None:
    assert urls_and_tokens() == [(options.DEFAULT_URL, ""), (options.DEFAULT_OPERATIONS, "")]


def test_a_file_says_where_the_node_is_and_who_the_operator_is() -> None:
    """Whatever other tables need, such as variables that are not set here."""
    Path("hub.toml").write_text(FILE)
    found = urls_and_tokens("--settings", "hub.toml")
    assert found == [("ws://[::1]:7001", "of-clients"), ("http://127.0.0.1:7002", "of-operators")]


def test_the_file_of_the_working_directory_counts_unless_a_url_is_given() -> None:
    Path("settings.toml").write_text(FILE)
    assert urls_and_tokens()[1] == ("http://127.0.0.1:7002", "of-operators")
    assert urls_and_tokens("--operations", "http://other:1", "--url", "http://other:2") == [
        ("http://other:2", ""),
        ("http://other:1", ""),
    ], "no token for another node"


def test_options_and_the_environment_come_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("hub.toml").write_text(FILE)
    monkeypatch.setenv(options.SETTINGS_VARIABLE, "hub.toml")
    assert urls_and_tokens("--operations", "http://other:1")[1] == ("http://other:1", "of-operators")
    monkeypatch.setenv(options.TOKEN_VARIABLE, "of-the-environment")
    assert urls_and_tokens()[1] == ("http://127.0.0.1:7002", "of-the-environment")
    assert urls_and_tokens("--token", "given")[1] == ("http://127.0.0.1:7002", "given")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "core-bridge: hub.toml: [operations] is absent: the node does not open it; give --operations\n"),
        (
            '[operations]\nurl = "http://127.0.0.1:0"',
            f"core-bridge: hub.toml: operations.url: {PORT_0}; give --operations\n",
        ),
        (
            '[operations]\nurl = "ftp://hub"',
            'hub.toml: operations.url: must be http://host:port; found "ftp://hub"\n1 problem\n',
        ),
    ],
)
def test_a_file_that_does_not_say_where_the_node_is(
    content: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("hub.toml").write_text(content)
    assert main(["pause", "b", "--settings", "hub.toml"]) == 2
    assert capsys.readouterr() == ("", told)


def test_a_certificate_of_the_file_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("node.pem").write_text("no PEM")
    Path("node.key").write_text("no PEM")
    Path("hub.toml").write_text(
        '[acceptor]\nurl = "wss://127.0.0.1:7001"\ncertificate = "node.pem"\nkey = "node.key"\n'
    )
    assert main(["receive", "--address", "a", "--settings", "hub.toml"]) == 2
    assert "acceptor.certificate" in capsys.readouterr().err


def test_status_of_a_url_alone_would_be_of_two_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--url", "http://127.0.0.1:1"]) == 2
    assert "needs --operations or --settings, too" in capsys.readouterr().err


@pytest.mark.parametrize("command", TAKES)
def test_each_command_refuses_the_common_options_that_mean_nothing_for_it(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = [VERBS[command]] if command in VERBS else []
    full = " ".join([command, *verb])
    assert main([command, *verb, "--help"]) == 0
    shown = capsys.readouterr().out
    for option in options.OPTIONS:
        assert (f"\n  {option} " in shown) == (option in TAKES[command]), option
        if option not in TAKES[command]:
            assert main([command, *verb, option, "x"]) == 2
            said = capsys.readouterr()
            assert said.out == ""
            assert said.err.endswith(f"{full}: error: {option} means nothing for '{full}'\n")
