from __future__ import annotations

import re
from pathlib import Path

import pytest

from bridge.cli import main

SHIPPED = Path(__file__).parents[3] / "settings.toml"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which is the test's own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def test_it_writes_the_shipped_settings_which_hold_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    written = Path("settings.toml")
    assert written.read_bytes() == SHIPPED.read_bytes()
    assert written.stat().st_mode & 0o111 == 0
    assert re.fullmatch(r"settings\.toml: written; .+\n", capsys.readouterr().out)
    assert main(["validate"]) == 0


def test_the_file_may_have_another_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "node.toml"]) == 0
    assert main(["init", "--settings", "other.toml"]) == 0
    assert main(["validate", "--settings", "node.toml"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "node.toml: ok"
    assert names() == ["node.toml", "other.toml"]


def test_a_file_that_is_there_is_never_overwritten(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = directory / "settings.toml"
    mine.write_text("mine")
    assert main(["init"]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "core-bridge: settings.toml: file exists; init overwrites none\n")
    assert mine.read_text() == "mine"


def test_a_link_that_leads_nowhere_is_a_file_that_is_there(directory: Path) -> None:
    (directory / "settings.toml").symlink_to("elsewhere.toml")
    assert main(["init"]) == 2
    assert names() == ["settings.toml"]


def test_a_place_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "absent/settings.toml"]) == 2
    assert capsys.readouterr().err == "core-bridge: absent/settings.toml: no such file or directory\n"


def test_a_file_that_could_not_be_written_whole_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bridge.cli.init._write", full)
    assert main(["init"]) == 2
    assert names() == []
