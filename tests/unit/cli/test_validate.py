from __future__ import annotations

import json
from pathlib import Path

import pytest

from bridge.cli import main

VALID = """
[connectors.hub]
url = "ws://hub:61616"

[[bridges]]
name = "orders-to-hub"
queue-name = "orders"
static-connectors = ["hub"]

[[bridges]]
name = "copy"
queue-name = ["orders", 'payments']
forwarding-address = "copy.{address}"
static-connectors = ["journal"]
"""


def test_a_file_that_holds_is_ok_and_names_its_bridges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text(VALID)
    assert main(["validate"]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines() == [
        "settings.toml: ok",
        "orders-to-hub: journal:orders -> hub: exactly-once",
        "copy: journal:orders,payments -> journal: exactly-once",
    ]
    assert output.err == ""


def test_problems_go_to_stderr_with_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("edge.toml").write_text(VALID.replace("static", "sttic"))
    assert main(["validate", "--settings", "edge.toml"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    *problems, number = output.err.splitlines()
    assert number == "4 problems"
    assert problems[0] == (
        'edge.toml: bridges[0].sttic-connectors (orders-to-hub): unknown key; found ["hub"]; '
        "did you mean static-connectors?"
    )


def test_the_file_may_be_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.toml"
    path.write_text("")
    monkeypatch.setenv("CORE_BRIDGE_SETTINGS", str(path))
    assert main(["validate"]) == 0
    assert capsys.readouterr().out == f"{path}: ok\n"


def test_a_file_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["validate"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "settings.toml: must be a file that can be read; found no such file or directory",
        "1 problem",
    ]


def test_json_is_one_object_with_bridges_or_with_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("settings.toml").write_text(VALID)
    assert main(["validate", "--format", "json"]) == 0
    valid = capsys.readouterr()
    assert json.loads(valid.out) == {
        "file": "settings.toml",
        "ok": True,
        "problems": [],
        "bridges": [
            {"name": name, "source": source, "target": target, "guarantee": "exactly-once"}
            for name, source, target in (
                ("orders-to-hub", "journal:orders", "hub"),
                ("copy", "journal:orders,payments", "journal"),
            )
        ],
    }
    Path("edge.toml").write_text('[node]\nlog-level = "loud"\nnmae = "a"\n')
    assert main(["validate", "--format", "json", "--settings", "edge.toml"]) == 2
    wrong = capsys.readouterr()
    found = json.loads(wrong.out)
    assert (found["file"], found["ok"], found["bridges"]) == ("edge.toml", False, [])
    first, second = found["problems"]
    assert (first["key"], first["found"]) == ("node.log-level", '"loud"')
    assert (second["key"], second["rule"], second["suggestion"]) == ("node.nmae", "unknown key", "name")
    assert (valid.err, wrong.err) == ("", "")
    assert main(["validate", "--format", "json", "--settings", "gone.toml"]) == 2
    (missing,) = json.loads(capsys.readouterr().out)["problems"]
    assert (missing["file"], missing["key"]) == ("gone.toml", "")
