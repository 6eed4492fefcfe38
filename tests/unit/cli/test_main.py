"""`main`: what it imports, what it teaches, and how every ending becomes an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.cli import COMMANDS, main, options
from bridge.errors import AddressNotFound


def ends_with(monkeypatch: pytest.MonkeyPatch, ending: Callable[[], int]) -> None:
    """Make `status` end like that."""
    monkeypatch.setattr("bridge.cli.status._run", lambda _: ending())


def raising(error: BaseException) -> Callable[[], int]:
    def ending() -> int:
        raise error

    return ending


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_teaches_what_it_does_with_an_example_and_exit_codes(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: core-bridge {command}" in out
    assert "example" in out
    assert "exit codes:" in out
    if command not in ("cache", "cluster", "dead-letters", "journal"):  # their verbs have the options
        assert "default:" in out


def test_help_lists_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    indented = [line[4:] for line in lines if line.startswith("    ")]
    listed = [line.split()[0] for line in indented if line and line[0] != " "]  # else a long name's summary
    assert listed == list(COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["send"],
        ["send", "--address", "a", "--batch", "0"],
        ["send", "--address", "a", "--batch", "10001"],
        ["send", "--addr", "a"],
        ["receive", "--address", "a", "--count", "x"],
        ["receive", "--address", "a", "--timeout", "-1"],
        ["receive", "--address", "a", "--timeout", "nan"],
        ["status", "--format", "xml"],
        ["demo", "--source", "127.0.0.1:9092"],
        ["demo", "--cluster", "--kafka"],
        ["start"],
        ["cache", "resize", "a", "-1"],
        ["dead-letters"],
        ["dead-letters", "replay"],
        ["dead-letters", "replay", "x"],
        ["dead-letters", "replay", "7", "--all"],
        ["dead-letters", "replay", "7", "all"],
        ["positions", "a"],
        ["positions", "a", "--from", "7"],
        ["lanes", "a"],
        ["lanes", "a", "--set", "0"],
        ["forget"],
        ["forget", "--bridge", "a", "--queue", "b", "c"],
        ["forget", "--queue", "b"],
        ["forget", "--queue", "b", "c", "--address", "b"],
    ],
)
def test_wrong_usage_ends_with_2_and_says_why_on_stderr(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err


def test_a_foreseen_failure_is_one_line_with_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_with(monkeypatch, raising(AddressNotFound("no address orders")))
    assert main(["status"]) == 1
    assert capsys.readouterr().err == "core-bridge: ADDRESS_NOT_FOUND: no address orders\n"


def test_an_unforeseen_failure_is_one_line_unless_the_traceback_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_with(monkeypatch, raising(ZeroDivisionError("by\nzero")))
    assert main(["status"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "ZeroDivisionError: by zero" in err
    assert "CORE_BRIDGE_TRACEBACK=1" in err
    monkeypatch.setenv("CORE_BRIDGE_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        main(["status"])


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    ends_with(monkeypatch, raising(KeyboardInterrupt()))
    assert main(["status"]) == 130


def test_a_node_that_is_not_there_is_one_line_and_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--operations", "http://127.0.0.1:1"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("core-bridge: UNREACHABLE: GET http://127.0.0.1:1/v1/status")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "url",
    ["nonsense", "127.0.0.1:8161", "ftp://127.0.0.1", "http://", "kafka://a:1", "http://a:x", "http://["],
)
@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--operations", ["status"]),
        ("--operations", ["cache", "show", "a"]),
        ("--url", ["status", "--operations", "http://127.0.0.1:1"]),
        ("--url", ["send", "--address", "a", os.devnull]),
        ("--url", ["receive", "--address", "a"]),
    ],
)
def test_a_url_that_is_no_nodes_is_wrong_usage_in_one_line(
    option: str, command: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, option, url]) == 2
    told = capsys.readouterr()
    rule = "a node's URL is http, https, ws or wss, host and port"
    assert (told.out, told.err) == ("", f"core-bridge: {option}: {rule}; found {url}\n")


@pytest.mark.parametrize("command", [["status"], ["send", "--address", "a", os.devnull]])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--ca", "{gone}"], "--ca: must be a PEM file with certificates; found {gone}: No such file"),
        (["--ca", "{text}"], "--ca: must be a PEM file with certificates; found {text}: "),
        (
            ["--certificate", "{gone}"],
            "--certificate: must be PEM files of a certificate and its key; found {gone} and no --key: ",
        ),
        (
            ["--certificate", "{text}", "--key", "{gone}"],
            "--certificate: must be PEM files of a certificate and its key; found {text} and {gone}: ",
        ),
    ],
)
def test_a_file_that_is_no_pem_is_wrong_usage_in_one_line(
    command: list[str], options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"gone": str(tmp_path / "gone.pem"), "text": str(tmp_path / "text.pem")}
    (tmp_path / "text.pem").write_text("no PEM")
    assert main([*command, *(option.format(**places) for option in options)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"core-bridge: {told.format(**places)}")
    assert said.err.count("\n") == 1


@pytest.mark.processes
def test_whoever_closes_the_pipe_gets_no_complaint() -> None:
    script = (
        "import sys; from bridge.cli import main, status\n"
        "status._run = lambda _: [print('x' * 80) for _ in range(100_000)] and 0\n"
        "sys.exit(main(['status']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(10) == 141


@pytest.mark.processes
def test_the_parser_of_run_imports_no_client() -> None:
    script = (
        "import sys; from bridge.cli import build_parser\n"
        "build_parser('run').parse_args(['run'])\n"
        "import bridge.cli.run\n"
        "heavy = ('aiohttp', 'tenacity', 'asyncio', 'pydantic', 'bridge.cli.', 'bridge.client.')\n"
        "fine = ('bridge.cli.run', 'bridge.cli.options', 'bridge.client.exit_codes')\n"
        "found = [name for name in sys.modules if name.startswith(heavy) and name not in fine]\n"
        "sys.exit(', '.join(found) or 0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_common_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORE_BRIDGE_SETTINGS", "other.toml")
    monkeypatch.setenv("CORE_BRIDGE_TOKEN", "secret")
    found = options.common_options(options.AS_BOTH).parse_args([])
    assert (options.named_settings(found), found.token) == (Path("other.toml"), "secret")
    monkeypatch.delenv("CORE_BRIDGE_SETTINGS")
    monkeypatch.delenv("CORE_BRIDGE_TOKEN")
    found = options.common_options(options.AS_BOTH).parse_args([])
    assert (options.named_settings(found), found.token) == (None, "")
    assert options.settings_path(found) == Path("settings.toml")


def test_help_does_not_show_the_token(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORE_BRIDGE_TOKEN", "very-secret")
    assert main(["send", "--help"]) == 0
    assert "very-secret" not in capsys.readouterr().out
