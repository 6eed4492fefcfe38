"""Commands that carry out a person's decision: what they say, whom they ask, how they end."""

from __future__ import annotations

import argparse
import io
import json
import sys

import pytest

from bridge.cli.decision import Decision, add_switches, carried_out
from bridge.cli.options import FILE, common_options
from bridge.settings import SettingsInvalid
from bridge.settings.problems import Problem


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(parents=[common_options(FILE)])
    add_switches(parser)
    return parser.parse_args(given)


class Typed(io.StringIO):
    """A terminal on which somebody types."""

    def isatty(self) -> bool:
        return True


def decide(*given: str) -> tuple[int, list[bool]]:
    """The exit code, and whether the work was done."""
    done: list[bool] = []
    code = carried_out(arguments(*given), lambda decision: done.append(decision.approve(["drops all of it"])))
    return code, done


def at_a_terminal(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.setattr(sys, "stdin", Typed(typed))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)


def test_in_a_script_it_says_what_it_does_and_does_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert decide() == (0, [True])
    assert capsys.readouterr().out == "drops all of it\ndone\n"


def test_a_dry_run_only_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert decide("--dry-run") == (0, [False])
    assert capsys.readouterr().out == "drops all of it\n"
    assert decide("--dry-run", "--yes") == (0, [False])


@pytest.mark.parametrize(("typed", "agreed"), [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)])
def test_on_a_terminal_it_asks(
    typed: str, agreed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_a_terminal(monkeypatch, typed)
    assert decide() == (0 if agreed else 1, [agreed])
    told = capsys.readouterr()
    assert "Do it? [y/N]" in told.err
    assert ("nothing was changed" in told.err) == (not agreed)


def test_yes_is_not_asked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    at_a_terminal(monkeypatch, "n\n")
    assert decide("--yes") == (0, [True])
    assert "Do it?" not in capsys.readouterr().err


@pytest.mark.parametrize("switch", ["--yes", "--dry-run"])
def test_json_is_one_object(switch: str, capsys: pytest.CaptureFixture[str]) -> None:
    decide("--format", "json", switch)
    expected = {"plan": ["drops all of it"], "done": switch == "--yes"}
    assert json.loads(capsys.readouterr().out) == expected


def test_settings_that_do_not_hold_are_2(capsys: pytest.CaptureFixture[str]) -> None:
    def work(_: Decision) -> None:
        raise SettingsInvalid([Problem("settings.toml", "node.name", "must not be empty", '""')])

    assert carried_out(arguments(), work) == 2
    assert "node.name" in capsys.readouterr().err
