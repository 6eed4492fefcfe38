"""`core-bridge migrate`: where it writes, and its usage; what it writes is in `tests/unit/migrate`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.cli import main
from bridge.migrate.migration import BY_DEFAULT

BROKER = "<core><name>${name:node-1}</name><address-settings/></core>"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, which is the test's own and has a broker.xml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broker.xml").write_text(BROKER)
    return tmp_path


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def test_without_output_the_settings_are_on_stdout_and_all_else_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["migrate", "broker.xml", "--strict"]) == 3
    told = capsys.readouterr()
    assert 'name = "node-1"' in told.out
    assert told.err.splitlines() == [
        f"broker.xml:1: check: name: {BY_DEFAULT}; found name",
        "0 left, 1 to check, 0 without a meaning here",
    ]
    assert names() == ["broker.xml"]


def test_a_property_that_is_given_leaves_nothing_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["migrate", "broker.xml", "--strict", "--property", "name=a=b", "--property", "name=hub"]
    assert main(command) == 0
    assert 'name = "hub"' in capsys.readouterr().out


def test_a_file_is_written_whole_and_overwritten_only_when_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["migrate", "broker.xml", "--property", "name=one", "--output", "settings.toml"]
    assert main(command) == 0
    assert main(["validate"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "settings.toml: written; core-bridge validate names what is to be filled in",
        "settings.toml: ok",
    ]
    written = Path("settings.toml").read_bytes()
    assert main([*command, "--property", "name=two"]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == (
        "",
        "core-bridge: settings.toml: file exists; --overwrite overwrites it\n",
    )
    assert Path("settings.toml").read_bytes() == written
    assert main([*command, "--property", "name=two", "--overwrite"]) == 0
    assert b'"two"' in Path("settings.toml").read_bytes()
    assert names() == ["broker.xml", "settings.toml"]


def test_the_first_example_of_the_help_goes_on_to_validate(capsys: pytest.CaptureFixture[str]) -> None:
    """Though something is to be checked: `&&` of a shell goes on after 0 alone."""
    assert main(["migrate", "--help"]) == 0
    assert "--output settings.toml && core-bridge validate\n" in capsys.readouterr().out
    assert main(["migrate", "broker.xml", "--output", "settings.toml"]) == 0
    assert "1 to check" in capsys.readouterr().err
    assert main(["validate"]) == 0


def test_a_link_that_leads_nowhere_is_a_file_that_is_there(directory: Path) -> None:
    (directory / "settings.toml").symlink_to("elsewhere.toml")
    assert main(["migrate", "broker.xml", "--output", "settings.toml"]) == 2
    assert names() == ["broker.xml", "settings.toml"]


def test_a_place_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "broker.xml", "--output", "absent/settings.toml"]) == 2
    assert capsys.readouterr().err == "core-bridge: absent/settings.toml: no such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["broker.xml", "--property", "name"],
        ["broker.xml", "--property", "=value"],
        ["broker.xml", "--property", "a=\udcff"],
        ["broker.xml", "--settings", "settings.toml"],
        ["absent.xml"],
        ["."],
    ],
)
def test_wrong_usage_ends_with_2_and_writes_nothing(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err
    assert names() == ["broker.xml"]
