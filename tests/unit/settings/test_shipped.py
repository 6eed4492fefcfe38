"""The shipped `settings.toml` and `docs/configuration.md` are held to the model."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bridge.settings import Settings, load
from bridge.settings.describe import markdown, sections
from bridge.settings.schema import keys, table_of

ROOT = Path(__file__).parents[3]
SHIPPED = ROOT / "settings.toml"
#: Keys that the file shows with an example where the default is empty.
EXAMPLES = {"token", "send", "queues", "static-connectors"}


@pytest.fixture(scope="module")
def uncommented() -> dict[str, Any]:
    """The shipped file with every key and example in force."""
    return tomllib.loads(re.sub(r"(?m)^#(?=[a-z\[])", "", SHIPPED.read_text()))


def tables(tree: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the file writes in each table of the model, by the table's header; several of a kind as one."""
    found = {}
    for section in sections():
        level: list[Any] = [tree]
        for step in section.key.split("."):
            inner = [item for item in level if step == "*" or step in item]
            level = [each for item in inner for each in (_items(item) if step == "*" else [item[step]])]
        found[section.header] = {key: value for item in level for key, value in item.items()}
    return found


def _items(many: Any) -> list[Any]:
    return list(many.values()) if isinstance(many, dict) else many


def test_it_works_as_shipped_without_any_variable() -> None:
    settings = load(SHIPPED, {})
    assert settings.acceptor is not None
    assert settings.acceptor.url == "ws://127.0.0.1:61616"
    assert settings.operations is not None
    assert settings.operations.url == "http://127.0.0.1:8161"
    assert [queue.name for queue in settings.addresses["orders"].queues] == ["billing"]


def test_it_explains_every_key(uncommented: dict[str, Any]) -> None:
    written = tables(uncommented)
    for section in sections():
        assert set(section.fields) <= set(written[section.header]), section.header


def test_what_it_shows_commented_out_is_the_default(uncommented: dict[str, Any]) -> None:
    written = tables(uncommented)
    compared = 0
    for section in sections():
        for key, field in section.fields.items():
            if field.is_required() or field.default is None or key in EXAMPLES:
                continue
            value, default = written[section.header][key], field.get_default(call_default_factory=True)
            assert (tuple(value) if isinstance(value, list) else value) == default, f"{section.header} {key}"
            compared += 1
    assert compared > 100


def test_it_holds_with_every_key_and_example_in_force(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(re.sub(r"(?m)^#(?=[a-z\[])", "", SHIPPED.read_text()))
    settings = load(path, {"HUB_TOKEN": "a", "ORDERS_TOKEN": "b"})
    assert [bridge.name for bridge in settings.bridges] == ["orders-to-hub"]


def test_the_page_is_what_the_model_says() -> None:
    page = ROOT / "docs" / "configuration.md"
    assert page.read_text() == markdown(), "python -m bridge.settings.describe > docs/configuration.md"


def test_every_key_is_described_in_a_sentence() -> None:
    for section in sections():
        for key, field in section.fields.items():
            assert (field.description or "").endswith("."), f"{section.header} {key}"
    assert all(
        (field.description or "").endswith(".") for field in keys(Settings).values() if table_of(field)[0]
    )


@pytest.mark.processes
def test_the_page_comes_out_of_the_command_line() -> None:
    command = [sys.executable, "-W", "error", "-m", "bridge.settings.describe"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout == markdown()
