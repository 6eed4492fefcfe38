"""A bridge that comes without a file has the rules of the file, and problems by the keys that were sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from bridge.settings import Settings, SettingsInvalid, load
from bridge.settings.one_bridge import with_bridge, without_bridge

FILE: Final = """
[connectors.hub]
url = "ws://hub:61616"
[[bridges]]
name = "first"
previous-name = "former"
queue-name = "orders"
static-connectors = ["hub"]
"""
KEYS: Final = {"queue-name": "stock", "static-connectors": ["hub"]}


@pytest.fixture
def settings(settings_file: Path) -> Settings:
    settings_file.write_text(FILE)
    return load(settings_file, {})


def test_it_is_added_replaced_and_taken_out(settings: Settings) -> None:
    one = with_bridge(settings, "put", KEYS)
    assert [bridge.name for bridge in one.bridges] == ["first", "put"]
    other = with_bridge(one, "put", KEYS | {"name": "put", "max-hops": 2})
    assert [bridge.max_hops for bridge in other.bridges] == [8, 2]
    assert without_bridge(other, "put") == settings


@pytest.mark.parametrize(
    ("name", "keys", "lines"),
    [
        ("put", {"max-hops": 0}, ["bridge put: max-hops: must be at least 1; found 0"]),
        ("put", {"max-hop": 2}, ["bridge put: max-hop: unknown key; found 2; did you mean max-hops?"]),
        ("put", {"name": "x"}, ['bridge put: name: must be the name that is called, "put"; found "x"']),
        ("put", {"queue-name": None}, [
            "bridge put: queue-name: must be text in quotes, or a list of texts; found nothing",
        ]),
        ("put", {"static-connectors": ["x"], "group-id": "g"}, [
            'bridge put: static-connectors[0]: must be the name of a connector; found "x"',
            'bridge put: group-id: needs a Kafka source; found "g"',
        ]),
        ("put", {"transformer-properties": {"password": [1]}}, [
            "bridge put: transformer-properties.password: must be text, a number, true or false; found ***",
        ]),
        ("former", {}, [
            ("bridge former: bridges[0].previous-name: must be a name that no bridge has any more; "
             'found "former"'),
        ]),
    ],
)  # fmt: skip
def test_its_problems(settings: Settings, name: str, keys: dict[str, Any], lines: list[str]) -> None:
    with pytest.raises(SettingsInvalid) as refused:
        with_bridge(settings, name, KEYS | keys)
    *found, number = refused.value.lines()
    assert found == lines
    assert number == f"{len(lines)} problem{'' if len(lines) == 1 else 's'}"
