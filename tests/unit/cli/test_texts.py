"""Texts that are not UTF-8, and consoles that cannot show a text, end in a line that names what is wrong."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.cli import COMMANDS, build_parser, main
from bridge.cli.line_ids import BadLine, duplicate_id
from bridge.cli.options import PATHS
from bridge.client.input_lines import Line

#: What the system makes of an argument with the byte 0xff.
BYTES = "a\udcffb"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["send", "--address", BYTES, "-"], "address: must be UTF-8; found a\\udcffb"),
        (["send", "--address", "a", "--token", BYTES, "-"], "token: must be UTF-8; found ***"),
        (
            ["send", "--address", "a", "--url", f"ws://{BYTES}:1"],
            "url: must be UTF-8; found ws://a\\udcffb:1",
        ),
        (["receive", "--address", "a", "--queue", BYTES], "queue: must be UTF-8; found a\\udcffb"),
        (["pause", BYTES], "bridge: must be UTF-8; found a\\udcffb"),
        (["cache", "show", BYTES], "address: must be UTF-8; found a\\udcffb"),
        (["forget", "--queue", "a", BYTES], "queue: must be UTF-8; found a\\udcffb"),
        (["filter", f"a = '{BYTES}'"], "condition: must be UTF-8; found a = 'a\\udcffb'"),
        (["cluster", "forget", BYTES], "node: must be UTF-8; found a\\udcffb"),
        (["audit", "--output", "d", "--source", "c", BYTES], "source: must be UTF-8; found a\\udcffb"),
    ],
)
def test_an_argument_that_is_not_utf8_is_wrong_usage_in_one_line(
    command: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 2
    assert capsys.readouterr() == ("", f"core-bridge: {told}\n")


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from actions(inner)


def test_every_argument_that_names_a_file_may_have_any_bytes() -> None:
    found = {
        action.dest
        for command in COMMANDS
        for action in actions(build_parser(command))
        if action.metavar in ("FILE", "PEM", "DIR", "REPORT") and action.type is not Path
    }
    assert found <= PATHS
    assert len(found) > 8


@pytest.mark.parametrize("url", [f"ws://{'a' * 64}:1", "http://a..b:1", "wss://hub.example", "wss://hub"])
def test_a_url_whose_host_is_no_name_or_that_has_no_port_is_wrong_usage(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["receive", "--address", "a", "--url", url]) == 2
    rule = "a node's URL is http, https, ws or wss, host and port"
    assert capsys.readouterr().err == f"core-bridge: --url: {rule}; found {url}\n"


def test_an_id_of_a_line_that_is_half_a_surrogate_pair_is_named_with_its_line() -> None:
    with pytest.raises(
        BadLine, match=r"^line 3: field 'id' must be text without half a surrogate pair; found '"
    ):
        duplicate_id(Line(3, rb'{"id": "\ud800"}'), "id")
    assert duplicate_id(Line(3, rb'{"id": "\ud83d\ude00"}'), "id") == "\U0001f600"


def on_an_ascii_console(monkeypatch: pytest.MonkeyPatch, *command: str) -> bytes:
    """What a command, which ends with 0, writes to a console that shows ASCII alone, as with LC_ALL=C."""
    shown = io.BytesIO()
    with monkeypatch.context() as patch, io.TextIOWrapper(shown, "ascii", "strict") as console:
        patch.setattr(sys, "stdout", console)
        assert main([*command]) == 0
        console.flush()
        return shown.getvalue()


def test_an_ascii_console_gets_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "\xe9\udcff.toml"
    Path(name).write_text('[node]\nname = "n"\n')
    assert on_an_ascii_console(monkeypatch, "validate", "--settings", name) == b"\\xe9\\udcff.toml: ok\n"


def test_migrated_settings_are_utf8_whatever_the_console_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("broker.xml").write_text('<core><bridges><bridge name="\xe9"/></bridges></core>', "utf-8")
    assert "\xe9" in on_an_ascii_console(monkeypatch, "migrate", "broker.xml").decode("utf-8")
